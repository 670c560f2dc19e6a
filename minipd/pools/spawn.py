"""Starting workers: as threads of this process or as processes of their own.

Both kinds are driven the same way: `submit` a message, `poll` for messages, neither ever blocks.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from minipd.cache.tier_sizes import TierSizes
from minipd.interrupts import unseen_by_children
from minipd.pools import messages as m
from minipd.pools.loop import process_main, serve

if TYPE_CHECKING:  # a worker process sets its cores before it imports torch
    from minipd.pools.links.base import Link
    from minipd.pools.paced import Pace

SILENT_S = 30.0  # a worker process whose heart has not beaten for so long is taken for dead
SILENT_AT_START_S = 150.0  # torch's libraries may come from a slow disk, and hold all threads still


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """All that a worker needs to start, picklable. `cpus` empty means: leave it unpinned."""

    name: str
    epoch: int
    model: str
    device: str
    dtype: str
    num_blocks: int
    block_size: int
    link: Link
    cpus: tuple[int, ...] = ()
    threads: int = 1
    sm_share: float | None = None
    deterministic: bool = False
    pace: Pace | None = None
    tiers: TierSizes = TierSizes()


class WorkerHandle(Protocol):
    """The coordinator's end of one worker."""

    spec: WorkerSpec

    def submit(self, message: m.ToWorker) -> None: ...

    def poll(self) -> list[m.FromWorker]: ...

    @property
    def is_alive(self) -> bool: ...

    @property
    def waitables(self) -> list[Any]:
        """What becomes ready when there may be something to poll (for threads: nothing)."""
        ...

    def kill(self) -> None: ...

    def close(self) -> None: ...


# -- processes --------------------------------------------------------------------------------


class ProcessWorker:
    """A worker in its own process, started by `spawn`; messages travel through a pipe.

    A thread does the sending: a pipe holds little, and a worker in the middle of a long prefill
    does not read, so that coordinator and worker could wait for each other for ever.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        pickled = pickle.dumps(spec)  # opened only after the cores are set: it imports torch
        self._beat = context.Value("d", time.monotonic(), lock=False)  # one clock for all processes
        self._asked_s = self._since_s = time.monotonic()
        self._has_spoken = False
        args = (spec.cpus, spec.threads, pickled, theirs, self._beat)
        self.process = context.Process(target=process_main, args=args, name=spec.name, daemon=True)
        with unseen_by_children():
            self.process.start()
        theirs.close()
        self._outbox: queue.SimpleQueue[m.ToWorker | None] = queue.SimpleQueue()
        self._sender = threading.Thread(target=self._send_all, name=f"to {spec.name}", daemon=True)
        self._sender.start()

    def submit(self, message: m.ToWorker) -> None:
        self._outbox.put(message)

    def _send_all(self) -> None:
        with contextlib.suppress(OSError):  # it died; `is_alive` says so
            while (message := self._outbox.get()) is not None:
                self._connection.send(message)

    def poll(self) -> list[m.FromWorker]:
        received: list[m.FromWorker] = []
        with contextlib.suppress(EOFError, OSError):  # also where it died in the middle of a word
            while self._connection.poll():
                received.append(self._connection.recv())
                self._has_spoken = True  # so it has started
        return received

    @property
    def is_alive(self) -> bool:
        """Running, and not hung: a thread of the process shows that it still gets its turns."""
        now = time.monotonic()
        if now - self._asked_s > SILENT_S / 2:  # nobody asked: we, and it, may have been stopped
            self._since_s = now
        self._asked_s = now
        patience_s = SILENT_S if self._has_spoken else SILENT_AT_START_S
        return self.process.is_alive() and now - max(self._beat.value, self._since_s) < patience_s

    @property
    def waitables(self) -> list[Any]:
        return [self._connection, self.process.sentinel]

    def kill(self) -> None:
        """Returns when it can write nowhere any more."""
        self.process.kill()
        self.process.join()
        self._outbox.put(None)
        self._sender.join()
        self._connection.close()

    def close(self) -> None:
        self.submit(m.Stop())
        self.process.join(timeout=5)
        self.kill()


# -- threads ----------------------------------------------------------------------------------


class ThreadWorker:
    """A worker in a thread of this process, on a CUDA stream of its own where there is one."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self._inbox: queue.SimpleQueue[m.ToWorker] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[m.FromWorker] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=spec.name, daemon=True)
        self._thread.start()

    def submit(self, message: m.ToWorker) -> None:
        self._inbox.put(message)

    def poll(self) -> list[m.FromWorker]:
        received: list[m.FromWorker] = []
        while not self._outbox.empty():
            received.append(self._outbox.get())
        return received

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def waitables(self) -> list[Any]:
        return []

    def kill(self) -> None:
        self._inbox.put(m.Stop())  # a thread can only be asked

    def close(self) -> None:
        self._inbox.put(m.Stop())
        self._thread.join(timeout=30)

    def _run(self) -> None:
        serve(lambda: self.spec, self._outbox.put, self._receive, in_thread=True)

    def _receive(self, wait_s: float) -> list[m.ToWorker]:
        received: list[m.ToWorker] = []
        try:
            received.append(self._inbox.get(timeout=wait_s) if wait_s else self._inbox.get_nowait())
            while True:
                received.append(self._inbox.get_nowait())
        except queue.Empty:
            return received
