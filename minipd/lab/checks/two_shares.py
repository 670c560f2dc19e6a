"""Checks of exercise 03.2: MFU and MBU of one timed pass."""

from __future__ import annotations

from math import isclose

from minipd.lab.hints import Answer, Check, Exercise, Hints

# 70 parameters, 20 of them the table: 50 weights of 4 bytes. Six tokens in 2 s are 300 FLOP/s and
# 100 bytes/s; the ceilings are 1,000 FLOP/s and 250 bytes/s.
CEILINGS = {"flops_per_s": 1000.0, "bytes_per_s": 250.0}
MILLISECONDS, MFU, MBU = 2000.0, 0.3, 0.4


def _shares(
    answer: Answer, tokens: int = 6, bytes_per_value: int = 4, table: int = 20
) -> tuple[float, float]:
    made = answer(50 + table, table, bytes_per_value, tokens, MILLISECONDS, **CEILINGS)
    return float(made[0]), float(made[1])


def _mfu(answer: Answer) -> float:
    return _shares(answer)[0]


def _mbu(answer: Answer) -> float:
    return _shares(answer)[1]


def _returns_two_numbers(answer: Answer) -> bool:
    made = answer(70, 20, 4, 6, MILLISECONDS, **CEILINGS)
    return isinstance(made, tuple) and [isinstance(x, (int, float)) for x in made] == [True] * 2  # pyright: ignore[reportUnknownVariableType]


def _mfu_comes_first(answer: Answer) -> bool:
    """Only MFU follows the number of tokens."""
    few, many = _shares(answer, 6), _shares(answer, 12)
    return not (isclose(few[0], many[0]) and isclose(2 * few[1], many[1]))


def _ceilings_fit(answer: Answer) -> bool:
    """A machine that multiplies twice as fast has half the MFU, and the same MBU."""
    ceilings = CEILINGS | {"flops_per_s": 2000.0}
    faster = answer(70, 20, 4, 6, MILLISECONDS, **ceilings)
    return isclose(float(faster[0]), _mfu(answer) / 2) and isclose(float(faster[1]), _mbu(answer))


def _table_does_not_count(answer: Answer) -> bool:
    small, large = _shares(answer, table=0), _shares(answer, table=30)
    return isclose(small[0], large[0]) and isclose(small[1], large[1])


def _tokens_count(answer: Answer) -> bool:
    return isclose(_shares(answer, 12)[0], 2 * _mfu(answer))


def _bytes_are_of_a_pass(answer: Answer) -> bool:
    return isclose(_shares(answer, 12)[1], _mbu(answer))


def _bytes_count(answer: Answer) -> bool:
    half = _shares(answer, bytes_per_value=2)
    return isclose(half[1], _mbu(answer) / 2) and isclose(half[0], _mfu(answer))


def _shares_are_no_percent(answer: Answer) -> bool:
    return not (isclose(_mfu(answer), 100 * MFU) or isclose(_mbu(answer), 100 * MBU))


TWO_SHARES = Exercise(
    "03.2",
    "Two shares from one stopwatch",
    "two_shares",
    (
        Check(
            "two_numbers",
            "two_shares must return a pair of numbers (MFU, MBU).",
            _returns_two_numbers,
            Hints(
                "Look at the last line of your function.",
                "A function gives back two values by returning a tuple.",
                "End with: return mfu, mbu",
            ),
        ),
        Check(
            "mfu_first",
            "Twice the tokens in the same time changed the second number: that one is the MFU.",
            _mfu_comes_first,
            Hints(
                "Both numbers are there. In which order?",
                "Whoever calls your function unpacks it as: mfu, mbu = two_shares(...).",
                "End with: return mfu, mbu",
            ),
        ),
        Check(
            "own_ceiling",
            "A machine that multiplies twice as fast has half the MFU and the same MBU.",
            _ceilings_fit,
            Hints(
                "Which ceiling belongs to which share?",
                "Operations per second are compared with the arithmetic ceiling, bytes per second "
                "with the reading ceiling.",
                "Divide FLOP/s by flops_per_s, and bytes/s by bytes_per_s.",
            ),
        ),
        Check(
            "table_left_out",
            "The size of the embedding table must change neither share.",
            _table_does_not_count,
            Hints(
                "Does every parameter take part in a pass?",
                "From the embedding only one row for each token is looked up; nothing is "
                "multiplied with the table, and nearly nothing of it is read.",
                "Use parameters - table_parameters in both counts.",
            ),
        ),
        Check(
            "milliseconds",
            "The shares came out a thousand times too small: look at the unit of time.",
            lambda answer: not isclose(_mfu(answer), MFU / 1000),
            Hints(
                "What is the unit of the time that you were given?",
                "The ceilings are per second, so the time must be in seconds, too.",
                "seconds = milliseconds / 1000",
            ),
        ),
        Check(
            "shares_not_percent",
            "A share came out a hundred times too large.",
            _shares_are_no_percent,
            Hints(
                "Is that a share or a percentage?",
                "A share of a half is 0.5; only on the screen it is written as 50 %.",
                "Leave out the multiplication by 100.",
            ),
        ),
        Check(
            "arithmetic_for_each_token",
            "Twice the tokens in the same time must double the MFU.",
            _tokens_count,
            Hints(
                "Who multiplies for the other tokens?",
                "The weights are fetched once for all, but each token is multiplied with them.",
                "flops = 2 * weights * tokens",
            ),
        ),
        Check(
            "bytes_per_pass",
            "Twice the tokens in the same time must leave the MBU as it is.",
            _bytes_are_of_a_pass,
            Hints(
                "What is read for all the tokens of a pass together?",
                "A pass fetches each weight once. Its bytes belong to the pass, not to a token.",
                "bytes = weights * bytes_per_value, without tokens.",
            ),
        ),
        Check(
            "bytes_of_a_weight",
            "Weights of half as many bytes, read in the same time, must halve the MBU alone.",
            _bytes_count,
            Hints(
                "Your MBU does not follow the size of a weight.",
                "The ceiling is in bytes per second, so count bytes and not weights.",
                "bytes = weights * bytes_per_value",
            ),
        ),
        Check(
            "two_operations_per_weight",
            "The MFU came out half as large as it is.",
            lambda answer: not isclose(_mfu(answer), MFU / 2),
            Hints(
                "What happens with a weight once it has been read?",
                "It is multiplied by a number of the token, and the product is added to a sum.",
                "flops = 2 * weights * tokens",
            ),
        ),
        Check(
            "shares",
            "50 weights of 4 bytes, 6 tokens in 2 s: 300 of 1,000 FLOP/s, 100 of 250 bytes/s.",
            lambda answer: isclose(_mfu(answer), MFU) and isclose(_mbu(answer), MBU),
            Hints(
                "Work the example out by hand first.",
                "Operations and bytes of the pass, each over the seconds, each over its ceiling.",
                "For MFU divide 2 * weights * tokens by the seconds and by flops_per_s; for MBU "
                "weights * bytes_per_value by the seconds and by bytes_per_s.",
            ),
        ),
    ),
)
