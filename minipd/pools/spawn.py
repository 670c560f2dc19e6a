"""Starting workers: as threads of this process or as processes of their own.

Both kinds are driven the same way: `submit` a message, `poll` for messages, neither ever blocks.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Protocol

import psutil

from minipd.pools import messages as m

if TYPE_CHECKING:  # a worker process sets its cores before it imports torch
    from minipd.pools.links.base import Link
    from minipd.pools.paced import Pace
    from minipd.pools.worker import PoolWorker

IDLE_WAIT_S = 0.05
TRANSFER_WAIT_S = 0.0005
BUILDING = threading.Lock()  # libraries that import themselves lazily are not safe in two threads


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
    deterministic: bool = False
    pace: Pace | None = None


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
    """A worker in its own process, started by `spawn`; messages travel through a pipe."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self.process = context.Process(
            target=_process_main, args=(spec, theirs), name=spec.name, daemon=True
        )
        self.process.start()
        theirs.close()

    def submit(self, message: m.ToWorker) -> None:
        try:
            self._connection.send(message)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it died; `is_alive` says so

    def poll(self) -> list[m.FromWorker]:
        received: list[m.FromWorker] = []
        try:
            while self._connection.poll():
                received.append(self._connection.recv())
        except (EOFError, ConnectionResetError, BrokenPipeError):
            pass
        return received

    @property
    def is_alive(self) -> bool:
        return self.process.is_alive()

    @property
    def waitables(self) -> list[Any]:
        return [self._connection, self.process.sentinel]

    def kill(self) -> None:
        self.process.kill()

    def close(self) -> None:
        self.submit(m.Stop())
        self.process.join(timeout=5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self._connection.close()


def _process_main(spec: WorkerSpec, connection: Connection) -> None:
    os.environ["OMP_NUM_THREADS"] = str(spec.threads)
    if spec.cpus and hasattr(psutil.Process, "cpu_affinity"):  # not on macOS
        psutil.Process().cpu_affinity(list(spec.cpus))
    try:
        import torch

        torch.set_num_threads(spec.threads)
        _serve(spec, connection.send, lambda wait_s: _receive(connection, wait_s))
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        pass  # the coordinator is gone or going
    finally:
        connection.close()


def _receive(connection: Connection, wait_s: float) -> list[m.ToWorker]:
    received: list[m.ToWorker] = []
    while connection.poll(wait_s if not received else 0):
        received.append(connection.recv())
    return received


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
        import torch

        device = torch.device(self.spec.device)
        module = torch.get_device_module(device)
        with module.stream(module.Stream()):
            _serve(self.spec, self._outbox.put, self._receive)

    def _receive(self, wait_s: float) -> list[m.ToWorker]:
        received: list[m.ToWorker] = []
        try:
            received.append(self._inbox.get(timeout=wait_s) if wait_s else self._inbox.get_nowait())
            while True:
                received.append(self._inbox.get_nowait())
        except queue.Empty:
            return received


# -- the loop of either -----------------------------------------------------------------------


def _serve(
    spec: WorkerSpec,
    send: Callable[[m.FromWorker], None],
    receive: Callable[[float], list[m.ToWorker]],
) -> None:
    """Build the worker, then: read messages, take a turn, send what came of it."""
    worker: PoolWorker | None = None
    try:
        with BUILDING:
            from minipd.pools.build import build

            worker, started = build(spec)
        send(started)
        wait_s = IDLE_WAIT_S
        while True:
            for message in receive(wait_s):
                worker.handle(message)
            busy = worker.turn()
            outbox, worker.outbox = worker.outbox, []
            for message in outbox:
                send(message)
            wait_s = 0.0 if busy else TRANSFER_WAIT_S if worker.is_sending else IDLE_WAIT_S
    except SystemExit:
        return
    except (BrokenPipeError, EOFError, KeyboardInterrupt):
        raise
    except Exception as error:  # the coordinator reports it and goes on without this worker
        send(m.Crashed(f"{type(error).__name__}: {error}"))
        if os.environ.get("MINIPD_DEBUG"):
            traceback.print_exc()
        time.sleep(0.01)
    finally:
        if worker is not None:
            worker.link.close()
