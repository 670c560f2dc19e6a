"""Checks of exercise 11.1: how many times fewer expert bytes a token costs in company."""

from __future__ import annotations

import math

from minipd.lab.hints import Answer, Check, Exercise, Hints


def _gain(answer: Answer, experts: int, top_k: int, slots: int) -> float:
    return float(answer(experts, top_k, slots))


def _near(answer: Answer, experts: int, top_k: int, slots: int, touched: float) -> bool:
    right = slots * top_k / touched
    return math.isclose(_gain(answer, experts, top_k, slots), right, rel_tol=1e-3)


def _alone(answer: Answer) -> bool:
    return math.isclose(_gain(answer, 128, 8, 1), 1.0, rel_tol=1e-6)


def _at_least_one(answer: Answer) -> bool:
    return _gain(answer, 128, 8, 64) >= 1.0


def _sometimes_meet(answer: Answer) -> bool:
    """Two tokens of 2 in 8: 3.5 experts, not 4, since they may meet."""
    return _gain(answer, 8, 2, 2) > 1.01


def _still_asleep(answer: Answer) -> bool:
    """16 tokens of 8 in 128 could wake all 128 experts, and wake 82."""
    return abs(_gain(answer, 128, 8, 16) - 1.0) > 0.05


def _one_choice(answer: Answer) -> bool:
    """With one expert out of eight for each token, the chance is 7/8 and no other."""
    return _near(answer, 8, 1, 8, 8 * (1 - (7 / 8) ** 8))


def _several_choices(answer: Answer) -> bool:
    return _near(answer, 8, 2, 3, 8 * (1 - 0.75**3))


def _all(answer: Answer) -> bool:
    cases = ((128, 8, 8, 51.6199), (256, 8, 64, 222.4425), (8, 8, 5, 8.0))
    return all(_near(answer, *case) for case in cases)


SLOTS_GAIN = Exercise(
    "11.1",
    "What company saves",
    "slots_gain",
    (
        Check(
            "alone_is_one",
            "One answer alone costs exactly as much as one answer alone: the gain is 1.",
            _alone,
            Hints(
                "Put in one slot. What do you compare with what?",
                "The gain compares the experts read without sharing with those read together.",
                "slots * top_k in the numerator: what the answers would read one by one.",
            ),
        ),
        Check(
            "right_way_up",
            "64 answers together cannot cost more for each of them than alone.",
            _at_least_one,
            Hints(
                "Is a gain above 1 or below it?",
                "Fewer bytes for each token make the gain larger.",
                "Experts read one by one, divided by experts read together.",
            ),
        ),
        Check(
            "tokens_meet",
            "Two tokens that take 2 of 8 experts sometimes take the same one.",
            _sometimes_meet,
            Hints(
                "You count an expert once for each token that wants it.",
                "An expert that two tokens chose is read once.",
                "Count the experts that nobody left out: experts * (1 - chance).",
            ),
        ),
        Check(
            "not_all_awake",
            "16 tokens of 8 in 128 have 128 wishes, and still not every expert is woken.",
            _still_asleep,
            Hints(
                "Throw 128 balls into 128 boxes. Are there empty boxes?",
                "Some experts are chosen several times and others not at all.",
                "Every token leaves an expert out with chance 1 - top_k / experts.",
            ),
        ),
        Check(
            "each_token_again",
            "Eight tokens that take one of eight experts each wake 5.25 of them.",
            _one_choice,
            Hints(
                "What is the chance that all eight leave one expert out?",
                "Independent chances are multiplied, one factor for each token.",
                "(1 - top_k / experts) ** slots",
            ),
        ),
        Check(
            "several_of_each",
            "A token that takes 2 of 8 experts leaves one of them out with chance 6/8.",
            _several_choices,
            Hints(
                "How does your chance change when a token takes two experts?",
                "Of the experts, the share top_k / experts is chosen by one token.",
                "1 - top_k / experts, not 1 - 1 / experts",
            ),
        ),
        Check(
            "gains",
            "Gains at 128 experts with 8 slots, at 256 with 64, and where all are always used.",
            _all,
            Hints(
                "Compare with the table of the lesson: 8 slots wake 52 of 128 experts.",
                "Gain = experts one by one / experts together.",
                "slots * top_k / (experts * (1 - (1 - top_k / experts) ** slots))",
            ),
        ),
    ),
)
