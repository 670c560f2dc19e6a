"""Small models made on the spot, and the obvious slow attention to run a decoder with."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from minipd.model import builtin
from minipd.model.load import LoadedModel

HF_SIZES = {
    "vocab_size": 512,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "eos_token_id": 2,
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder for one test, and no model offered by the environment."""
    monkeypatch.setenv("MINIPD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MINIPD_WHEEL", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def make_hf(tmp_path: Path, cache: Path) -> Callable[..., tuple[Path, Any]]:
    """`make_hf("Llama", **config)` saves a random transformers model with a tokenizer."""
    import transformers

    def make(family: str, **options: Any) -> tuple[Path, Any]:
        shard = options.pop("max_shard_size", "1GB")
        config = getattr(transformers, f"{family}Config")(**{**HF_SIZES, **options})
        torch.manual_seed(5)
        model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
        for name, value in model.named_parameters():
            if value.dim() == 1:  # norms and biases: make them matter
                value.data.add_(torch.randn_like(value) * 0.3)
            assert value.abs().sum() > 0, name
        folder = tmp_path / f"hf-{family}"
        model.save_pretrained(folder, max_shard_size=shard)
        tiny = builtin.random_folder("tiny")
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(tiny / file, folder)
        return folder, model

    return make


@pytest.fixture
def logits_of() -> Callable[[LoadedModel, list[int]], Tensor]:
    """Logits (T, V) of a prompt by our decoder, with plain causal attention over all of it."""
    return _logits


def _logits(model: LoadedModel, ids: list[int]) -> Tensor:
    groups = model.config.num_heads // model.config.num_kv_heads

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        assert 0 <= layer < model.config.num_layers
        k, v = (x.repeat_interleave(groups, dim=1).float() for x in (k, v))  # (T, H, D)
        scores = torch.einsum("qhd,khd->hqk", q.float(), k) / q.shape[-1] ** 0.5  # (H, T, T)
        future = torch.ones(len(q), len(q), dtype=torch.bool).triu(1)  # (T, T)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)  # (H, T, T)
        return torch.einsum("hqk,khd->qhd", weights, v).to(q.dtype)  # (T, H, D)

    tokens = torch.tensor(ids)
    with torch.inference_mode():
        hidden = model.decoder(tokens, torch.arange(len(ids)), attend)  # (T, E)
        return model.decoder.logits(hidden)  # (T, V)
