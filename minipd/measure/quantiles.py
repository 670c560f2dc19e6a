"""Percentiles in two forms: exact over a list, or from a histogram whose memory stays flat.

The definition is one for both: linear interpolation between order statistics at rank
`p / 100 * (n - 1)`, numpy's default. Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol


def percentile(values: Sequence[float], p: float) -> float:
    """The `p`-th percentile (0 to 100) of a non-empty sequence in any order."""
    if not values:
        raise ValueError("A percentile needs at least one value.")
    return _interpolate(sorted(values), p)


def _interpolate(ordered: Sequence[float], p: float) -> float:
    assert 0.0 <= p <= 100.0, "percentiles run from 0 to 100"
    rank = p / 100.0 * (len(ordered) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


class Distribution(Protocol):
    """What metrics need from a pile of numbers, however it is kept."""

    count: int
    total: float

    def add(self, value: float, times: int = 1) -> None: ...
    def percentile(self, p: float) -> float: ...
    def share_above(self, limit: float) -> float: ...


def mean(distribution: Distribution) -> float:
    return distribution.total / distribution.count if distribution.count else math.nan


class Exact:
    """Keeps every value: exact percentiles, 8 bytes and more per value."""

    def __init__(self, values: Iterable[float] = ()) -> None:
        self.values: list[float] = []
        self.count = 0
        self.total = 0.0
        for value in values:
            self.add(value)

    def add(self, value: float, times: int = 1) -> None:
        self.values.extend([value] * times)
        self.count += times
        self.total += value * times

    def percentile(self, p: float) -> float:
        return percentile(self.values, p) if self.values else math.nan

    def share_above(self, limit: float) -> float:
        above = sum(value > limit for value in self.values)
        return above / self.count if self.count else math.nan


class Histogram:
    """Counts values of 0 and more in buckets that grow by a fixed factor.

    Every reported order statistic is within `relative_error` of the true one (values under 1 ns
    count as 0). One dictionary entry per bucket in use: from 1 us to 1 day at 0.5 % at most about
    2,500 entries, however many values come. The mean is exact. Idea: DDSketch (VLDB 2019).
    """

    FLOOR = 1e-9

    def __init__(self, relative_error: float = 0.005) -> None:
        assert 0.0 < relative_error < 1.0, "the relative error lies between 0 and 1"
        self.relative_error = relative_error
        self.count = 0
        self.total = 0.0
        self._growth = (1.0 + relative_error) / (1.0 - relative_error)
        self._log_growth = math.log(self._growth)
        self._buckets: dict[int, int] = {}

    def add(self, value: float, times: int = 1) -> None:
        if not value <= self.FLOOR:  # as `_bucket`, in place: a long run adds millions
            bucket = math.ceil(math.log(value / self.FLOOR) / self._log_growth) or 1
        else:
            bucket = 0
        self._buckets[bucket] = self._buckets.get(bucket, 0) + times
        self.count += times
        self.total += value * times

    def _bucket(self, value: float) -> int:
        """Bucket `i` holds `(growth**(i-1), growth**i]` times the floor; bucket 0 holds zero."""
        if value <= self.FLOOR:
            return 0
        return max(1, math.ceil(math.log(value / self.FLOOR) / self._log_growth))

    def _middle(self, bucket: int) -> float:
        """The value whose relative distance to both ends of the bucket is the same."""
        if bucket == 0:
            return 0.0
        return self.FLOOR * 2.0 * self._growth**bucket / (1.0 + self._growth)

    def percentile(self, p: float) -> float:
        assert 0.0 <= p <= 100.0, "percentiles run from 0 to 100"
        if not self.count:
            return math.nan
        rank = p / 100.0 * (self.count - 1)
        low = self._order_statistic(math.floor(rank))
        high = self._order_statistic(math.ceil(rank))
        return low + (high - low) * (rank - math.floor(rank))

    def _order_statistic(self, index: int) -> float:
        seen = 0
        for bucket, times in sorted(self._buckets.items()):
            seen += times
            if index < seen:
                return self._middle(bucket)
        raise AssertionError("an order statistic's index must be below the count")

    def share_above(self, limit: float) -> float:
        """Share of values above `limit`; those within the relative error of it go either way."""
        if not self.count:
            return math.nan
        edge = self._bucket(limit)
        return sum(n for bucket, n in self._buckets.items() if bucket > edge) / self.count

    @property
    def num_buckets(self) -> int:
        return len(self._buckets)
