"""Checks of exercise 02.1: the bytes of a KV cache."""

from __future__ import annotations

from math import isclose

from minipd.lab.hints import Answer, Check, Exercise, Hints

# A model with small, unlike numbers, so that each one left out or put in shows in the result.
SMALL = {
    "tokens": 7,
    "layers": 2,
    "query_heads": 6,
    "kv_heads": 3,
    "head_dim": 5,
    "bytes_per_value": 4,
}
BYTES = 1680
# Llama-3-8B, 1,000 tokens in a 16-bit type: 131,072 bytes per token.
REAL = {
    "tokens": 1000,
    "layers": 32,
    "query_heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
    "bytes_per_value": 2,
}
REAL_BYTES = 131_072_000


def _bytes(answer: Answer, **changed: int) -> float:
    return float(answer(**(SMALL | changed)))


def _grows_with(name: str) -> Check:
    says, hints = _MISSING[name]
    check_name = _NAMES[name]

    def holds(answer: Answer) -> bool:
        return isclose(_bytes(answer, **{name: 2 * SMALL[name]}), 2 * _bytes(answer))

    return Check(check_name, says, holds, hints)


_NAMES = {
    "tokens": "every_token",
    "layers": "every_layer",
    "kv_heads": "every_kv_head",
    "head_dim": "size_of_a_head",
    "bytes_per_value": "bytes_of_the_dtype",
}
_MISSING = {
    "tokens": (
        "Twice the tokens must take twice the bytes.",
        Hints(
            "For how many tokens is your result?",
            "The size of one token is the same for all; the question is about several.",
            "Multiply by tokens.",
        ),
    ),
    "layers": (
        "Twice the layers must take twice the bytes.",
        Hints(
            "How many note-pads does one conversation have?",
            "Every layer makes keys and values of its own, and looks only at those.",
            "Multiply by layers.",
        ),
    ),
    "kv_heads": (
        "Twice the KV heads must take twice the bytes.",
        Hints(
            "Which heads have keys and values of their own?",
            "Query heads share in groups; each group has one KV head, and each of those is kept.",
            "Multiply by kv_heads.",
        ),
    ),
    "head_dim": (
        "Heads of twice the size must take twice the bytes.",
        Hints(
            "What does the note of one head consist of?",
            "A key is a list of numbers, as long as the head is large.",
            "Multiply by head_dim.",
        ),
    ),
    "bytes_per_value": (
        "Numbers of twice the bytes must take twice the bytes in all.",
        Hints(
            "How many bytes has a number?",
            "That depends on the type in which the notes are kept: four bytes in float32, two in "
            "16-bit types, one in 8-bit types.",
            "Multiply by bytes_per_value, not by a number that you wrote yourself.",
        ),
    ),
}


def _ignores_query_heads(answer: Answer) -> bool:
    return isclose(_bytes(answer, query_heads=12), _bytes(answer))


KV_BYTES = Exercise(
    "02.1",
    "How many bytes do these notes take?",
    "kv_bytes",
    (
        Check(
            "not_query_heads",
            "With more query heads and the same KV heads, the notes must stay as large as before.",
            _ignores_query_heads,
            Hints(
                "Who is it that shares here?",
                "Queries are used once and never kept. Several query heads look at the notes of "
                "one KV head, so their number does not matter (the simulator's mistake).",
                "Use kv_heads alone: query_heads has no place in the product, and neither has "
                "query_heads // kv_heads.",
            ),
        ),
        _grows_with("tokens"),
        _grows_with("layers"),
        _grows_with("kv_heads"),
        _grows_with("head_dim"),
        _grows_with("bytes_per_value"),
        Check(
            "keys_and_values",
            "Exactly half of the bytes came out.",
            lambda answer: not isclose(_bytes(answer), BYTES / 2),
            Hints(
                "What stands in one line of the note-pad?",
                "A token that looks back compares its query with the keys, and then mixes the "
                "values: both are kept.",
                "Multiply by 2: once for keys, once for values.",
            ),
        ),
        Check(
            "bytes_not_megabytes",
            "The result must be in bytes, and it came out below one.",
            lambda answer: _bytes(answer) >= 1,
            Hints(
                "Say the unit of your result aloud.",
                "Megabytes are for people; a function that others build on returns plain bytes.",
                "Leave out the division.",
            ),
        ),
        Check(
            "bytes_of_a_real_model",
            f"For 1,000 tokens of Llama-3-8B in 16 bits it must be {REAL_BYTES:,} bytes.",
            lambda answer: isclose(float(answer(**REAL)), REAL_BYTES),
            Hints(
                "Divide the number that it must be by yours: how many times too small or too large "
                "is it? If it came out as 16,384,000, it is 8 times too small.",
                "Which argument is just as large as that factor? (A factor of 8 may also be bits "
                "for bytes.) One layer, one token, one KV head: a key and a value, each as many "
                "numbers as the head is large.",
                "A product of six numbers: 2 and five of the arguments.",
            ),
        ),
    ),
)
