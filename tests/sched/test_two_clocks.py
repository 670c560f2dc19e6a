"""One scheduler, two clocks: a plain loop and a cluster in threads decide alike, batch by batch.

Both sides are given the same times. On one side a loop steps from one end of a batch to the next,
as a simulator does: schedulers and router, nothing else. On the other, worker threads, messages and
the coordinator run as always, with paced executors whose sleep is counted and not slept: time moves
on only when every thread waits, so that a busy machine cannot change what is decided.

Messages of one instant may reach an idle worker one by one, so each request has its own arrival
time and a prefill step holds one prompt; more is not claimed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from minipd.cache.allocator import BlockAllocator
from minipd.engine.batch import Batch, Chunk
from minipd.model.load import load
from minipd.pools import build, paced, spawn, supervisor
from minipd.pools import messages as m
from minipd.pools.cluster import Cluster, Mode, Setup
from minipd.pools.paced import Pace, PacedExecutor
from minipd.pools.worker import POLICIES
from minipd.request import Request, SamplingParams
from minipd.sched.base import Scheduler
from minipd.sched.limits import Limits
from minipd.sched.router import AlwaysRemote, RoundRobin, Router, WorkerLoad
from minipd.sched.split import DecodeOnly, PrefillOnly

PACE = Pace(((0, 0.0031), (1000, 1.0)), ((1, 0.0307), (16, 0.0411)), 1.3e-6)
SETUP = Setup(
    model="tiny",
    pool="threads",
    num_blocks=20,
    limits=Limits(max_running=5, max_batch_tokens=40),
    chunk_tokens=24,
    pace=PACE,
)
Decision = tuple[tuple[str, int, int], ...]
Decisions = dict[str, list[Decision]]


def trace() -> list[Request]:
    """24 requests that overlap, and fewer blocks than they need: some give way."""
    return [
        Request(
            f"r{n}",
            tuple((7 * n + i) % 500 + 8 for i in range(21 + 37 * n % 101)),
            SamplingParams(1 + 11 * n % 60, ignore_eos=True),
            round(0.0173 * n + 0.0007 * (n % 5), 4),
        )
        for n in range(24)
    ]


def decision(chunks: list[Chunk]) -> Decision:
    return tuple((c.request_id, c.start, c.stop) for c in chunks)


# -- the plain loop ---------------------------------------------------------------------------


@dataclass
class LoopWorker:
    name: str
    scheduler: Scheduler
    executor: PacedExecutor
    inbox: deque[tuple[str, Any]] = field(default_factory=deque)
    batch: Batch | None = None
    due_s: float = 0.0


class Loop:
    """Schedulers and a router on a clock that jumps from one event to the next."""

    def __init__(self, setup: Setup, router: Router) -> None:
        model = load("tiny")
        self.router, self.decisions = router, Decisions()
        self.workers: list[LoopWorker] = []
        for index in range(setup.num_workers):
            order = setup.configure(index)
            blocks = BlockAllocator(
                setup.num_blocks, setup.block_size, prefix_reuse=order.prefix_reuse
            )
            name = f"worker-{index}"
            scheduler = POLICIES[order.policy](name, blocks, order.limits, model.eos_ids)
            executor = PacedExecutor(model.config, None, PACE)  # type: ignore[arg-type]
            self.workers.append(LoopWorker(name, scheduler, executor))
            self.decisions[name] = []

    def run(self, requests: list[Request]) -> Decisions:
        todo, now = deque(requests), 0.0
        while todo or any(w.batch for w in self.workers):
            busy = [w for w in self.workers if w.batch is not None]
            first = min(busy, key=lambda w: w.due_s, default=None)
            if first is None or (todo and todo[0].arrival_s < first.due_s):
                now = todo[0].arrival_s
                self._arrive(todo.popleft(), now)
            else:
                now = first.due_s
                self._complete(first, now)
        return self.decisions

    def _arrive(self, request: Request, now: float) -> None:
        loads = [WorkerLoad(w.name) for w in self.workers]
        if any(isinstance(w.scheduler, DecodeOnly) for w in self.workers):
            route = self.router.route(request.num_prompt_tokens, loads[:1], loads[1:])
            self._tell(route.decode, "reserve", request, now)
        else:
            route = self.router.route(request.num_prompt_tokens, [], loads)
            self._tell(route.decode, "add", request, now)

    def _tell(self, name: str, what: str, value: Any, now: float) -> None:
        worker = next(w for w in self.workers if w.name == name)
        worker.inbox.append((what, value))
        if worker.batch is None:
            self._turn(worker, now)

    def _complete(self, worker: LoopWorker, now: float) -> None:
        assert worker.batch is not None
        chunks = [c for c in worker.batch.chunks if c.sampling is not None]
        batch, worker.batch = worker.batch, None
        worker.scheduler.complete(batch, [worker.executor._token(c) for c in chunks], now)
        handed: list[tuple[str, int]] = []
        if isinstance(worker.scheduler, PrefillOnly):
            for sequence in list(worker.scheduler.handing_off.values()):
                handed.append((sequence.id, sequence.output_ids[-1]))
                worker.scheduler.handed_off(sequence.id)
            ended = [c.request_id for c in chunks if c.request_id not in dict(handed)]
        else:
            ended = []
        self._turn(worker, now)
        for request_id in ended:
            self._tell("worker-1", "drop", request_id, now)
        for commit in handed:
            self._tell("worker-1", "commit", commit, now)

    def _turn(self, worker: LoopWorker, now: float) -> None:
        """Read what has come, reserve, and begin a step: in the order of a worker's loop."""
        scheduler = worker.scheduler
        while worker.inbox:
            what, value = worker.inbox.popleft()
            if what == "add":
                scheduler.add(value, now)
            elif isinstance(scheduler, DecodeOnly):
                act = {"reserve": lambda v: scheduler.request_reservation(v)}
                act |= {"drop": scheduler.drop, "commit": lambda v: scheduler.commit(*v)}
                act[what](value)
        made = scheduler.reserve_pending(now) if isinstance(scheduler, DecodeOnly) else []
        worker.batch = scheduler.schedule(now)
        if worker.batch is not None:
            self.decisions[worker.name].append(decision(worker.batch.chunks))
            worker.due_s = now + PACE.seconds(worker.batch.chunks)
        for sequence in made:
            self._tell("worker-0", "add", sequence.request, now)


# -- the real cluster, on a clock that is counted ---------------------------------------------


class Conductor:
    """The time of all worker threads; a thread that sleeps here is woken by `wake_next`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeping: dict[str, float] = {}  # thread name: when it is due
        self._changed = threading.Condition()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        name = threading.current_thread().name
        with self._changed:
            self.sleeping[name] = self.now + seconds
            self._changed.wait_for(lambda: name not in self.sleeping)

    def wake_next(self) -> None:
        with self._changed:
            name = min(self.sleeping, key=lambda n: self.sleeping[n])
            self.now = max(self.now, self.sleeping.pop(name))
            self._changed.notify_all()


class WatchedThread(spawn.ThreadWorker):
    """Tells when it waits for a message with everything before it done."""

    def __init__(self, spec: spawn.WorkerSpec) -> None:
        self.num_told = self.num_done = self._num_received = 0
        self.waits = False
        super().__init__(spec)

    def submit(self, message: m.ToWorker) -> None:
        self.num_told += 1
        super().submit(message)

    def _receive(self, wait_s: float) -> list[m.ToWorker]:
        self.num_done, self.waits = self._num_received, wait_s > 0
        received = super()._receive(wait_s)
        self._num_received += len(received)
        self.waits = False if received else self.waits
        return received

    @property
    def is_quiet(self) -> bool:
        return self.waits and self.num_done == self.num_told


def settle(cluster: Cluster, conductor: Conductor) -> None:
    """Until every worker sleeps through a step, or waits with nothing left to read."""
    give_up = time.monotonic() + 300
    while True:
        handles = cluster.supervisor.handles.values()
        quiet = [h.spec.name in conductor.sleeping or h.is_quiet for h in handles]  # type: ignore[attr-defined]
        before = len(cluster.events), [h.num_told for h in handles]  # type: ignore[attr-defined]
        cluster.poll(0.0)
        after = len(cluster.events), [h.num_told for h in handles]  # type: ignore[attr-defined]
        if all(quiet) and before == after and all(h._outbox.empty() for h in handles):  # type: ignore[attr-defined]
            return
        assert time.monotonic() < give_up, "the workers do not come to rest"


@pytest.fixture
def conductor(monkeypatch: pytest.MonkeyPatch) -> Conductor:
    made = Conductor()
    clock = SimpleNamespace(monotonic=made.monotonic, sleep=made.sleep)
    monkeypatch.setattr(paced, "time", clock)
    monkeypatch.setattr(build, "time", clock)
    monkeypatch.setattr(supervisor, "ThreadWorker", WatchedThread)
    return made


def decisions_of_cluster(
    monkeypatch: pytest.MonkeyPatch, conductor: Conductor, mode: Mode
) -> tuple[Decisions, Cluster]:
    decisions: Decisions = {f"worker-{n}": [] for n in range(SETUP.num_workers)}
    run_paced = PacedExecutor.run

    def run(self: PacedExecutor, chunks: list[Chunk]) -> list[int]:
        decisions[threading.current_thread().name].append(decision(chunks))
        return run_paced(self, chunks)

    monkeypatch.setattr(PacedExecutor, "run", run)
    with Cluster(replace(SETUP, mode=mode)) as cluster:
        cluster.clock = conductor.monotonic
        cluster.reconfigure(mode)  # a coordinator on that clock
        cluster._is_running = True  # keep the events, as in a run
        todo = deque(trace())
        while todo or cluster.num_unfinished:
            settle(cluster, conductor)
            first = min(conductor.sleeping.values(), default=None)
            if first is None or (todo and todo[0].arrival_s < first):
                if todo:
                    conductor.now = max(conductor.now, todo[0].arrival_s)
                    cluster.submit(todo.popleft())
            else:
                conductor.wake_next()
        settle(cluster, conductor)
        assert set(cluster.audit().values()) == {0}
        return decisions, cluster


MODES: list[Mode] = ["colocated", "decode_first", "chunked", "disaggregated"]


@pytest.mark.parametrize("mode", MODES)
def test_the_same_decisions(
    monkeypatch: pytest.MonkeyPatch, conductor: Conductor, mode: Mode
) -> None:
    router = AlwaysRemote() if mode == "disaggregated" else RoundRobin()
    expected = Loop(replace(SETUP, mode=mode), router).run(trace())
    found, cluster = decisions_of_cluster(monkeypatch, conductor, mode)
    assert found == expected
    gave_way = "preempted" in {e.kind for e in cluster.events}
    assert gave_way or mode == "decode_first"  # which runs fewer at once
    assert all(len(batches) > 20 for batches in found.values())


def test_the_loop_would_notice_another_decision() -> None:
    """Modes, and even a budget one token larger, decide differently on this trace."""
    runs = [
        Loop(replace(SETUP, mode=mode), RoundRobin()).run(trace())
        for mode in ("colocated", "decode_first", "chunked")
    ]
    runs.append(Loop(replace(SETUP, mode="chunked", chunk_tokens=25), RoundRobin()).run(trace()))
    assert all(a != b for n, a in enumerate(runs) for b in runs[:n])
