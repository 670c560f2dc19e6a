"""The pools together: start workers, keep them alive, run a list of requests through them."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Literal

from minipd.pools import messages as m
from minipd.pools.coordinator import Coordinator
from minipd.pools.links.base import Link
from minipd.pools.links.direct import SameProcess, SharedMemory
from minipd.pools.links.emulated import Emulated, Network
from minipd.pools.paced import Pace
from minipd.pools.spawn import ProcessWorker, ThreadWorker, WorkerHandle, WorkerSpec
from minipd.request import FinishReason, Request, validate
from minipd.sched.base import Limits
from minipd.sched.router import AlwaysRemote, RoundRobin, Router
from minipd.timeline import Event

Mode = Literal["colocated", "decode_first", "chunked", "disaggregated"]
PoolKind = Literal["processes", "threads"]
COLOCATED_POLICY: dict[Mode, m.Policy] = {
    "colocated": "prefill_first",
    "decode_first": "decode_first",
    "chunked": "chunked",
}
START_TIMEOUT_S = 300.0
MAX_RESTARTS = 3
ROOMY_BYTES = 4 << 30


class ClusterError(RuntimeError):
    """Workers that cannot be started or have all gone; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Setup:
    """One way of serving: `num_prefill` + `num_decode` workers in the split, all of them `both`
    otherwise. `cpus[i]` are the cores of worker i, or empty to leave it unpinned."""

    model: str = "smollm2-135m"
    mode: Mode = "disaggregated"
    num_prefill: int = 1
    num_decode: int = 1
    pool: PoolKind = "processes"
    devices: tuple[str, ...] = ("cpu",)
    dtype: str = "float32"
    num_blocks: int = 1024
    block_size: int = 16
    limits: Limits = Limits()
    chunk_tokens: int = 64  # a step's token budget when prefill and decode share it
    cpus: tuple[tuple[int, ...], ...] = ()
    threads: int = 1
    network: Network | None = None
    deterministic: bool = False
    prefix_reuse: bool = True
    pace: Pace | None = None

    @property
    def num_workers(self) -> int:
        return self.num_prefill + self.num_decode

    def configure(self, index: int) -> m.Configure:
        """The role of worker `index`: prefill workers come first."""
        reuse = self.prefix_reuse and not self.deterministic
        budget = replace(self.limits, max_batch_tokens=self.chunk_tokens)
        if self.mode != "disaggregated":
            limits = budget if self.mode == "chunked" else self.limits
            return m.Configure("both", COLOCATED_POLICY[self.mode], limits, reuse)
        if index < self.num_prefill:
            return m.Configure("prefill", "prefill_only", self.limits, reuse)
        return m.Configure("decode", "decode_only", budget, reuse)


@dataclass(slots=True)
class Run:
    """What came of a list of requests: times are seconds since the run began."""

    timeline: list[Event] = field(default_factory=list[Event])
    outputs: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    leaked_blocks: dict[str, int] = field(default_factory=dict[str, int])


class Cluster:
    """Use as a context manager; `reconfigure` changes mode and router between runs."""

    def __init__(self, setup: Setup, router: Router | None = None) -> None:
        self.setup = setup
        self.clock = time.monotonic
        self.events: list[Event] = []
        self.on_event: Callable[[Event], None] | None = None
        self.handles: dict[str, WorkerHandle] = {}
        self.started: dict[str, m.Started] = {}
        self._answers: dict[str, m.FromWorker] = {}
        self._restarts = 0
        self._folder = tempfile.mkdtemp(prefix="minipd-", dir=_roomy_folder())
        self._threads_link = SameProcess()
        self._coordinator = Coordinator(self._router(router), self.clock, self._emit)
        try:
            for index in range(setup.num_workers):
                self._start(index, epoch=0)
            self._until(lambda: len(self.started) == setup.num_workers, START_TIMEOUT_S)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what users call ----------------------------------------------------------------------

    def run(self, requests: Iterable[Request], *, timeout_s: float = 3600.0) -> Run:
        """Send each request at its `arrival_s` (seconds from now) and wait until all have ended."""
        waiting = sorted(requests, key=lambda r: r.arrival_s)
        for request in waiting:
            self.check(request)
        self.events.clear()
        base = self.clock() + 0.05
        give_up = base + timeout_s
        todo = [_shifted(request, base) for request in waiting]
        while todo or self._coordinator.tickets:
            now = self.clock()
            while todo and todo[0].arrival_s <= now:
                self._coordinator.submit(todo.pop(0))
            if now > give_up:
                raise ClusterError(f"The run was not over after {timeout_s:.0f} s; giving up.")
            self.poll(min(0.05, max(0.0, todo[0].arrival_s - now)) if todo else 0.05)
        return self._result(base)

    def check(self, request: Request) -> None:
        """Refuse what no worker could ever finish; raises `RequestError`."""
        info = next(iter(self.started.values()))
        capacity = min(x.num_blocks * x.block_size for x in self.started.values())
        validate(
            request,
            vocab_size=info.vocab_size,
            max_context=info.max_context,
            cache_tokens=capacity,
        )

    def submit(self, request: Request) -> None:
        """Send one request now; its times are on `clock`. Drive it with `poll`."""
        self.check(request)
        self._coordinator.submit(request)

    def cancel(self, request_id: str, reason: FinishReason = "cancelled") -> None:
        self._coordinator.cancel(request_id, reason)

    @property
    def num_unfinished(self) -> int:
        return len(self._coordinator.tickets)

    def reconfigure(self, mode: Mode, router: Router | None = None, **changes: Any) -> None:
        """Another mode on the same workers and weights, with empty caches; nothing may be running."""
        assert not self._coordinator.tickets, "finish the run before you reconfigure"
        self.setup = replace(self.setup, mode=mode, **changes)
        self._coordinator = Coordinator(self._router(router), self.clock, self._emit)
        self._answers.clear()
        for index, name in enumerate(self.handles):
            self._join(index, name)
        self._until(lambda: len(self._answers) == len(self.handles), START_TIMEOUT_S)
        for name in self.handles:
            self._coordinator.member_ready(name)

    def poll(self, timeout_s: float) -> None:
        """Handle what workers have sent, waiting up to `timeout_s` for something to arrive."""
        waitables = [w for handle in self.handles.values() for w in handle.waitables]
        if waitables:
            wait(waitables, timeout_s)
        else:
            time.sleep(min(timeout_s, 0.0005))
        for name, handle in list(self.handles.items()):
            alive = handle.is_alive  # asked first: what it sent before its end is still read
            for message in handle.poll():
                self._handle(name, message)
            if not alive and self.handles.get(name) is handle:
                self._died(name, "its process or thread ended")
        self._coordinator.expire_parked()

    def audit(self) -> dict[str, int]:
        """Blocks in use on every worker; all 0 when nothing runs."""
        self._answers.clear()
        for handle in self.handles.values():
            handle.submit(m.Audit())
        self._until(lambda: len(self._answers) >= len(self.handles), START_TIMEOUT_S)
        return {n: a.used_blocks for n, a in self._answers.items() if isinstance(a, m.Audited)}

    def close(self) -> None:
        """Stop every worker and remove the shared files."""
        for handle in self.handles.values():
            handle.close()
        self.handles.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- workers ------------------------------------------------------------------------------

    def _start(self, index: int, epoch: int) -> None:
        setup, name = self.setup, f"worker-{index}"
        spec = WorkerSpec(
            name=name,
            epoch=epoch,
            model=setup.model,
            device=setup.devices[index % len(setup.devices)],
            dtype=setup.dtype,
            num_blocks=setup.num_blocks,
            block_size=setup.block_size,
            link=self._link(),
            cpus=setup.cpus[index] if setup.cpus else (),
            threads=setup.threads,
            deterministic=setup.deterministic,
            pace=setup.pace,
        )
        kind = ProcessWorker if setup.pool == "processes" else ThreadWorker
        self.handles[name] = kind(spec)

    def _link(self) -> Link:
        inner: Link = self._threads_link
        if self.setup.pool == "processes":
            inner = SharedMemory(self._folder)
        return Emulated(inner, self.setup.network) if self.setup.network else inner

    def _join(self, index: int, name: str) -> None:
        handle, order = self.handles[name], self.setup.configure(index)
        self._coordinator.admit_member(name, handle.spec.epoch, order.role, handle.submit)
        handle.submit(order)

    def _handle(self, name: str, message: m.FromWorker) -> None:
        match message:
            case m.Started():
                self.started[name] = message
                self._join(list(self.handles).index(name), name)
                self._introduce(name)
            case m.Configured():
                self._answers[name] = message
                if not self._coordinator.members[name].is_ready:
                    self._coordinator.member_ready(name)
            case m.Audited():
                self._answers[name] = message
            case m.Crashed():
                self._died(name, message.reason)
            case _:
                self._coordinator.handle(name, message)

    def _introduce(self, name: str) -> None:
        """Let the new worker and all others write into each other's stores."""
        for other, started in self.started.items():
            if other == name or other not in self.handles:
                continue
            mine, theirs = self.handles[name], self.handles[other]
            theirs.submit(m.Connect(name, mine.spec.epoch, self.started[name].registration))
            mine.submit(m.Connect(other, theirs.spec.epoch, started.registration))

    def _died(self, name: str, reason: str) -> None:
        handle = self.handles[name]
        was_started = self.started.pop(name, None) is not None
        handle.kill()
        if not was_started:
            raise ClusterError(f"Worker {name} could not start: {reason}")
        index = list(self.handles).index(name)
        can_restart = self._restarts < MAX_RESTARTS
        self._coordinator.can_recruit = can_restart
        if name in self._coordinator.members:
            self._coordinator.member_died(name, reason)
        if can_restart:
            self._restarts += 1
            self._start(index, handle.spec.epoch + 1)
        else:
            del self.handles[name]

    # -- inside -------------------------------------------------------------------------------

    def _router(self, router: Router | None) -> Router:
        if router is not None:
            return router
        return AlwaysRemote() if self.setup.mode == "disaggregated" else RoundRobin()

    def _emit(self, event: Event) -> None:
        self.events.append(event)
        if self.on_event is not None:
            self.on_event(event)

    def _until(self, done: Callable[[], bool], timeout_s: float) -> None:
        give_up = self.clock() + timeout_s
        while not done():
            self.poll(0.05)
            if self.clock() > give_up:
                raise ClusterError(f"The workers did not answer within {timeout_s:.0f} s.")

    def _result(self, base: float) -> Run:
        run = Run(leaked_blocks=self.audit())
        run.timeline = sorted((_rebased(e, base) for e in self.events), key=lambda e: e.t_s)
        for event in run.timeline:
            if event.kind == "token":
                run.outputs.setdefault(event.request_id, []).append(
                    int(str(event.data["token_id"]))
                )
        return run


def _shifted(request: Request, base: float) -> Request:
    deadline = None if request.deadline_s is None else request.deadline_s + base
    return replace(request, arrival_s=request.arrival_s + base, deadline_s=deadline)


def _rebased(event: Event, base: float) -> Event:
    data = dict(event.data)
    if "start_s" in data:
        data["start_s"] = float(str(data["start_s"])) - base
    return Event(event.t_s - base, event.kind, event.worker, event.request_id, data)


def _roomy_folder() -> str | None:
    """A folder in memory where that is large (Docker's /dev/shm often has 64 MB), else on disk."""
    memory = Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free > ROOMY_BYTES:
        return str(memory)
    return None
