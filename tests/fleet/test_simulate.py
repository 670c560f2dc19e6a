"""The simulator decides as the engine does, and skipping ahead changes no figure."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from minipd.fleet.events import Agenda
from minipd.fleet.failures import Failure
from minipd.fleet.fleet import Fleet, Mode, WorkerKind
from minipd.fleet.simulate import Simulation, simulate
from minipd.fleet.timers import Line, PointTimer
from minipd.fleet.turns import Turning
from minipd.fleet.under_way import Costs, Row
from minipd.measure.metrics import summarise
from minipd.measure.rows import TraceRow
from minipd.measure.slo import SLO
from minipd.sched.router import AlwaysRemote, RoundRobin
from minipd.timeline import TERMINAL_KINDS, Event
from tests.fleet.simulated import MODES, fleet, rows
from tests.sched import test_two_clocks as two_clocks

HISTOGRAM = ("p50", "p90", "p99", "max", "undisturbed_step_s")  # in buckets 1 % wide


def unlike(a: object, b: object, path: str = "") -> list[str]:
    """Where two records differ by more than rounding."""
    if isinstance(a, dict) and isinstance(b, dict):
        pairs: Any = ((key, a.get(key), b.get(key)) for key in a.keys() | b.keys())
        return [found for key, x, y in pairs for found in unlike(x, y, f"{path}/{key}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [f for n, (x, y) in enumerate(zip(a, b)) for f in unlike(x, y, f"{path}/{n}")]
    if isinstance(a, float):
        rel = 0.011 if path.endswith(HISTOGRAM) else 1e-6
        return [] if a == pytest.approx(b, rel=rel, abs=1e-9) else [f"{path}: {a} and {b}"]
    return [] if a == b else [f"{path}: {a} and {b}"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("reuse", [False, True])
def test_decides_like_the_engine(monkeypatch: pytest.MonkeyPatch, mode: Mode, reuse: bool) -> None:
    """Batch by batch, the decisions that a real cluster takes on this trace (test_two_clocks)."""
    setup, pace = replace(two_clocks.SETUP, mode=mode, prefix_reuse=reuse), two_clocks.PACE
    router = AlwaysRemote() if mode == "disaggregated" else RoundRobin()
    expected = two_clocks.Loop(setup, router).run(two_clocks.trace())
    timer = PointTimer(pace.prefill, pace.decode, pace.per_context_token_s)
    kind = WorkerKind(timer, setup.num_blocks * setup.block_size)
    made = Fleet(
        kind, kind, mode=mode, limits=setup.limits, chunk_tokens=setup.chunk_tokens,
        prefix_reuse=reuse,
    )  # fmt: skip
    found: dict[str, list[Any]] = {f"worker-{n}": [] for n in range(2)}
    decide = Turning._decide  # type: ignore[reportPrivateUsage]

    def watched(self: Turning) -> Any:
        step = decide(self)
        if step is not None:
            chunks = [(names[c.request_id], c.start, c.stop) for c in step.batch.chunks]
            found[self.name].append(tuple(chunks))
        return step

    monkeypatch.setattr(Turning, "_decide", watched)
    requests = two_clocks.trace()
    names = {f"request-{n:03d}": request.id for n, request in enumerate(requests)}
    served = [TraceRow(r.arrival_s, r.num_prompt_tokens, r.sampling.max_tokens) for r in requests]
    simulation = Simulation(made, skip_ahead=False)
    for worker in simulation.workers.values():
        worker.scheduler.allocator.prefer_runs = True  # as on a CPU: it decides what is forgotten
    result = simulation.run(served)
    assert found == expected
    assert result.leaked_blocks == 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kv_tokens", [1_600, 40_000])
@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("troubled", [False, True])
def test_skipping_ahead_changes_nothing(
    mode: Mode, kv_tokens: int, reuse: bool, troubled: bool
) -> None:
    """Step by step or many at once: every figure is the same, also in want of memory, with
    failures, and where workers cost more than the model."""
    costs = Costs(0.00104711, 0.000733317, 1.013e-10, 0.001009, 1.0717e-10)
    made = fleet(mode, kv_tokens, prefix_reuse=reuse, costs=costs if troubled else Costs())
    failures = [Failure(0, 5.0, 9.0), Failure(3, 7.0, 12.0), Failure(2, 20.0, 30.0)] * troubled
    slo = SLO(ttft_s=1.0, tpot_s=0.1)
    runs = [
        Simulation(made, slo=slo, failures=failures if troubled else (), skip_ahead=skip).run(
            rows()
        )
        for skip in (True, False)
    ]
    fast, slow = (run.to_dict() for run in runs)
    assert not unlike(fast, slow)
    summary = runs[0].summary
    assert (summary.finished, summary.failed, summary.unfinished) == (120, 0, 0)
    assert runs[0].leaked_blocks == 0 and summary.unreasoned_prefill_tokens == 0
    if kv_tokens == 1_600 and mode != "decode_first":
        assert summary.preemptions > 0


def test_figures_are_those_of_the_timeline() -> None:
    """The exact metrics of the events, and what a run without them reports."""
    events: list[Event] = []
    simulate(fleet(), rows(), on_event=events.append)
    exact, streamed = summarise(events), simulate(fleet(), rows()).summary
    for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s"):
        found, expected = streamed.latency[name], exact.latency[name]
        assert found is not None and expected is not None
        assert found.count == expected.count
        assert found.mean == pytest.approx(expected.mean, rel=1e-6)
        assert found.p90 == pytest.approx(expected.p90, rel=0.011)
    ends = [event.request_id for event in events if event.kind in TERMINAL_KINDS]
    assert len(ends) == len(set(ends)) == 120


def test_the_same_rows_give_the_same_run() -> None:
    first, second = (simulate(fleet("chunked", 1_600), rows()).to_dict() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("mode", MODES)
def test_nobody_who_has_left_is_remembered(mode: Mode) -> None:
    """Memory is flat in the length of a trace: a name kept for each request would add up."""
    simulation = Simulation(fleet(mode))
    simulation.run(rows(60))
    tally = simulation._tally
    assert tally is not None and not tally._live
    assert sum(map(len, tally._joined.values())) <= len(simulation.workers)


def test_the_agenda_keeps_to_the_order_asked_for() -> None:
    agenda, done = Agenda(), list[str]()
    agenda.at(2.0, done.append, "c")
    agenda.at(1.0, done.append, "a")
    agenda.at(1.0, done.append, "b")
    agenda.run()
    assert done == ["a", "b", "c"] and agenda.now == 2.0
    with pytest.raises(AssertionError, match="is past"):
        agenda.at(1.0, done.append)


def test_steps_in_a_row_are_what_a_random_cut_finds() -> None:
    """`step_at` against counting, over many lines."""
    rng = random.Random(1)
    for _ in range(200):
        row = Row(rng.random(), Line(0.01 * rng.random() + 1e-4, 1e-5 * rng.random(), 99), 40, [])
        now_s = row.start_s + rng.random() * (row.end_s(40) - row.start_s)
        slow = next(step for step in range(1, 41) if row.end_s(step) >= now_s)
        assert row.step_at(now_s) == slow
