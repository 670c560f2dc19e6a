"""Lesson 02's parts: the sizes of real models, the calculator, the pictures, the recorded run."""

import importlib
import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from minipd.fleet.formulas import KV_SHAPES
from minipd.lab import kv_calculator, kv_sizes, note_pad_plots
from minipd.lab.kv_sizes import MODELS, size_box

ROOT = Path(__file__).resolve().parents[2]
# Totals as the hub counts them in each model's weight files.
PUBLISHED_PARAMETERS = {
    "SmolLM2-135M": 134_515_008,
    "Qwen2.5-0.5B": 494_032_768,
    "Llama-2-7B": 6_738_415_616,
    "Qwen2.5-7B": 7_615_616_512,
    "Llama-3-8B": 8_030_261_248,
    "Qwen3-8B": 8_190_735_360,
    "Llama-3-70B": 70_553_706_496,
    "Qwen2.5-72B": 72_706_203_648,
}


@pytest.fixture
def shown(monkeypatch):
    pages = []
    for name in ("show", "predict"):
        module = importlib.import_module(f"minipd.lab.{name}")
        monkeypatch.setattr(module, "display_html", pages.append)
    return pages


@pytest.mark.parametrize("name", MODELS)
def test_real_models_have_their_published_sizes(name):
    config = MODELS[name]
    assert config.num_parameters == PUBLISHED_PARAMETERS[name]
    if name in KV_SHAPES:
        assert config.kv_bytes_per_token(2) == KV_SHAPES[name].bytes_per_token(2)


def test_the_lesson_s_own_model_is_the_one_that_is_loaded():
    from course.values import SMOLLM2

    ours = MODELS["SmolLM2-135M"]
    assert ours.kv_bytes_per_token(4) == SMOLLM2.kv_bytes_per_token(4) == 46_080
    assert (ours.num_layers, ours.num_heads) == (SMOLLM2.num_layers, SMOLLM2.num_heads)


def test_the_boss_gets_the_numbers_that_the_text_quotes():
    assert size_box("Llama-3-8B", 24, 4096).users == 10
    assert size_box("Llama-2-7B", 24, 4096).users == 3
    assert 8 * 8192 * MODELS["Llama-3-70B"].kv_bytes_per_token(2) / 1e9 == pytest.approx(21.5, 0.01)
    as_simulated = 2 * 8192 * 80 * 2  # hidden size, layers, bytes: no word about KV heads
    assert as_simulated == 8 * MODELS["Llama-3-70B"].kv_bytes_per_token(2) == 2_621_440


def test_users_follow_memory_and_context():
    small, large = size_box("Llama-3-8B", 24, 4096), size_box("Llama-3-8B", 48, 4096)
    assert large.users > 2 * small.users  # the weights are paid once
    assert small.users // 2 == size_box("Llama-3-8B", 24, 8192).users
    by_hand = (24e9 * 0.9 - 2 * 8_030_261_248) / 131_072 / 4096
    assert small.users == int(by_hand) == 10
    assert small.weights + small.reserve + small.room == small.memory


def test_sentences_say_what_does_not_fit_and_what_is_too_long():
    assert "no room for any user" in size_box("Llama-3-70B", 24, 4096).sentence
    assert size_box("Llama-3-70B", 24, 4096).users == 0
    assert "at most 4,096 tokens" in size_box("Llama-2-7B", 24, 8192).sentence
    assert "at most" not in size_box("Llama-2-7B", 24, 4096).sentence
    assert "1 user with" in size_box("Llama-2-7B", 24, 8192).sentence


def test_tables_have_a_row_for_each_model():
    users, heads = kv_sizes.users_table(24, 4096), kv_sizes.heads_table()
    assert users["model"] == heads["model"] == list(MODELS)
    at = list(MODELS).index("Llama-3-8B")
    assert (users["users"][at], heads["smaller by"][at]) == ("10", "4 times")
    assert heads["smaller by"][list(MODELS).index("Llama-2-7B")] == "nothing"
    even = kv_sizes.tokens_as_large_as_weights(MODELS["SmolLM2-135M"], 4)
    assert even == 4 * 134_515_008 // 46_080


@pytest.mark.parametrize(("model", "memory_gb"), [("Llama-3-8B", 24), ("Llama-3-70B", 24)])
def test_the_picture_of_a_box_is_sound_and_has_words(model, memory_gb):
    size = size_box(model, memory_gb, 4096)
    picture = ET.fromstring(kv_calculator.box_svg(size))
    texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0].startswith("weights: ") and texts[1].startswith("reserve: ")
    assert (len(texts) == 3) == bool(size.room)
    page = kv_calculator.box_html(size)
    assert 'alt="Bar: the memory of the box.' in page and "role='status'" in page
    assert ("missing" in page) == (not size.room)
    assert sum(kv_calculator.parts(size).values()) >= size.memory


def test_the_calculator_answers_when_something_is_moved():
    calculator = kv_calculator.Calculator("Llama-3-8B", 24, 4096)
    assert "10 users with 4,096 tokens each" in calculator.result.value
    calculator.context.value = 8192
    assert "5 users with 8,192 tokens each" in calculator.result.value
    calculator.memory.value, calculator.model.value = 80, "Qwen2.5-7B"
    assert calculator.sizing == size_box("Qwen2.5-7B", 80, 8192)
    assert calculator.sizing.sentence in calculator.result.value
    assert all(control.description for control in calculator.widget.children[:3])


def test_steps_are_told_in_words_and_numbers(shown):
    steps = {"without": [0.5, 0.51, 0.53], "with note-pad": [0.5, 0.05, 0.06]}
    note_pad_plots.show_steps(steps)
    assert "without: 0.50 s for the first token, then 0.51 to 0.53 s" in shown[0]
    assert "with note-pad: 0.50 s for the first token, then 0.05 to 0.06 s" in shown[0]
    assert note_pad_plots.steps_table(steps)["without (s)"] == [0.5, 0.51, 0.53]


def test_faults_are_counted_up_to_the_first_wrong_token(shown):
    class Words:
        def decode(self, ids):
            return " ".join(map(str, ids))

    assert note_pad_plots.num_equal([1, 2, 3], [1, 9, 3]) == 1
    assert note_pad_plots.num_equal([1, 2, 3], [1, 2, 3]) == 3
    note_pad_plots.show_faults([1, 2, 3], {"swapped": [7, 7, 7]}, Words())
    assert "3 of 3 tokens" in shown[0] and "0 of 3 tokens" in shown[0] and "7 7 7" in shown[0]


def test_the_exercises_end_with_real_models(shown, capsys):
    def kv_bytes(tokens, layers, query_heads, kv_heads, head_dim, size):
        return 2 * tokens * layers * kv_heads * head_dim * size

    def users(memory, weights, reserve, per_token, tokens, block):
        return max(0, memory - weights - reserve) // (per_token * tokens)

    kv_sizes.try_box(kv_bytes, users, "02.sharing")
    assert "<th scope='row'" in shown[0] and "times" in shown[1]

    def stub(*_):
        raise NotImplementedError

    kv_sizes.try_box(kv_bytes, stub, "02.sharing")
    assert "solve Exercises 1 and 3" in capsys.readouterr().out
    kv_sizes.try_box(kv_bytes, lambda *_: 0, "02.sharing")
    assert "no room" in capsys.readouterr().out


def test_recorded_figures_are_those_of_the_raw_file():
    record = json.loads((ROOT / "benchmarks" / "raw" / "lesson_02.json").read_text())
    fact = yaml.safe_load((ROOT / "course" / "facts.yaml").read_text())["lesson-02-recorded"]
    for length, result in record["lengths"].items():
        assert f"{int(length):,}" in fact["figures"]
        assert f"{result['speedup']:.1f}" in fact["figures"], (length, result["speedup"])
        for without, cached in zip(result["samples"]["without"], result["samples"]["with"]):
            assert len(without) == len(cached) == record["answer_tokens"]
    assert f"{record['kv_bytes_per_token']:,}" in fact["figures"]
    assert record["date"][:10] in fact["claim"]


def test_a_pad_in_a_message_is_its_shape_and_the_number_of_each_row():
    import torch

    from minipd.lab.watch import short

    rows = torch.arange(4.0)[:, None, None].repeat(1, 1, 2)
    assert short((rows, 4)) == "(<shape (4, 1, 2), rows beginning with 0, 1, 2, 3>, 4)"
    assert short(torch.tensor([[0.25, 0.75]])) == "[[0.25, 0.75]]"
    assert short(torch.zeros(0, 1, 2)) == "<shape (0, 1, 2), empty>"
    assert (short((1,)), short(())) == ("(1,)", "()")
    assert short(object()) == "<object>"


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.xdist_group("notebooks")
def test_on_a_small_machine_the_lesson_runs_with_the_small_model(tmp_path, monkeypatch):
    """And it says so; its note-pad, the loop without one and the engine write the same tokens."""
    from tests.course.test_notebooks import executed, outputs

    monkeypatch.setenv("MINIPD_LESSON_MODEL", "mini")
    monkeypatch.setenv("PYTHONPATH", os.fspath(ROOT))
    book = executed(ROOT / "notebooks" / "02_the_kv_cache.ipynb", tmp_path)
    text = "".join(output.get("text", "") for output in outputs(book))
    assert "Model: mini" in text
    same = [line.split(":")[1].strip() for line in text.split("\n") if line.startswith("note-pad ")]
    assert len(same) == 2 and set(same) <= {"equal", "near_tie"}
