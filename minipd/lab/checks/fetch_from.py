"""Checks of exercise 13.2: the shortest text whose keys and values are worth fetching."""

from __future__ import annotations

from math import inf, isclose, isinf, isnan

from minipd.lab.hints import Answer, Check, Exercise, Hints

# 8 Gb/s is 1e9 bytes/s: 1e5 bytes take 0.1 ms; a token is read in 0.5 ms. 0.4 ms saved for each.
CASE: dict[str, float] = {
    "latency_s": 0.04,
    "gigabits_per_s": 8.0,
    "kv_bytes_per_token": 1e5,
    "prefill_tokens_per_s": 2000.0,
}


def _made(answer: Answer, **changes: float) -> float:
    return float(answer(**(CASE | changes)))


def _number(answer: Answer) -> bool:
    return not isnan(_made(answer))


def _bytes(answer: Answer) -> bool:
    """With gigabytes taken for gigabits, or bits not divided, another length comes out."""
    as_bytes, as_bits = 0.04 / (0.5e-3 - 0.0125e-3), 0.04 / (0.5e-3 - 0.8e-3)
    made = _made(answer)
    slower = _made(answer, gigabits_per_s=2.0)  # 0.4 ms for each token: 0.1 ms saved
    wrong = isclose(made, as_bytes, rel_tol=1e-6) or isclose(made, as_bits, rel_tol=1e-6)
    return not (wrong or (isinf(made) and isinf(slower)))


def _latency(answer: Answer) -> bool:
    return _made(answer, latency_s=0.08) > _made(answer) > 0


def _never(answer: Answer) -> bool:
    return _made(answer, gigabits_per_s=1.0) == inf == _made(answer, prefill_tokens_per_s=1e4)


def _sooner(answer: Answer) -> bool:
    return _made(answer, prefill_tokens_per_s=4000.0) > _made(answer)


def _both_sides(answer: Answer) -> bool:
    """Fetching has its own seconds for each token, too."""
    made, free = _made(answer), 0.04 * 2000.0
    added = 0.04 / (0.5e-3 + 0.1e-3)
    return not (isclose(made, free) or isclose(made, added))


BROKEN_TOKENS = 0.002 / (1 / 1500 - 46_080 / 1.25e8)  # 6.7108


def _broken_length(answer: Answer) -> float:
    """`BROKEN_TOKENS`, if right."""
    slow = {"latency_s": 0.002, "gigabits_per_s": 1.0, "kv_bytes_per_token": 46_080.0}
    return _made(answer, prefill_tokens_per_s=1500.0, **slow)


def _not_rounded(answer: Answer) -> bool:
    """Whoever is near and not there has rounded."""
    made = _broken_length(answer)
    return abs(made - BROKEN_TOKENS) > 1.0 or isclose(made, BROKEN_TOKENS, rel_tol=1e-9)


def _value(answer: Answer) -> bool:
    right = isclose(_broken_length(answer), BROKEN_TOKENS, rel_tol=1e-9)
    return right and isclose(_made(answer), 100.0)


FETCH_FROM = Exercise(
    "13.2",
    "From which length is it worth fetching?",
    "fetch_from",
    (
        Check(
            "a_number",
            "One number was asked for.",
            _number,
            Hints(
                "What does your function return?",
                "A length in tokens, or infinity.",
                "return latency_s / seconds_saved_per_token",
            ),
        ),
        Check(
            "bits_are_not_bytes",
            "The data sheet counts bits, the KV cache bytes.",
            _bytes,
            Hints(
                "How many bytes per second are 8 gigabits per second?",
                "Eight bits are a byte, and giga is a factor of 1e9.",
                "bytes_per_s = gigabits_per_s * 1e9 / 8",
            ),
        ),
        Check(
            "fetching_takes_time_too",
            "Both ways cost something for each token; what counts is the difference.",
            _both_sides,
            Hints(
                "What does a token cost on each of the two ways?",
                "Fetching spares the reading of a token and costs its trip.",
                "saved = 1 / prefill_tokens_per_s - kv_bytes_per_token / bytes_per_s",
            ),
        ),
        Check(
            "latency_must_be_earned",
            "Twice the latency must be earned by a longer text.",
            _latency,
            Hints(
                "What does even the shortest fetch cost?",
                "The latency is paid once; each token saves a little of it.",
                "Divide the latency by what one token saves.",
            ),
        ),
        Check(
            "never_is_infinite",
            "On a link that carries a token no faster than it is read, no length pays.",
            _never,
            Hints(
                "What if each further token makes it worse?",
                "Then nothing is ever earned: a negative length is no answer.",
                "return math.inf unless the seconds saved for each token are above 0",
            ),
        ),
        Check(
            "fast_readers_need_longer",
            "For a machine that reads faster, fetching pays later, not sooner.",
            _sooner,
            Hints(
                "Which of the two gets quicker when the machine reads faster?",
                "Reading again gets cheaper, so there is less to save.",
                "The seconds of reading a token are 1 / prefill_tokens_per_s.",
            ),
        ),
        Check(
            "not_rounded",
            "0.002 s of latency, 46,080 bytes for each token, 1 Gb/s and 1,500 tokens/s make "
            "6.7108 tokens; a rounded length was returned.",
            _not_rounded,
            Hints(
                "Must both ways take equally long at a whole number of tokens?",
                "The length at which two lines meet is wherever they meet.",
                "Leave out round, ceil, int and //.",
            ),
        ),
        Check(
            "length",
            "0.04 s of latency and 0.4 ms saved for each token make 100 tokens.",
            _value,
            Hints(
                "Work the example out by hand.",
                "A token is read in 0.5 ms and fetched in 0.1 ms.",
                "latency_s / (1 / prefill_tokens_per_s - kv_bytes_per_token / bytes_per_s)",
            ),
        ),
    ),
)
