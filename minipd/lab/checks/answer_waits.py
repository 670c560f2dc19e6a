"""Checks of exercise 01.1: time to first token, p50 and p99 of the gaps, from arrival times."""

from __future__ import annotations

from math import isclose

from minipd.lab.hints import Answer, Check, Exercise, Hints

# Gaps of 0.1, 0.2, 0.1, 0.1 and 1.0 s: median, mean and largest differ, and p99 lies between two.
ASKED, ARRIVALS = 10.0, [12.0, 12.1, 12.3, 12.4, 12.5, 13.5]
TTFT, P50, MEAN, LARGEST = 2.0, 0.1, 0.3, 1.0
P99 = 0.968  # at rank 0.99 * 4 = 3.96 of the sorted gaps: 0.2 + 0.96 * 0.8
EVEN = [5.0, 5.1, 5.2, 5.3, 5.4, 5.5, 5.6]  # all gaps 0.1 s


def _waits(answer: Answer, asked: float = ASKED, arrivals: list[float] = ARRIVALS) -> list[float]:
    return [float(value) for value in answer(asked, list(arrivals))]


def _same(a: float, b: float) -> bool:
    return isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)


def _returns_three_numbers(answer: Answer) -> bool:
    made = answer(ASKED, list(ARRIVALS))
    return isinstance(made, (tuple, list)) and len(made) == 3  # pyright: ignore[reportUnknownArgumentType]


def _counts_from_the_question(answer: Answer) -> bool:
    moved = [time + 100.0 for time in ARRIVALS]
    return _same(_waits(answer)[0], _waits(answer, ASKED + 100.0, moved)[0])


def _leaves_the_first_wait_out(answer: Answer) -> bool:
    """A question asked earlier makes the first wait longer, and no gap."""
    early, late = _waits(answer, asked=2.0), _waits(answer, asked=11.9)
    return _same(early[1], late[1]) and _same(early[2], late[2])


ANSWER_WAITS = Exercise(
    "01.1",
    "Read the clock",
    "answer_waits",
    (
        Check(
            "three_numbers",
            "answer_waits must return three numbers: time to first token, p50, p99.",
            _returns_three_numbers,
            Hints(
                "Look at the last line of your function.",
                "A function gives back several values by returning a tuple.",
                "End with: return ttft, p50, p99",
            ),
        ),
        Check(
            "since_the_question",
            "The same answer with all times 100 s later must have the same time to first token.",
            _counts_from_the_question,
            Hints(
                "When did the wait begin?",
                "A time on a clock says nothing about a wait; the distance of two times does.",
                "Subtract asked from the first arrival.",
            ),
        ),
        Check(
            "ttft",
            f"Asked at {ASKED:g} s, first token at {ARRIVALS[0]:g} s: the time to first token is "
            f"{TTFT:g} s.",
            lambda answer: _same(_waits(answer)[0], TTFT),
            Hints(
                "Which arrival ends the first wait?",
                "Time to first token reaches from the question to the first token, in seconds.",
                "It is arrivals[0] less asked, and it stands first in what you return.",
            ),
        ),
        Check(
            "gaps_not_times",
            "Tokens that come every 0.1 s have a p50 of 0.1 s, whenever they come.",
            lambda answer: _waits(answer, 4.9, EVEN)[1] < 0.15,
            Hints(
                "Of which list did you take the percentiles?",
                "A gap is the time from one token to the next, not the time since the question.",
                "Subtract each arrival from the one after it: zip(arrivals, arrivals[1:]).",
            ),
        ),
        Check(
            "first_wait_is_no_gap",
            "Had the question been asked earlier, no gap between tokens would be longer.",
            _leaves_the_first_wait_out,
            Hints(
                "How many gaps are there between n tokens?",
                "The wait for the first token is a wait of its own kind; among the gaps it would "
                "be the largest and would pass itself off as p99.",
                "Begin the gaps with arrivals[1] less arrivals[0]; asked has no part in them.",
            ),
        ),
        Check(
            "p50_not_mean",
            "Your p50 is the mean of the gaps, not their median.",
            lambda answer: not _same(_waits(answer)[1], MEAN),
            Hints(
                "What does one long gap do to your p50?",
                "The mean of the gaps is TPOT. p50 is the middle one of the sorted gaps, which one "
                "long gap cannot move.",
                "Take entry 49 of the list that statistics.quantiles gives.",
            ),
        ),
        Check(
            "p99_interpolated",
            "Your p99 is no smaller than the largest gap; with few gaps it lies below it.",
            lambda answer: _waits(answer)[2] < LARGEST - 1e-9,
            Hints(
                "Is your p99 a gap that came from the list, or even beyond it?",
                "Among few samples p99 falls between the two largest and is interpolated; the "
                "default of statistics.quantiles guesses beyond the samples.",
                "Add method='inclusive' to the call of quantiles, and do not take max.",
            ),
        ),
        Check(
            "right_place",
            f"For arrivals {ARRIVALS} p50 is {P50:g} s and p99 is {P99:g} s.",
            lambda answer: all(map(_same, _waits(answer)[1:], (P50, P99))),
            Hints(
                "Which entry of a list that begins with p1 is p50?",
                "Python counts from 0, so p1 is entry 0. And p50 comes before p99 in the result.",
                "p50 is entry 49, p99 is entry 98.",
            ),
        ),
    ),
)
