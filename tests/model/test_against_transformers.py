"""Every supported architecture gives the logits that transformers gives, from the same files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from minipd.model.load import load

IDS = [int(i) for i in torch.randint(0, 512, (70,), generator=torch.Generator().manual_seed(1))]

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR = {"rope_type": "linear", "rope_theta": 1000.0, "factor": 4.0}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-mha": ("Llama", {"num_key_value_heads": 4}),
    "llama-llama3-rope": ("Llama", {"rope_parameters": LLAMA3}),
    "llama-linear-rope": ("Llama", {"rope_parameters": LINEAR}),
    "llama-wide-heads": ("Llama", {"head_dim": 32}),
    "smollm": ("Llama", {"tie_word_embeddings": True, "num_attention_heads": 3,
                         "num_key_value_heads": 1, "rms_norm_eps": 1e-5}),
    "mistral": ("Mistral", {"sliding_window": None, "head_dim": 16}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2-unused-window": ("Qwen2", {"sliding_window": 8, "use_sliding_window": False}),
    "qwen3": ("Qwen3", {"head_dim": 20}),
    "qwen3-tied": ("Qwen3", {"head_dim": 8, "tie_word_embeddings": True}),
}  # fmt: skip


def _theirs(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.tensor([IDS])).logits[0]  # (T, V)


@pytest.mark.parametrize("kind", MODELS)
def test_logits_are_those_of_transformers(
    kind: str, make_hf: Callable[..., tuple[Path, Any]], logits_of: Any
) -> None:
    family, options = MODELS[kind]
    folder, theirs = make_hf(family, **options)
    expected = _theirs(theirs)
    assert expected.std() > 0.3, "the random model must say something that could be wrong"
    ours = load(folder)
    assert torch.allclose(logits_of(ours, IDS), expected, atol=1e-3, rtol=0)
    stored = sum(value.numel() for value in theirs.state_dict().values())
    tied = theirs.lm_head.weight.numel() if ours.config.tie_word_embeddings else 0
    assert ours.config.num_parameters == stored - tied
    assert ours.eos_ids == {2}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bit_logits_are_near(
    dtype: str, make_hf: Callable[..., tuple[Path, Any]], logits_of: Any
) -> None:
    folder, theirs = make_hf("Qwen3", head_dim=20)
    ours = load(folder, dtype=dtype)
    assert {p.dtype for p in ours.decoder.parameters()} == {getattr(torch, dtype)}
    reference = _theirs(theirs.to(getattr(torch, dtype))).float()
    # 8 bits of mantissa over three layers: a few per cent of the logits' spread.
    error = (logits_of(ours, IDS).float() - reference).abs().max()
    assert error < (0.1 if dtype == "bfloat16" else 0.02) * float(reference.abs().max())


def test_sharded_checkpoint_equals_single_file(
    make_hf: Callable[..., tuple[Path, Any]], logits_of: Any
) -> None:
    folder, theirs = make_hf("Llama", max_shard_size="60KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 3
    assert torch.allclose(logits_of(load(folder), IDS), _theirs(theirs), atol=1e-3, rtol=0)


def test_16_bit_checkpoint_loads_as_float32(
    make_hf: Callable[..., tuple[Path, Any]], logits_of: Any
) -> None:
    folder, theirs = make_hf("Llama")
    theirs.to(torch.bfloat16).save_pretrained(folder)
    # Read afresh: `.float()` would keep the rotary speeds that `.to(bfloat16)` has rounded.
    expected = _theirs(type(theirs).from_pretrained(folder, dtype=torch.float32))
    assert torch.allclose(logits_of(load(folder), IDS), expected, atol=1e-3, rtol=0)


def test_parameters_are_on_the_device_and_own_their_memory(
    make_hf: Callable[..., tuple[Path, Any]],
) -> None:
    folder, _ = make_hf("Llama")
    model = load(folder)
    before = {name: value.clone() for name, value in model.decoder.named_parameters()}
    (folder / "model.safetensors").write_bytes(b"")  # a view of the file would now be gone
    for name, value in model.decoder.named_parameters():
        assert value.device.type == "cpu" and not value.requires_grad and value.is_contiguous()
        assert torch.equal(value, before[name])
