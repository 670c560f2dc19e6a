"""Checks of exercise 08.2: the prompt length from which a remote prefill pays."""

from __future__ import annotations

from math import isclose, isinf

from minipd.lab.hints import Answer, Check, Exercise, Hints

# 2 x 5 layers x 2 KV heads x 5 numbers x 2 bytes = 200 bytes per token (MHA: 800); 1 Gb/s is
# 125e6 bytes/s, so a token travels 1.6 us and is read in 10 us. Two chats: 20 us a token.
GIVEN = {
    "layers": 5,
    "query_heads": 8,
    "kv_heads": 2,
    "head_size": 5,
    "bytes_per_value": 2,
    "gigabits_per_s": 1.0,
    "latency_s": 0.004,
    "prefill_tokens_per_s": 1e5,
    "step_s": 0.01,
    "chats": 2,
}
READ_S, FIXED_S = 1e-5, 0.024
GAIN = 2 * READ_S


def _at(gain_per_token: float, fixed_s: float = FIXED_S) -> float:
    return fixed_s / gain_per_token


RIGHT = _at(GAIN - 1.6e-6)


def _made(answer: Answer, **changed: float) -> float:
    return float(answer(**(GIVEN | changed)))


def _is_not(answer: Answer, *values: float) -> bool:
    made = _made(answer)
    return not any(isclose(made, value, rel_tol=1e-6) for value in values)


def _near(answer: Answer, value: float, **changed: float) -> bool:
    return isclose(_made(answer, **changed), value, rel_tol=0.01, abs_tol=1.0)


def _never(answer: Answer) -> bool:
    """10 Mb/s: a token travels 160 us, longer than both chats together would stall for it."""
    return isinf(_made(answer, gigabits_per_s=0.01)) and _made(answer, gigabits_per_s=0.01) > 0


REMOTE_PAYS = Exercise(
    "08.2",
    "From which length does remote pay?",
    "break_even",
    (
        Check(
            "one_number",
            "break_even must return one number of tokens.",
            lambda answer: isinstance(answer(**GIVEN), (int, float)),
            Hints(
                "Look at the last line of your function.",
                "The task asks for a length: a single number, or math.inf.",
                "End with: return tokens",
            ),
        ),
        Check(
            "kv_heads_not_query_heads",
            "Too many bytes: that is the KV of a model in which every query head has its own.",
            lambda answer: _is_not(answer, _at(GAIN - 6.4e-6)),
            Hints(
                "How many keys does this model keep for a token, in one layer?",
                "With GQA several query heads share one KV head, and only KV heads are kept.",
                "kv_bytes = 2 * layers * kv_heads * head_size * bytes_per_value",
            ),
        ),
        Check(
            "keys_and_values",
            "Half of the bytes are missing: keys and values both travel.",
            lambda answer: _is_not(answer, _at(GAIN - 0.8e-6)),
            Hints(
                "What is kept for each token: one thing or two?",
                "Lesson 02: a key and a value, in every layer.",
                "kv_bytes = 2 * layers * kv_heads * head_size * bytes_per_value",
            ),
        ),
        Check(
            "bits_not_bytes",
            "Your link is eight times too fast: gigabits were taken for gigabytes.",
            lambda answer: _is_not(answer, _at(GAIN - 0.2e-6)),
            Hints(
                "What does the data sheet count, and what did you count?",
                "A byte has 8 bits: a link of 8 gigabits per second moves 1 gigabyte.",
                "bytes_per_s = gigabits_per_s * 1e9 / 8",
            ),
        ),
        Check(
            "giga_is_a_thousand_million",
            "Your link is 7 % too fast: giga is a thousand million here, not 2 to the 30th.",
            lambda answer: _is_not(answer, _at(GAIN - 1600 / 2**30)),
            Hints(
                "Which giga do network people use?",
                "GB and Gb are decimal; GiB, with 1024 for a thousand, is for memory.",
                "bytes_per_s = gigabits_per_s * 1e9 / 8",
            ),
        ),
        Check(
            "all_chats_count",
            "Two chats are running, and only one of them was spared anything.",
            lambda answer: _is_not(answer, _at(READ_S - 1.6e-6, 0.014)),
            Hints(
                "Who stands still while the decode worker reads?",
                "The stall is summed over all running chats.",
                "spared = chats * (tokens / prefill_tokens_per_s - step_s)",
            ),
        ),
        Check(
            "each_chat_gets_its_step",
            "The step that reads also gives each chat a token: take one step off each stall.",
            lambda answer: _is_not(answer, _at(GAIN - 1.6e-6, 0.004), _at(GAIN - 1.6e-6, 0.014)),
            Hints(
                "How long would a chat have waited for its next token anyway?",
                "Each chat loses the reading time less one step, and there are several chats.",
                "spared = chats * (tokens / prefill_tokens_per_s - step_s)",
            ),
        ),
        Check(
            "latency_counted",
            "The latency of the link is missing.",
            lambda answer: _is_not(answer, _at(GAIN - 1.6e-6, 0.02)),
            Hints(
                "What does a transfer cost that has hardly any bytes?",
                "time = latency + bytes / bandwidth",
                "added = latency_s + tokens * kv_bytes / bytes_per_s",
            ),
        ),
        Check(
            "trip_counted",
            "Your answer does not depend on the bytes that travel.",
            lambda answer: _is_not(answer, _at(GAIN)),
            Hints(
                "What would change on a slower link?",
                "Every token that is read elsewhere adds its trip to the new reader's wait.",
                "Set added equal to spared, and solve for the tokens.",
            ),
        ),
        Check(
            "never_is_infinite",
            "On a slow enough link remote never pays; the answer must be math.inf.",
            _never,
            Hints(
                "Try a link of 10 megabits per second: what does your formula say?",
                "If a token travels longer than all chats stall for it, longer prompts only lose.",
                "if chats / prefill_tokens_per_s <= trip_per_token: return math.inf",
            ),
        ),
        Check(
            "length",
            "200 bytes per token, 1 Gb/s, 100,000 tokens/s, 2 chats: 1,304 tokens.",
            lambda answer: _near(answer, RIGHT),
            Hints(
                "Put the numbers into both sides by hand, for 1,000 tokens.",
                "added: 4 ms + 1.6 ms; spared: 2 * (10 ms - 10 ms). Where are the two equal?",
                "tokens = (latency + chats * step) / (chats / speed - trip of one token)",
            ),
        ),
        Check(
            "other_numbers",
            "With 4 chats and a link of 10 Gb/s the length must be 1,104 tokens.",
            lambda answer: _near(answer, 0.044 / (4e-5 - 1.6e-7), chats=4, gigabits_per_s=10.0),
            Hints(
                "Does every argument of your function matter?",
                "More chats are spared more, and a faster link adds less.",
                "tokens = (latency + chats * step) / (chats / speed - trip of one token)",
            ),
        ),
    ),
)
