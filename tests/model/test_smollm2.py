"""The real default model, as `load()` finds it on this computer."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from minipd.model.load import LoadedModel, is_cached, load
from minipd.model.store import ModelLoadError

PROMPTS = [
    "The capital of France is",
    "대한민국의 수도는 어디입니까?",
    "def fibonacci(n):\n    if n < 2:\n        return",
    "a",
]


@pytest.fixture(scope="module")
def smollm2() -> LoadedModel:
    try:
        return load("smollm2-135m")
    except ModelLoadError as error:
        pytest.skip(f"no model here: {error}")


@pytest.fixture(scope="module")
def theirs(smollm2: LoadedModel) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(smollm2.folder, dtype=torch.float32).eval()


def test_config(smollm2: LoadedModel) -> None:
    config = smollm2.config
    assert (config.num_layers, config.hidden_size, config.head_dim) == (30, 576, 64)
    assert (config.num_heads, config.num_kv_heads, config.vocab_size) == (9, 3, 49152)
    assert config.num_parameters == 134_515_008
    assert config.tie_word_embeddings and smollm2.decoder.embed is None
    assert smollm2.eos_ids == {2} and smollm2.tokenizer.decode([2]) == "<|im_end|>"


@pytest.mark.parametrize("prompt", PROMPTS)
def test_logits_are_those_of_transformers(
    prompt: str, smollm2: LoadedModel, theirs: Any, logits_of: Any
) -> None:
    ids = smollm2.tokenizer.encode(prompt)
    _compare(ids, smollm2, theirs, logits_of)


@pytest.mark.parametrize("length", [300, pytest.param(2000, marks=pytest.mark.slow)])
def test_logits_of_a_long_prompt(
    length: int, smollm2: LoadedModel, theirs: Any, logits_of: Any
) -> None:
    text = " ".join(
        f"Line {i}: the cache holds {i * i} tokens of {PROMPTS[i % 4]}" for i in range(200)
    )
    ids = smollm2.tokenizer.encode(text)[:length]
    assert len(ids) == length
    _compare(ids, smollm2, theirs, logits_of)


def _compare(ids: list[int], ours: LoadedModel, theirs: Any, logits_of: Any) -> None:
    with torch.inference_mode():
        expected = theirs(torch.tensor([ids])).logits[0]  # (T, V)
    difference = (logits_of(ours, ids) - expected).abs().max()
    assert difference < 1e-3, f"largest difference {difference:.2e}"


def test_chat_template(smollm2: LoadedModel) -> None:
    talk = [{"role": "user", "content": "Hi"}]
    text = smollm2.tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.serial
def test_second_load_takes_at_most_three_seconds(smollm2: LoadedModel) -> None:
    assert is_cached("smollm2-135m")
    seconds: list[float] = []
    for _ in range(3):  # the best of three, of processor time: a busy neighbour is not ours
        started = time.process_time()
        assert load("smollm2-135m").fingerprint == smollm2.fingerprint
        seconds.append(time.process_time() - started)
    assert min(seconds) < 3.0, seconds
