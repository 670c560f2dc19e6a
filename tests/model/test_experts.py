"""Experts: the logits of transformers, every spelling of a checkpoint, clear refusals."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from minipd.fleet.configs import find_model
from minipd.fleet.formulas import expected_touched
from minipd.fleet.models import touched_experts
from minipd.model.config import ModelConfig, UnsupportedModelError
from minipd.model.experts import MIN_ROWS, Experts, watch_experts
from minipd.model.layers import swiglu
from minipd.model.load import load
from minipd.model.store import ModelLoadError

MakeHf = Callable[..., tuple[Path, Any]]
IDS = random.Random(2).choices(range(512), k=70)
SIZES = {"num_experts": 10, "num_experts_per_tok": 3, "moe_intermediate_size": 20, "head_dim": 12}
MODELS: dict[str, dict[str, Any]] = {
    "plain": {},
    "normalised": {"norm_topk_prob": True},
    "tied": {"tie_word_embeddings": True},
    "one expert each": {"num_experts_per_tok": 1},
    "all experts": {"num_experts_per_tok": 10, "norm_topk_prob": True},
    "a single expert": {"num_experts": 1, "num_experts_per_tok": 1},
    "some layers dense": {"mlp_only_layers": [1]},
    "every second": {"decoder_sparse_step": 2},
    "none at all": {"mlp_only_layers": [0, 1, 2]},
}


def their_logits(theirs: Any, ids: list[int] = IDS) -> Tensor:
    with torch.inference_mode():
        return theirs(torch.tensor([ids])).logits[0]  # (T, V)


@pytest.mark.parametrize("kind", MODELS)
def test_logits_are_those_of_transformers(kind: str, make_hf: MakeHf, logits_of: Any) -> None:
    folder, theirs = make_hf("Qwen3Moe", **{**SIZES, **MODELS[kind]})
    ours = load(folder)
    expected = their_logits(theirs)
    assert expected.std() > 0.3
    assert torch.allclose(logits_of(ours, IDS), expected, atol=1e-3, rtol=0)
    stored = sum(value.numel() for value in theirs.state_dict().values())
    tied = theirs.lm_head.weight.numel() if ours.config.tie_word_embeddings else 0
    assert ours.config.num_parameters == stored - tied
    assert sum(p.numel() for p in ours.decoder.parameters()) == stored - tied


@pytest.mark.parametrize("original", [True, False])
def test_single_experts_and_stacks_load_alike(
    original: bool, make_hf: MakeHf, tmp_path: Path
) -> None:
    folder, theirs = make_hf("Qwen3Moe", **SIZES, mlp_only_layers=[1])
    before = {n: p.clone() for n, p in load(folder).decoder.named_parameters()}
    theirs.save_pretrained(folder, save_original_format=original)
    names = load_file(folder / "model.safetensors").keys()
    assert any(name.endswith("experts.gate_up_proj") for name in names) is not original
    for name, value in load(folder).decoder.named_parameters():
        assert torch.equal(value, before[name]), name
        assert value.is_contiguous()


def test_num_experts_of_the_hub_and_of_transformers_5(make_hf: MakeHf) -> None:
    folder, _ = make_hf("Qwen3Moe", **SIZES)
    raw = json.loads((folder / "config.json").read_text())
    raw.pop("num_local_experts", None)
    assert ModelConfig.from_hf(raw | {"num_experts": 10}).experts == load(folder).config.experts


def slow_experts(layer: Experts, h: Tensor) -> Tensor:
    """By definition: row by row, expert by expert."""
    weights, chosen = layer.router(h)  # (T, k) each
    out = torch.zeros_like(h)  # (T, E)
    for row, (shares, numbers) in enumerate(zip(weights, chosen.tolist())):
        for share, number in zip(shares, numbers):
            one = h[row : row + 1] @ layer.gate_up[number]  # (1, 2F)
            out[row] += share * (swiglu(one) @ layer.down[number])[0]
    return out


@pytest.mark.parametrize("rows", [1, 2, MIN_ROWS - 1, MIN_ROWS, 40])
def test_grouped_against_slow(cache: Path, rows: int) -> None:
    model = load("tiny-moe")
    layer = model.decoder.layers[1].experts
    h = torch.randn(rows, model.config.hidden_size, generator=torch.Generator().manual_seed(rows))
    torch.testing.assert_close(layer(h), slow_experts(layer, h), atol=1e-5, rtol=0)


def test_untouched_experts_are_not_read(cache: Path) -> None:
    """What is not read cannot matter, not even when it is no number."""
    layer = load("tiny-moe").decoder.layers[0].experts
    h = torch.randn(20, 64, generator=torch.Generator().manual_seed(0))
    right, chosen = layer(h), set(layer.router(h)[1].flatten().tolist())
    for number in set(range(128)) - chosen:
        layer.gate_up[number], layer.down[number] = float("nan"), float("nan")
    assert 0 < len(chosen) < 128 and torch.equal(layer(h), right)
    layer.gate_up[min(chosen)] = float("nan")
    assert layer(h).isnan().any()


def test_watching_counts_what_the_routers_chose(make_hf: MakeHf, logits_of: Any) -> None:
    folder, _ = make_hf("Qwen3Moe", **SIZES, mlp_only_layers=[1])
    model = load(folder)
    logits_of(model, IDS)
    with watch_experts(model.decoder) as passes:
        logits_of(model, IDS)
        logits_of(model, IDS[:1])
    logits_of(model, IDS)
    assert [p.num_tokens for p in passes] == [70, 1]
    assert [list(p.counts) for p in passes] == [[0, 2]] * 2
    for one in passes:
        assert all(sum(c) == 3 * one.num_tokens and len(c) == 10 for c in one.counts.values())
    assert passes[1].touched(0) == 3 == passes[1].mean_touched


@pytest.mark.parametrize("tokens", [1, 2, 8, 64])
def test_experts_touched_as_predicted(cache: Path, logits_of: Any, tokens: int) -> None:
    """Tokens drawn evenly, each alone in its context: nearly independent choices."""
    model = load("tiny-moe")
    draw = random.Random(tokens)
    seen: list[float] = []
    with watch_experts(model.decoder) as passes:
        for _ in range(30):
            ids = torch.tensor([draw.randrange(512) for _ in range(tokens)])
            with torch.inference_mode():
                zeros = torch.zeros(tokens, dtype=torch.int64)
                model.decoder(ids, zeros, lambda layer, q, k, v: v.repeat(1, 2, 1))
        seen += [p.mean_touched for p in passes]
    predicted = expected_touched(128, 8, tokens)
    assert sum(seen) / len(seen) == pytest.approx(predicted, rel=0.05)
    assert touched_experts(128, 8, tokens, skew=0.0) == pytest.approx(predicted)


def test_the_known_case() -> None:
    assert expected_touched(128, 8, 8) == pytest.approx(51.6, abs=0.05)
    assert expected_touched(128, 8, 0) == 0 and expected_touched(4, 4, 1) == 4


def test_the_planner_reads_the_same_config(cache: Path) -> None:
    model = load("tiny-moe")
    planned, c = find_model(str(model.folder)), model.config
    norms = sum(p.numel() for p in model.decoder.parameters() if p.dim() == 1)
    assert planned.parameters == c.num_parameters - norms
    assert planned.active_parameters == c.num_matmul_parameters
    assert planned.kv_bytes_per_token() == c.kv_bytes_per_token(4)


def change(folder: Path, edit: Callable[[dict[str, Tensor]], Any]) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(ModelLoadError) as caught:
        load(folder)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_or_strange_experts(make_hf: MakeHf) -> None:
    folder, theirs = make_hf("Qwen3Moe", **SIZES)
    name = "model.layers.1.mlp.experts.4.up_proj.weight"
    change(folder, lambda t: t.pop(name))
    refused(folder, "lacks", name)
    change(folder, lambda t: t.update({name: torch.ones(20, 47)}))
    refused(folder, name, "(20, 47)", "(20, 48)")
    theirs.save_pretrained(folder, save_original_format=False)
    stack = "model.layers.2.mlp.experts.down_proj"
    change(folder, lambda t: t.update({stack: t[stack][:7].contiguous()}))
    refused(folder, "lacks", "model.layers.2.mlp.experts.7.down_proj.weight", "2 more")
    change(folder, lambda t: t.pop(stack))
    refused(folder, "lacks", "model.layers.2.mlp.experts.0.down_proj.weight")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-5])
    refused(folder, "model.safetensors", "download it again")


@pytest.mark.parametrize("experts", [9, 11, 65536])
def test_a_number_of_experts_that_the_weights_do_not_confirm(make_hf: MakeHf, experts: int) -> None:
    folder, _ = make_hf("Qwen3Moe", **SIZES)
    raw = json.loads((folder / "config.json").read_text())
    raw.pop("num_local_experts", None)
    (folder / "config.json").write_text(json.dumps(raw | {"num_experts": experts}))
    refused(folder, "10 experts", str(experts))


RAW: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 100,
}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"num_experts": 4, "num_experts_per_tok": 5}, "at most num_experts = 4"),
    ({"num_experts": 0}, "num_experts = 0"),
    ({"num_experts": 10**9}, "num_experts = 1000000000"),
    ({"num_experts_per_tok": "8"}, "num_experts_per_tok"),
    ({"moe_intermediate_size": 0}, "moe_intermediate_size"),
    ({"norm_topk_prob": "yes"}, "norm_topk_prob"),
    ({"mlp_only_layers": 3}, "mlp_only_layers"),
    ({"mlp_only_layers": ["0"]}, "mlp_only_layers"),
    ({"decoder_sparse_step": 0}, "decoder_sparse_step"),
    ({"attention_bias": True}, "attention_bias"),
    ({"use_sliding_window": True, "max_window_layers": 4}, "sliding-window"),
    ({"architectures": ["MixtralForCausalLM"]}, "Qwen3-MoE"),
    ({"architectures": ["DeepseekV3ForCausalLM"]}, "Qwen3-MoE"),
    ({"architectures": ["Qwen2MoeForCausalLM"]}, "Qwen2MoeForCausalLM is not supported"),
]


@pytest.mark.parametrize(("fields", "word"), REFUSED, ids=[str(f) for f, _ in REFUSED])
def test_refused_by_name(fields: dict[str, Any], word: str) -> None:
    assert ModelConfig.from_hf(RAW).experts is not None
    with pytest.raises(UnsupportedModelError, match=word) as caught:
        ModelConfig.from_hf(RAW | fields)
    assert "\n" not in str(caught.value)


def test_silent_fields_mean_what_transformers_takes_them_for() -> None:
    import transformers

    sizes = {k: v for k, v in RAW.items() if k != "architectures"}
    theirs, ours = transformers.Qwen3MoeConfig(**sizes), ModelConfig.from_hf(RAW).experts
    assert ours is not None and ours.layers == {0, 1, 2, 3}
    assert (ours.count, ours.top_k) == (theirs.num_experts, theirs.num_experts_per_tok)
    assert ours.ffn_size == theirs.moe_intermediate_size
    assert ours.normalised == theirs.norm_topk_prob
