"""The step-time model: seconds of a step, from its operations, a device and that device's factors.

Every operation takes the longer of two times, arithmetic and memory, with the corner between them
rounded, plus its launches:

    t = (t_arithmetic ** 4 + t_memory ** 4) ** (1 / 4) + launches * launch_s
    t_arithmetic = FLOPs / (share * FLOP/s),    t_memory = bytes / (share * bytes/s)

This is the roofline (Williams, Waterman and Patterson, CACM 52(4), 2009) taken kernel by kernel; a
step is the sum over its kernels, since each needs the result of the one before. The exponent 4 says
how sharply a kernel turns from one limit to the other: where both bind equally it takes 1.19 times
as long as either alone.

Matrix products have one more term. A device computes tiles of the output, `tile_units` at a time; w
waves of tiles take w whole rounds, and part of the last one idles. So arithmetic is multiplied by
`1 + tail / max(1, w)`: large products do not notice, short prompts on many devices do. On a CPU,
where `tile_units` is None, the idle part is rows instead: products of few rows (but not of one,
which takes another path) compute as if they had `tail * 128` more.

Exchanges between devices (see `collectives`) are added in full, unless `overlap` says that two
half-batches take turns, one computing while the other exchanges (DeepSeek-V3's two micro-batches):
then a step takes the longer of the two sums, which is the best that overlap can do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minipd.fleet import collectives
from minipd.fleet.factors import Factors
from minipd.fleet.gpus import Device
from minipd.fleet.models import SKEW, Model
from minipd.fleet.work import (
    TILE,
    Chunk,
    Operation,
    Parallel,
    decode_step,
    prefill_step,
    step_work,
)

CORNER = 4.0
EXCHANGES = ("all_reduce", "all_to_all", "send")
ARITHMETIC = {
    "matrix": "matrix",
    "experts": "experts",
    "attention": "attention",
    "cache": "attention",
}
MEMORY = {"matrix": "memory", "experts": "expert_memory", "attention": "memory", "cache": "cache"}


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step from its first kernel to its last, and the part of each kind of operation.

    `stage_s` is how often a full pipeline finishes a step: with pp stages at work on different
    batches, a step leaves every `seconds / pp` (stages taken as equal).
    """

    parts: dict[str, float]
    pp: int = 1
    overlap: bool = False

    @property
    def exchange_s(self) -> float:
        return sum(self.parts.get(kind, 0.0) for kind in EXCHANGES)

    @property
    def seconds(self) -> float:
        computing = sum(self.parts.values()) - self.exchange_s
        return max(computing, self.exchange_s) if self.overlap else computing + self.exchange_s

    @property
    def stage_s(self) -> float:
        return self.seconds / self.pp


@dataclass(frozen=True, slots=True)
class StepModel:
    """One model on one kind of device, spread in one way: answers how long any step takes."""

    model: Model
    device: Device
    factors: Factors
    parallel: Parallel = Parallel()
    skew: float = SKEW
    overlap: bool = False

    def step(self, chunks: Sequence[Chunk]) -> StepTime:
        """A step of any mix of prompts, pieces of prompts and decoding sequences."""
        work = step_work(self.model, chunks, self.parallel, self.skew)
        rate = self.device.flops_for(self.model.arithmetic)
        parts = work_time(work, self.device, rate, self.factors).parts
        return StepTime(parts, self.parallel.pp, self.overlap)

    def prefill_s(self, tokens: int, sequences: int = 1, cached: int = 0) -> float:
        """Seconds to read `sequences` prompts of `tokens` new tokens after `cached` reused ones."""
        return self.step(prefill_step(tokens, sequences, cached)).seconds

    def decode_s(self, context: float, sequences: int) -> float:
        """Seconds of one decode step of `sequences` sequences with `context` cached tokens each."""
        return self.step(decode_step(context, sequences)).seconds


def work_time(
    work: Sequence[Operation], device: Device, flops_per_s: float, factors: Factors
) -> StepTime:
    """The seconds that each kind of operation adds to a step."""
    parts: dict[str, float] = {}
    for operation in work:
        seconds = operation.times * operation_s(operation, device, flops_per_s, factors)
        parts[operation.kind] = parts.get(operation.kind, 0.0) + seconds
    return StepTime(parts)


def operation_s(
    operation: Operation, device: Device, flops_per_s: float, factors: Factors
) -> float:
    """Seconds of one of an operation's `times`, on one device."""
    kind = operation.kind
    if kind in EXCHANGES:
        return _exchange_s(operation, device, factors)
    start = operation.launches * factors.launch_s
    if not device.tile_units and kind in ("attention", "cache"):
        start *= operation.rows  # a CPU attends one sequence after the other
    if kind == "elementwise":
        return operation.num_bytes / (factors.memory * device.bytes_per_s) + start
    reached = getattr(factors, ARITHMETIC[kind]) * flops_per_s
    arithmetic = operation.flops / reached * _waves(operation, device, factors)
    memory = operation.num_bytes / (getattr(factors, MEMORY[kind]) * device.bytes_per_s)
    return round_corner(arithmetic, memory) + start


def round_corner(a: float, b: float) -> float:
    """The larger of two times, with the corner between them rounded."""
    large, small = (a, b) if a > b else (b, a)
    return large * (1.0 + (small / large) ** CORNER) ** (1.0 / CORNER) if large else 0.0


def _waves(operation: Operation, device: Device, factors: Factors) -> float:
    if operation.kind != "matrix":
        return 1.0
    if device.tile_units:
        return 1.0 + factors.tail / max(1.0, operation.tiles / device.tile_units)
    return 1.0 + factors.tail * TILE / operation.rows if operation.rows > 1 else 1.0


def _exchange_s(operation: Operation, device: Device, factors: Factors) -> float:
    rate = factors.link * collectives.spec_rate(device, operation.devices)
    link = collectives.Link(rate, factors.link_latency_s)
    if operation.kind == "all_reduce":
        return collectives.all_reduce_s(operation.num_bytes, operation.devices, link)
    if operation.kind == "all_to_all":
        per_node = device.link_devices
        return collectives.all_to_all_s(
            operation.num_bytes, operation.devices, operation.copies, per_node, link
        )
    return collectives.send_s(operation.num_bytes, link)
