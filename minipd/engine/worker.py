"""One worker: an executor, a scheduler, and the loop that every serving engine turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from minipd.cache.allocator import BlockAllocator
from minipd.cache.tiers import Copied, KVTiers
from minipd.engine.batch import Batch, Chunk
from minipd.interrupts import let_through
from minipd.request import FinishReason, Request, Sequence
from minipd.timeline import Event, Value


class RunsChunks(Protocol):
    """What a worker needs of an executor (a real one, a paced one, a scripted one in tests)."""

    def run(self, chunks: list[Chunk]) -> list[int]: ...


class Schedules(Protocol):
    """What a worker needs of a scheduler."""

    worker: str
    allocator: BlockAllocator

    def add(self, request: Request, now: float) -> Sequence: ...
    def schedule(self, now: float) -> Batch | None: ...
    def complete(self, batch: Batch, token_ids: list[int], now: float) -> None: ...
    def cancel(self, request_id: str, now: float, reason: FinishReason = ...) -> bool: ...
    def take_back(self, unfilled: dict[int, bytes], batch: Batch | None) -> Batch | None: ...
    def drain_events(self) -> list[Event]: ...


class Worker:
    """Schedule, fetch, run, record. `clock` returns seconds on the run's shared monotonic clock.

    `tiers`, if any, lie below the executor's store; their books are the allocator's.
    """

    def __init__(
        self,
        executor: RunsChunks,
        scheduler: Schedules,
        clock: Callable[[], float],
        tiers: KVTiers | None = None,
    ) -> None:
        self.executor = executor
        self.scheduler = scheduler
        self.clock = clock
        self.tiers = tiers
        self._moved: list[Event] = []

    def step(self) -> list[Event]:
        """Run one step if there is one to run; returns what happened, oldest first."""
        batch = self.scheduler.schedule(self.clock())
        if self.tiers is not None:
            batch = self.move_blocks(self.tiers, batch)
        if batch is not None:
            with let_through():  # a step is the one thing here that can be left half done
                token_ids = self.executor.run(batch.chunks)
            self.scheduler.complete(batch, token_ids, self.clock())
        events = self.scheduler.drain_events()
        if self._moved:
            events, self._moved = sorted([*events, *self._moved], key=lambda e: e.t_s), []
        return events

    def move_blocks(self, tiers: KVTiers, batch: Batch | None) -> Batch | None:
        """Carry out what the allocator has noted down; hands back the batch that can run now."""
        moves = tiers.books.take_moves()
        if not moves:
            return batch
        outcome = tiers.carry_out(moves)
        if outcome.unfilled:
            batch = self.scheduler.take_back(outcome.unfilled, batch)
        self._moved += [self._event(copied, tiers.block_bytes) for copied in outcome.copied]
        return batch

    def _event(self, copied: Copied, block_bytes: int) -> Event:
        tokens = copied.blocks * self.scheduler.allocator.block_size
        told: dict[str, Value] = {"tier": copied.tier, "tokens": tokens}
        if copied.kind == "kv_lost":
            told["reason"] = copied.reason
        else:
            told |= {"bytes": copied.blocks * block_bytes, "seconds": copied.seconds}
        return Event(copied.end_s, copied.kind, self.scheduler.worker, copied.request_id, told)
