"""Checks of exercise 00.1: an honest rate from raw samples."""

from __future__ import annotations

from math import isclose

from minipd.lab.hints import Answer, Check, Exercise, Hints

# Four runs: the first is a slow warm-up; runs differ in length, so averages of rates mislead.
TOKENS = [10, 10, 10, 40]
SECONDS = [9.0, 1.0, 2.0, 2.0]
RATE, SPREAD = 12.0, 1.5  # tokens per second; (20 - 5) / 10


def _rate(answer: Answer, tokens: list[int], seconds: list[float]) -> float:
    return float(answer(list(tokens), list(seconds))[0])


def _spread(answer: Answer, tokens: list[int], seconds: list[float]) -> float:
    return float(answer(list(tokens), list(seconds))[1])


def _returns_two_numbers(answer: Answer) -> bool:
    made = answer(list(TOKENS), list(SECONDS))
    return isinstance(made, tuple) and [isinstance(x, (int, float)) for x in made] == [True] * 2  # pyright: ignore[reportUnknownVariableType]


def _is_not_inverted(answer: Answer) -> bool:
    return _rate(answer, [8, 8, 8], [4.0, 4.0, 4.0]) >= 1.0


def _leaves_out_the_warm_up(answer: Answer) -> bool:
    slow, fast = _rate(answer, [8] * 3, [64.0, 4.0, 4.0]), _rate(answer, [8] * 3, [1.0, 4.0, 4.0])
    return isclose(slow, fast)


def _is_not_a_mean_of_rates(answer: Answer) -> bool:
    return not isclose(_rate(answer, TOKENS, SECONDS), (10 + 5 + 20) / 3)


def _rate_is_right(answer: Answer) -> bool:
    return isclose(_rate(answer, TOKENS, SECONDS), RATE)


def _spread_has_no_unit(answer: Answer) -> bool:
    slow = _spread(answer, [8, 8, 8, 8], [9.0, 1.0, 2.0, 4.0])
    fast = _spread(answer, [80, 80, 80, 80], [9.0, 1.0, 2.0, 4.0])
    return isclose(slow, fast)


def _spread_is_right(answer: Answer) -> bool:
    return isclose(_spread(answer, TOKENS, SECONDS), SPREAD)


def _leaves_its_inputs_alone(answer: Answer) -> bool:
    tokens, seconds = list(TOKENS), list(SECONDS)
    answer(tokens, seconds)
    return tokens == TOKENS and seconds == SECONDS


HONEST_RATE = Exercise(
    "00.1",
    "An honest rate from raw samples",
    "honest_rate",
    (
        Check(
            "two_numbers",
            "honest_rate must return a pair of numbers (rate, spread).",
            _returns_two_numbers,
            Hints(
                "Look at the last line of your function.",
                "A function gives back two values by returning a tuple.",
                "End with: return rate, spread",
            ),
        ),
        Check(
            "not_inverted",
            "8 tokens every 4 seconds must not come out below 1 token per second.",
            _is_not_inverted,
            Hints(
                "Say the unit aloud: which of the two numbers goes on top?",
                "Tokens per second grows when the same tokens take less time.",
                "The rate is tokens divided by seconds, not seconds divided by tokens.",
            ),
        ),
        Check(
            "warm_up_left_out",
            "The rate must not depend on how long the first run took.",
            _leaves_out_the_warm_up,
            Hints(
                "One of the runs is not like the others.",
                "The first run pays for what happens only once, so it is run but not counted.",
                "Use tokens[1:] and seconds[1:] everywhere.",
            ),
        ),
        Check(
            "not_mean_of_rates",
            "For runs of different lengths the rate came out as the mean of the runs' rates.",
            _is_not_a_mean_of_rates,
            Hints(
                "Does a long run count as much as it should?",
                "A rate over several runs is all the tokens over all the time; the mean of rates "
                "gives a short, fast run as much weight as a long, slow one.",
                "Add up the tokens, add up the seconds, and divide once.",
            ),
        ),
        Check(
            "rate",
            f"For tokens {TOKENS} and seconds {SECONDS} the rate is {RATE:g} tokens/s.",
            _rate_is_right,
            Hints(
                "Work the example out by hand first.",
                "Without the warm-up, 60 tokens took 5 seconds.",
                "Divide sum(...) of the counted tokens by sum(...) of the counted seconds.",
            ),
        ),
        Check(
            "spread_relative",
            "Ten times the tokens in the same seconds must give the same spread.",
            _spread_has_no_unit,
            Hints(
                "Is your spread still in tokens per second?",
                "A spread that can be compared between machines is a share, with no unit.",
                "Divide (largest rate - smallest rate) by the median rate.",
            ),
        ),
        Check(
            "spread",
            f"For tokens {TOKENS} and seconds {SECONDS} the spread is {SPREAD:g}.",
            _spread_is_right,
            Hints(
                "Work out the rate of each counted run: what are the largest and the smallest?",
                "The rates are 10, 5 and 20; their median (the middle one when sorted) is 10.",
                "rates = [t / s for each counted run]; use max, min and statistics.median.",
            ),
        ),
        Check(
            "inputs_unchanged",
            "The lists that were handed in must stay as they were.",
            _leaves_its_inputs_alone,
            Hints(
                "Somebody still needs those samples.",
                "pop, sort and del change the caller's list; slices and sorted() make new ones.",
                "Replace seconds.pop(0) by seconds[1:], and seconds.sort() by sorted(seconds).",
            ),
        ),
    ),
)
