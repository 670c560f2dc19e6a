"""One worker: an executor, a scheduler, and the loop that every serving engine turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from minipd.engine.batch import Batch, Chunk
from minipd.interrupts import let_through
from minipd.request import FinishReason, Request, Sequence
from minipd.timeline import Event


class RunsChunks(Protocol):
    """What a worker needs of an executor (a real one, a paced one, a scripted one in tests)."""

    def run(self, chunks: list[Chunk]) -> list[int]: ...


class Schedules(Protocol):
    """What a worker needs of a scheduler."""

    def add(self, request: Request, now: float) -> Sequence: ...
    def schedule(self, now: float) -> Batch | None: ...
    def complete(self, batch: Batch, token_ids: list[int], now: float) -> None: ...
    def cancel(self, request_id: str, now: float, reason: FinishReason = ...) -> bool: ...
    def drain_events(self) -> list[Event]: ...


class Worker:
    """Schedule, run, record. `clock` returns seconds on the run's shared monotonic clock."""

    def __init__(
        self, executor: RunsChunks, scheduler: Schedules, clock: Callable[[], float]
    ) -> None:
        self.executor = executor
        self.scheduler = scheduler
        self.clock = clock

    def step(self) -> list[Event]:
        """Run one step if there is one to run; returns what happened, oldest first."""
        batch = self.scheduler.schedule(self.clock())
        if batch is not None:
            with let_through():  # a step is the one thing here that can be left half done
                token_ids = self.executor.run(batch.chunks)
            self.scheduler.complete(batch, token_ids, self.clock())
        return self.scheduler.drain_events()
