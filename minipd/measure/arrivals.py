"""When requests come: seeded arrival processes as endless streams of times in seconds.

The random numbers come from a `random.Random` that the caller owns, so the same seed gives the
same times everywhere. Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Literal

ArrivalProcess = Literal["poisson", "gamma", "uniform"]
MIN_CV, MAX_CV = 0.01, 100.0

DAY_S = 86_400.0


class WorkloadError(ValueError):
    """A workload that cannot be generated as asked; the message says what to change."""


def check_rate(rate_per_s: float) -> None:
    if not (math.isfinite(rate_per_s) and rate_per_s > 0.0):
        raise WorkloadError(
            f"The request rate is {rate_per_s}; use a number of requests/s above 0."
        )


def check_day(day_s: float) -> None:
    if not (math.isfinite(day_s) and day_s > 0.0):
        raise WorkloadError(f"The length of a day is {day_s} s; use seconds above 0.")


def gaps(process: ArrivalProcess, rate_per_s: float, rng: Random, cv: float) -> Iterator[float]:
    """Endless gaps between arrivals, mean `1 / rate_per_s` seconds.

    `cv` is the coefficient of variation (standard deviation over mean) of gamma gaps: 1 is
    Poisson, above 1 comes in bursts. vLLM's `burstiness` is `1 / cv**2` (facts section 4, trap 7).
    Azure's 2023 traces have 13.15 (code) and 1.09 (chat).
    """
    check_rate(rate_per_s)
    if process == "gamma" and not MIN_CV <= cv <= MAX_CV:
        raise WorkloadError(
            f"The burstiness cv is {cv}; use {MIN_CV:g} to {MAX_CV:g} (1 is Poisson)."
        )
    mean_s = 1.0 / rate_per_s
    while True:
        if process == "poisson":
            yield rng.expovariate(rate_per_s)
        elif process == "gamma":
            yield rng.gammavariate(1.0 / cv**2, mean_s * cv**2)
        else:
            yield mean_s


def arrival_times(
    process: ArrivalProcess, rate_per_s: float, rng: Random, cv: float = 1.0
) -> Iterator[float]:
    """Endless arrival times, the first one gap after 0."""
    now_s = 0.0
    for gap_s in gaps(process, rate_per_s, rng, cv):
        now_s += gap_s
        yield now_s


def varying_times(
    rate_at: Callable[[float], float], peak_rate_per_s: float, rng: Random
) -> Iterator[float]:
    """Poisson arrivals whose rate changes: `rate_at(t_s)`, never above `peak_rate_per_s`.

    Thinning: draw at the peak rate and keep each with the chance `rate_at(t) / peak`.
    """
    for now_s in arrival_times("poisson", peak_rate_per_s, rng):
        rate = rate_at(now_s)
        assert 0.0 <= rate <= peak_rate_per_s * 1.000001, "rate_at must stay within the peak rate"
        if rng.random() * peak_rate_per_s < rate:
            yield now_s


def day_curve(
    mean_rate_per_s: float, day_s: float = DAY_S, swing: float = 0.8, peak_hour: float = 15.0
) -> Callable[[float], float]:
    """Rate over a day: a sine of the given mean, highest at `peak_hour`, lowest 12 hours away.

    `swing` is the height over the mean (0 flat, 1 falls to nothing). `day_s` may be squeezed so
    that a whole day passes in a minute. The shape is ours, for teaching: no trace stands behind it.
    """
    check_rate(mean_rate_per_s)
    check_day(day_s)
    if not 0.0 <= swing <= 1.0:
        raise WorkloadError(f"swing is {swing}; use 0 (flat) to 1 (nothing at night).")

    def rate_at(t_s: float) -> float:
        hour = 24.0 * (t_s % day_s) / day_s
        return mean_rate_per_s * (1.0 + swing * math.cos(2 * math.pi * (hour - peak_hour) / 24.0))

    return rate_at
