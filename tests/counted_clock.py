"""A cluster in threads on a clock that is counted: a busy machine cannot change what it shows.

Paced steps and the emulated network take counted seconds, everything else takes none: time moves on
only when every worker sleeps through a step or has nothing left to do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from minipd.pools import build, cluster, paced, spawn, supervisor
from minipd.pools import messages as m
from minipd.pools.cluster import Cluster
from minipd.pools.links import emulated

HUNG_S = 300.0  # of real time in which nobody came to rest


class Clock:
    """The time of one cluster, of its workers and of its wires."""

    def __init__(self) -> None:
        self.now, self.wanted_s = 0.0, 0.0
        self.mover = threading.get_ident()  # whoever made it is the one who moves it on
        self.moves = 0  # how often time has moved on
        self.changed = threading.Condition()
        self.workers: list[CountedThread] = []
        self.sleeping: dict[int, float] = {}  # thread: when it is due
        self.under_way: list[tuple[float, Callable[[], None]]] = []  # on a wire: due, delivery

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Of a worker in a step."""
        me = threading.get_ident()
        assert me != self.mover, "only a worker may sleep: nobody else moves the clock"
        with self.changed:
            self.sleeping[me] = self.now + seconds
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: me not in self.sleeping, HUNG_S), "nobody woke it"

    def rest(self, seconds: float) -> None:
        """Of the coordinator, which looks again as soon as there may be something to read."""
        give_up = time.monotonic() + HUNG_S
        with self.changed:
            while not self._has_news() and not all(w.is_still for w in self.workers):
                assert time.monotonic() < give_up, "the workers do not come to rest"
                self.changed.wait(0.01)
            if not self._has_news():
                self.move_to(self.now + max(seconds, self.wanted_s))

    def _has_news(self) -> bool:
        return any(not w._outbox.empty() for w in self.workers)

    def move_to(self, until: float) -> None:
        """As far as that, or to the first moment at which a sleeper or a wire is due."""
        with self.changed:
            due = [*self.sleeping.values(), *(due for due, _ in self.under_way)]
            self.now = max(self.now, min([until, *due]))
            arrived = [deliver for due, deliver in self.under_way if due <= self.now]
            self.under_way = [one for one in self.under_way if one[0] > self.now]
            for deliver in arrived:
                deliver()
            self.sleeping = {who: due for who, due in self.sleeping.items() if due > self.now}
            self.moves += 1
            self.changed.notify_all()


class CountedThread(spawn.ThreadWorker):
    """Tells when it has nothing to do until time moves on or a message comes."""

    clock: Clock

    def __init__(self, spec: spawn.WorkerSpec) -> None:
        self.moves_seen, self.waits, self.ident = -1, False, 0
        self.clock.workers.append(self)
        super().__init__(spec)

    @property
    def is_still(self) -> bool:
        if not self.is_alive or self.ident in self.clock.sleeping:
            return True
        return self.waits and self._inbox.empty() and self.moves_seen == self.clock.moves

    def submit(self, message: m.ToWorker) -> None:
        with self.clock.changed:
            super().submit(message)
            self.clock.changed.notify_all()

    def kill(self) -> None:
        self._leave()
        super().kill()

    def close(self) -> None:
        self._leave()
        super().close()

    def _leave(self) -> None:
        """Time no longer waits for it, nor does it for time."""
        with self.clock.changed:
            self.clock.sleeping.pop(self.ident, None)
            self.clock.workers = [w for w in self.clock.workers if w is not self]
            self.clock.changed.notify_all()

    def _receive(self, wait_s: float) -> list[m.ToWorker]:
        """The turn before this call was made at `moves_seen`: with what lay there at that time."""
        clock, self.ident = self.clock, threading.get_ident()
        with clock.changed:
            self.waits = wait_s > 0
            clock.changed.notify_all()
            while self.waits and self._inbox.empty() and self.moves_seen == clock.moves:
                clock.changed.wait(0.05)  # a word to stop comes without a notice
            self.waits, self.moves_seen = False, clock.moves
        return super()._receive(0.0)


class CountedWire(emulated.Wire):
    """Carries without a thread: what it would queue up, the clock delivers."""

    clock: Clock

    def __init__(self, network: emulated.Network, block_bytes: int) -> None:
        self.network, self.block_bytes, self._free_at_s = network, block_bytes, 0.0
        self._jobs = SimpleNamespace(put=self._accept)  # type: ignore[assignment]

    def _accept(self, job: emulated.Job) -> None:
        def arrive() -> None:
            try:
                with torch.inference_mode():
                    job.deliver()
            except Exception as failure:
                job.failed(failure)

        with self.clock.changed:
            self.clock.under_way.append((job.due_s, arrive))

    def close(self) -> None: ...


def count_time(patch: pytest.MonkeyPatch) -> Clock:
    """From now on clusters in threads, one after another, live by the clock that is returned."""
    clock = Clock()
    times = SimpleNamespace(monotonic=clock.monotonic, sleep=clock.sleep)
    poll = Cluster.poll

    def noted(self: Cluster, timeout_s: float) -> None:
        clock.wanted_s = timeout_s
        poll(self, timeout_s)

    for module in (paced, build, emulated):
        patch.setattr(module, "time", times)
    patch.setattr(cluster, "time", SimpleNamespace(monotonic=clock.monotonic, sleep=clock.rest))
    patch.setattr(Cluster, "poll", noted)
    worker = type("CountedThread", (CountedThread,), {"clock": clock})
    patch.setattr(supervisor, "ThreadWorker", worker)
    patch.setattr(emulated, "Wire", type("CountedWire", (CountedWire,), {"clock": clock}))
    return clock
