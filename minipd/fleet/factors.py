"""The few named numbers that stand between what a device promises and what programs reach on it.

Seven are shares of a promised rate, two are seconds, one is a share of a wave. They belong to a
device with its kernels, not to a model: that is what lets times measured with some models predict
others. Committed values are in `data/factors.json`, with what they were fitted on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Factors:
    """Shares are of the hardware table's FLOP/s or bytes/s; all values are above 0."""

    matrix: float
    """share of the FLOP/s that a large matrix product reaches"""
    memory: float
    """share of the bandwidth when weights and activations stream from memory"""
    attention: float
    """share of the FLOP/s that attention over a prompt reaches"""
    cache: float
    """share of the bandwidth when a decode step reads the KV cache"""
    experts: float
    """share of the FLOP/s of the grouped products of routed experts"""
    expert_memory: float
    """share of the bandwidth when experts' weights are read"""
    tail: float
    """part of a wave of tiles (on a CPU, of a tile of rows) that is computed in vain"""
    launch_s: float
    """seconds to start one kernel, or between one and the next"""
    link: float
    """share of the link's bytes/s in collective operations"""
    link_latency_s: float
    """seconds per round of a collective operation"""

    def logs(self) -> list[float]:
        return [math.log(value) for value in asdict(self).values()]

    @classmethod
    def from_logs(cls, logs: Sequence[float]) -> Factors:
        return cls(*(math.exp(value) for value in logs))


NAMES = tuple(field.name for field in fields(Factors))


@dataclass(frozen=True, slots=True)
class Prior:
    """What is believed before any measurement: a centre, and how far off it may well be.

    `widths` are standard deviations of the logarithm: 0.5 says "within a factor of 1.6, two times
    in three".
    """

    centre: Factors
    widths: Factors


# Centres: round figures near those of the two devices with committed factors. Widths: wide enough
# for a device of another make; they only decide where a file has few rows.
GPU_PRIOR = Prior(
    Factors(0.80, 0.85, 0.50, 0.80, 0.50, 0.85, 0.40, 5e-6, 0.70, 6e-6),
    Factors(0.50, 0.40, 0.60, 0.50, 0.80, 0.40, 0.70, 1.0, 1.00, 1.00),
)
CPU_PRIOR = Prior(
    Factors(0.75, 0.70, 0.40, 0.60, 0.50, 0.60, 0.15, 2e-5, 0.70, 1e-5),
    Factors(0.30, 0.30, 0.50, 0.50, 0.50, 0.50, 0.70, 1.0, 0.30, 0.30),
)
UNLISTED_PRIOR = Prior(GPU_PRIOR.centre, Factors(2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 0.50, 1.0, 2.0, 1.0))


@cache
def committed() -> Mapping[str, Factors]:
    """Factors fitted and committed with this package, by device key."""
    raw = json.loads(files("minipd.fleet").joinpath("data/factors.json").read_text("utf-8"))
    return {key: Factors(**entry["factors"]) for key, entry in raw["devices"].items()}
