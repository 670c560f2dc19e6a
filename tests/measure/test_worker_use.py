"""Where workers' time went, when some of them change sides in the middle of a run."""

from __future__ import annotations

import pytest

from minipd.measure.invariants import check_timeline
from minipd.measure.metrics import summarise
from minipd.timeline import Event, EventKind


def told(t_s: float, kind: EventKind, worker: str, **data: object) -> Event:
    return Event(t_s, kind, worker, "", data)  # type: ignore[arg-type]


def step(start_s: float, end_s: float, worker: str, prefill: int = 0) -> Event:
    work = {"start_s": start_s, "prefill_tokens": prefill, "decode_seqs": int(not prefill)}
    return told(end_s, "step", worker, **work)


RUN = [
    Event(0.0, "arrived", "", "r", {"prompt_tokens": 8, "max_tokens": 1}),
    told(-0.1, "worker_started", "p", role="prefill"),
    told(-0.1, "worker_started", "d", role="decode"),
    told(-0.1, "worker_started", "x", role="decode"),
    step(0.0, 4.0, "p", prefill=8),
    step(0.0, 1.0, "d"),
    step(0.0, 3.0, "x"),
    told(2.0, "worker_draining", "x", role="decode", to="prefill", epoch=0),
    told(4.0, "role_changed", "x", role="prefill", epoch=0, drained_s=2.0),
    told(5.0, "worker_resumed", "x", role="prefill", epoch=0, paused_s=3.0),
    Event(5.0, "prefill_started", "x", "r", {"tokens": 8, "reason": "prompt"}),
    step(5.0, 8.0, "x", prefill=8),
    Event(8.0, "prefill_finished", "x", "r", {"tokens": 8, "reason": "prompt"}),
    Event(8.0, "token", "x", "r", {"index": 0, "token_id": 1}),
    Event(10.0, "finished", "x", "r", {"reason": "length", "output_tokens": 1}),
]


def test_a_worker_counts_in_each_pool_for_as_long_as_it_was_there() -> None:
    summary = summarise(RUN)
    # decode: d is there for 10 s and x for 4; prefill: p for 10 s and x for 6
    assert summary.pools == pytest.approx({"decode": (1 + 3) / 14, "prefill": (4 + 3) / 16})
    x = next(worker for worker in summary.workers if worker.worker == "x")
    assert (x.role, x.busy_s) == ("prefill", 6.0)
    assert summary.unreasoned_prefill_tokens == 8  # those of p, which nobody announced
    assert check_timeline(RUN) == []


def test_a_prefill_is_judged_by_the_role_of_its_moment() -> None:
    """The same prefill half a second before the change would have been a silent one."""
    early = [e for e in RUN if e.kind != "role_changed"]
    assert [v.rule for v in check_timeline(early)] == ["silent-prefill"]


def test_a_next_life_may_begin_in_another_role() -> None:
    died = [
        told(4.0, "worker_died", "x", reason="killed", epoch=0),
        told(4.0, "worker_started", "x", role="prefill", epoch=1),
    ]
    run = [e for e in RUN if e.kind not in ("role_changed", "worker_resumed")]
    assert summarise([*run, *died]).pools == pytest.approx(summarise(RUN).pools)


def test_roles_that_only_acts_imply_are_no_changes() -> None:
    run = [e for e in RUN if e.kind not in ("worker_started", "role_changed")]
    run.append(told(9.0, "reserved", "d"))
    summary = summarise(run)
    assert all(len(worker.stays) == 1 for worker in summary.workers)
    assert summary.pools["decode"] == pytest.approx(1 / 10)
