"""Checks of exercise 10.3: which pool a request keeps busy, counted in seconds."""

from __future__ import annotations

from math import isclose

from minipd.lab.hints import Answer, Check, Exercise, Hints

# 1,000 tokens at 1,000 tokens/s are read in 1 s; 11 tokens, 10 steps of 0.1 s shared by 10: 0.1 s.
AGENT = {
    "prompt_tokens": 1000,
    "cached_share": 0.0,
    "output_tokens": 11,
    "prefill_tok_s": 1000.0,
    "together": 10,
    "step_s": 0.1,
}


def _made(answer: Answer, **changes: float) -> tuple[str, float]:
    pool, ratio = answer(**(AGENT | changes))
    return str(pool), float(ratio)


def _ratio(answer: Answer, **changes: float) -> float:
    return _made(answer, **changes)[1]


def _seconds(answer: Answer) -> bool:
    """A faster reader must change the ratio."""
    half = _ratio(answer, cached_share=0.5)
    return not isclose(half, _ratio(answer, cached_share=0.5, prefill_tok_s=2000.0))


def _cache_counts(answer: Answer) -> bool:
    return not isclose(_ratio(answer), _ratio(answer, cached_share=0.5))


def _right_way(answer: Answer) -> bool:
    """More in the cache, less to read; which way the ratio goes depends on the pool's name."""
    little, much = _made(answer, cached_share=0.05), _made(answer, cached_share=0.95)
    return (little[0], much[0]) != ("decode", "prefill") or little[1] > much[1]


def _shared(answer: Answer) -> bool:
    return not isclose(_ratio(answer), _ratio(answer, together=20))


def _up(answer: Answer) -> bool:
    return not isclose(_ratio(answer), 0.1)


def _first(answer: Answer) -> bool:
    return not isclose(_ratio(answer), 1.0 / 0.11)


def _names(answer: Answer) -> bool:
    long_answer = _made(answer, output_tokens=2001)[0]
    return (_made(answer)[0], long_answer) == ("prefill", "decode")


def _value(answer: Answer) -> bool:
    cached = _ratio(answer, cached_share=0.9, output_tokens=101)
    return isclose(_ratio(answer), 10.0) and isclose(cached, 0.1)


BUSIER_POOL = Exercise(
    "10.3",
    "Which pool do agents load?",
    "busier_pool",
    (
        Check(
            "seconds_not_tokens",
            "A prefill worker that reads twice as fast changed nothing in your answer.",
            _seconds,
            Hints(
                "What do you pay a worker for?",
                "A token that is read and one that is written take unlike times.",
                "Turn both into seconds of one worker before you compare.",
            ),
        ),
        Check(
            "cache_spares_reading",
            "With half the prompt in the cache your ratio is the same as with nothing in it.",
            _cache_counts,
            Hints(
                "What does a prefill worker do with tokens whose KV is there already?",
                "Only what is not in the cache is read.",
                "Multiply the prompt by the share that is not cached.",
            ),
        ),
        Check(
            "cache_the_right_way",
            "The more stands in the cache, the more you have prefill read.",
            _right_way,
            Hints(
                "Try a share of 0 and a share of almost 1.",
                "The share tells what is spared, not what is left to do.",
                "What is left is 1 - cached_share.",
            ),
        ),
        Check(
            "step_is_shared",
            "Twice as many answers in a step should halve what one of them costs.",
            _shared,
            Hints(
                "Who else is served by the same step?",
                "A decode worker's step writes a token for each of its answers.",
                "Divide the time of the steps by `together`.",
            ),
        ),
        Check(
            "readers_for_each_writer",
            "The second number counts decode workers for each prefill worker; it was asked the "
            "other way round.",
            _up,
            Hints(
                "Reading takes ten times as long here. Which pool should be the larger one?",
                "P:D is prefill workers for each decode worker.",
                "Divide the seconds of reading by the seconds of writing.",
            ),
        ),
        Check(
            "first_token_is_prefills",
            "Decode writes one token fewer than the answer has.",
            _first,
            Hints(
                "Which pool gives the first token?",
                "Prefill yields it, so decode owes the rest.",
                "Use output_tokens - 1.",
            ),
        ),
        Check(
            "names_the_busier",
            "Long reading must name prefill, long writing decode.",
            _names,
            Hints(
                "Are the two names the right way round?",
                "The busier pool is the one with more seconds for the same request.",
                "Choose the name with the same comparison of seconds.",
            ),
        ),
        Check(
            "ratio",
            "1 s of reading and 0.1 s of writing make a ratio of 10.",
            _value,
            Hints(
                "Work the example out by hand.",
                "Ten steps of 0.1 s are shared by ten answers: 0.1 s for each.",
                "Seconds of reading over seconds of writing.",
            ),
        ),
    ),
)
