"""A cluster without threads or time: real workers and a real coordinator, turned by hand.

Every message waits in a queue until its receiver's turn, and the clock counts turns, so that a test
can interfere at each single point of a request's life and see the same thing every time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Any

from minipd.cache.store import KVStore
from minipd.cache.tiers import KVTiers
from minipd.engine.executor import Executor
from minipd.engine.text import StopWatcher
from minipd.model.load import LoadedModel
from minipd.pools import messages as m
from minipd.pools.cluster import Run, Setup
from minipd.pools.coordinator import Coordinator
from minipd.pools.handoff import Identity
from minipd.pools.links.base import LinkError
from minipd.pools.links.direct import SameProcess
from minipd.pools.tickets import Member
from minipd.pools.worker import PoolExecutor, PoolWorker
from minipd.request import Request
from minipd.sched.router import AlwaysRemote, RoundRobin, Router
from minipd.timeline import Event

ExecutorFor = Callable[[str], PoolExecutor]


@dataclass
class LateTransfer:
    """Delivers everything at the `polls`-th poll; breaks at once where `is_broken`."""

    inner: Any
    polls_left: int
    is_broken: bool = False
    writes: list[tuple[int, list[int], list[int]]] = field(default_factory=list)

    @property
    def num_bytes(self) -> int:
        return self.inner.num_bytes

    @property
    def busy_s(self) -> float:
        return self.inner.busy_s

    def write(self, layer: int, blocks: Items[int], into: Items[int]) -> None:
        self.writes.append((layer, list(blocks), list(into)))

    def poll(self) -> bool:
        if self.is_broken:
            raise LinkError("the cable was pulled")
        self.polls_left -= 1
        if self.polls_left > 0:
            return False
        for write in self.writes:
            self.inner.write(*write)
        self.writes.clear()
        return self.inner.poll()

    def digests(self) -> tuple[int, ...]:
        return self.inner.digests()


class LateLink(SameProcess):
    """A link of this process on which a hand-off takes `polls` turns of the sender."""

    def __init__(self, polls: int = 1, is_broken: bool = False) -> None:
        super().__init__()
        self.polls, self.is_broken = polls, is_broken
        self.is_reachable = True

    def connect(self, source: KVStore, registration: Any) -> Any:
        if not self.is_reachable:
            raise OSError("no route to host")
        writer, link = super().connect(source, registration), self

        class LateWriter:
            def begin(self) -> LateTransfer:
                return LateTransfer(writer.begin(), link.polls, link.is_broken)

            def close(self) -> None:
                writer.close()

        return LateWriter()


class HandDriven:
    """`setup` says the workers; `executor_for` may replace the real executors by others."""

    def __init__(
        self,
        model: LoadedModel,
        setup: Setup,
        *,
        polls: int = 1,
        is_reachable: bool = True,
        router: Router | None = None,
        executor_for: ExecutorFor | None = None,
    ) -> None:
        self.model, self.setup, self.polls = model, setup, polls
        self.is_reachable = is_reachable
        self.executor_for = executor_for or self._real_executor
        self.now = 0.0
        self.events: list[Event] = []
        self.is_broken = False
        self.tamper: Callable[[m.FromWorker], m.FromWorker] = lambda message: message
        self.workers: dict[str, PoolWorker] = {}
        self.inboxes: dict[str, deque[m.ToWorker]] = {}
        self.roles: dict[str, m.Role] = {}  # of workers that have changed theirs
        self.hung: set[str] = set()  # workers that get no turn
        default = AlwaysRemote() if setup.mode == "disaggregated" else RoundRobin()
        self.coordinator = Coordinator(router or default, lambda: self.now, self.events.append)
        for index in range(setup.num_workers):
            self.coordinator.admit_member(self.start(index, 0))
        self.turn()

    def _real_executor(self, name: str) -> PoolExecutor:
        setup = self.setup
        return Executor(
            self.model, setup.num_blocks, setup.block_size, deterministic=setup.deterministic
        )

    # -- workers ------------------------------------------------------------------------------

    def start(self, index: int, epoch: int) -> Member:
        name = f"worker-{index}"
        role = self.roles.get(name)
        order = self.setup.configure_as(role) if role else self.setup.configure(index)
        identity = Identity(name, epoch, self.model.fingerprint, self.model.eos_ids)
        link = LateLink(self.polls, self.is_broken)
        link.is_reachable = self.is_reachable
        stops = StopWatcher(self.model.tokenizer)
        clock: Callable[[], float] = lambda: self.now  # noqa: E731
        executor, sizes = self.executor_for(name), self.setup.tiers
        tiers = None
        if sizes:
            tiers = KVTiers(executor.store, identity.fingerprint, sizes.of_worker(name), clock)
        worker = PoolWorker(identity, executor, link, stops, clock, tiers)
        self.workers[name] = worker
        self.inboxes[name] = deque([order])
        self._introduce(name)
        return Member(name, epoch, order.role, self.inboxes[name].append)

    def _introduce(self, name: str) -> None:
        for other in self.workers:
            if other != name:
                self.inboxes[other].append(self._connect(name))
                self.inboxes[name].append(self._connect(other))

    def _connect(self, name: str) -> m.Connect:
        worker = self.workers[name]
        return m.Connect(name, worker.identity.epoch, worker.link.expose(worker.executor.store))

    def kill(self, name: str, *, again: bool = True) -> None:
        """It is gone with all that it has not sent; its next life begins at once, if `again`."""
        dead = self.workers.pop(name)
        del self.inboxes[name]
        index = int(name.rpartition("-")[2])
        successor = self.start(index, dead.identity.epoch + 1) if again else None
        self.coordinator.member_died(name, "killed by the test", successor)

    def change_role(self, name: str, role: m.Role, patience_s: float = math.inf) -> bool:
        """As `Cluster.change_role`; False where that would be refused."""
        if self.coordinator.roles.why_not(name, role) is not None:
            return False
        self.roles[name] = role
        self.coordinator.roles.begin(name, self.setup.configure_as(role), patience_s)
        return True

    # -- turns --------------------------------------------------------------------------------

    def turn(self) -> None:
        """Each worker reads its messages and takes a turn; then the coordinator hears of it."""
        self.now += 0.5
        said: list[tuple[str, m.FromWorker]] = []
        for name, worker in self.workers.items():
            inbox = self.inboxes[name]
            if name in self.hung:
                continue
            while inbox:
                worker.handle(inbox.popleft())
            worker.reserve()
            worker.turn()
            said += [(name, message) for message in worker.outbox]
            worker.outbox = []
        self.now += 0.5  # as in life, it hears of things after they have happened
        for name, message in said:
            self._hear(name, self.tamper(message))
        self.coordinator.tend()

    def _hear(self, name: str, message: m.FromWorker) -> None:
        if isinstance(message, m.Configured):
            self.coordinator.member_ready(name)
        else:
            self.coordinator.handle(message)

    def run(self, requests: Iterable[Request], *, max_turns: int = 2000) -> Run:
        """All requests at once, to the end."""
        for request in requests:
            self.coordinator.submit(request)
        while self.coordinator.is_busy:
            self.turn()
            assert self.now < max_turns, "this does not come to an end"
        return self.result()

    def result(self) -> Run:
        for _ in range(2):  # a `Drop` may still be in an inbox
            self.turn()
        run = Run(sorted(self.events, key=lambda e: e.t_s))
        for event in run.timeline:
            if event.kind == "token":
                run.outputs.setdefault(event.request_id, []).append(event.data["token_id"])  # type: ignore[arg-type]
        for name, worker in self.workers.items():
            scheduler = worker.scheduler
            assert not scheduler.sequences and not worker.sender.outgoing, name
            run.leaked_blocks[name] = scheduler.allocator.num_used_blocks
        return run
