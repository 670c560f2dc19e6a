"""The loop that every worker turns, in a process of its own or in a thread."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import psutil

from minipd.pools import messages as m

if TYPE_CHECKING:  # a worker process sets its cores before it imports torch
    from minipd.pools.spawn import WorkerSpec
    from minipd.pools.worker import PoolWorker

IDLE_WAIT_S = 0.05
TRANSFER_WAIT_S = 0.0005
BEAT_S = 0.5
BUILDING = threading.Lock()  # libraries that import themselves lazily are not safe in two threads


def serve(
    open_spec: Callable[[], WorkerSpec],
    send: Callable[[m.FromWorker], None],
    receive: Callable[[float], list[m.ToWorker]],
    *,
    in_thread: bool = False,
) -> None:
    """Build the worker on a stream of its own, and turn its loop.

    Its last words come when it can write nowhere any more.

    Raises EOFError or OSError when the coordinator is gone.
    """
    last_words: m.Crashed | None = None
    spec: WorkerSpec | None = None
    worker: PoolWorker | None = None
    stream = contextlib.ExitStack()
    try:
        with BUILDING:
            spec = open_spec()
            from minipd.pools.build import build
            from minipd.pools.streams import own_stream

            place = own_stream(spec.device, spec.sm_share, in_thread=in_thread)
            remarks = stream.enter_context(place)
            worker, started = build(spec)
        send(replace(started, notes=started.notes + remarks))
        _loop(worker, send, receive)
    except (SystemExit, EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except Exception as error:  # the coordinator reports it and goes on without this worker
        last_words = m.Crashed(f"{type(error).__name__}: {error}")
        if os.environ.get("MINIPD_DEBUG"):
            traceback.print_exc()
    finally:
        if spec is not None:  # also where building failed half-way: its store may lie in a file
            spec.link.close()
        with contextlib.suppress(RuntimeError):  # of a device that has failed
            stream.close()
    if last_words is not None:
        send(last_words)


def _loop(
    worker: PoolWorker,
    send: Callable[[m.FromWorker], None],
    receive: Callable[[float], list[m.ToWorker]],
) -> None:
    """Read messages, take a turn, send what came of it."""
    wait_s = IDLE_WAIT_S
    while True:
        for message in receive(wait_s):
            worker.handle(message)
        worker.reserve()
        _send_all(worker, send)
        busy = worker.turn()
        _send_all(worker, send)
        wait_s = 0.0 if busy else TRANSFER_WAIT_S if worker.is_sending else IDLE_WAIT_S


def _send_all(worker: PoolWorker, send: Callable[[m.FromWorker], None]) -> None:
    outbox, worker.outbox = worker.outbox, []
    for message in outbox:
        send(message)


def process_main(
    cpus: tuple[int, ...], threads: int, pickled: bytes, connection: Connection, beat: Any
) -> None:
    """A worker process from start to end; `beat` is a shared float, the time of its last sign."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the coordinator, which stops us
    threading.Thread(target=_keep_beating, args=(beat,), daemon=True, name="heart").start()
    os.environ["OMP_NUM_THREADS"] = str(threads)

    def open_spec() -> WorkerSpec:
        if cpus and hasattr(psutil.Process, "cpu_affinity"):  # not on macOS
            psutil.Process().cpu_affinity(list(cpus))
        spec: WorkerSpec = pickle.loads(pickled)
        import torch

        torch.set_num_threads(threads)
        return spec

    with contextlib.suppress(EOFError, OSError):  # the coordinator is gone or going
        serve(open_spec, connection.send, lambda wait_s: _receive(connection, wait_s))


def _keep_beating(beat: Any) -> None:
    while True:
        beat.value = time.monotonic()
        time.sleep(BEAT_S)


def _receive(connection: Connection, wait_s: float) -> list[m.ToWorker]:
    received: list[m.ToWorker] = []
    while connection.poll(wait_s if not received else 0):
        received.append(connection.recv())
    return received
