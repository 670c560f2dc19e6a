"""The pools together: start workers, keep them alive, run a list of requests through them."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any

from minipd.pools import messages as m
from minipd.pools.controller import Controller
from minipd.pools.coordinator import Coordinator
from minipd.pools.runs import Run, checked, shifted
from minipd.pools.setup import Mode, PoolKind, Setup
from minipd.pools.supervisor import ClusterError, Supervisor
from minipd.request import FinishReason, Request, RequestError, validate
from minipd.sched.router import NEED_READERS, AlwaysRemote, RoundRobin, Router
from minipd.timeline import Event

__all__ = ["Cluster", "ClusterError", "Mode", "PoolKind", "Run", "Setup"]
START_TIMEOUT_S = 300.0
ABANDON_TIMEOUT_S = 60.0


class Cluster:
    """Use as a context manager; `reconfigure` changes mode and router between runs."""

    def __init__(self, setup: Setup, router: Router | None = None) -> None:
        self.clock = time.monotonic
        self.events: list[Event] = []  # of the run that is on, or was last
        self._is_running = False
        self.on_event: Callable[[Event], None] | None = None
        self.controller: Controller | None = None  # changes roles while requests run
        self._untold: list[Event] = []  # what `on_event` has not heard yet
        chosen = _router(setup.mode, router)
        self._coordinator = Coordinator(chosen, self.clock, self._emit)
        self.supervisor = Supervisor(setup)
        self._answers: dict[str, m.FromWorker] = {}
        try:
            for index in range(setup.num_workers):
                self._coordinator.admit_member(self.supervisor.start(index))
            self._until_ready()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop every worker and remove the shared files."""
        self.supervisor.close()

    @property
    def setup(self) -> Setup:
        return self.supervisor.setup

    @property
    def notes(self) -> list[str]:
        """What must be said beside every figure measured here, one sentence each."""
        told = [note for x in self.supervisor.started.values() for note in x.notes]
        return list(dict.fromkeys([*self.setup.caveats, *told]))

    # -- a whole run --------------------------------------------------------------------------

    def run(self, requests: Iterable[Request], *, timeout_s: float = 3600.0) -> Run:
        """Send each request at its `arrival_s` (seconds from now) and wait until all have ended."""
        todo = deque(sorted(checked(requests, self.check), key=lambda r: r.arrival_s))
        if todo and todo[-1].arrival_s >= timeout_s:
            raise RequestError(
                f"Request {todo[-1].id!r} arrives after {todo[-1].arrival_s:.0f} s and the run may "
                f"last {timeout_s:.0f} s; shrink the times or raise timeout_s."
            )
        self._abandon()
        self.events.clear()
        self._is_running = True
        try:
            self._coordinator.announce()
            base = self.clock() + 0.05
            self._serve(todo, base, timeout_s)
        finally:
            self._is_running = False
        return Run.of(self.events, base, self.audit())

    def _serve(self, todo: deque[Request], base: float, timeout_s: float) -> None:
        give_up = base + timeout_s
        while todo or self._coordinator.is_busy:
            now = self.clock()
            while todo and todo[0].arrival_s + base <= now:
                self._coordinator.submit(shifted(todo.popleft(), base))
            if now > give_up:
                unfinished = ", ".join(list(self._coordinator.tickets)[:5])
                raise ClusterError(
                    f"The run was not over after {timeout_s:.0f} s; unfinished: {unfinished}."
                )
            until_next = todo[0].arrival_s + base - now if todo else 0.05
            self.poll(min(0.05, max(0.0, until_next)))

    def _abandon(self) -> None:
        """End what an interrupted run has left behind."""
        for request_id in list(self._coordinator.tickets):
            self.cancel(request_id)
        self._until(lambda: not self._coordinator.is_busy, ABANDON_TIMEOUT_S)

    # -- single requests ----------------------------------------------------------------------

    def check(self, request: Request) -> None:
        """Refuse what no worker could ever finish; raises `RequestError`."""
        known = self.supervisor.limits
        if known is None or not self.supervisor.handles:
            raise ClusterError("No worker is left; start a new cluster.")
        validate(
            request,
            vocab_size=known.vocab_size,
            max_context=known.max_context,
            cache_tokens=known.num_blocks * known.block_size,
        )

    def submit(self, request: Request) -> None:
        """Send one request now; its times are on `clock`. Drive it with `poll`."""
        self.check(request)
        if request.id in self._coordinator.tickets:
            raise RequestError(f"Request id {request.id!r} is in use; give each request its own.")
        self._coordinator.submit(request)

    def cancel(self, request_id: str, reason: FinishReason = "cancelled") -> None:
        self._coordinator.cancel(request_id, reason)

    @property
    def num_unfinished(self) -> int:
        return len(self._coordinator.tickets)

    def poll(self, timeout_s: float) -> None:
        """Handle what workers have sent, waiting up to `timeout_s` for something to arrive."""
        handles = self.supervisor.handles
        waitables = [w for handle in handles.values() for w in handle.waitables]
        if waitables:
            wait(waitables, timeout_s)
        else:
            time.sleep(min(timeout_s, 0.0005))
        for name, handle in list(handles.items()):
            alive = handle.is_alive  # asked first: what it sent before its end is still read
            for message in handle.poll():
                self._handle(name, message)
            if not alive and handles.get(name) is handle:
                self._died(name, "it ended, or gave no sign of life for too long")
        self._coordinator.tend()
        if self.controller is not None and self._coordinator.tickets:
            self.controller.act(self._coordinator, self.change_role)
        untold, self._untold = self._untold, []
        for event in untold:  # only now: what `on_event` raises must not tear a message apart
            if self.on_event is not None:
                self.on_event(event)

    def _handle(self, name: str, message: m.FromWorker) -> None:
        match message:
            case m.Started():
                self.supervisor.welcome(name, message)
            case m.Configured():
                self._coordinator.member_ready(name)
            case m.Audited():
                self._answers[name] = message
            case m.Crashed():
                self._died(name, message.reason)
            case _:
                self._coordinator.handle(message)

    def _died(self, name: str, reason: str) -> None:
        successor = self.supervisor.replace(name, reason)
        self._coordinator.member_died(name, reason, successor)

    # -- all workers --------------------------------------------------------------------------

    @property
    def roles(self) -> dict[str, m.Role]:
        """Of all workers that are ready."""
        return {x.name: x.role for x in self._coordinator.members.values() if x.is_ready}

    def change_role(
        self, name: str, role: m.Role, patience_s: float = math.inf, reason: str = "asked for"
    ) -> None:
        """Have a worker take on another role while requests run; `poll` brings it about.

        What it holds ends there first. Answers that still run after `patience_s` go on elsewhere:
        another worker reads their tokens so far again. Raises `ClusterError`.
        """
        if (refusal := self._coordinator.roles.why_not(name, role)) is not None:
            raise ClusterError(refusal)
        self.supervisor.roles[name] = role
        order = self.setup.configure_as(role)
        self._coordinator.roles.begin(name, order, patience_s, reason)

    def reconfigure(self, mode: Mode, router: Router | None = None, **changes: Any) -> None:
        """Another mode on the same workers and weights, with empty caches; nothing may run."""
        assert not self._coordinator.is_busy, "finish the run before you reconfigure"
        chosen = _router(mode, router)
        self._until_ready()
        self.supervisor.setup = replace(self.setup, mode=mode, **changes)
        self.supervisor.roles.clear()
        self._coordinator = Coordinator(chosen, self.clock, self._emit)
        for name in self.supervisor.handles:
            self._coordinator.admit_member(self.supervisor.member(name))
            self.supervisor.configure(name)
        self._until_ready()

    def audit(self) -> dict[str, int]:
        """Blocks in use on every worker that is there; all 0 when nothing runs."""
        self._answers.clear()
        handles = self.supervisor.handles
        asked = [(name, handles[name]) for name in self.supervisor.started]
        for _, handle in asked:
            handle.submit(m.Audit())
        # One that died since does not answer; one whose next life began meanwhile was not asked.
        self._until(lambda: all(n in self._answers or handles.get(n) is not h for n, h in asked))
        return {n: a.used_blocks for n, a in self._answers.items() if isinstance(a, m.Audited)}

    def _emit(self, event: Event) -> None:
        if self.controller is not None:
            self.controller.watch.feed(event)
        if self._is_running:  # single requests are followed through `on_event`
            self.events.append(event)
        self._untold.append(event)

    def _until_ready(self) -> None:
        self._until(lambda: all(x.is_ready for x in self._coordinator.members.values()))

    def _until(self, done: Callable[[], bool], timeout_s: float = START_TIMEOUT_S) -> None:
        give_up = self.clock() + timeout_s
        while not done():
            self.poll(0.05)
            if self.clock() > give_up:
                silent = ", ".join(self.supervisor.handles.keys() - self._answers.keys())
                raise ClusterError(
                    f"Not all workers answered within {timeout_s:.0f} s (waiting for "
                    f"{silent or 'the last hand-offs'}); start a new cluster."
                )


def _router(mode: Mode, router: Router | None) -> Router:
    if mode == "disaggregated":
        return router or AlwaysRemote()
    if isinstance(router, NEED_READERS):
        raise ClusterError(f"{type(router).__name__} needs a prefill pool; {mode!r} has none.")
    return router or RoundRobin()
