"""`tiny` and `mini` are the same bytes everywhere, and behave like models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from minipd.model.load import is_cached, load
from minipd.model.store import hash_file

TEXTS = [
    "Hello, world! It's 12:30.",
    "안녕하세요, 반갑습니다.",
    "def f(x):\n\treturn {'a': x**2}  # ok\n",
    "你好 😀 Ünïcode \x00",
    " ",
    "",
]


@pytest.mark.parametrize(
    ("name", "weights", "tokenizer"),
    [
        ("tiny", "2623206b89b9d9a8", "ba1c8b9e921d6683"),
        ("mini", "52e62ca43889d7b3", "ba1c8b9e921d6683"),
        ("tiny-moe", "1067ab911337464b", "ba1c8b9e921d6683"),
    ],
)
def test_the_files_are_the_same_bytes_on_every_machine(
    cache: Path, name: str, weights: str, tokenizer: str
) -> None:
    folder = load(name).folder
    assert hash_file(folder / "model.safetensors").startswith(weights)
    assert hash_file(folder / "tokenizer.json").startswith(tokenizer)


def test_sizes(cache: Path) -> None:
    tiny, mini = load("tiny").config, load("mini").config
    assert (tiny.num_layers, tiny.max_context) == (4, 4096)
    assert 20e6 < mini.num_parameters < 30e6
    in_layers = 1 - 2 * mini.vocab_size * mini.hidden_size / mini.num_parameters
    assert in_layers > 0.95


def test_tokenizer_keeps_every_text(cache: Path) -> None:
    tokenizer = load("tiny").tokenizer
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer) == 512
    assert len(tokenizer.encode("The cache is full of tokens")) < 15


def test_chat_template_and_end_token(cache: Path) -> None:
    model = load("tiny")
    talk = [{"role": "user", "content": "hi"}]
    text = model.tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    assert text == "<|user|>hi<|end|><|assistant|>"
    assert model.tokenizer.encode("<|end|>") == [0]
    assert model.eos_ids == {0}


@pytest.mark.parametrize("name", ["tiny", "mini", "tiny-moe"])
def test_transformers_opens_it_and_agrees(cache: Path, name: str, logits_of: Any) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    ours = load(name)
    theirs = AutoModelForCausalLM.from_pretrained(ours.folder)
    ids = AutoTokenizer.from_pretrained(ours.folder).encode("The cache is full. 안녕")
    assert ids == ours.tokenizer.encode("The cache is full. 안녕")
    answer = theirs.generate(torch.tensor([ids]), max_new_tokens=40, do_sample=False)[0].tolist()
    assert len(set(answer[len(ids) :])) > 10, "greedy output must not be one repeated token"
    with torch.inference_mode():
        expected = theirs(torch.tensor([answer])).logits[0]  # (T, V)
    assert torch.allclose(logits_of(ours, answer), expected, atol=1e-3, rtol=0)


def test_is_cached_only_after_it_was_built(cache: Path) -> None:
    assert not is_cached("tiny")
    load("tiny")
    assert is_cached("tiny") and not is_cached("mini")
