"""Waiting in front of one prefill worker: the M/D/1 queue in three forms (DistServe, OSDI'24).

Requests come as a Poisson stream of `rate_per_s`, all prompts are alike and take `execution_s` on
one worker. Mean TTFT = service + mean wait. Standard library only; facts 2.1, checks C2.
"""

from __future__ import annotations


class OverloadError(ValueError):
    """More work arrives than can be done: the queue grows for ever."""


def _check(rate_per_s: float, execution_s: float, limit: float) -> float:
    load = rate_per_s * execution_s
    if rate_per_s < 0.0 or execution_s <= 0.0:
        raise ValueError("Use a rate of 0 or more and an execution time above 0.")
    if load >= limit:
        raise OverloadError(
            f"Work arrives {load / limit:.2f} times as fast as it is done; lower the rate or add "
            "workers."
        )
    return load


def single_ttft_s(rate_per_s: float, execution_s: float) -> float:
    """One worker: `D + R D^2 / (2 (1 - R D))` (eq. 1), for R D < 1."""
    load = _check(rate_per_s, execution_s, 1.0)
    return execution_s + load * execution_s / (2.0 * (1.0 - load))


def replicated_ttft_s(rate_per_s: float, execution_s: float, workers: int) -> float:
    """`workers` alike, each with its own share of the arrivals (a random router)."""
    return single_ttft_s(rate_per_s / workers, execution_s)


def pipeline_ttft_s(rate_per_s: float, execution_s: float) -> float:
    """Two pipeline stages: `D + R D^2 / (4 (2 - R D))` (eq. 2), for R D < 2.

    Service stays D, but the next prompt may start after D / 2.
    """
    load = _check(rate_per_s, execution_s, 2.0)
    return execution_s + load * execution_s / (4.0 * (2.0 - load))


def tensor_ttft_s(rate_per_s: float, execution_s: float, speedup: float) -> float:
    """Two-way tensor parallel: `D/K + R D^2 / (2 K (K - R D))` (eq. 3), for R D < K, 1 < K < 2.

    `speedup` is K: how much faster two devices run one prompt.
    """
    load = _check(rate_per_s, execution_s, speedup)
    return execution_s / speedup + load * execution_s / (2.0 * speedup * (speedup - load))


def parallel_crossover(speedup: float) -> float:
    """The load R D at which pipeline and tensor parallelism give the same TTFT (1 < K < 2).

    Below it tensor parallel wins (shorter service), above it pipeline (shorter queue). Found by
    halving: with D = 1 the difference grows steadily with the load.
    """
    if not 1.0 < speedup < 2.0:
        raise ValueError(f"speedup is {speedup}; two devices give more than 1 and less than 2.")
    low, high = 0.0, speedup
    for _ in range(60):
        middle = (low + high) / 2.0
        if tensor_ttft_s(middle, 1.0, speedup) < pipeline_ttft_s(middle, 1.0):
            low = middle
        else:
            high = middle
    return (low + high) / 2.0
