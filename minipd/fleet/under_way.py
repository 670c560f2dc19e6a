"""What a simulated worker has under way: a step, or a row of equal decode steps; and what it costs.

Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from minipd.engine.batch import Batch
from minipd.fleet.timers import Line
from minipd.request import Sequence


@dataclass(frozen=True, slots=True)
class Costs:
    """What workers need beside the model, in seconds and seconds per byte; 0 where unknown.

    `step_s`: scheduling, sampling and reporting of each step. `message_s`: from a worker to the
    coordinator or back. `copy_s_per_byte`: a prefill worker that copies KV itself, during its step.
    `verify_s`, `verify_s_per_byte`: a decode worker checks each hand-off before it uses it.
    """

    step_s: float = 0.0
    message_s: float = 0.0
    copy_s_per_byte: float = 0.0
    verify_s: float = 0.0
    verify_s_per_byte: float = 0.0


@dataclass(slots=True)
class Row:
    """Equal decode steps in one go, begun at `start_s`: step i ends at `end_s(i)`, i from 1."""

    start_s: float
    line: Line
    steps: int
    sequences: list[Sequence]
    is_cut: bool = False

    def end_s(self, step: int) -> float:
        first_s, growth_s, _ = self.line
        return self.start_s + step * first_s + growth_s * (step * (step - 1) / 2)

    def step_at(self, now_s: float) -> int:
        """The step that is under way at `now_s`, counted from 1; one that just ends counts."""
        low, high = 1, self.steps
        start_s, (first_s, growth_s, _) = self.start_s, self.line
        while low < high:
            step = (low + high) // 2  # and when it ends, as in `end_s`
            if start_s + step * first_s + growth_s * (step * (step - 1) / 2) >= now_s:
                high = step
            else:
                low = step + 1
        return low


class Observer(Protocol):
    """Who hears of tokens that have no events of their own (`minipd.fleet.tally`)."""

    def joined(self, worker: str, request_id: str) -> None:
        """A sequence begins to decode on this worker with its next decode step."""
        ...

    def first_gaps(self, worker: str, end_s: float, sequences: list[Sequence]) -> None:
        """A step that ended at `end_s` gave a token to each of these."""
        ...

    def row(self, worker: str, row: Row) -> None:
        """Decode steps that had no event; the gaps before their first tokens are told already."""
        ...


@dataclass(slots=True)
class Step:
    """A step under way: what the scheduler decided, and those that decode beside its prompts."""

    batch: Batch
    writes: list[Sequence]
    seconds: float
