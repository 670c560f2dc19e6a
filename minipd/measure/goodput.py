"""The highest request rate at which enough answers are good, found by halving an interval.

Goodput as DistServe defines it (OSDI'24; facts section 4): divide by the number of workers to
compare. Standard library only; `sweep.Sweep.at` remembers what was measured on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass


class GoodputError(ValueError):
    """A search that could not end; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """The highest rate that met the target, and the lowest that did not (None: none was seen).

    The truth lies between them. `looks` are all (rate, attainment) that were tried, by rate.
    """

    rate_per_s: float | None
    missed_per_s: float | None
    looks: tuple[tuple[float, float], ...]


def find_goodput(
    attainment_at: Callable[[float], float],
    low: float,
    high: float,
    *,
    target: float = 0.9,
    tolerance: float = 0.05,
) -> Goodput:
    """Halve the interval of rates until its ends are within `tolerance` of each other.

    Attainment should fall as the rate grows: average several seeds where it is noisy. While `high`
    still meets the target it is doubled, six times at most. Rates are rounded to three digits.
    """
    if not (0.0 < low < high and 0.0 < target <= 1.0 and tolerance > 0.0):
        raise GoodputError(
            "A search for goodput needs rates 0 < low < high, a target above 0 and up to 1, and a "
            "tolerance above 0."
        )
    looks: dict[float, float] = {}

    def meets(rate: float) -> bool:
        looks[rate] = attainment_at(rate)
        return looks[rate] >= target

    good, bad = _bracket(meets, _rounded(low), _rounded(high))
    while good is not None and bad is not None and (bad - good) / bad > tolerance:
        middle = _rounded((good + bad) / 2)
        if middle in looks:
            break
        good, bad = (middle, bad) if meets(middle) else (good, middle)
    return Goodput(good, bad, tuple(sorted(looks.items())))


def _bracket(
    meets: Callable[[float], bool], low: float, high: float
) -> tuple[float | None, float | None]:
    if not meets(low):
        return None, low
    for rate in _doubled(high):
        if not meets(rate):
            return low, rate
        low = rate
    return low, None


def _doubled(rate: float) -> Iterator[float]:
    yield from (_rounded(rate * 2**n) for n in range(7))


def _rounded(rate: float) -> float:
    return float(f"{rate:.3g}")
