"""Checks of exercise 00.1: an honest rate from raw samples."""

from __future__ import annotations

from math import isclose

from minipd.lab.hints import Answer, Check, Exercise, Hints

# Four runs: the first is a slow warm-up; runs differ in length, so averages of rates mislead.
TOKENS = [10, 10, 10, 40]
SECONDS = [9.0, 1.0, 2.0, 2.0]
RATES = [10.0, 5.0, 20.0]  # tokens per second of the counted runs; their quartiles: 7.5, 10, 15
RATE, SPREAD = 12.0, 0.75  # tokens per second; (15 - 7.5) / 10
# An even number of counted runs has no middle one: rates 2, 4, 8, 16, quartiles 3.5, 6, 10.
EVEN_TOKENS, EVEN_SECONDS = [8, 8, 8, 8, 8], [16.0, 4.0, 2.0, 1.0, 0.5]
EVEN_SPREAD = 6.5 / 6.0
# Largest less smallest (one disturbed run decides it alone), here and for the even number.
RANGE, EVEN_RANGE = (20.0 - 5.0) / 10.0, (16.0 - 2.0) / 6.0
EVEN_EXCLUSIVE = (14.0 - 2.5) / 6.0  # quartiles guessed beyond the samples
SD = 7.637626158 / 10.0  # standard deviation (n - 1) of the three rates, over their median
POPULATION_SD = 6.236095645 / 10.0  # the same with n


def _rate(answer: Answer, tokens: list[int], seconds: list[float]) -> float:
    return float(answer(list(tokens), list(seconds))[0])


def _spread(answer: Answer, tokens: list[int], seconds: list[float]) -> float:
    return float(answer(list(tokens), list(seconds))[1])


def _returns_two_numbers(answer: Answer) -> bool:
    made = answer(list(TOKENS), list(SECONDS))
    return isinstance(made, tuple) and [isinstance(x, (int, float)) for x in made] == [True] * 2  # pyright: ignore[reportUnknownVariableType]


def _rate_comes_first(answer: Answer) -> bool:
    rate, spread = answer(list(TOKENS), list(SECONDS))
    return not (isclose(spread, RATE) or (isclose(rate, SPREAD) and not isclose(spread, SPREAD)))


def _is_not_inverted(answer: Answer) -> bool:
    return _rate(answer, [8, 8, 8], [4.0, 4.0, 4.0]) >= 1.0


def _leaves_out_the_warm_up(answer: Answer) -> bool:
    slow, fast = _rate(answer, [8] * 3, [64.0, 4.0, 4.0]), _rate(answer, [8] * 3, [1.0, 4.0, 4.0])
    return isclose(slow, fast)


def _is_not_a_mean_of_rates(answer: Answer) -> bool:
    return not isclose(_rate(answer, TOKENS, SECONDS), sum(RATES) / len(RATES))


def _rate_is_right(answer: Answer) -> bool:
    return isclose(_rate(answer, TOKENS, SECONDS), RATE)


def _spread_has_no_unit(answer: Answer) -> bool:
    slow = _spread(answer, [8, 8, 8, 8], [9.0, 1.0, 2.0, 4.0])
    fast = _spread(answer, [80, 80, 80, 80], [9.0, 1.0, 2.0, 4.0])
    return isclose(slow, fast)


def _spread_is_not(answer: Answer, *values: float) -> bool:
    return not any(
        isclose(_spread(answer, TOKENS, SECONDS), value, rel_tol=1e-6) for value in values
    )


def _is_not_the_range(answer: Answer) -> bool:
    even = _spread(answer, EVEN_TOKENS, EVEN_SECONDS)
    return _spread_is_not(answer, RANGE) or not isclose(even, EVEN_RANGE)


def _spread_is_right(answer: Answer) -> bool:
    return isclose(_spread(answer, TOKENS, SECONDS), SPREAD)


def _spread_of_an_even_number(answer: Answer) -> bool:
    return isclose(_spread(answer, EVEN_TOKENS, EVEN_SECONDS), EVEN_SPREAD)


def _leaves_its_inputs_alone(answer: Answer) -> bool:
    tokens, seconds = list(TOKENS), list(SECONDS)
    answer(tokens, seconds)
    return tokens == TOKENS and seconds == SECONDS


RATE_CHECKS = (
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
        "rate_first",
        "The pair came back the other way round: the spread first.",
        _rate_comes_first,
        Hints(
            "Both numbers are there. In which order?",
            "Whoever calls your function unpacks it as: rate, spread = honest_rate(...).",
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
)
SPREAD_CHECKS = (
    Check(
        "spread_relative",
        "Ten times the tokens in the same seconds must give the same spread.",
        _spread_has_no_unit,
        Hints(
            "Is your spread still in tokens per second?",
            "A spread that can be compared between machines is a share, with no unit.",
            "Divide the width by the median rate.",
        ),
    ),
    Check(
        "share_not_percent",
        "The spread came out a hundred times too large.",
        lambda answer: _spread_is_not(answer, 100 * SPREAD),
        Hints(
            "Is that a share or a percentage?",
            "A share of a half is 0.5; only on the screen it is written as 50 %.",
            "Leave out the multiplication by 100.",
        ),
    ),
    Check(
        "not_sd",
        "That is the standard deviation of the rates, not the width of their middle half.",
        lambda answer: _spread_is_not(answer, SD, POPULATION_SD),
        Hints(
            "There are many ways to say how far samples lie apart. Which one is asked for?",
            "A standard deviation squares the distances, so one disturbed run decides it nearly "
            "alone; the middle half leaves that run out.",
            "low, middle, high = statistics.quantiles(..., n=4, method='inclusive')",
        ),
    ),
    Check(
        "middle_half",
        "That is the distance from the smallest to the largest rate, not the middle half.",
        _is_not_the_range,
        Hints(
            "How much would one disturbed run change your spread?",
            "The largest and the smallest rate are the two most likely to be accidents; the middle "
            "half of the rates leaves both out.",
            "low, middle, high = statistics.quantiles(..., n=4, method='inclusive')",
        ),
    ),
    Check(
        "inside_the_samples",
        "The quartiles lie where no sample does: quantiles was asked to guess beyond the samples.",
        lambda answer: not isclose(_spread(answer, EVEN_TOKENS, EVEN_SECONDS), EVEN_EXCLUSIVE),
        Hints(
            "Does statistics.quantiles know that these runs are all there are?",
            "By default it takes the samples for a few of many and reaches beyond them; with all "
            "the samples in hand, the smallest and the largest are the ends.",
            "Add method='inclusive' to the call of quantiles.",
        ),
    ),
    Check(
        "spread",
        f"For tokens {TOKENS} and seconds {SECONDS} the spread is {SPREAD:g}.",
        _spread_is_right,
        Hints(
            "Work out the rate of each counted run: where does their middle half lie?",
            "The rates are 10, 5 and 20; their quartiles are 7.5, 10 and 15, and the 10 is the "
            "median.",
            "With low, middle, high = statistics.quantiles(rates, n=4, method='inclusive'): "
            "subtract low from high, then divide by middle.",
        ),
    ),
    Check(
        "even_number",
        f"For tokens {EVEN_TOKENS} and seconds {EVEN_SECONDS} the spread is {EVEN_SPREAD:.4f}.",
        _spread_of_an_even_number,
        Hints(
            "Here the number of counted runs is even. Which one is in the middle?",
            "Among an even number of sorted values none is in the middle: the median is half-way "
            "between the two that are, and quartiles, too, may lie between samples.",
            "Do not take rates[len(rates) // 2]; statistics.median and statistics.quantiles do "
            "it rightly.",
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
)
HONEST_RATE = Exercise(
    "00.1",
    "An honest rate from raw samples",
    "honest_rate",
    (*RATE_CHECKS, *SPREAD_CHECKS),
)
