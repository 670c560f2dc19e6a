"""What the watch sees in a timeline, and a paced cluster that re-balances itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from minipd.measure.metrics import summarise
from minipd.measure.slo import SLO
from minipd.pools.cluster import Cluster
from minipd.pools.controller import Controller
from minipd.pools.paced import Pace
from minipd.pools.tickets import Member, RoleChange
from minipd.pools.watch import Watch
from minipd.request import Request
from minipd.sched.rebalance import Move, Observation, Rebalancer
from minipd.sched.router import WorkerLoad
from minipd.timeline import Event, EventKind
from tests.counted_clock import count_time
from tests.pools.helpers import ask, check_sound, events

PREFILL, DECODE = [WorkerLoad("p")], [WorkerLoad("d")]


def feed(watch: Watch, *told: tuple[float, EventKind, str, dict[str, object]]) -> None:
    for t_s, kind, request_id, data in told:
        watch.feed(Event(t_s, kind, str(data.pop("worker", "")), request_id, data))  # type: ignore[arg-type]


def test_requests_are_counted_by_whom_they_wait_for() -> None:
    watch, remote = Watch(), {"choice": "remote"}
    feed(watch, *((float(n), "arrived", name, {}) for n, name in enumerate("abcde")))
    feed(watch, *((5.0, "routed", name, dict(remote)) for name in "abc"))
    feed(watch, (5.0, "routed", "d", {"choice": "local"}))
    feed(watch, (5.1, "reserved", "b", {}), (5.1, "reserved", "c", {}))
    feed(watch, (5.2, "prefill_started", "c", {}))
    seen = watch.observe(6.0, PREFILL, DECODE)
    assert (seen.waiting_for_place, seen.waiting_for_reader) == (1, 1)
    assert seen.ttft_s == 6.0  # the longest of five waits: the 90th percentile
    feed(watch, (7.0, "token", "c", {}), (7.5, "cancelled", "a", {}), (8.0, "finished", "b", {}))
    seen = watch.observe(9.0, PREFILL, DECODE)
    assert (seen.waiting_for_place, seen.waiting_for_reader) == (0, 0)
    assert seen.ttft_s == 6.0 and seen.tpot_s is None  # d and e wait for 6 and 5 s, c had 5


def test_what_lies_before_the_window_is_forgotten() -> None:
    watch = Watch(window_s=5.0)
    feed(watch, (0.0, "arrived", "a", {}), (1.0, "token", "a", {}), (1.5, "token", "a", {}))
    feed(watch, (2.0, "step", "", {"start_s": 1.0, "worker": "p"}))
    seen = watch.observe(4.0, PREFILL, DECODE)
    assert (seen.ttft_s, seen.tpot_s, seen.prefill_busy) == (1.0, 0.5, 0.2)
    feed(watch, (7.5, "token", "a", {}), (8.0, "step", "", {"start_s": 3.0, "worker": "p"}))
    seen = watch.observe(9.0, PREFILL, DECODE)
    assert (seen.ttft_s, seen.tpot_s) == (None, 6.0)
    assert seen.prefill_busy == pytest.approx(4 / 5)  # of the step, what lies in the window
    seen = watch.observe(99.0, PREFILL, DECODE)
    assert seen == Observation(99.0, PREFILL, DECODE)


def test_memory_stays_within_the_window() -> None:
    watch = Watch(window_s=5.0)
    for n in range(20_000):
        t_s = n * 0.01
        feed(watch, (t_s, "arrived", f"r{n}", {}), (t_s, "token", f"r{n}", {}))
        feed(watch, (t_s, "token", f"r{n}", {}), (t_s, "finished", f"r{n}", {}))
        feed(watch, (t_s, "step", "", {"start_s": t_s, "worker": "p"}))
        if n % 50 == 0:
            watch.observe(t_s, PREFILL, DECODE)
    held = (watch._arrived_s, watch._waits_for, watch._last_token_s)
    held += (watch._ttfts, watch._gaps, watch._steps)  # type: ignore[operator]
    assert max(len(kept) for kept in held) < 600


class Always:
    """Wants the same move at every look."""

    def __init__(self) -> None:
        self.looks: list[Observation] = []

    def decide(self, seen: Observation) -> Move:
        self.looks.append(seen)
        return Move("d", "prefill", "a test")


def test_it_looks_at_intervals_and_not_while_a_role_changes() -> None:
    policy, done = Always(), []
    controller = Controller(policy, interval_s=1.0, patience_s=3.0)
    members = {n: Member(n, 0, r, lambda _: None) for n, r in (("p", "prefill"), ("d", "decode"))}  # type: ignore[arg-type]
    members["p"].is_ready = members["d"].is_ready = True
    now = [0.0]
    cluster = SimpleNamespace(clock=lambda: now[0], members=members)
    for now[0] in (0.0, 0.5, 0.9, 1.0):
        controller.act(cluster, lambda *told: done.append(told))  # type: ignore[arg-type]
    assert [x.now_s for x in policy.looks] == [0.0, 1.0]
    assert done == [("d", "prefill", 3.0, "a test")] * 2 and len(controller.moves) == 2
    members["d"].change = RoleChange(None, 0.0, 0.0)  # type: ignore[arg-type]
    now[0] = 9.0
    controller.act(cluster, lambda *told: done.append(told))  # type: ignore[arg-type]
    assert len(policy.looks) == 2


# A prompt of 300 tokens takes 0.3 s, a decode step 5 ms: one reader answers 3 documents a second.
PACE = Pace(((0.0, 0.0), (1000.0, 1.0)), ((1.0, 0.005), (16.0, 0.008)))
LIMITS = SLO(ttft_s=1.5, tpot_s=0.05)


def shifting() -> list[Request]:
    """Chats for 2 s, then documents for 8 s at 1.5 times what one reader can do."""
    chats = [ask(f"chat{n}", 20, 30, 0.2 * n) for n in range(10)]
    return chats + [ask(f"doc{n}", 300, 3, 2 + n / 4.5) for n in range(36)]


def test_a_cluster_follows_its_load(
    monkeypatch: pytest.MonkeyPatch, start: Callable[..., Cluster]
) -> None:
    count_time(monkeypatch)
    cluster = start(num_prefill=1, num_decode=3, pace=PACE, num_blocks=512, prefix_reuse=False)
    fixed = cluster.run(shifting(), timeout_s=100)
    cluster.controller = Controller(
        Rebalancer(1.5, 0.05, confirm=2, cooldown_s=2.0), interval_s=0.2, window_s=2.0
    )
    moved = cluster.run(shifting(), timeout_s=100)
    for run in (fixed, moved):
        check_sound(run, shifting())
    assert moved.outputs == fixed.outputs
    assert [x.role for x in cluster.controller.moves][:1] == ["prefill"]
    (first, *_) = events(moved, "worker_draining")
    assert "prefill is short" in str(first.data["reason"]) and first.t_s > 2.0
    good, before = (summarise(r.timeline, LIMITS).attainment for r in (moved, fixed))
    assert good is not None and before is not None and good > before + 0.1


def test_the_watch_needs_no_torch() -> None:
    """A simulator feeds it too."""
    code = "import sys, minipd.pools.watch; assert not {'torch', 'numpy'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=os.environ, capture_output=True)
    assert done.returncode == 0, done.stderr
