"""Checks of exercise 03.1: the arithmetic intensity of a pass, and which ceiling limits it."""

from __future__ import annotations

from math import isclose

from minipd.lab.hints import Answer, Check, Exercise, Hints

# A model of 50 weights. With 4 bytes, 6 tokens: 600 operations over 200 bytes are 3 per byte.
WEIGHTS, BYTES, TOKENS, INTENSITY = 50, 4, 6, 3.0
FAR = 1000.0  # a corner that none of these passes reaches


def _intensity(
    answer: Answer, tokens: int = TOKENS, bytes_per_value: int = BYTES, weights: int = WEIGHTS
) -> float:
    return float(answer(weights, bytes_per_value, tokens, FAR)[0])


def _limit(answer: Answer, tokens: int, corner: float) -> str:
    return str(answer(WEIGHTS, BYTES, tokens, corner)[1])


def _intensity_comes_first(answer: Answer) -> bool:
    made = answer(WEIGHTS, BYTES, TOKENS, FAR)
    return not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], str))  # pyright: ignore[reportUnknownArgumentType]


def _returns_intensity_and_limit(answer: Answer) -> bool:
    made = answer(WEIGHTS, BYTES, TOKENS, FAR)
    return isinstance(made, tuple) and len(made) == 2 and made[1] in ("memory", "arithmetic")  # pyright: ignore[reportUnknownArgumentType]


def _is_no_inverse(answer: Answer) -> bool:
    return not isclose(_intensity(answer), 1 / INTENSITY)


def _size_cancels(answer: Answer) -> bool:
    return isclose(_intensity(answer), _intensity(answer, weights=2 * WEIGHTS))


def _tokens_count(answer: Answer) -> bool:
    return isclose(_intensity(answer, 2 * TOKENS), 2 * _intensity(answer))


def _bytes_count(answer: Answer) -> bool:
    return isclose(_intensity(answer, bytes_per_value=2), 2 * _intensity(answer))


def _names_the_limit(answer: Answer) -> bool:
    below, above = _limit(answer, TOKENS, 3.5), _limit(answer, TOKENS, 2.5)
    one_token = answer(WEIGHTS, 1, 1, 1.5)[1]  # 2 operations per byte
    return (below, above, one_token) == ("memory", "arithmetic", "arithmetic")


SIDE_OF_THE_CORNER = Exercise(
    "03.1",
    "Which side of the corner?",
    "side_of_the_corner",
    (
        Check(
            "intensity_first",
            "The pair came back the other way round: the limit first.",
            _intensity_comes_first,
            Hints(
                "Both are there. In which order?",
                "Whoever calls your function unpacks it as: intensity, limit = ...",
                "End with: return intensity, limit",
            ),
        ),
        Check(
            "intensity_and_limit",
            'Return (intensity, "memory") or (intensity, "arithmetic"), so spelt.',
            _returns_intensity_and_limit,
            Hints(
                "Look at the last line of your function.",
                "It must give back two things: a number, and one of the two words of the task.",
                'End with: return intensity, "memory" or return intensity, "arithmetic"',
            ),
        ),
        Check(
            "operations_over_bytes",
            "More tokens must mean more operations with each byte; yours came out inverted.",
            _is_no_inverse,
            Hints(
                "Say the unit of your number aloud.",
                "Operations for each byte: what stands behind the word each goes below.",
                "Divide the operations by the bytes, not the bytes by the operations.",
            ),
        ),
        Check(
            "size_cancels",
            "A model of twice the size must have the same intensity.",
            _size_cancels,
            Hints(
                "What happens to your number when all weights are doubled?",
                "A larger model does more operations and reads more bytes, in the same proportion.",
                "Divide the operations by weights * bytes_per_value.",
            ),
        ),
        Check(
            "weights_read_once",
            "Twice the tokens in one pass must mean twice the operations with each byte.",
            _tokens_count,
            Hints(
                "How often does one pass fetch the weights?",
                "Once, however many tokens go through together; that is what makes prefill cheap.",
                "bytes read = weights * bytes_per_value, without tokens.",
            ),
        ),
        Check(
            "bytes_of_a_weight",
            "Weights of half as many bytes must mean twice the operations with each byte.",
            _bytes_count,
            Hints(
                "Your intensity does not follow the size of a weight as it should.",
                "Smaller weights: the same operations, fewer bytes to read.",
                "bytes read = weights * bytes_per_value",
            ),
        ),
        Check(
            "two_operations_per_weight",
            "The intensity came out half as high as it is.",
            lambda answer: not isclose(_intensity(answer), INTENSITY / 2),
            Hints(
                "What happens with a weight and a number of a token?",
                "They are multiplied, and the product is added to a sum: that makes two.",
                "operations = 2 * weights * tokens",
            ),
        ),
        Check(
            "intensity",
            "50 weights of 4 bytes and 6 tokens: 600 operations, 200 bytes, 3 FLOP per byte.",
            lambda answer: isclose(_intensity(answer), INTENSITY),
            Hints(
                "Work the example out by hand first.",
                "Count the operations of all tokens, and the bytes of the weights, once.",
                "Divide 2 * weights * tokens by weights * bytes_per_value.",
            ),
        ),
        Check(
            "names_the_limit",
            "3 FLOP per byte: memory limits where the corner is at 3.5, arithmetic at 2.5.",
            _names_the_limit,
            Hints(
                "On which side of the corner does the pass lie?",
                "Few operations with each byte, left of the corner: it waits for memory. It does "
                "not matter whether the pass reads or writes.",
                "Compare the intensity with corner: below it, memory; otherwise arithmetic.",
            ),
        ),
        Check(
            "at_the_corner",
            'Exactly at the corner the task asks for "arithmetic".',
            lambda answer: _limit(answer, TOKENS, INTENSITY) == "arithmetic",
            Hints(
                "Try a pass that lies exactly at the corner.",
                "There both ceilings are met at once, and the task says which one to name.",
                "Use >= and not > (or < and not <=).",
            ),
        ),
    ),
)
