"""`minipd run`: every router, pool and network on `tiny`; what cannot work is refused at once."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from minipd.lab import run as run_module
from minipd.lab.plan import MODES, ROUTERS, Plan, check_plan, trace_of
from minipd.lab.run import deaths, run_plan
from minipd.measure.metrics import summarise
from minipd.measure.rows import TraceRow
from minipd.measure.traces import write_trace
from minipd.sched.rebalance import Move, Observation
from minipd.timeline import Event


def plan(**changes: object) -> Plan:
    asked = {
        "model": "tiny",
        "pool": "threads",
        "num_requests": 4,
        "rate_per_s": 200.0,
        "max_prompt_tokens": 70,
        "max_output_tokens": 6,
    }
    return Plan(**(asked | changes))  # type: ignore[arg-type]


def printed(asked: Plan, **files: Path) -> tuple[str, dict[str, object]]:
    console = Console(file=io.StringIO(), width=200)
    outcomes = run_plan(asked, console=console, **files)
    for outcome in outcomes.values():
        assert outcome.summary.finished == asked.num_requests
        assert set(outcome.run.leaked_blocks.values()) == {0}
    return console.file.getvalue(), dict(outcomes)  # type: ignore[attr-defined]


def test_all_modes_side_by_side_with_files(tmp_path: Path) -> None:
    path, folder = tmp_path / "r.json", tmp_path / "pictures"
    asked = plan(modes=("disaggregated", "chunked", "colocated", "decode_first"), ttft_s=9.0)
    said, outcomes = printed(asked, json_path=path, pictures=folder)
    assert list(outcomes) == list(MODES)
    for words in ("colocated", "decode first", "Time per output token", "within the limits"):
        assert words in said
    assert "prompts were cut to 70 tokens" in said and "Note: Streams do nothing" in said
    assert sorted(p.name for p in folder.iterdir()) == ["gaps.svg", "summary.svg", "timeline.svg"]
    record = json.loads(path.read_text())
    assert {"plan", "model", "machine", "cores", "pace", "notes", "trace"} <= set(record)
    assert set(record["modes"]) == set(record["timelines"]) == set(MODES)
    for mode, raw in record["timelines"].items():  # the raw samples give the same figures
        again = summarise([Event(**event) for event in raw])
        figures = record["modes"][mode]
        assert again.output_tokens_per_s == pytest.approx(figures["output_tokens_per_s"])
        assert again.percentile_ms("itl_s", "p99") == pytest.approx(
            1000 * figures["latency"]["itl_s"]["p99"]
        )


@pytest.mark.slow
@pytest.mark.parametrize("router", ROUTERS)
def test_every_router(router: str) -> None:
    asked = plan(router=router, local_tokens=30, network="eth10")
    printed(asked)


def test_short_prompts_stay_local_up_to_the_limit_in_both_routers(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    write_trace(path, [TraceRow(0.0, 30, 2), TraceRow(0.0, 31, 2)])
    for router in ("threshold", "length"):
        asked = plan(trace=path, num_requests=2, router=router, local_tokens=30, num_decode=2)
        _, outcomes = printed(asked)
        timeline = outcomes["disaggregated"].run.timeline  # type: ignore[attr-defined]
        routed = {e.request_id: str(e.data["reason"]) for e in timeline if e.kind == "routed"}
        assert "30 tokens: short" in routed["request-000"], router
        assert "31 tokens: long" in routed["request-001"], router


def test_paced_workers_say_so_and_keep_their_pace(tmp_path: Path) -> None:
    path = tmp_path / "paced.json"
    said, _ = printed(plan(paced=True, num_prefill=2, num_decode=2), json_path=path)
    assert "Note: Paced: step times are replayed" in said
    assert json.loads(path.read_text())["pace"]["decode"]


def test_answers_of_one_token_have_no_gaps_to_draw(tmp_path: Path) -> None:
    said, _ = printed(plan(max_output_tokens=1), pictures=tmp_path)
    assert "none" in said
    assert sorted(p.name for p in tmp_path.iterdir()) == ["summary.svg", "timeline.svg"]


@pytest.mark.serial
def test_processes_on_a_slow_network() -> None:
    said, _ = printed(plan(pool="processes", network="eth1", modes=("colocated", "disaggregated")))
    assert "disaggregated" in said and "Streams" not in said


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"modes": ()}, "no mode"),
        ({"modes": ("chunky",)}, "did you mean 'chunked'"),
        ({"router": "cots"}, "did you mean 'cost'"),
        ({"router": "remote", "modes": ("colocated", "disaggregated")}, "needs a prefill pool"),
        ({"pool": "fibres"}, "no pool 'fibres'; choose processes, threads"),
        ({"num_prefill": 0}, "at least one prefill"),
        ({"num_decode": 64}, "at most 64 workers"),
        ({"chunk_tokens": 0}, "at least 1 token"),
        ({"local_tokens": -1}, "cannot be below 0"),
        ({"network": "ib4000"}, "did you mean 'ib400'"),
        ({"network": "1e9:inf"}, "finite bandwidth"),
        ({"ttft_s": float("nan")}, "seconds above 0"),
        ({"tpot_s": float("inf")}, "seconds above 0"),
        ({"workload": "chta"}, "did you mean 'chat'"),
        ({"rate_per_s": 0.0}, "above 0"),
        ({"rate_per_s": 1e-300}, "use 1e-09 to"),
        ({"rate_per_s": 1e-5}, r"would come after \d\.\d days"),
        ({"time_factor": 0.0}, "above 0"),
        ({"num_requests": 0}, "at least 1"),
        ({"max_prompt_tokens": -3}, "use 1 or more"),
        ({"num_requests": 200_000, "max_prompt_tokens": None}, "a run holds at most 10,000,000"),
        ({"trace": Path("nothing.csv")}, "check the path"),
        ({"rebalance": True, "num_decode": 1}, "at least 3 workers"),
        ({"rebalance": True, "num_decode": 3, "modes": ("chunked",)}, "needs the mode disagg"),
        ({"rebalance": True, "num_decode": 3, "ttft_s": 1.0}, "give both --ttft and --tpot"),
        ({"device": "cuda:0,,cuda:1"}, "names no device; write cpu or cuda:0,cuda:1"),
    ],
)
def test_what_cannot_work_is_refused_before_the_model_is_loaded(
    changes: dict[str, object], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object) -> None:
        raise AssertionError("refuse it before loading")

    monkeypatch.setattr(run_module, "load", load)
    with pytest.raises((ValueError, RuntimeError), match=told) as caught:
        run_plan(plan(**changes), console=Console(file=io.StringIO()))
    assert type(caught.value).__module__.startswith("minipd."), "a sentence of our own"
    assert "\n" not in str(caught.value)


def test_files_are_tried_before_the_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "load", lambda *_: pytest.fail("refuse it before loading"))
    (tmp_path / "file").write_text("")
    for files in ({"json_path": tmp_path}, {"pictures": tmp_path / "file"}):
        with pytest.raises(RuntimeError, match="choose another"):
            run_plan(plan(), console=Console(file=io.StringIO()), **files)


def test_prompts_beyond_the_context_are_refused() -> None:
    with pytest.raises(ValueError, match="cap prompts and outputs"):
        run_plan(plan(workload="rag", max_prompt_tokens=None), console=Console(file=io.StringIO()))


def test_a_trace_is_cut_and_slowed_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    write_trace(path, [TraceRow(float(i), 9, 3) for i in range(5)])
    asked = plan(trace=path, num_requests=3, time_factor=0.5)
    check_plan(asked)
    trace = trace_of(asked)
    assert [row.arrival_s for row in trace.rows] == [0.0, 0.5, 1.0]
    assert "Only the first 3 of 5 rows are used." in trace.notes


def test_bad_lines_of_a_trace_are_skipped_if_asked_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    write_trace(path, [TraceRow(float(i) / 100, 9, 3) for i in range(4)])
    path.write_text(path.read_text().replace('"arrival_s":0.01', '"arrival_s":"soon"', 1))
    with pytest.raises(ValueError, match=r"Line 3 .*skip bad lines \(--skip-bad-lines\)"):
        printed(plan(trace=path))
    said, _ = printed(plan(trace=path, skip_bad_lines=True, num_requests=3))
    assert "Trace: 1 bad line was skipped; the first: Line 3" in said


def test_workers_on_several_devices_in_turn() -> None:
    _, outcomes = printed(plan(device="cpu, cpu", num_decode=2))
    assert outcomes


def test_rebalancing_tells_its_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that wants a worker of the larger pool at its first look, and never again."""

    class Eager:
        def __init__(self, *_: float) -> None:
            self.has_moved = False

        def decide(self, seen: Observation) -> Move | None:
            if self.has_moved or not seen.decode:
                return None
            self.has_moved = True
            return Move(seen.decode[0].name, "prefill", "a test wants it")

    monkeypatch.setattr(run_module, "Rebalancer", Eager)
    asked = plan(rebalance=True, num_decode=3, ttft_s=1.0, tpot_s=1.0, num_requests=12)
    said, _ = printed(asked)
    assert "Note: worker-1 has joined the prefill pool at" in said and "a test wants it" in said


def test_a_worker_that_was_lost_is_told() -> None:
    """Its answers are all there, so nothing else would say why the figures are bad."""
    died = Event(3.71, "worker_died", worker="worker-1", data={"reason": "it ended", "epoch": 0})
    run: Any = SimpleNamespace(run=SimpleNamespace(timeline=[died]))
    calm: Any = SimpleNamespace(run=SimpleNamespace(timeline=[]))
    (told,) = deaths({"chunked": calm, "disaggregated": run})
    assert told.startswith("worker-1 was lost at 3.7 s of disaggregated (it ended);")
