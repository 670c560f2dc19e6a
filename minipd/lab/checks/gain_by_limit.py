"""Checks of exercise 12.3: the gain in capacity under each limit, in percent."""

from __future__ import annotations

from math import isclose

from minipd.lab.hints import Answer, Check, Exercise, Hints

Sweep = list[tuple[float, float]]
# Under 0.1 s: 1 and 6 requests/s. Under 0.2 s: 2 and 6. Under 0.3 s: 4 and 6.
OLD: Sweep = [(1.0, 0.08), (2.0, 0.15), (4.0, 0.25), (5.0, 0.9)]
NEW: Sweep = [(3.0, 0.07), (6.0, 0.09), (7.0, 0.8)]
LUCKY: Sweep = [(1.0, 0.08), (2.0, 0.3), (3.0, 0.09)]  # the last point is luck


def _made(
    answer: Answer, old: Sweep = OLD, new: Sweep = NEW, limits: tuple[float, ...] = (0.1, 0.2, 0.3)
) -> dict[float, float | None]:
    return dict(answer(list(old), list(new), list(limits)))


def _is(value: float | None, wanted: float) -> bool:
    return value is not None and isclose(value, wanted, rel_tol=1e-6, abs_tol=1e-6)


def _all_limits(answer: Answer) -> bool:
    return set(_made(answer)) == {0.1, 0.2, 0.3}


def _percent(answer: Answer) -> bool:
    """The same capacity is a gain of 0 percent, not of 100 (or 1)."""
    return _is(_made(answer, OLD, OLD)[0.2], 0.0)


def _not_a_share(answer: Answer) -> bool:
    return not _is(_made(answer)[0.1], 5.0)


def _over_the_old(answer: Answer) -> bool:
    return not _is(_made(answer)[0.1], 100 * 5 / 6)


def _depends(answer: Answer) -> bool:
    values = list(_made(answer).values())
    return len({value if value is None else round(value, 6) for value in values}) > 1


def _no_luck(answer: Answer) -> bool:
    return not _is(_made(answer, LUCKY, NEW, (0.1,))[0.1], 100.0)


def _capacity_not_latency(answer: Answer) -> bool:
    """Twice the rates with the same times: twice the capacity, whatever the times are."""
    doubled = [(2 * rate, tpot_s) for rate, tpot_s in OLD]
    return _is(_made(answer, OLD, doubled)[0.3], 100.0)


def _at_the_limit(answer: Answer) -> bool:
    return _is(_made(answer, OLD, NEW, (0.15,))[0.15], 200.0)


def _none(answer: Answer) -> bool:
    return _made(answer, OLD, NEW, (0.075,))[0.075] is None


def _not_rounded(answer: Answer) -> bool:
    """From 6 to 2, a third is left; whoever is near that and not there has rounded."""
    made, wanted = _made(answer, NEW, OLD, (0.2,))[0.2], 100 * (2 / 6 - 1)
    return made is None or abs(made - wanted) >= 1 or _is(made, wanted)


def _loses(answer: Answer) -> bool:
    return _is(_made(answer, NEW, OLD, (0.2,))[0.2], 100 * (2 / 6 - 1))


def _loses_all(answer: Answer) -> bool:
    """The old one serves 3 requests/s within 0.075 s, the new one none."""
    return _is(_made(answer, NEW, OLD, (0.075,))[0.075], -100.0)


def _values(answer: Answer) -> bool:
    made = _made(answer)
    return _is(made[0.1], 500.0) and _is(made[0.2], 200.0) and _is(made[0.3], 50.0)


GAINS = Exercise(
    "12.3",
    "A gain for each limit",
    "gains",
    (
        Check(
            "every_limit",
            "gains must return a dictionary with each of the limits as a key.",
            _all_limits,
            Hints(
                "How many gains were asked for?",
                "Each limit gives a capacity of its own, and so a gain of its own.",
                "Fill a dictionary in a loop over limits.",
            ),
        ),
        Check(
            "none_without_a_baseline",
            "No point of the old system keeps 0.075 s; you made up a gain all the same.",
            _none,
            Hints(
                "What is any capacity, compared with none?",
                "Nothing can be so many times zero: no percentage exists.",
                "Give None where the old capacity is 0.",
            ),
        ),
        Check(
            "nothing_gained_is_zero",
            "A system compared with itself gains 0 %.",
            _percent,
            Hints(
                "What do you return if nothing has changed?",
                "A gain of 498 % means 5.98 times as much: the old system is the first time.",
                "Subtract 1 from the ratio before you multiply by 100.",
            ),
        ),
        Check(
            "in_percent",
            "Six times the capacity is a gain of 500 %; you return 5.",
            _not_a_share,
            Hints(
                "In which unit was the gain asked for?",
                "Five more of what there was is five hundred percent more.",
                "Multiply by 100.",
            ),
        ),
        Check(
            "over_the_old",
            "From 1 to 6 requests/s is not a gain of 83 %.",
            _over_the_old,
            Hints(
                "By what did you divide?",
                "A gain is counted against what was there before.",
                "Divide by the capacity of the old system.",
            ),
        ),
        Check(
            "capacity_is_a_rate",
            "Twice the rates at the same times are a gain of 100 %; you compare something else.",
            _capacity_not_latency,
            Hints(
                "Which of the two numbers of a pair is the capacity?",
                "The limit is held against the time; what one gains are requests per second.",
                "Compare the highest rates whose times keep the limit, less one, times 100.",
            ),
        ),
        Check(
            "each_limit_its_gain",
            "Your gain is the same under all limits.",
            _depends,
            Hints(
                "Where does the limit come into your function?",
                "A looser limit lets the old system serve more, and so the gain shrinks.",
                "Compute both capacities anew for each limit.",
            ),
        ),
        Check(
            "at_the_limit_is_kept",
            "A time of exactly 0.15 s keeps a limit of 0.15 s.",
            _at_the_limit,
            Hints(
                "What happens at exactly the limit?",
                "Within means at most.",
                "Stop where tpot_s > limit, not where it is equal.",
            ),
        ),
        Check(
            "after_the_first_miss_is_luck",
            "The old system misses at 2 requests/s; that it keeps the limit at 3 is luck.",
            _no_luck,
            Hints(
                "Do you take the best point, wherever it stands?",
                "A capacity is a rate up to which all is well (lesson 09).",
                "Leave the loop at the first point above the limit.",
            ),
        ),
        Check(
            "not_rounded",
            "From 6 to 2 requests/s the gain is -66.666... %; a rounded value was returned.",
            _not_rounded,
            Hints(
                "Does your value go on behind its last digit?",
                "Round where a number is shown, not where it is computed.",
                "Leave out round, int and //.",
            ),
        ),
        Check(
            "a_loss_is_negative",
            "From 6 to 2 requests/s two thirds are lost: a gain of -66.666... %.",
            _loses,
            Hints(
                "What does your function say if the new system is worse?",
                "A loss is a gain below zero; do not hide it.",
                "Leave out abs and max.",
            ),
        ),
        Check(
            "all_is_lost",
            "Only the new system cannot keep 0.075 s: from 3 to 0 requests/s the gain is -100 %.",
            _loses_all,
            Hints(
                "Which of the two systems keeps this limit?",
                "No percentage exists of nothing; but nothing is a share of something: zero.",
                "Give None only where the old capacity is 0.",
            ),
        ),
        Check(
            "gains",
            "From 1, 2 and 4 to 6 requests/s: 500, 200 and 50 %.",
            _values,
            Hints(
                "Read the three capacities off the lists by hand.",
                "100 times (new over old, less one).",
                "100 * (new / old - 1)",
            ),
        ),
    ),
)
