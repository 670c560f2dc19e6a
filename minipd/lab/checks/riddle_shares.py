"""Checks of exercise 12.4: what the split explains of the riddle."""

from __future__ import annotations

from math import isclose, sqrt

from minipd.lab.hints import Answer, Check, Exercise, Hints


def _made(
    answer: Answer, servers: float = 3.0, cheaper: float = 16.0, split: float = 2.0
) -> list[float]:
    return [float(value) for value in answer(servers, cheaper, split)]


def _near(a: float, b: float) -> bool:
    return isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)


def _four(answer: Answer) -> bool:
    made = answer(3.0, 16.0, 2.0)
    return isinstance(made, (tuple, list)) and len(made) == 4  # pyright: ignore[reportUnknownArgumentType]


def _both(answer: Answer) -> bool:
    """Neither factor alone, nor their sum or quotient."""
    return _near(_made(answer)[0], 48.0)


def _per_server(answer: Answer) -> bool:
    return _near(_made(answer)[1], 16.0)


def _multiplied(answer: Answer) -> bool:
    """A factor of 4, once more, makes 16: half of it."""
    return not _near(_made(answer, split=4.0)[2], 4.0 / 16.0)


def _not_less_one(answer: Answer) -> bool:
    return not _near(_made(answer, split=4.0)[2], 3.0 / 15.0)


def _of_the_work(answer: Answer) -> bool:
    """Not of the tokens made, and not of the servers."""
    return _near(_made(answer)[2], _made(answer, servers=7.0)[2])


def _half(answer: Answer) -> bool:
    return all(_near(_made(answer, 3.0, x, sqrt(x))[2], 0.5) for x in (4.0, 10.0, 16.0))


def _no_gain(answer: Answer) -> bool:
    return _near(_made(answer, split=1.0)[2], 0.0)


def _a_loss(answer: Answer) -> bool:
    return _near(_made(answer, split=0.25)[2], -0.5)


def _fewer(answer: Answer) -> bool:
    return not _made(answer)[3] > 1.0


def _alone(answer: Answer) -> bool:
    """The load is yesterday's: the market's growth has no part in it."""
    return _near(_made(answer)[3], 0.5) and _near(_made(answer, servers=9.0)[3], 0.5)


RIDDLE = Exercise(
    "12.4",
    "The riddle",
    "riddle",
    (
        Check(
            "four_numbers",
            "riddle must return four numbers, in the order of the list.",
            _four,
            Hints(
                "Look at the last line of your function.",
                "A function gives back several values by returning a tuple.",
                "End with: return tokens, per_server, share, servers_needed",
            ),
        ),
        Check(
            "tokens_are_both_factors",
            "3 times the servers, each token at a sixteenth: 48 times the tokens.",
            _both,
            Hints(
                "How many tokens does the new bill buy?",
                "The bill grew with the servers, and each dollar buys more tokens.",
                "Multiply servers by cheaper.",
            ),
        ),
        Check(
            "work_of_one_server",
            "A server-hour costs what it did and a token a sixteenth: a server makes 16 times as "
            "much.",
            _per_server,
            Hints(
                "How many tokens come out of one server-hour?",
                "If the price of an hour stays, the price of a token falls only because more of "
                "them come out of it.",
                "The second number is cheaper.",
            ),
        ),
        Check(
            "share_of_the_work",
            "Your share changes with the number of servers.",
            _of_the_work,
            Hints(
                "Of which factor is the share?",
                "The split can change what one server makes; how many are bought is another "
                "matter.",
                "Compare log(split) with log(cheaper).",
            ),
        ),
        Check(
            "shares_multiply",
            "A split of 4 has to be applied twice to make 16: it explains a half, not a quarter.",
            _multiplied,
            Hints(
                "How often must the split be applied to make the whole factor?",
                "Factors multiply, so their logarithms add up.",
                "log(split) / log(cheaper)",
            ),
        ),
        Check(
            "growth_is_no_sum",
            "You compare what was added (3 of 15); factors are not added.",
            _not_less_one,
            Hints(
                "Would two splits of 4 make 7 or 16?",
                "Growth rates add only while they are small.",
                "Do not subtract 1; take logarithms.",
            ),
        ),
        Check(
            "no_gain_explains_nothing",
            "A split that gains nothing explains nothing.",
            _no_gain,
            Hints(
                "What is your share for split = 1?",
                "A factor of one changes nothing, and the logarithm of 1 is 0.",
                "log(split) / log(cheaper)",
            ),
        ),
        Check(
            "a_loss_explains_the_opposite",
            "A split that makes things worse has a share below zero.",
            _a_loss,
            Hints(
                "What does your function say for split = 0.25?",
                "Then other causes had to make up for the split, too.",
                "Leave out abs, max and min.",
            ),
        ),
        Check(
            "half_of_the_way",
            "A factor whose square makes the whole explains exactly a half.",
            _half,
            Hints(
                "Try a whole of 10 and a split of its square root.",
                "The share must not depend on the base of the logarithm.",
                "Divide two logarithms of the same base.",
            ),
        ),
        Check(
            "the_split_needs_fewer",
            "A split that doubles what servers do cannot double the servers for the same load.",
            _fewer,
            Hints(
                "The load is the same and each server does more. How many are needed?",
                "This is where the story goes wrong: efficiency lowers a number of servers.",
                "The fourth number is 1 / split.",
            ),
        ),
        Check(
            "the_split_alone",
            "Yesterday's load and the split alone: half of the servers, whatever the market did.",
            _alone,
            Hints(
                "Which of the three inputs belongs into the fourth number?",
                "Only the split changes here; the load stays, and so does everything else.",
                "1 / split, without servers and without cheaper.",
            ),
        ),
    ),
)
