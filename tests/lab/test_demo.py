"""`minipd demo`: every promised figure, and a verdict that says what was seen and no more."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from minipd.lab import demo as demo_module
from minipd.lab.demo import run_demo
from minipd.lab.verdict import verdict
from minipd.measure import demo as measured
from minipd.measure.contest import CONTENDERS, Outcome, compare_tokens, hold, requests_of
from minipd.measure.demo import Demo, Phases, demo_rows, measure_phases, split_cores
from minipd.measure.rows import reshape
from minipd.measure.same_tokens import Summary, logits_of
from minipd.measure.summary import LatencySummary
from minipd.model.load import load
from minipd.pools.cluster import Cluster, Setup

PROMISED = {
    "tokens_identical",
    "near_ties",
    "stalled_share_colocated",
    "leaked_blocks",
    "p99_itl_ms",
    "p99_itl_ratio",
    "ttft_p50_ms",
    "throughput_tok_s",
    "handoff_share_of_prefill",
    "exposed_handoff_share",
}


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    """A short version in threads: 4 chats, 2 documents."""
    model, cores = load("tiny"), split_cores(2)
    chats = [row for row in demo_rows() if row.kind == "chat"][:4]
    documents = [row for row in demo_rows() if row.kind == "document"][:2]
    rows, _ = reshape([*chats, *documents], time_factor=0.02, max_output_tokens=40)
    requests = requests_of(rows, model.config, model.eos_ids)
    with Cluster(Setup(model="tiny", pool="threads", num_blocks=512)) as cluster:
        outcomes = hold(cluster, CONTENDERS, requests)
    tokens = compare_tokens(requests, outcomes, logits_of(model.decoder))
    yield Demo(model, cores, 0.02, outcomes, tokens, [])


def altered(demo: Demo, **p99_s: float) -> Demo:
    """The same demo with other p99 gaps of the chats, in seconds."""
    outcomes: dict[str, Outcome] = dict(demo.outcomes)
    for name, value in p99_s.items():
        summary = outcomes[name].summary
        gaps = LatencySummary(100, value, value, value, value, value)
        latency = summary.latency | {"itl_s": gaps}
        outcomes[name] = replace(outcomes[name], summary=replace(summary, latency=latency))
    return replace(demo, outcomes=outcomes)


def said(demo: Demo) -> str:
    return " ".join(verdict(demo))


def test_the_record_has_every_promised_figure(demo: Demo) -> None:
    record = json.loads(json.dumps(demo.to_dict()))
    assert set(record) >= PROMISED
    by_mode = ("p99_itl_ms", "ttft_p50_ms", "throughput_tok_s", "document_ttft_p50_ms")
    for key in by_mode:
        assert set(record[key]) == {c.name for c in CONTENDERS}
        assert all(value > 0 for value in record[key].values())
    assert demo.tokens.num_different == 0 and demo.tokens.num_sequences == 18
    assert record["tokens_identical"] is demo.tokens.passed and record["leaked_blocks"] == 0
    assert record["p99_itl_ratio"] == pytest.approx(
        record["p99_itl_ms"]["colocated"] / record["p99_itl_ms"]["disaggregated"]
    )
    assert record["handoff_share_of_prefill"] > 0 and record["exposed_handoff_share"] >= 0


def test_the_verdict_reports_the_price_too(demo: Demo) -> None:
    words = said(replace(demo, tokens=Summary(18, 0, 0, 0.0)))
    assert "of the chats" in words and "of the documents" in words
    assert "output tokens per second" in words and "moving the KV took" in words
    assert "The answers are the same tokens in every mode (18 compared); 0 blocks leaked." in words


@pytest.mark.parametrize(
    ("colocated", "split", "words"),
    [
        (0.5, 0.1, "is 5.0 times shorter than colocated"),
        (0.1, 0.2, "is 2.0 times longer than colocated"),
        (0.1, 0.102, "about the same as colocated"),
    ],
)
def test_better_worse_or_alike(demo: Demo, colocated: float, split: float, words: str) -> None:
    assert words in said(altered(demo, colocated=colocated, disaggregated=split))


def test_another_winner_is_named(demo: Demo) -> None:
    p99 = {"colocated": 0.5, "disaggregated": 0.1, "colocated_length_aware": 0.3}
    assert "shortest p99 gap was that of 'chunked': 20 ms" in said(
        altered(demo, chunked=0.02, **p99)
    )
    assert "shortest p99 gap" not in said(altered(demo, chunked=0.2, **p99))


def test_no_freeze_is_said_as_such(demo: Demo) -> None:
    calm = dict(demo.outcomes)
    summary = replace(calm["colocated"].summary, undisturbed_step_s=60.0)
    calm["colocated"] = replace(calm["colocated"], summary=summary)
    words = said(replace(demo, outcomes=calm))
    assert "no document froze anybody" in words and "longest freeze" not in words
    assert "say little" not in words  # steps of a minute are no overhead


def test_a_tiny_model_is_said_to_prove_little(demo: Demo) -> None:
    fast = dict(demo.outcomes)
    summary = replace(fast["colocated"].summary, undisturbed_step_s=0.001)
    fast["colocated"] = replace(fast["colocated"], summary=summary)
    words = said(replace(demo, outcomes=fast))
    assert "these figures say little about larger models" in words
    assert "longest freeze" in words and "One document of 576 tokens costs" in words


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (Summary(300, 0, 0, 0.0), "same tokens in every mode (300 compared); 0 blocks"),
        (Summary(300, 2, 0, 0.0), "but for 2 near-ties, within the 1 %"),
        (Summary(54, 1, 0, 0.0), "but for 1 near-ties, more than the 1 %"),
        (Summary(54, 0, 3, 0.0), "3 answers differ (54 compared): that is a fault of minipd"),
    ],
)
def test_the_sentence_on_tokens_follows_the_check(demo: Demo, tokens: Summary, words: str) -> None:
    assert words in said(replace(demo, tokens=tokens))


def test_failed_requests_are_not_called_different_answers(demo: Demo) -> None:
    broken = dict(demo.outcomes)
    summary = replace(broken["chunked"].summary, failed=1)
    broken["chunked"] = replace(broken["chunked"], summary=summary)
    words = said(replace(demo, outcomes=broken, tokens=Summary(18, 0, 1, 0.0)))
    assert "1 answers differ, as some requests failed" in words and "fault" not in words


def test_the_trace_follows_the_machine() -> None:
    assert Phases(512 / 2.4, 16.0).time_factor == pytest.approx(2.0)
    tiny = load("tiny")
    short = replace(tiny, config=replace(tiny.config, max_context=24))
    assert measure_phases(short, split_cores(2), repetitions=1).decode_tok_s > 0


def test_a_context_that_is_too_short_is_refused_before_workers_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tiny = load("tiny")
    short = replace(tiny, config=replace(tiny.config, max_context=100))
    monkeypatch.setattr(measured, "Cluster", lambda *_: pytest.fail("refuse it first"))
    with pytest.raises(ValueError, match="choose another model"):
        measured.run_contest(short)


def test_files_and_networks_are_tried_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_module, "load", lambda *_: pytest.fail("refuse it before loading"))
    console = Console(file=io.StringIO())
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeError, match="choose another file"):
        run_demo("tiny", tmp_path / "p", json_path=tmp_path, console=console)
    with pytest.raises(RuntimeError, match="choose another folder"):
        run_demo("tiny", tmp_path / "file", console=console)
    with pytest.raises(RuntimeError, match="did you mean 'eth10'"):
        run_demo("tiny", tmp_path / "p", network="eht10", console=console)


@pytest.mark.serial
def test_the_whole_demo_on_processes(tmp_path: Path) -> None:
    path, console = tmp_path / "d.json", Console(file=io.StringIO(), width=200)
    found = run_demo("tiny", tmp_path / "p", json_path=path, console=console)
    record = json.loads(path.read_text())
    assert set(record) == set(found) and set(record) >= PROMISED
    assert set(record["timelines"]) == {c.name for c in CONTENDERS}
    assert record["tokens_identical"] or record["near_ties"], "batches depend on the moment"
    assert record["leaked_blocks"] == 0
    words = console.file.getvalue()  # type: ignore[attr-defined]
    assert "are the chats'" in words and "tiny on one worker" in words
    for note in record["notes"]:
        assert note.split()[0] in words
    assert sorted(p.name for p in (tmp_path / "p").iterdir()) == [
        "gaps.svg",
        "summary.svg",
        "timeline.svg",
    ]
