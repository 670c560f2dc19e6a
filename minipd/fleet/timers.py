"""How long a simulated worker's steps take: from the step-time model, or from measured points.

Every timer answers two questions: how long one step of any mix takes, and how a row of decode steps
goes on, each one token of context longer than the one before. The second is a straight line, so
that many steps can be taken at once. Standard library only.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from minipd.fleet.steps import StepModel
from minipd.fleet.work import Chunk
from minipd.sched.step_times import check_points, step_seconds

EXACT_TOKENS = 256  # up to here lengths are taken as they are
ROUNDING = 128  # beyond, to a 128th of the next power of two
KNOT_GROWTH = 1.25  # context lengths at which decode steps are computed; lines between
MAX_REMEMBERED = 200_000  # steps


class Read(NamedTuple):
    """A prompt, or a piece of one: `new` tokens after `start` that are there already."""

    new: int
    start: int


class Line(NamedTuple):
    """The next `steps` decode steps: the first takes `first_s`, each other `growth_s` more."""

    first_s: float
    growth_s: float
    steps: int


class Timer(Protocol):
    """`context` counts the cached tokens of all `sequences` together, before the step.

    `pipelined`: how many prompts a prefill worker may have under way, one behind the other.
    """

    @property
    def pipelined(self) -> int: ...

    def seconds(self, reads: Sequence[Read], sequences: int, context: int) -> float: ...

    def decode_line(self, sequences: int, context: int) -> Line: ...


@dataclass(slots=True)
class ModelTimer:
    """Step times of `StepModel`, remembered. Long lengths are rounded, to 0.4 % at most.

    Decode steps are computed at certain context lengths and taken from lines between them. A
    replica's pipeline stages and attention replicas share its sequences evenly: each works on its
    part, all at once.
    """

    model: StepModel
    _steps: dict[object, float] = field(default_factory=dict[object, float])
    _knots: list[float] = field(default_factory=lambda: [0.0, 64.0])
    _lines: dict[tuple[int, int], tuple[float, float]] = field(
        default_factory=dict[tuple[int, int], tuple[float, float]]
    )
    _num_parts: int = field(init=False)

    def __post_init__(self) -> None:
        self._num_parts = self.model.parallel.pp * self.model.parallel.attention_replicas

    @property
    def pipelined(self) -> int:
        return self.model.parallel.pp

    def seconds(self, reads: Sequence[Read], sequences: int, context: int) -> float:
        if not reads:
            return self.decode_line(sequences, context).first_s
        mine = tuple(_rounded(read) for read in reads[:: self.model.parallel.attention_replicas])
        share = self._share(sequences)
        mean_context = _roughly(round(context / sequences)) if sequences else 0
        key = (mine, share, mean_context)
        if key not in self._steps:
            decodes = [Chunk(1, float(mean_context), share)] if share else []
            chunks = [Chunk(read.new, float(read.start)) for read in mine]
            self._remember(key, self.model.step([*chunks, *decodes]).seconds)
        return self._steps[key]

    def decode_line(self, sequences: int, context: int) -> Line:
        mean_context, share = context / sequences, self._share(sequences)
        knots = self._knots
        while knots[-1] <= mean_context:
            knots.append(math.ceil(knots[-1] * KNOT_GROWTH))
        at = bisect_left(knots, mean_context + 1e-9) - 1
        low_s, growth_s = self._lines.get((share, at)) or self._line_from(share, at)
        first_s = low_s + growth_s * (mean_context - knots[at])
        return Line(first_s, growth_s, math.ceil(knots[at + 1] - mean_context) or 1)

    def _line_from(self, share: int, at: int) -> tuple[float, float]:
        """The seconds at a knot, and how they grow with each token from there to the next."""
        low, high = self._knots[at], self._knots[at + 1]
        low_s, high_s = self._decode_s(share, low), self._decode_s(share, high)
        if len(self._lines) >= MAX_REMEMBERED:
            self._lines.clear()
        line = self._lines[share, at] = low_s, (high_s - low_s) / (high - low)
        return line

    def _share(self, sequences: int) -> int:
        return -(-sequences // self._num_parts)

    def _decode_s(self, sequences: int, context: float) -> float:
        key = (sequences, context)
        found = self._steps.get(key)
        if found is None:
            found = self.model.decode_s(context, sequences)
            self._remember(key, found)
        return found

    def _remember(self, key: object, seconds: float) -> None:
        if len(self._steps) >= MAX_REMEMBERED:
            self._steps.clear()
        self._steps[key] = seconds


def _rounded(read: Read) -> Read:
    return Read(_roughly(read.new), _roughly(read.start))


def _roughly(tokens: int) -> int:
    if tokens <= EXACT_TOKENS:
        return tokens
    unit = max(1, (1 << tokens.bit_length()) // ROUNDING // 2)
    return round(tokens / unit) * unit


@dataclass(frozen=True, slots=True)
class PointTimer:
    """Measured step times, by the rule that the engine's paced workers follow (`step_seconds`).

    `prefill` is (prompt tokens, seconds) of a prompt alone; `decode` is (sequences, seconds)
    without context, and `per_context_token_s` what each token of context in the batch adds.
    """

    prefill: tuple[tuple[float, float], ...]
    decode: tuple[tuple[float, float], ...]
    per_context_token_s: float = 0.0
    pipelined: int = 1

    def __post_init__(self) -> None:
        check_points("prefill", self.prefill)
        check_points("decode", self.decode)

    def seconds(self, reads: Sequence[Read], sequences: int, context: int) -> float:
        slope_s, behind = self.per_context_token_s, context + sequences
        return step_seconds(self.prefill, self.decode, slope_s, reads, sequences, behind)

    def decode_line(self, sequences: int, context: int) -> Line:
        return Line(
            self.seconds([], sequences, context), sequences * self.per_context_token_s, 1 << 30
        )


@dataclass(frozen=True, slots=True)
class FixedTimer:
    """Every prompt takes `prefill_s` and every decode step `decode_s`: for checks by hand."""

    prefill_s: float
    decode_s: float = 0.0
    pipelined: int = 1

    def seconds(self, reads: Sequence[Read], sequences: int, context: int) -> float:
        return self.prefill_s * len(reads) + (self.decode_s if sequences else 0.0)

    def decode_line(self, sequences: int, context: int) -> Line:
        return Line(self.decode_s, 0.0, 1 << 30)
