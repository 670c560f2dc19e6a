"""Generators: seeded, in the shape of the published figures, prompts shared where rows say so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from statistics import fmean, median, pstdev

import pytest

from minipd.measure.arrivals import (
    WorkloadError,
    arrival_times,
    day_curve,
    gaps,
    varying_times,
)
from minipd.measure.demo_trace import demo_trace
from minipd.measure.prompts import iter_prompts, make_prompts
from minipd.measure.rows import Segment, TraceRow, reshape
from minipd.measure.trace_stats import describe
from minipd.measure.traces import read_about, read_trace, write_trace
from minipd.measure.workloads import KINDS, MIX, Workload, generate


def test_seed_one_kinds_are_all_there() -> None:
    assert set(KINDS) == {
        "chat", "rag", "coding_agent", "multi_turn", "reasoning", "api", "mixed", "time_of_day"
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_bytes_other_seed_others(kind: str, tmp_path: Path) -> None:
    files = [tmp_path / f"{n}.jsonl" for n in range(3)]
    for path, seed in zip(files, (5, 5, 6), strict=True):
        rows = generate(kind, 60, 2.0, seed)
        assert write_trace(path, rows, generator=kind, seed=5) == 60
    assert files[0].read_bytes() == files[1].read_bytes() != files[2].read_bytes()
    trace = read_trace(files[0])
    assert trace.rows == generate(kind, 60, 2.0, 5)
    assert trace.notes == []
    assert read_about(files[0]) == {
        "format": "minipd-trace", "version": 1, "generator": kind, "seed": 5
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_sound(kind: str) -> None:
    rows = Workload(kind, 5.0, day_s=600).generate(400, seed=2)
    assert len(rows) == 400
    assert all(a.arrival_s <= b.arrival_s for a, b in zip(rows, rows[1:], strict=False))
    for row in rows:
        assert row.arrival_s > 0 and row.prompt_tokens >= 1 and row.output_tokens >= 1
        assert row.shareable_tokens <= row.prompt_tokens <= 131_072


# Facts section 5 and the agentic study: what each kind must look like, within a tenth or so.
@pytest.mark.parametrize(
    ("kind", "prompt_p50", "output_p50", "rel"),
    [("chat", 1020, 129, 0.1), ("api", 1469, 13, 0.12), ("rag", 6909, 110, 0.12)],
)
def test_medians_have_the_published_shape(
    kind: str, prompt_p50: float, output_p50: float, rel: float
) -> None:
    rows = generate(kind, 3000, 2.0, seed=4)
    assert median(row.prompt_tokens for row in rows) == pytest.approx(prompt_p50, rel=rel)
    assert median(row.output_tokens for row in rows) == pytest.approx(output_p50, rel=rel)


def test_coding_agent_reads_far_more_than_it_writes() -> None:
    rows = generate("coding_agent", 3000, 2.0, seed=4)
    read, written = fmean(r.prompt_tokens for r in rows), fmean(r.output_tokens for r in rows)
    assert read == pytest.approx(33_600, rel=0.15)
    assert written == pytest.approx(445, rel=0.15)
    assert describe(rows).prefix_hits.token_weighted > 0.8  # turns repeat what was said before


def test_reasoning_writes_more_than_it_reads() -> None:
    rows = generate("reasoning", 500, 2.0)
    assert sum(r.output_tokens for r in rows) > 5 * sum(r.prompt_tokens for r in rows)


def test_turns_extend_each_other() -> None:
    rows = generate("multi_turn", 300, 2.0)
    sessions: dict[str, list[TraceRow]] = {}
    for row in rows:
        sessions.setdefault(row.segments[-1].stream, []).append(row)
    longest = max(sessions.values(), key=len)
    assert len(longest) > 3
    for row, later in zip(longest, longest[1:], strict=False):
        assert later.prompt_tokens > row.prompt_tokens + row.output_tokens


def test_mixture_has_its_shares_and_rate() -> None:
    rows = generate("mixed", 6000, 4.0, seed=1)
    for kind, share in MIX.items():
        seen = sum(row.kind == kind for row in rows) / len(rows)
        assert seen == pytest.approx(share, abs=0.04)
    assert describe(rows).rate_per_s == pytest.approx(4.0, rel=0.1)


def test_day_and_night_differ() -> None:
    rows = Workload("time_of_day", 10.0, day_s=600).generate(6000, seed=1)
    hours = [24 * (row.arrival_s % 600) / 600 for row in rows]
    afternoon = sum(13 <= hour < 17 for hour in hours)
    night = sum(1 <= hour < 5 for hour in hours)
    assert afternoon > 4 * night
    by_day = {row.kind for row, hour in zip(rows, hours, strict=True) if 10 <= hour < 12}
    assert "rag" in by_day and "reasoning" not in by_day


@pytest.mark.parametrize(
    ("process", "cv", "expected_cv"),
    [("poisson", 1.0, 1.0), ("gamma", 4.0, 4.0), ("gamma", 0.5, 0.5), ("uniform", 1.0, 0.0)],
)
def test_arrival_processes(process, cv: float, expected_cv: float) -> None:
    stream = gaps(process, 5.0, Random(1), cv)
    lengths = [next(stream) for _ in range(40_000)]
    assert fmean(lengths) == pytest.approx(0.2, rel=0.06)
    assert pstdev(lengths) / fmean(lengths) == pytest.approx(expected_cv, rel=0.06, abs=1e-9)


def test_varying_rate_follows_its_curve() -> None:
    curve = day_curve(20.0, day_s=240.0, swing=0.8)
    times = varying_times(curve, 36.0, Random(2))
    seen = [next(times) for _ in range(20 * 240)]
    first_hours = sum(t < 60 for t in seen) / 60  # 0:00 to 6:00
    expected = fmean(curve(t / 10) for t in range(600))
    assert first_hours == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_rates_are_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Workload("chat", rate)
    with pytest.raises(ValueError, match="above 0"):
        next(arrival_times("poisson", rate, Random(0)))


def test_unknown_kind_and_zero_requests_are_refused() -> None:
    with pytest.raises(WorkloadError, match="choose chat"):
        Workload("poetry", 1.0)
    with pytest.raises(WorkloadError, match="did you mean 'coding_agent'"):
        Workload("coding-agent", 1.0)
    for count in (0, -1, 10**12):
        with pytest.raises(WorkloadError, match="at least 1"):
            generate("chat", count, 1.0)


@pytest.mark.parametrize("rate", [1e-300, 1e308, 5e-324])
def test_rates_that_no_sum_of_gaps_can_hold_are_refused(rate: float) -> None:
    for kind in ("chat", "time_of_day"):
        with pytest.raises(WorkloadError, match="use 1e-09 to 1e.09"):
            Workload(kind, rate)


@pytest.mark.parametrize("rate", [1e-9, 1e9])
def test_the_slowest_and_the_fastest_rate_work(rate: float) -> None:
    for kind in KINDS:
        assert len(generate(kind, 5, rate)) == 5


def test_impossible_burstiness_and_days_are_refused() -> None:
    for cv in (0.0, 1e-200, 1e200, float("nan")):
        with pytest.raises(WorkloadError, match="burstiness"):
            generate("chat", 2, 1.0, arrivals="gamma", cv=cv)
    for day_s in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(WorkloadError, match="length of a day"):
            Workload("time_of_day", 1.0, day_s=day_s)
        with pytest.raises(WorkloadError, match="length of a day"):
            day_curve(1.0, day_s=day_s)
    with pytest.raises(WorkloadError, match="swing is 2"):
        day_curve(1.0, swing=2.0)


def test_prompts_share_exactly_what_rows_say() -> None:
    rows = [
        TraceRow(0, 30, 1, segments=(Segment("system", 8), Segment("doc", 10))),
        TraceRow(1, 25, 1, segments=(Segment("system", 8), Segment("doc", 12))),
        TraceRow(2, 25, 1),
    ]
    first, second, alone = make_prompts(rows, vocab_size=500, seed=3)
    assert [len(first), len(second), len(alone)] == [30, 25, 25]
    assert first[:18] == second[:18]
    assert first[18:25] != second[18:25]
    assert alone[:8] != first[:8]


def test_prompts_avoid_forbidden_ids_and_repeat_with_their_seed() -> None:
    rows = generate("chat", 5, 1.0)
    prompts = make_prompts(rows, 12, seed=1, forbidden={0, 2})
    assert {token for prompt in prompts for token in prompt} == set(range(12)) - {0, 2}
    assert prompts == list(iter_prompts(rows, 12, seed=1, forbidden={0, 2}))
    assert prompts != make_prompts(rows, 12, seed=2, forbidden={0, 2})
    with pytest.raises(ValueError, match="no token"):
        make_prompts(rows, 1, forbidden={0})


def test_demo_trace() -> None:
    rows = demo_trace(3, chats=20, documents=4, duration_s=40.0, document_prompt_tokens=900)
    assert rows == demo_trace(3, chats=20, documents=4, duration_s=40.0, document_prompt_tokens=900)
    documents = [row for row in rows if row.kind == "document"]
    assert [row.prompt_tokens for row in documents] == [900] * 4
    assert sum(row.kind == "chat" for row in rows) == 20
    assert rows == sorted(rows, key=lambda row: row.arrival_s) and rows[0].arrival_s == 0.0
    assert all(0.75 * 48 <= r.prompt_tokens <= 1.25 * 48 for r in rows if r.kind == "chat")
    with pytest.raises(ValueError, match="at least 1 chat"):
        demo_trace(0, chats=0)


def test_reshape_reports_every_change() -> None:
    row = TraceRow(10.0, 1000, 300, segments=(Segment("a", 512), Segment("b", 488)))
    rows, changes = reshape(
        [row, TraceRow(12.0, 50, 2)],
        time_factor=3,
        length_factor=0.5,
        max_prompt_tokens=400,
        max_output_tokens=100,
    )
    assert [(r.arrival_s, r.prompt_tokens, r.output_tokens) for r in rows] == [
        (30.0, 400, 100),
        (36.0, 25, 1),
    ]
    assert rows[0].segments == (Segment("a", 256), Segment("b", 144))
    assert changes.sentences() == [
        "Arrival times were multiplied by 3.",
        "Lengths were multiplied by 0.5.",
        "1 of 2 prompts were cut to 400 tokens (100 tokens dropped).",
        "1 of 2 outputs were cut to 100 tokens (50 tokens dropped).",
    ]
    with pytest.raises(ValueError, match="time_factor is 0"):
        reshape([row], time_factor=0)


def test_free_of_torch_and_numpy() -> None:
    """Everything of these rooms that must run in a browser imports and works with both blocked."""
    code = """
import sys
sys.modules["torch"] = sys.modules["numpy"] = None
import minipd.measure.invariants, minipd.measure.metrics, minipd.measure.tools
import minipd.measure.slo, minipd.measure.stalls, minipd.measure.real_hardware
import minipd.measure.trace_stats, minipd.measure.traces, minipd.measure.prompts
import minipd.fleet.formulas, minipd.fleet.queueing
from minipd.measure.workloads import generate
from minipd.lab.pictures import timelines_svg
from tests.scripted_runs import scripted_run
print(len(generate("mixed", 50, 1.0)), len(timelines_svg({"a": scripted_run("colocated")}).svg) > 0)
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.stdout.split() == ["50", "True"], done.stderr
