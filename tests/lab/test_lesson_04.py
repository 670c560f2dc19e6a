"""What lesson 04 calls: the sweep, its tables, the pictures of slots, the dial."""

import importlib
import json
import statistics
from pathlib import Path

import pytest

from minipd.lab import batch_dial, batching, seats
from minipd.lab.batching import Point
from minipd.measure.ceilings import Ceilings
from minipd.measure.real_hardware import H100X8
from minipd.measure.stats import Samples
from minipd.model.load import load

ROOT = Path(__file__).resolve().parents[2]
STEP_MS = {1: 50, 2: 60, 4: 80, 8: 120, 16: 200}
POINTS = [Point(n, Samples((n / ms * 1000,))) for n, ms in STEP_MS.items()]
TEN_A_BYTE = Ceilings(
    "cpu", "float32", 1, {"1024": Samples((1e11,))}, {"sum": Samples((1e10,))}, 10**9, "", None
)
WANTED = {"A": 3, "B": 1, "C": 2}
STATIC = [["A", "B"]] * 3 + [["C"]] * 2
CONTINUOUS = [["A", "B"], ["A", "C"], ["A", "C"]]


@pytest.fixture(scope="module")
def model():
    return load("tiny")


@pytest.fixture
def shown(monkeypatch):
    pages = []
    monkeypatch.setattr(importlib.import_module("minipd.lab.show"), "display_html", pages.append)
    return pages


def rows_of(table):
    return list(zip(*table.values(), strict=True))


def test_a_point_tells_the_machine_from_the_reader():
    eight = POINTS[3]
    assert eight.throughput == pytest.approx(8 / 0.12)
    assert eight.tpot_s == pytest.approx(0.12)
    assert eight.per_reader == pytest.approx(1 / 0.12)


@pytest.mark.slow
def test_the_sweep_times_every_size_equally_often(model):
    points = batching.measure_points(model, (1, 3), steps=2, rounds=4)
    assert [point.sequences for point in points] == [1, 3]
    assert all(len(point.rates.values) == 4 for point in points)
    assert all(point.tpot_s > 0 for point in points)


def test_the_formula_is_the_longer_of_two_times(model):
    config = model.config
    reading = config.num_parameters * 4 / 1e10
    assert batching.formula_step_s(config, 1, TEN_A_BYTE) == pytest.approx(reading)
    assert batching.formula_step_s(config, 20, TEN_A_BYTE) == pytest.approx(reading)
    assert batching.formula_step_s(config, 40, TEN_A_BYTE) == pytest.approx(2 * reading)
    assert batching.formula_corner(TEN_A_BYTE) == pytest.approx(20)
    rows = rows_of(batching.formula_table(POINTS, config, TEN_A_BYTE))
    assert all(ratio == pytest.approx(ms / expected) for _, expected, ms, ratio in rows)


def test_on_an_ideal_machine_the_measured_corner_is_the_formula_s():
    ideal = [Point(n, Samples((n / max(1.0, n / 20),))) for n in (1, 2, 16, 32, 64)]
    assert batching.measured_corner(ideal) == pytest.approx(20)
    assert batching.doubled_at(ideal) == 64
    assert batching.doubled_at(ideal[:3]) is None


def test_the_prediction_of_lesson_00_meets_the_measurement(monkeypatch, tmp_path):
    monkeypatch.setenv("MINIPD_PROGRESS", str(tmp_path / "progress.json"))
    table = batching.crossing_table(POINTS, TEN_A_BYTE, "00.crossing")
    assert table["sequences"] == ["no prediction was made", "20", "4", 8]
    from minipd.lab.predict import keep_prediction

    keep_prediction("00.crossing", 14.0, "sequences", "a guess", "10 to 20 sequences")
    table = batching.crossing_table(POINTS, TEN_A_BYTE, "00.crossing")
    assert table["sequences"][0] == "10 to 20 sequences"


def test_the_products_alone_are_all_matrices_of_a_step(model):
    table = batching.products_table(model, POINTS[:2], TEN_A_BYTE)
    work = 2 * model.config.num_matmul_parameters
    for row, ms, step_ms, gflops, _ in rows_of(table):
        assert step_ms == pytest.approx(STEP_MS[row])
        assert gflops == pytest.approx(work * row / (ms / 1000) / 1e9)


def test_recorded_rates_are_those_of_the_raw_file():
    raw = json.loads((ROOT / batching.RECORDED_FILE).read_text())
    for size, rate in batching.RECORDED.items():
        samples = raw["samples"][f"tg128 x {size}"]["samples"]
        assert rate == pytest.approx(statistics.median(samples), abs=0.05)
    assert raw["date"][:10] in batching.RECORDED_ON and raw["threads"] == 1


def test_the_published_figures_that_the_text_quotes():
    waits = H100X8.decode_batch[64] / H100X8.decode_batch[1]
    assert (round(waits, 1), round(64 / waits)) == (1.7, 38)
    rows = rows_of(batching.compared_table(POINTS, H100X8))
    here = [row for row in rows if row[0] == "here"]
    assert here[1][1:] == (16, pytest.approx(4), pytest.approx(4))
    assert any(row[1] == 64 and row[2] == pytest.approx(waits) for row in rows)


def test_requests_of_the_lesson_are_the_same_on_both_sides():
    assert list(batching.TEXTS) == list(batching.WANTED)


def test_stays_in_static_batching_end_together():
    stays = {stay.name: stay for stay in seats.stays_of(STATIC, WANTED)}
    assert (stays["B"].slot, stays["B"].useful_end, stays["B"].end) == (1, 1, 3)
    assert (stays["C"].slot, stays["C"].first, stays["C"].end) == (0, 3, 5)
    assert seats.used_share(STATIC, WANTED, 2) == pytest.approx(6 / 10)


def test_a_newcomer_takes_the_slot_that_became_free():
    stays = {stay.name: stay for stay in seats.stays_of(CONTINUOUS, WANTED)}
    assert (stays["C"].slot, stays["C"].first) == (stays["B"].slot, 1)
    assert all(stay.useful_end == stay.end for stay in stays.values())
    assert seats.used_share(CONTINUOUS, WANTED, 2) == 1.0


def test_two_newcomers_of_a_step_do_not_share_a_slot():
    stays = seats.stays_of([["A", "B"], ["C", "D"]], {"A": 1, "B": 1, "C": 1, "D": 1})
    assert sorted(stay.slot for stay in stays if stay.first == 1) == [0, 1]


def test_the_picture_of_slots_has_words_and_numbers(shown, monkeypatch):
    monkeypatch.setattr(seats, "show", importlib.import_module("minipd.lab.show").show)
    seats.show_seats(STATIC, WANTED, 2)
    assert "60% of the places wrote a wanted token; 2 were hatched" in shown[0]
    assert "steps wasted" in shown[0] and "<table>" in shown[0]


def test_the_curves_have_words_and_numbers(shown):
    batch_dial.show_points(POINTS)
    assert "from 20 to 80 tokens per second" in shown[0]
    assert "from 50 to 200 milliseconds" in shown[0] and "<table>" in shown[0]


def test_the_dial_says_who_gains_and_who_waits():
    said = batch_dial.dial_text(POINTS, 8, 100)
    assert "writes 66.7 tokens/s, 3.3 times as much as with 1" in said
    assert "8.3 tokens/s, one every 120 ms, over the limit of 100 ms" in said
    assert "within the limit" in batch_dial.dial_text(POINTS, 8, 120)
    assert "choose one of 1, 2, 4, 8, 16" in batch_dial.dial_text(POINTS, 5, 120)


def test_moving_a_slider_changes_picture_and_words():
    dial = batch_dial.make_dial(POINTS)
    controls, words, picture = dial.children
    chosen, limit = controls.children
    before = picture.value
    chosen.value, limit.value = 16, 199
    assert "16 in each step" in words.value and "over the limit of 199 ms" in words.value
    assert "aria-live='polite'" in words.value and picture.value != before
    assert '<img alt="16 in each step' in picture.value


def test_the_last_step_asks_the_learner_s_function(monkeypatch, capsys, shown):
    monkeypatch.setattr(batching, "measure_points", lambda *_, **__: POINTS)
    monkeypatch.setattr(batching, "load", lambda name: None)

    def stub(*_):
        raise NotImplementedError

    batching.choose_slots(stub)
    assert "solve Exercise 3" in capsys.readouterr().out
    batching.choose_slots(lambda table, limit: (4, 50.0) if limit > 0.12 else None)
    said = capsys.readouterr().out
    assert "none fit" in said and "4 slots, 50.0 tokens/s" in said
