"""Lesson 11's best case for wide expert parallelism: prompts cut evenly over attention replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minipd.fleet.timers import Line, ModelTimer, Read


@dataclass(frozen=True, slots=True)
class EvenTimer:
    """Every step's prompts cut so finely that each attention replica reads an equal part.

    The best case. `ModelTimer` has a prompt read by *one* replica, while the others of the group
    wait for it in the experts, as today's engines with data-parallel attention do.
    """

    inner: ModelTimer

    @property
    def pipelined(self) -> int:
        return self.inner.pipelined

    def seconds(self, reads: Sequence[Read], sequences: int, context: int) -> float:
        replicas = self.inner.model.parallel.attention_replicas
        new = sum(read.new for read in reads)
        if not new or replicas == 1:
            return self.inner.seconds(reads, sequences, context)
        middle = sum(read.new * (read.start + read.new / 2) for read in reads) / new
        share = -(-new // replicas)
        return self.inner.seconds(
            [Read(share, max(0, round(middle - share / 2)))], sequences, context
        )

    def decode_line(self, sequences: int, context: int) -> Line:
        return self.inner.decode_line(sequences, context)
