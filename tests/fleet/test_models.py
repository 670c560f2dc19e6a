"""Models read from config.json: weights, KV bytes, experts; against published totals."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from minipd.fleet.attention import cached_tokens_read, causal_pairs
from minipd.fleet.configs import ConfigError, find_model, model_from_config, model_table
from minipd.fleet.models import touched_experts

SMALL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
}


# Published totals, billions: model cards and papers named in data/models.json.
@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("meta-llama/Llama-3.1-8B", 8.03, 7.5),
        ("meta-llama/Llama-3.1-70B", 70.6, 69.5),
        ("meta-llama/Llama-3.1-405B", 405.9, 403.7),
        ("Qwen/Qwen3-8B", 8.19, 7.57),
        ("Qwen/Qwen3-32B", 32.76, 31.98),
        ("Qwen/Qwen3-30B-A3B", 30.5, 3.04),
        ("Qwen/Qwen3-235B-A22B", 235.1, 21.6),
        ("google/gemma-4-26B-A4B", 25.2, 3.8),
        ("mistralai/Mixtral-8x7B-v0.1", 46.7, 12.75),
        ("deepseek-ai/DeepSeek-V3", 671.0, 36.6),
        ("moonshotai/Kimi-K2-Instruct", 1026.0, 31.7),
        ("HuggingFaceTB/SmolLM2-135M", 0.1345, 0.1345),
    ],
)
def test_parameters_are_the_published_ones(name: str, total: float, active: float) -> None:
    model = find_model(name)
    assert model.parameters / 1e9 == pytest.approx(total, rel=0.005)
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=0.01)


# Facts C1; DeepSeek-V3: arXiv 2505.09343.
@pytest.mark.parametrize(
    ("name", "kv_bytes"),
    [
        ("llama-3.1-8b", 131072),
        ("Llama-3.1-405B", 516096),
        ("Qwen3-235B-A22B", 192512),
        ("DeepSeek-V3", 70272),
        ("facebook/opt-66b", 2359296),
    ],
)
def test_kv_bytes_per_token(name: str, kv_bytes: int) -> None:
    assert find_model(name).kv_bytes_per_token() == kv_bytes


def test_kv_heads_are_copied_beyond_their_number() -> None:
    model = find_model("Qwen3-30B-A3B")  # 4 KV heads
    assert model.kv_bytes_per_token(4) == model.kv_bytes_per_token(1) / 4
    assert model.kv_bytes_per_token(8) == model.kv_bytes_per_token(4)
    assert find_model("DeepSeek-V3").kv_bytes_per_token(8) == 70272  # a latent has no heads


def test_windows_bound_what_is_kept() -> None:
    gemma = find_model("gemma-4-26B-A4B-it")
    inside, beyond = gemma.kv_bytes_of(1024), gemma.kv_bytes_of(10240)
    full_layers = 5 * 2 * 2 * 512 * 2  # layers, keys and values, heads, size, bytes
    assert inside == gemma.kv_bytes_per_token() * 1024
    assert beyond - inside == pytest.approx(full_layers * (10240 - 1024))


def brute_force_pairs(new: int, context: int, window: int | None) -> int:
    return sum(min(context + t, window or 10**9) for t in range(1, new + 1))


@pytest.mark.parametrize("window", [None, 1, 7, 64])
@pytest.mark.parametrize("context", [0, 3, 100])
@pytest.mark.parametrize("new", [1, 5, 80])
def test_pairs_against_counting(new: int, context: int, window: int | None) -> None:
    assert causal_pairs(new, context, window) == brute_force_pairs(new, context, window)
    assert cached_tokens_read(new, context, window) <= context


@pytest.mark.parametrize("skew", [0.0, 1.0])
def test_touched_experts_against_a_draw(skew: float) -> None:
    """Uniform routing drawn for real; with skew, only its limits and order can be checked."""
    count, top_k, tokens = 64, 4, 16
    rng = random.Random(3)
    draws = [
        len({e for _ in range(tokens) for e in rng.sample(range(count), top_k)}) for _ in range(400)
    ]
    drawn = sum(draws) / len(draws)
    touched = touched_experts(count, top_k, tokens, skew)
    assert touched_experts(count, top_k, 1, skew) == pytest.approx(top_k)
    assert touched_experts(count, top_k, 10**6, skew) == pytest.approx(count)
    assert touched == pytest.approx(drawn, rel=0.02) if skew == 0.0 else touched < drawn


def test_mistral_slides_and_qwen2_does_not() -> None:
    window = {"sliding_window": 16}
    mistral = model_from_config({**SMALL, **window, "model_type": "mistral"})
    qwen2 = model_from_config(
        {**SMALL, **window, "model_type": "qwen2", "use_sliding_window": False}
    )
    assert [g.attention.window for g in mistral.layers] == [16]
    assert [g.attention.window for g in qwen2.layers] == [None]


def test_layers_before_the_first_experts_are_dense() -> None:
    groups = find_model("DeepSeek-V3").layers
    assert [(g.count, g.experts is None, g.ffn_width) for g in groups] == [
        (3, True, 18432),
        (58, False, 2048),
    ]


def test_a_folder_or_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    for place in (tmp_path, tmp_path / "config.json"):
        assert find_model(str(place)).hidden == 64


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": None}, "no hidden_size"),
        ({"num_hidden_layers": 0}, "above 0"),
        ({"vocab_size": "many"}, "vocab_size = many"),
        ({"intermediate_size": 1.5}, "intermediate_size"),
        (
            {"num_experts": 8, "num_experts_per_tok": 9, "moe_intermediate_size": 8},
            "only 8 experts",
        ),
        ({"kv_lora_rank": 8}, "qk_rope_head_dim"),
    ],
)
def test_a_config_that_lacks_something_says_what(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        model_from_config({**SMALL, **change}, "mine")


def test_an_unknown_model_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match="nearest is Qwen/Qwen3-32B"):
        find_model("Qwen/Qwen3-33B")


def test_every_model_names_its_source() -> None:
    assert all(model.source for model in model_table().values())
