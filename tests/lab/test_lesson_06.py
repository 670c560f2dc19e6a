"""What lesson 06 calls: the trace on two servers, its freezes and figures, and the queue."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from course.facts import read_facts
from minipd.fleet.queueing import single_ttft_s
from minipd.lab import collision
from minipd.lab.collision import Freeze, Morning
from minipd.measure.contest import Cores
from minipd.measure.demo import Phases
from minipd.measure.real_hardware import A100X8, H100X8
from minipd.measure.stalls import undisturbed_step_s
from minipd.model.load import load
from minipd.pools.cluster import Cluster, Run
from minipd.pools.paced import Pace
from minipd.timeline import Event
from tests.counted_clock import count_time

ROOT = Path(__file__).resolve().parents[2]
UNPINNED = Cores((), 1)


@pytest.fixture(scope="module")
def model():
    return load("tiny")


def rows_of(table):
    return list(zip(*table.values(), strict=True))


@cache
def recorded_file():
    return json.loads((ROOT / collision.RECORDED_FILE).read_text())


def recorded(way):
    """A run of the demo, as a morning."""
    raw = recorded_file()["timelines"][way]
    events = [
        Event(e["t_s"], e["kind"], e.get("worker", ""), e.get("request_id", ""), e.get("data", {}))
        for e in raw
    ]
    return Morning(way, Run(events), undisturbed_step_s(events))


# -- the collision -----------------------------------------------------------------------------


def made_morning():
    """One worker, one chat: a token each second, then 5 s in which a document is read."""

    def token(t_s):
        return Event(t_s, "token", "w", "chat-000", {"index": 0, "token_id": 1})

    def step(start_s, end_s, read, writers):
        data = {"start_s": start_s, "prefill_tokens": read, "decode_seqs": writers}
        return Event(end_s, "step", "w", "", data | {"requests": []})

    events = [token(float(t)) for t in (1, 2, 3)]
    events += [step(t - 1.0, float(t), 0, 1) for t in (2, 3)]
    events += [step(3.0, 8.0, 400, 0), step(8.0, 8.5, 40, 0), step(8.5, 9.5, 0, 1), token(9.5)]
    return Morning("made", Run(sorted(events, key=lambda e: e.t_s)), 1.0)


def test_a_freeze_knows_its_length_and_what_was_read():
    (freeze,) = made_morning().freezes
    assert (freeze.length_s, freeze.tokens, freeze.read_tokens) == (6.5, 6.5, 440)
    speed = Phases(prefill_tok_s=80.0, decode_tok_s=1.0)
    assert freeze.expected_s(speed) == pytest.approx(440 / 80 + 1)


def test_the_forecast_holds_within_a_quarter_on_the_recorded_quiet_run():
    phases = recorded_file()["phases"]
    speed = Phases(phases["prefill_tok_s"], phases["decode_tok_s"])
    freezes = recorded("colocated").freezes
    assert len(freezes) == 2
    for freeze in freezes:
        assert freeze.read_tokens == collision.RECORDED_DOCUMENT
        assert freeze.length_s / freeze.expected_s(speed) == pytest.approx(1.0, abs=0.25)


def test_recorded_figures_are_those_of_the_raw_file():
    for name, way in (("read first", "colocated"), ("pieces, budget 64", "chunked")):
        p99_ms, ttft_s = collision.RECORDED[name]
        assert p99_ms == pytest.approx(1000 * recorded(way).gap_s(99), abs=0.05)
        ttft_ms = recorded_file()["document_ttft_p50_ms"][way]
        assert ttft_s == pytest.approx(ttft_ms / 1000, abs=0.0005)
    longest = max(freeze.tokens for freeze in recorded("colocated").freezes)
    assert pytest.approx(longest, abs=0.05) == collision.RECORDED_FREEZE


def test_gaps_that_the_text_quotes():
    first, pieces = recorded("colocated"), recorded("chunked")
    found = [round(1000 * m.gap_s(p)) for m in (first, pieces) for p in (95, 100)]
    assert found == [121, 1584, 197, 271]


def test_published_freezes_that_the_text_quotes():
    found = [x.freeze_tokens(n) for x in (H100X8, A100X8) for n in (512, 2048, 8192)]
    assert found == pytest.approx([1.8, 4.4, 26.9, 2.1, 6.0, 33.3], abs=0.05)


def test_agreement_tells_a_bad_forecast_from_a_shaky_machine():
    made, speed = made_morning(), Phases(80.0, 1.0)
    assert "within a quarter" in collision.agreement(made, speed, 81.0)
    off = collision.agreement(made, Phases(160.0, 1.0), 160.0)
    assert "off by more than a quarter" in off
    assert "changed by a factor of 1.50" in collision.agreement(made, speed, 120.0)
    crowded = collision.agreement(made, Phases(80.0, 2.5), 80.0)
    assert "Indicative only" in crowded and "2.5 times as long as alone" in crowded


PACE = Pace(((1.0, 0.002), (512.0, 0.1)), ((1.0, 0.002), (16.0, 0.003)))


def test_two_servers_serve_one_morning_in_every_order(model, capsys, monkeypatch):
    """Paced, and on a clock that is counted: the documents come while all chats are written."""
    count_time(monkeypatch)
    paced = lambda setup: Cluster(replace(setup, pool="threads", pace=PACE))  # noqa: E731
    monkeypatch.setattr(collision, "Cluster", paced)
    servers = collision.Servers(model, UNPINNED, step_s=0.002)
    try:
        first = servers.serve("colocated")
        writing = servers.serve("decode_first")
        pieces = servers.serve("chunked", 64)
    finally:
        servers.close()
    assert first.step_s == writing.step_s == pieces.step_s
    assert [freeze.read_tokens >= 512 for freeze in first.freezes] == [True, True]
    assert all(m.run.outputs == first.run.outputs for m in (writing, pieces))
    rows = rows_of(collision.mornings_table([first, writing, pieces]))
    assert [row[0] for row in rows] == ["read first", "write first", "pieces, budget 64"]
    assert min(writing.ttft_s("document")) > 1.3 * min(first.ttft_s("document"))
    assert writing.longest_s < 0.5 * pieces.longest_s < 0.25 * first.longest_s
    said = capsys.readouterr().out
    assert "blocks leaked: 0" in said and "Both servers have ended" in said
    table = collision.recorded_table([first, writing, pieces])
    assert table["way"] == ["read first", "pieces, budget 64"]
    picture = collision.morning_picture([first, pieces], "Two ways")
    assert picture.alt.startswith("Two ways.") and len(picture.rows) > 2
    freezes = collision.freezes_table(first, Phases(1000.0, 100.0))
    for predicted, measured, ratio in [row[2:5] for row in rows_of(freezes)]:
        assert ratio == pytest.approx(measured / predicted)


def test_the_trace_sends_a_document_to_each_server():
    rows = rows_of(collision.trace_table(0.1))
    documents = [row for row in rows if row[0].startswith("document")]
    assert [row[2] for row in documents] == [0, 1]
    assert [row[3] for row in documents] == [collision.DOCUMENT_TOKENS] * 2
    assert [row[1] for row in rows] == sorted(row[1] for row in rows)


def test_a_freeze_of_here_stands_beside_those_of_elsewhere():
    rows = rows_of(collision.elsewhere_table(23.0))
    assert rows[0] == ("here, measured", 512, 23.0)
    assert rows[-1][1:] == (8192, pytest.approx(26.9, abs=0.05))


def test_freeze_is_counted_in_undisturbed_steps():
    assert Freeze("w", 3.0, 0.1, 512).tokens == pytest.approx(30)


def test_a_pause_of_the_machine_is_no_freeze_by_a_document():
    """The wait in which most was read counts, even if another one is longer."""
    morning = made_morning()
    morning.run.timeline.append(Event(99.0, "token", "w", "chat-000", {"index": 9, "token_id": 1}))
    assert morning.freezes[0].length_s == 6.5
    assert morning.longest_s == pytest.approx(89.5)


def test_the_recorded_forecasts_are_those_of_their_file():
    raw = json.loads((ROOT / "benchmarks/raw/lesson_06.json").read_text())["foretold"]
    errors = [one["error"] for one in raw["freezes"]]
    sizes = sorted(abs(error) for error in errors)
    assert raw["median_error"] == pytest.approx(median(sizes)) and sizes[-1] < 0.25
    fact = read_facts(ROOT / "course" / "facts.yaml")["freeze-forecast-recorded"]
    written = {f"{100 * median(sizes):.0f}", f"{100 * sizes[-1]:.0f}"}
    assert written <= set(fact.figures)
    assert (len(errors), sum(error < 0 for error in errors)) == (12, 11), (
        "twelve and eleven in words"
    )


# -- the lesson's queue ------------------------------------------------------------------------


def test_the_lesson_s_own_queue_follows_the_formula():
    """The very cell that learners run, against equation 1."""
    source = (ROOT / "course/lessons/06_the_collision/lesson.py").read_text()
    cell = source[source.index("def mean_ttft(") : source.index("    return total / documents")]
    names = {}
    exec("import random\n" + cell + "    return total / documents\n", names)
    for load_, tolerance in ((0.3, 0.02), (0.5, 0.02), (0.8, 0.05)):
        assert names["mean_ttft"](load_) == pytest.approx(single_ttft_s(load_, 1.0), rel=tolerance)
