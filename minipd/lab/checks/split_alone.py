"""Checks of exercise 11.4: what a split earns by itself, from a table of four fleets."""

from __future__ import annotations

import math
from typing import Any

from minipd.lab.hints import Answer, Check, Exercise, Hints

Cells = dict[tuple[str, str], tuple[float, int]]
# Equal GPUs first: the split alone gains 1.5 with TP and 10 with EP.
EQUAL: Cells = {
    ("colocated", "TP"): (20.0, 32),
    ("split", "TP"): (30.0, 32),
    ("colocated", "EP"): (8.0, 32),
    ("split", "EP"): (80.0, 32),
}


def _gains(answer: Answer, cells: Cells) -> dict[str, Any]:
    return dict(answer(dict(cells)))


def _is(value: object, right: float) -> bool:
    return isinstance(value, int | float) and math.isclose(value, right, rel_tol=1e-6)


def _without(*places: tuple[str, str]) -> Cells:
    return {place: cell for place, cell in EQUAL.items() if place not in places}


def _both(answer: Answer) -> bool:
    return set(_gains(answer, EQUAL)) == {"TP", "EP"}


def _not_diagonal(answer: Answer) -> bool:
    found = _gains(answer, EQUAL)
    return not any(_is(found[cut], 4.0) for cut in ("TP", "EP"))


def _not_ep(answer: Answer) -> bool:
    """80 / 30 and 8 / 20 are what EP does, not what the split does."""
    found = list(_gains(answer, EQUAL).values())
    return not any(_is(value, wrong) for value in found for wrong in (80 / 30, 8 / 20))


def _right_way_up(answer: Answer) -> bool:
    return not _is(_gains(answer, EQUAL)["TP"], 20 / 30)


def _ratio(answer: Answer) -> bool:
    return not _is(_gains(answer, EQUAL)["TP"], 10.0)


def _per_gpu(answer: Answer) -> bool:
    cells = EQUAL | {("split", "TP"): (30.0, 64)}
    return _is(_gains(answer, cells)["TP"], 0.75)


def _missing(answer: Answer) -> bool:
    found = _gains(answer, _without(("colocated", "EP")))
    return found["EP"] is None and _is(found["TP"], 1.5)


def _either_missing(answer: Answer) -> bool:
    diagonal = _without(("colocated", "EP"), ("split", "TP"))
    return _gains(answer, diagonal) == {"TP": None, "EP": None}


def _broken(answer: Answer) -> bool:
    """A fleet that kept the promise at no rate: its gain has no number."""
    return _gains(answer, EQUAL | {("colocated", "EP"): (0.0, 32)})["EP"] is None


def _all(answer: Answer) -> bool:
    found = _gains(answer, EQUAL)
    return _is(found["TP"], 1.5) and _is(found["EP"], 10.0)


SPLIT_ALONE = Exercise(
    "11.4",
    "Who earned the factor?",
    "split_alone",
    (
        Check(
            "two_cuts",
            'split_alone must return a dictionary with the keys "TP" and "EP".',
            _both,
            Hints(
                "Look at the example below the task.",
                "The split may earn one factor with TP and another one with EP.",
                'return {"TP": ..., "EP": ...}',
            ),
        ),
        Check(
            "not_the_diagonal",
            "From colocated TP to split EP two things changed; you gave that factor to one.",
            _not_diagonal,
            Hints(
                "Which two fleets do you compare? In what do they differ?",
                "To see what one change does, everything else must be the same.",
                'Compare ("split", cut) with ("colocated", cut), for each cut.',
            ),
        ),
        Check(
            "the_split_not_the_cut",
            "Your factor is what EP earns, with the phases left as they were.",
            _not_ep,
            Hints(
                "Which word of the two keys changes between your two fleets?",
                "The cut must stay, and the placing of the phases must change.",
                'cells["split", cut] over cells["colocated", cut]',
            ),
        ),
        Check(
            "right_way_up",
            "The split lifts 20 to 30 here, and you call it a loss.",
            _right_way_up,
            Hints(
                "Is a gain above 1 or below it?",
                "What one has afterwards, divided by what one had before.",
                "split / colocated",
            ),
        ),
        Check(
            "a_ratio",
            "A gain is a factor, not a difference.",
            _ratio,
            Hints(
                "Ten more requests per second: is that much?",
                "From 20 to 30 is 1.5 times, from 200 to 210 is hardly anything.",
                "Divide, do not subtract.",
            ),
        ),
        Check(
            "for_each_gpu",
            "30 requests per second with 64 GPUs are fewer for each GPU than 20 with 32.",
            _per_gpu,
            Hints(
                "Have both fleets the same number of GPUs?",
                "A larger fleet serves more, whatever it does.",
                "Divide each goodput by its GPUs first.",
            ),
        ),
        Check(
            "never_measured",
            "A fleet is missing, and what nobody measured has no factor: None.",
            _missing,
            Hints(
                "Try a table of three fleets.",
                "Without the other half of the pair nothing can be said about the split.",
                'if ("colocated", cut) not in cells: None',
            ),
        ),
        Check(
            "either_side_missing",
            "A report with only colocated TP and split EP says nothing about the split alone.",
            _either_missing,
            Hints(
                "Which of the two fleets may be missing?",
                "Both halves of a pair are needed.",
                "None if one of the two places is not in cells.",
            ),
        ),
        Check(
            "nothing_to_compare_with",
            "Nothing can be divided by a goodput of zero: None.",
            _broken,
            Hints(
                "What if the colocated fleet kept the promise at no rate?",
                "A factor over nothing is not a number.",
                "None where the colocated goodput is 0.",
            ),
        ),
        Check(
            "gains",
            "With equal GPUs the split alone gains 1.5 times with TP and 10 times with EP.",
            _all,
            Hints(
                "Work the table out by hand.",
                "One division for each cut, each goodput per GPU.",
                "(g_split / n_split) / (g_colocated / n_colocated)",
            ),
        ),
    ),
)
