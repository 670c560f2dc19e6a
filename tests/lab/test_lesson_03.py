"""Lesson 03: the roofline and its explorer, 8-bit products, and the figures that prose quotes."""

import importlib
import json
from statistics import median

import pytest
import torch

from course.build import ROOT
from course.facts import read_facts
from course.values import SMOLLM2
from minipd.lab import roofline
from minipd.lab.eight_bit import (
    EightBitError,
    eight_bit,
    first_difference,
    product_of,
    quantise,
    same_choices,
    time_passes,
)
from minipd.lab.kv_sizes import MODELS
from minipd.lab.roofline import (
    GPUS,
    Point,
    Roof,
    corner_tokens,
    corners_table,
    decode_work,
    draw_roofline,
    points_table,
    prefill_work,
    roofline_alt,
    show_roofline,
)
from minipd.lab.roofline_explorer import SIZES, TOKENS, Explorer, forecast, forecast_table
from minipd.measure import ceilings as ceilings_module
from minipd.measure.ceilings import Ceilings
from minipd.measure.counts import decode_bytes, prefill_flops, weight_bytes
from minipd.measure.phases import MinipdEngine, random_tokens
from minipd.measure.real_hardware import A100X8, H100X8
from minipd.measure.stats import Samples
from minipd.model.load import load

OWN = Roof("this machine", 100e9, 10e9)  # corner at 10 FLOP per byte
FACTS = read_facts(ROOT / "course" / "facts.yaml")


@pytest.fixture
def shown(monkeypatch):
    pages = []
    for name in ("show", "predict"):
        monkeypatch.setattr(
            importlib.import_module(f"minipd.lab.{name}"), "display_html", pages.append
        )
    return pages


def test_a_roof_is_the_lower_one_of_two_ceilings():
    assert OWN.ridge == 10.0
    assert OWN.attainable(0.5) == 5e9 and OWN.limit(0.5) == "memory"
    assert OWN.attainable(10.0) == OWN.attainable(1000.0) == 100e9
    assert OWN.limit(10.0) == OWN.limit(1000.0) == "arithmetic"
    work = roofline.Work("", flops=30e9, num_bytes=1e9)
    assert OWN.seconds(work) == 0.3 and OWN.seconds(roofline.Work("", 1e9, 1e9)) == 0.1


def test_work_is_counted_by_the_engine_s_own_formulas():
    for size in (1, 8, 512):
        work = prefill_work(SMOLLM2, size, 4)
        assert work.flops == prefill_flops(SMOLLM2, size)
        assert work.num_bytes == weight_bytes(SMOLLM2, 4)
    step = decode_work(SMOLLM2, 3, 100, 2)
    assert step.num_bytes == decode_bytes(SMOLLM2, 2, 3, 100)
    assert prefill_work(SMOLLM2, 1, 4).name == "1 token in one pass"


def test_the_size_of_the_model_cancels_and_the_tokens_at_the_corner_reach_it():
    rough = [2 * W * 64 / (W * 2) for W in (1e6, 7e9)]
    assert rough == [64.0, 64.0]
    for roof in (OWN, *GPUS):
        for size in (1, 2, 4):
            tokens = corner_tokens(roof, size)
            assert 2 * tokens / size == pytest.approx(roof.ridge)


def test_one_of_mfu_and_mbu_is_the_share_of_the_roof():
    for tokens in (1, 512):
        work = prefill_work(SMOLLM2, tokens, 4)
        point = Point(work, 2 * OWN.seconds(work))
        share = {"memory": point.mbu(OWN), "arithmetic": point.mfu(OWN)}
        assert point.of_roof(OWN) == pytest.approx(0.5)
        assert share[OWN.limit(work.intensity)] == pytest.approx(0.5)
        assert max(share.values()) == pytest.approx(0.5)


def test_tables_and_alt_text_say_what_the_picture_says(shown):
    points = [Point(prefill_work(SMOLLM2, n, 4), s) for n, s in ((1, 0.06), (512, 1.5))]
    table = points_table(OWN, points)
    assert table["limited by"] == ["memory", "arithmetic"]
    assert table["MFU"][1] == "79%" and table["MBU"][0] == "90%"
    alt = roofline_alt([OWN], points, [decode_work(SMOLLM2, 1, 10, 4)])
    for words in ("up to 10 FLOP per byte", "79% of the roof", "limited by memory"):
        assert words in alt
    show_roofline([OWN], points)
    show_roofline(GPUS)
    assert all("<img alt=" in page and "<table>" in page for page in shown)
    assert "TFLOP/s" in shown[1] and corners_table([OWN], {"this machine": 4})["machine"]


def test_roofs_and_passes_are_told_apart_without_colour():
    works = [prefill_work(SMOLLM2, n, 4) for n in (1, 8)]
    figure = draw_roofline([*GPUS], [Point(works[0], 0.1)], works[1:])
    lines = figure.axes[0].lines
    assert len({line.get_linestyle() for line in lines[:3]}) == 3
    assert len({line.get_marker() for line in lines[3:]}) == 2
    assert len(figure.axes[0].get_legend().get_texts()) == 5


def test_the_explorer_puts_large_models_on_several_gpus():
    one = forecast(GPUS[1], "Llama-3-8B", 2, 1)
    assert one.count == 1 and one.limit == "memory"
    assert one.seconds == pytest.approx(weight_bytes(MODELS["Llama-3-8B"], 2) / 3.35e12, rel=1e-3)
    large = forecast(GPUS[1], "Llama-3-70B", 2, 512)
    assert large.count == 2 and "2 H100s together" in large.sentence
    assert large.limit == "arithmetic" and large.roof.ridge == GPUS[1].ridge
    assert forecast(OWN, "Llama-3-70B", 4, 1).count == 1


def test_the_explorer_s_sentence_and_table_agree():
    made = forecast(GPUS[2], "Qwen2.5-0.5B", 1, 64)
    table = forecast_table([GPUS[2]], "Qwen2.5-0.5B", 1, [64])
    assert "weights of 1 byte, 64 tokens in one pass, on H200" in made.sentence
    assert f"at most {table['tokens/s at most'][0]} tokens/s" in made.sentence
    assert table["limited by"] == [made.limit]


def test_every_button_and_the_slider_change_the_result():
    explorer = Explorer([OWN, *GPUS])
    assert "on H200" in explorer.result.value and "role='status'" in explorer.result.value
    explorer.choose_machine("A100")
    explorer.choose_model("Qwen2.5-0.5B")
    explorer.choose_size("1 byte")
    explorer.tokens.value = TOKENS[-1]
    for words in ("Qwen2.5-0.5B, weights of 1 byte, 8,192 tokens", "on A100", "arithmetic limits"):
        assert words in explorer.result.value
    described = [child.description for box in explorer.widget.children[:3] for child in box.children
                 if hasattr(child, "description")]  # fmt: skip
    assert {"this machine", "A100", "Llama-3-70B", *SIZES} <= set(described)
    assert explorer.tokens.description


@pytest.mark.parametrize("kind", ["weights", "both"])
@pytest.mark.parametrize("rows", [1, 2, 16, 17, 64])
def test_eight_bit_products_are_near_the_plain_ones(kind, rows):
    torch.manual_seed(rows)
    weight, x = torch.randn(96, 160), torch.randn(rows, 96)
    made, plain = product_of(weight, kind)(x), x @ weight
    assert made.dtype == torch.float32 and made.shape == plain.shape
    error = (made - plain).norm() / plain.norm()
    assert 0 < error < 0.02  # rounded, and no more than that


def test_quantised_weights_keep_zero_and_the_largest_of_each_column():
    weight = torch.tensor([[0.0, 2.0], [-1.0, 0.5]])
    whole, scale = quantise(weight)  # (out, in)
    assert whole.tolist() == [[0, -127], [127, 32]]
    assert (whole[1, 0] * scale[1]).item() == pytest.approx(2.0)
    assert quantise(torch.zeros(3, 2))[0].abs().sum() == 0  # and no division by zero


@pytest.fixture(scope="module")
def mini():
    return load("mini")


def test_the_eight_bit_model_is_the_plain_one_but_for_rounding(mini):
    tokens = random_tokens(mini.config.vocab_size, 48)
    for kind in ("weights", "both"):
        other = eight_bit(mini, kind)
        assert other.config == mini.config and other.decoder is not mini.decoder
        assert 0.5 < same_choices(mini, other, [tokens]) <= 1.0
        MinipdEngine(other, 32, 1).decode(tokens[:2])  # runs in the engine's own executor
    assert same_choices(mini, mini, [tokens]) == 1.0


def test_passes_of_all_models_are_timed(mini):
    took = time_passes({"float32": mini}, random_tokens(512, 20), rows=(1, 16), repetitions=1)
    assert set(took["float32"]) == {1, 16} and min(took["float32"].values()) > 0


def test_a_model_with_other_parts_is_refused(mini):
    from dataclasses import replace

    with pytest.raises(EightBitError, match="leaves out"):
        eight_bit(replace(mini, config=replace(mini.config, qk_norm=True)), "both")


def test_the_first_difference_of_two_answers():
    assert first_difference([1, 2, 3], [1, 2, 3]) is None
    assert first_difference([1, 2, 3], [1, 5, 3]) == 1


def test_a_learner_s_formula_meets_an_h100(shown, monkeypatch, capsys):
    def rightly(old, new, flops, num_bytes):
        seconds = [max(flops / f, num_bytes / b) for f, b in (old, new)]
        return seconds[0] / seconds[1]

    one = Samples((1e11, 1e11))
    fake = Ceilings("cpu", "float32", 1, {"1": one}, {"1": Samples((1e10, 1e10))}, 1, "", None)
    monkeypatch.setattr(ceilings_module, "measure_ceilings", lambda **_: fake)
    roofline.upgrade(rightly, "03.gains-more")
    table, answer = shown
    assert "an H100" in table and "the pass of 512 tokens" in answer

    def stub(*_):
        raise NotImplementedError

    roofline.upgrade(stub, "03.gains-more")
    assert "solve Exercise 3" in capsys.readouterr().out


def test_the_gpus_of_the_facts_are_the_gpus_of_the_pictures():
    figures = FACTS["gpu-ridge-points"].figures
    assert [round(roof.ridge) for roof in GPUS] == [156, 295, 206]
    for roof in GPUS:
        written = f"{roof.flops / 1e12:g}", f"{roof.bytes_per_s / 1e12:.3g}", f"{roof.ridge:.0f}"
        assert {w if "." in w or float(w) > 9 else f"{w}.0" for w in written} <= set(figures)


def test_the_upgrade_of_the_facts_is_that_of_the_table():
    assert round(A100X8.decode_ms() / H100X8.decode_ms(), 1) == 1.5
    assert round(A100X8.prefill_ms(2048) / H100X8.prefill_ms(2048), 1) == 2.0
    for tokens, steps in ((512, 1.7), (8192, 27.7)):
        assert tokens / corner_tokens(GPUS[1], 2) == pytest.approx(steps, abs=0.05)
        assert H100X8.freeze_tokens(tokens) == pytest.approx(steps, rel=0.1)


def test_the_recorded_figures_come_from_their_file():
    raw = json.loads((ROOT / "benchmarks/raw/phases-2026-11-29-c.json").read_text())
    ceilings, samples = raw["ceilings"], raw["samples"]
    corner = ceilings["flops"] / ceilings["read_bytes_per_s"]
    written = {f"{corner:.1f}", f"{raw['pp512']:.0f}", f"{raw['tg128']:.1f}"}
    written |= {f"{100 * raw['mfu']:.0f}", f"{100 * raw['mbu']:.0f}"}
    written |= {f"{512 / raw['pp512'] * raw['tg128']:.0f}"}
    assert written <= set(FACTS["lesson-03-recorded"].figures)
    assert median(samples["pp512"]["samples"]) > 0 and raw["date"].startswith("2026-11-29")
