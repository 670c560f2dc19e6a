"""Lesson 09's helpers: the sweep, its pictures and dial, paced claims, the cases that lose."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from minipd.lab import goodput_dial, goodput_sweep, paced_runs, where_it_loses
from minipd.lab.goodput_sweep import MODES, SEEDS
from minipd.measure.metrics import run_metrics
from minipd.measure.slo import SLO
from minipd.pools.paced import Pace
from tests.counted_clock import count_time

ROOT = Path(__file__).resolve().parents[2]
# A quarter of a minute of the lesson's model in about a second: ten times this course's machine.
FAST = Pace(
    ((1.0, 0.005), (32.0, 0.009), (128.0, 0.029), (512.0, 0.1125)),
    ((1.0, 0.005), (2.0, 0.0062), (4.0, 0.0089), (8.0, 0.012), (16.0, 0.015)),
)


@pytest.fixture(scope="module")
def swept():
    return goodput_sweep.sweep(FAST)


@pytest.fixture
def shown(monkeypatch):
    pages = []
    monkeypatch.setattr(importlib.import_module("minipd.lab.show"), "display_html", pages.append)
    return pages


def test_traffic_is_the_same_at_every_rate_but_for_its_times():
    slow, fast = (goodput_sweep.traffic(rate, 20, seed=1) for rate in (1.0, 4.0))
    assert [r.prompt_tokens for r in slow] == [r.prompt_tokens for r in fast]
    assert [r.arrival_s for r in slow] == pytest.approx([4 * r.arrival_s for r in fast])
    assert slow != goodput_sweep.traffic(1.0, 20, seed=2)


@pytest.mark.slow
def test_a_sweep_is_the_same_each_time(swept):
    again = goodput_sweep.serve(FAST, "chunked", goodput_sweep.traffic(swept.rates[3], 80, 2))
    kept = swept.requests["chunked", swept.rates[3], 2]
    assert [(r.ttft_s, r.itl_s) for r in again] == [(r.ttft_s, r.itl_s) for r in kept]


def test_goodput_agrees_with_a_slow_count(swept):
    slo = goodput_sweep.three_objectives(FAST)["no long freeze"]
    for mode in MODES:
        best = 0.0
        for rate in swept.rates:
            requests = [r for seed in SEEDS for r in swept.requests[mode, rate, seed]]
            good = [r for r in requests if slo.met_by(r)]
            if len(good) < 0.9 * len(requests):
                break
            best = rate
        assert swept.goodput(mode, slo) == best
    assert swept.goodput("chunked", SLO(ttft_s=1e-6)) == 0.0


@pytest.mark.slow
def test_three_readers_have_three_winners(swept):
    objectives = goodput_sweep.three_objectives(FAST)
    table = goodput_sweep.winners_table(swept, objectives)
    assert table["winner"] == ["colocated", "chunked", "disaggregated"]
    for told, best in zip(table["each seed alone"], table["winner"], strict=True):
        assert told == f"{best} / {best}"


@pytest.mark.slow
def test_a_single_worker_is_run_for_itself(swept):
    objectives = goodput_sweep.three_objectives(FAST)
    single = goodput_sweep.sweep(FAST, workers=1)
    assert single.rates == pytest.approx([rate / 2 for rate in swept.rates])
    assert {mode for mode, _, _ in single.requests} == set(goodput_sweep.UNSPLIT)
    table = goodput_sweep.one_or_two_table(swept, single, objectives)
    for reader, slo in enumerate(objectives.values()):
        for mode in goodput_sweep.UNSPLIT:
            assert table[f"one: {mode}"][reader] == single.goodput(mode, slo)
            assert table[f"two: {mode}"][reader] == swept.goodput(mode, slo) / 2
            assert table[f"one: {mode}"][reader] <= table[f"two: {mode}"][reader]
    assert table["best with two"] == ["colocated", "chunked", "disaggregated"]


def test_limits_follow_the_machine():
    twice = Pace(
        tuple((n, 2 * s) for n, s in FAST.prefill), tuple((n, 2 * s) for n, s in FAST.decode)
    )
    for fast, slow in zip(
        goodput_sweep.three_objectives(FAST).values(),
        goodput_sweep.three_objectives(twice).values(),
        strict=True,
    ):
        assert slow.ttft_s == pytest.approx(2 * fast.ttft_s, rel=0.1)
        assert slow.itl_p99_s == pytest.approx(2 * fast.itl_p99_s, rel=0.1)


@pytest.mark.parametrize(
    ("rates", "expected"),
    [((0.0, 0.0, 0.0), "nobody"), ((2.0, 1.0, 0.0), "colocated"), ((2.0, 1.0, 1.95), "a tie")],
)
def test_a_winner_is_clear_or_there_is_none(rates, expected):
    assert goodput_sweep.winner(dict(zip(MODES, rates, strict=True))) == expected


def test_the_picture_has_words_and_numbers(swept, shown):
    goodput_dial.show_attainment(swept, goodput_sweep.three_objectives(FAST))
    assert "even flow: colocated" in shown[0] and "<table>" in shown[0]
    assert shown[0].count("<tr>") == 1 + 3 * len(swept.rates)


def test_the_dial_says_who_wins_and_nothing_is_run_again(swept, monkeypatch):
    def forbidden(*_, **__):
        raise AssertionError("the dial must judge what was kept")

    monkeypatch.setattr(goodput_sweep, "serve", forbidden)
    assert "no way of serving" in goodput_dial.dial_text(swept, 1e-6, 1.0)
    ttft, gap = goodput_dial.limits_of(swept)
    dial = goodput_dial.make_dial(swept)
    controls, words, picture = dial.children
    before = words.value
    controls.children[0].value, controls.children[1].value = ttft[-1], gap[1]
    assert words.value != before and "aria-live='polite'" in words.value
    assert "wins" in words.value or "tie" in words.value or "no way" in words.value
    assert "<img alt=" in picture.value
    assert all(slider.description and slider.tooltip for slider in controls.children)


def test_the_map_says_the_same_as_the_dial(swept):
    table = goodput_dial.winners_map(swept)
    ttft, gap = goodput_dial.limits_of(swept)
    column = table[f"first token within {ttft[3]:g} s"]
    for limit, told in zip(gap, column, strict=True):
        text = goodput_dial.dial_text(swept, ttft[3], limit)
        assert f"{told} wins" in text or told in ("a tie", "nobody")


def test_a_claim_is_tried_at_the_winner_s_goodput(swept):
    objectives = goodput_sweep.three_objectives(FAST)
    found = paced_runs.claims(swept, objectives)
    assert [claim.reader for claim in found] == list(objectives)
    for claim in found:
        assert claim.rate == swept.goodput(claim.best, claim.slo)
        assert swept.goodput(claim.rival, claim.slo) < claim.rate


def test_a_watchman_notices_a_standstill(monkeypatch):
    with paced_runs.Watchman() as watchman:
        pass
    assert not watchman.is_alive()
    for woke_s, longest_s in ((0.02, 0.0), (3.0, 2.98)):
        moments = iter([0.0, woke_s])
        stood = paced_runs.Watchman()
        clock = SimpleNamespace(monotonic=lambda m=moments: next(m))
        monkeypatch.setattr(paced_runs, "time", clock)
        monkeypatch.setattr(stood._over, "wait", lambda _, s=stood: s._over.set())
        stood.run()
        assert stood.longest_s == pytest.approx(longest_s)


@pytest.fixture(scope="module")
def tried():
    """On a clock that is counted, and so one run after another."""
    with pytest.MonkeyPatch.context() as patch:
        count_time(patch)
        one_by_one = lambda wanted: [paced_runs.paced_run(*one) for one in wanted]  # noqa: E731
        patch.setattr(where_it_loses, "all_at_once", one_by_one)
        return where_it_loses.try_cases(FAST, where_it_loses.losing_cases(FAST))


@pytest.mark.slow
def test_runs_at_once_keep_apart():
    case = where_it_loses.losing_cases(FAST)["low load"]
    runs = paced_runs.all_at_once([(FAST, "colocated", case), (FAST, "disaggregated", case)])
    assert [len(run.outputs) for run in runs] == [len(case.rows)] * 2
    committed = [any(e.kind == "committed" for e in run.timeline) for run in runs]
    assert committed == [False, True], "in the order in which they were asked for"


def test_both_sides_of_a_case_get_the_same_requests(tried):
    for one in tried.values():
        finished = [len(one.requests(side)) for side in one.runs]
        assert finished == [len(one.case.rows)] * 2
        assert all(not any(run.leaked_blocks.values()) for run in one.runs.values())


def test_the_split_loses_where_the_lesson_says_so(tried):
    times = {name: where_it_loses.slower(one) for name, one in tried.items()}
    assert times["wrong ratio"] > 1.5 and times["memory held twice"] > 1.2
    assert times["slow link"] > 1.2 and times["short prompts"] > 1.05
    assert 0.8 < times["low load"] < 1.3


def test_a_slow_link_delays_the_second_token_and_not_the_first(tried):
    together, apart = (tried["slow link"].requests(side) for side in tried["slow link"].runs)
    assert where_it_loses.second_token_s(apart) > 3 * where_it_loses.second_token_s(together)
    table = where_it_loses.losses_table({"slow link": tried["slow link"]})
    first = table["first token (s)"]
    assert first[1] < 2 * first[0]


def test_a_wait_for_notes_is_not_called_a_freeze(tried):
    picture = tried["slow link"].picture()
    assert "waits for notes" in picture.svg and "waits for notes:" in picture.alt
    apart = [row for row in picture.rows if row[0] == "disaggregated"]
    assert any(row[2] == "waits for notes" for row in apart)
    assert not any(row[2].startswith("frozen") for row in apart)


def test_the_reader_is_idle_when_prompts_are_short(tried):
    run = tried["short prompts"].runs["disaggregated"]
    summary = run_metrics(run.timeline).result()
    shares = {use.role: use.busy_share(summary.duration_s) for use in summary.workers}
    assert shares["prefill"] < 0.5 * shares["decode"]
    assert "prefill" in where_it_loses.busy_text(run)


def test_a_case_has_a_picture_in_words(tried):
    picture = tried["wrong ratio"].picture()
    assert "wrong ratio (paced)" in picture.alt and picture.rows


def test_the_last_step_asks_the_learner_s_function(monkeypatch, capsys):
    monkeypatch.setattr(goodput_sweep, "table_of_steps", lambda _: FAST)
    monkeypatch.setattr(goodput_sweep, "load", lambda _: None)

    def stub(*_):
        raise NotImplementedError

    goodput_sweep.try_goodput(stub)
    assert "Solve Exercise 2" in capsys.readouterr().out
    goodput_sweep.try_goodput(lambda runs, ttft_s, gap_s, workers: max(runs) / workers)
    assert capsys.readouterr().out.count("good requests per second") == 2


def test_recorded_goodputs_are_those_of_the_raw_file():
    raw = json.loads((ROOT / goodput_sweep.RECORDED_FILE).read_text())
    for reader, by_mode in goodput_sweep.RECORDED.items():
        assert by_mode == pytest.approx(raw["goodput_per_worker"][reader])
    assert set(goodput_sweep.RECORDED) == set(raw["objectives"])
    assert raw["winners_of_each_seed"] == {r: [w] * 2 for r, w in raw["winners"].items()}
