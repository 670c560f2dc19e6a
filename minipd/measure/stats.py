"""Samples of one measured quantity and the few numbers that describe them. Free of torch."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

INDICATIVE_SPREAD = 0.10


class StatsError(ValueError):
    """Samples that cannot be described, with the reason in one sentence."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Repeated measurements of one rate (larger is better), in the order they were taken."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise StatsError("There are no samples; measure at least once.")

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def sd(self) -> float:
        """Sample standard deviation (n - 1); 0 for a single sample."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def best(self) -> float:
        return max(self.values)

    @property
    def spread(self) -> float:
        """Width of the middle half of the samples over their median (1 = 100 %).

        One sample that something interrupted does not move it; a drifting clock does.
        """
        if len(self.values) < 2 or self.median == 0.0:
            return 0.0
        lower, _, upper = statistics.quantiles(self.values, n=4, method="inclusive")
        return (upper - lower) / abs(self.median)

    @property
    def is_indicative(self) -> bool:
        """True when the spread is over `INDICATIVE_SPREAD`: take the result as a rough figure."""
        return self.spread > INDICATIVE_SPREAD

    def to_dict(self) -> dict[str, Any]:
        return {
            "mean": self.mean,
            "sd": self.sd,
            "median": self.median,
            "best": self.best,
            "spread": self.spread,
            "samples": list(self.values),
        }


def paired_ratios(ours: Sequence[float], theirs: Sequence[float]) -> Samples:
    """Ratio of each pair of alternating runs: slow drift of the clock divides out of it."""
    if len(ours) != len(theirs):
        raise StatsError(f"{len(ours)} runs cannot be paired with {len(theirs)}.")
    return Samples(tuple(a / b for a, b in zip(ours, theirs, strict=True)))
