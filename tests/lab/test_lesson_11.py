"""Lesson 11's parts: what cuts move, experts touched, four fleets, and the recorded figures."""

import importlib
import json
import re

import pytest

from course.build import ROOT
from minipd.fleet.configs import find_model
from minipd.fleet.formulas import expected_touched
from minipd.fleet.timers import ModelTimer, Read
from minipd.fleet.work import Parallel
from minipd.lab import cuts, expert_dial, four_corners
from minipd.model.experts import ExpertPass

RECORD = json.loads((ROOT / "benchmarks" / "raw" / "lesson_11.json").read_text())


@pytest.fixture
def shown(monkeypatch):
    pages = []
    monkeypatch.setattr(importlib.import_module("minipd.lab.show"), "display_html", pages.append)
    return pages


def test_weights_and_cards_by_hand():
    table = cuts.models_table(["Qwen3-235B-A22B"])
    assert [column[0] for column in table.values()] == ["Qwen3-235B-A22B", 235, 22, "2", "470.2", 4]


def test_what_a_token_moves_by_hand():
    """Qwen3-235B: 94 layers, rows of 4096 values of 2 bytes, 8 experts for each token."""
    table = cuts.moved_table("Qwen3-235B-A22B")
    row = 4096 * 2
    crossed = (2 - 1) * (1 - 0.5**8)  # of two machines, the other one holds some of 8 experts
    sent = [188 * 2 * 7 / 8 * row, row, 188 * crossed * row]  # PP: each to the next stage alone
    assert table["exchanges for a token, one after the other"] == [188, 3, 188]
    assert table["kB that a GPU sends"] == [f"{one / 1000:,.0f}" for one in sent]


def test_waits_are_those_of_the_formulas():
    table = cuts.waits_table((0.5, 1.3), speedup=1.5)
    assert list(table.values()) == [
        [0.5, 1.3],
        ["1.50", "endless queue"],
        ["0.83", "2.83"],
        ["1.08", "1.46"],
    ]


def test_a_bound_from_memory_by_hand():
    """DeepSeek-V3: TP copies the latent on all eight GPUs; two halves do not hold the weights."""
    model = find_model("DeepSeek-V3")
    room = 141e9 * 0.9 - model.weight_bytes_on_device(tp=8)
    assert cuts.fit_at_once("DeepSeek-V3", 8, 5000) == int(room / 70272) // 5000
    assert cuts.fit_at_once("DeepSeek-V3", 8, 5000, copies=2) == 0
    assert cuts.fit_at_once("DeepSeek-V3", 8, 5000, "EP") > 5 * cuts.fit_at_once(
        "DeepSeek-V3", 8, 5000
    )


def test_the_bound_table_says_what_the_lesson_concludes():
    """One is not memory's doing, 175 needs no split, and halves hold no large model."""
    table = cuts.bound_table(("DeepSeek-V3", "Llama-3.1-405B"), (2_400, 5_000, 131_072))
    by_line = {row[0]: row[1:] for row in zip(*table.values(), strict=True)}
    assert int(by_line["DeepSeek-V3, TP8"][0]) > 175
    assert all(int(one.replace(",", "")) > 1 for one in by_line["DeepSeek-V3, TP8"][:3])
    assert {row[-1] for row in by_line.values()} == {"does not fit"}
    assert list(by_line) == ["DeepSeek-V3, TP8", "DeepSeek-V3, EP8", "Llama-3.1-405B, TP8"]
    assert list(table)[-1] == "split in 4 + 4, 2,400 tokens each"


def test_a_dense_model_is_what_a_gain_is_compared_with():
    model = find_model("Qwen3-30B-A3B")
    assert expert_dial.fewer_bytes(model, 1) == 1.0
    assert 1.5 < expert_dial.fewer_bytes(model, 8) < 2.5
    assert expert_dial.fewer_bytes(find_model("Llama-3.1-8B"), 8) == pytest.approx(8.0)


def test_one_draw_meets_the_expectation_on_average():
    drawn = [len(expert_dial.one_draw(128, 8, 8, seed)) for seed in range(400)]
    assert sum(drawn) / len(drawn) == pytest.approx(expected_touched(128, 8, 8), rel=0.02)


def test_the_dial_says_the_same_in_words_picture_and_table():
    touched = expert_dial.one_draw(128, 8, 8)
    svg = expert_dial.experts_svg(128, touched)
    assert svg.count("<path") == len(touched) and svg.count("<rect") == 129
    words = expert_dial.dial_text("Qwen3-30B-A3B", 8)
    assert "about 52 of 128" in words and "8 times fewer." in words
    gain = re.search(r"([\d.]+) times fewer than alone", words)
    table = expert_dial.slots_table("Qwen3-30B-A3B", (8,))
    assert gain and table["times fewer than alone"] == [gain[1]]
    page = expert_dial.dial_html("Qwen3-30B-A3B", 8)
    assert f"{len(touched)} are crossed" in page and 'alt="128 squares' in page


def test_the_dial_answers_its_controls():
    controls, words, picture = expert_dial.make_dial("Qwen3-30B-A3B", 8).children
    before = picture.value
    controls.children[1].value = 1
    assert "1 in each step of Qwen3-30B-A3B" in words.value and picture.value != before
    controls.children[0].value = "Mixtral-8x7B"
    assert "of 8 experts" in words.value and "role='status'" in words.value


def test_passes_are_counted_over_layers_and_steps():
    passes = [ExpertPass(2, {0: [2, 0, 2, 0], 1: [1, 1, 1, 1]}), ExpertPass(2, {0: [0, 0, 2, 2]})]
    assert expert_dial.mean_touched(passes) == (3.0 + 2.0) / 2
    assert expert_dial.load_of(passes) == [2, 0, 4, 2]


def test_the_picture_of_touched_experts_has_words(shown):
    expert_dial.show_touched(128, 8, {1: 8.0, 8: 50.4})
    assert "8 for 1, 50 for 8" in shown[0] and "51.6" in shown[0]


def test_the_four_fleets_have_equal_gpus_and_differ_in_two_choices():
    fleets = [four_corners.fleet_of(corner) for corner in four_corners.CORNERS]
    assert {fleet.num_devices for fleet in fleets} == {32}
    names = [corner.name for corner in four_corners.CORNERS]
    places = {(corner.serving, corner.spread) for corner in four_corners.CORNERS}
    assert len(places) == len(set(names)) == 4


class Noted(ModelTimer):
    """Keeps what it is asked."""

    def seconds(self, reads, sequences, context):
        self.asked = (list(reads), sequences)
        return 1.0


def test_readers_end_where_the_splits_end():
    """Prompts of full steps over their seconds: just above the recorded limit of each split."""
    table = four_corners.readers_table()
    for column, limit in zip(list(table)[1:], (28, 72), strict=True):
        assert 0.98 * limit < float(str(table[column][-1])) < 1.15 * limit
        *parts, together, _ = (float(str(one)) for one in table[column])
        assert sum(parts) == pytest.approx(together, abs=0.3)


def test_more_room_is_more_tokens_and_nothing_else():
    usual, roomy = (four_corners.fleet_of(four_corners.CORNERS[1], room=r) for r in (1, 4))
    assert roomy.decode.kv_tokens == 4 * usual.decode.kv_tokens
    assert roomy.limits == usual.limits and roomy.num_devices == usual.num_devices


def test_an_even_group_reads_equal_parts():
    timer = Noted(four_corners.fleet_of(four_corners.CORNERS[2]).decode.timer.model)
    even = four_corners.EvenTimer(timer)
    even.seconds([Read(1600, 0), Read(160, 0)], 5, 100)
    [read], sequences = timer.asked
    assert (read.new, sequences) == (110, 5)  # 1,760 tokens over 16 replicas
    assert read.start + read.new / 2 == pytest.approx((1600 * 800 + 160 * 80) / 1760, abs=1)
    even.seconds([], 5, 100)
    assert timer.asked == ([], 5)


def test_one_prompt_halts_its_group_unless_it_is_spread():
    corner = four_corners.CORNERS[2]
    alone, even = (four_corners.fleet_of(corner, is_even).decode.timer for is_even in (False, True))
    one = [Read(2000, 0)]
    assert alone.seconds(one, 0, 0) > 4 * even.seconds(one, 0, 0)
    assert corner.spread == Parallel(ep=16)


def test_a_rate_that_breaks_the_promise_ends_the_trials():
    runs = {"low": four_corners.tried(four_corners.CORNERS[2])}
    assert four_corners.kept(runs) == {"low": 4}
    table = four_corners.tried_table(runs)
    assert table["4 requests/s"] == ["100%"] and table["40 requests/s"] == ["-"]
    assert four_corners.waits_at(runs, 16)["fleet"] == ["low"]
    assert four_corners.waits_at(runs, 40)["fleet"] == []


def test_the_recorded_goodputs_are_what_the_lesson_quotes():
    goodput = {one["fleet"]: one["goodput"] for one in RECORD["goodput"]}
    even = {one["fleet"]: one["goodput"] for one in RECORD["goodput_even"]}
    assert list(goodput.values()) == [20, 28, 4, 72] and list(even.values()) == [32, 64]
    assert RECORD["setting"]["gpus"] == four_corners.GPUS
    assert RECORD["setting"]["tokens"] == [four_corners.READ, four_corners.WRITE]


def test_the_search_finds_a_recorded_goodput_again():
    """The quickest of the four, at the full length of its runs."""
    found = four_corners.reach(four_corners.CORNERS[2], four_corners.LONG_S)
    assert found.goodput == RECORD["goodput"][2]["goodput"]


def test_the_recorded_touched_experts_follow_the_prediction_from_below():
    for row in RECORD["touched"]["rows"]:
        assert row["uniform"] == pytest.approx(expected_touched(128, 8, row["answers"]), abs=1e-9)
        assert 0.95 * row["uniform"] < row["measured"] <= 1.01 * row["uniform"]
    assert RECORD["touched"]["same_prompt_8_times"] == 8.0
    eight = next(row for row in RECORD["touched"]["rows"] if row["answers"] == 8)
    assert round(eight["measured"]) == 50
