"""How long a link takes: `seconds = latency + bytes / bandwidth`, fitted to measured transfers.

Free of torch and numpy: it sees only pairs of bytes and seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

Point = tuple[int, float]  # bytes, seconds


class LinkFitError(ValueError):
    """Measurements that no line can be drawn through; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class LinkFit:
    """What a link costs. `latency_s` is all that does not grow with the bytes, set-up included."""

    latency_s: float
    bytes_per_s: float

    def seconds(self, num_bytes: float) -> float:
        return self.latency_s + num_bytes / self.bytes_per_s

    def errors(self, points: Sequence[Point]) -> list[float]:
        """Predicted over measured, less one: +0.1 means that the fit is 10 % too slow there."""
        return [self.seconds(num_bytes) / seconds - 1 for num_bytes, seconds in points]

    @property
    def half_bytes(self) -> float:
        """The size that takes as long to set up as to move: half of the bandwidth is reached."""
        return self.latency_s * self.bytes_per_s


def fit_link(points: Sequence[Point]) -> LinkFit:
    """Least squares of the *relative* errors, so that small transfers count as much as large ones.

    Minimises the sum of ((a + b n - t) / t)^2 over points (n bytes, t seconds). Raises
    `LinkFitError` without two sizes, or where more bytes took no longer.
    """
    if len({num_bytes for num_bytes, _ in points}) < 2:
        raise LinkFitError("A link's cost needs transfers of two or more sizes.")
    if any(num_bytes < 0 or seconds <= 0 for num_bytes, seconds in points):
        raise LinkFitError("A transfer has 0 or more bytes and takes more than 0 seconds.")
    latency_s, per_byte = _line(points)
    if latency_s < 0:  # the best line without latency: t = b n
        moved = [n / t for n, t in points]
        latency_s, per_byte = 0.0, sum(moved) / sum(x * x for x in moved)
    if per_byte <= 0:
        raise LinkFitError("The larger transfers took no longer; measure larger sizes.")
    return LinkFit(latency_s, 1 / per_byte)


def _line(points: Sequence[Point]) -> tuple[float, float]:
    """The normal equations of a + b n = t, each point weighted with 1 / t^2."""
    w = sum(1 / t**2 for _, t in points)
    wn = sum(n / t**2 for n, t in points)
    wnn = sum(n * n / t**2 for n, t in points)
    wt = sum(1 / t for _, t in points)
    wnt = sum(n / t for n, t in points)
    determinant = w * wnn - wn * wn
    return (wt * wnn - wnt * wn) / determinant, (w * wnt - wn * wt) / determinant


def medians(samples: Sequence[Point]) -> list[Point]:
    """One point per size, its median time, smallest size first."""
    sizes = sorted({num_bytes for num_bytes, _ in samples})
    return [(size, statistics.median(t for n, t in samples if n == size)) for size in sizes]


def hold_out(points: Sequence[Point]) -> tuple[list[Point], list[Point]]:
    """Points to fit, and every second one between the smallest and the largest to check with."""
    ordered = sorted(points)
    checked = ordered[1:-1:2]
    return [p for p in ordered if p not in checked], checked
