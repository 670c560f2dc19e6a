"""What a config.json means: the same as for transformers, or refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from minipd.model.config import SUPPORTED, ModelConfig, RopeConfig, UnsupportedModelError

SIZES = {
    "hidden_size": 4096,
    "intermediate_size": 64,
    "num_hidden_layers": 30,
    "num_attention_heads": 32,
    "vocab_size": 100,
}


def raw(family: str = "Llama", **options: Any) -> dict[str, Any]:
    return {"architectures": [f"{family}ForCausalLM"], **SIZES, **options}


@pytest.mark.parametrize("family", [name.removesuffix("ForCausalLM") for name in SUPPORTED])
def test_absent_keys_mean_what_transformers_takes_them_for(family: str) -> None:
    theirs = getattr(transformers, f"{family}Config")(**SIZES)
    # Mistral's silent default is a window, which is refused; its other defaults are compared.
    ours = ModelConfig.from_hf(
        raw(family, **({"sliding_window": None} if family == "Mistral" else {}))
    )
    assert ours.num_kv_heads == theirs.num_key_value_heads
    assert ours.head_dim == getattr(theirs, "head_dim", 4096 // 32)
    assert ours.max_context == theirs.max_position_embeddings
    assert ours.rms_norm_eps == theirs.rms_norm_eps
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    assert ours.rope == RopeConfig(theirs.rope_parameters["rope_theta"])


ROPES: list[dict[str, Any]] = [
    {"rope_theta": 5e5},
    {"rope_theta": 5e5, "rope_scaling": None},
    {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.5}},
    {"rope_parameters": {"rope_type": "linear", "rope_theta": 777.0, "factor": 2.5}},
    {
        "rope_theta": 5e5,
        "max_position_embeddings": 131072,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
    {
        "max_position_embeddings": 4096,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 5e5,
            "factor": 8.0,
            "low_freq_factor": 2.0,
            "high_freq_factor": 3.0,
        },
    },
]


@pytest.mark.parametrize("options", ROPES)
def test_rotation_speeds_are_those_of_transformers(options: dict[str, Any]) -> None:
    ours = ModelConfig.from_hf(raw(**options)).rope
    theirs = transformers.LlamaConfig(**{**SIZES, **options})
    kind = theirs.rope_parameters["rope_type"]
    if kind == "default":
        base = theirs.rope_parameters["rope_theta"]
        expected = 1.0 / base ** (torch.arange(0, 128, 2).float() / 128)
    else:
        expected, _ = ROPE_INIT_FUNCTIONS[kind](theirs, "cpu")
    assert torch.allclose(torch.tensor(ours.inverse_frequencies(128)), expected, rtol=1e-6, atol=0)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"architectures": ["GPT2LMHeadModel"]}, "Qwen3"),
    ({"architectures": ["MixtralForCausalLM"]}, "Mistral"),
    ({}, "names no architecture"),
    ({"model_type": "gpt2"}, "'gpt2'.*Llama"),
    (raw(rope_scaling={"rope_type": "yarn", "factor": 4.0}), "yarn"),
    (raw(rope_scaling={"type": "dynamic", "factor": 4.0}), "dynamic"),
    (raw(rope_parameters={"rope_type": "linear"}), "factor"),
    (raw(rope_parameters={"rope_type": "linear", "factor": "many"}), "number"),
    (raw(partial_rotary_factor=0.5), "partial_rotary_factor"),
    (raw(rope_parameters={"rope_theta": 1e4, "partial_rotary_factor": 0.5}), "partial"),
    (raw(hidden_act="gelu"), "gelu"),
    (raw(attention_bias=True), "attention_bias"),
    (raw("Qwen3", attention_bias=True), "attention_bias"),
    (raw(mlp_bias=True), "mlp_bias"),
    (raw(quantization_config={"quant_method": "gptq"}), "quantised"),
    (raw("Mistral"), "sliding-window"),
    (raw("Mistral", sliding_window=1024), "sliding_window = 1024"),
    (raw("Qwen2", use_sliding_window=True), "sliding-window"),
    (raw("Qwen3", use_sliding_window=True, layer_types=["sliding_attention"]), "sliding-window"),
    (raw(num_key_value_heads=5), "KV heads"),
    (raw(num_hidden_layers=0), "num_hidden_layers"),
    (raw(hidden_size=None), "hidden_size"),
]


@pytest.mark.parametrize(("config", "word"), REFUSED)
def test_what_would_be_computed_wrongly_is_refused(config: dict[str, Any], word: str) -> None:
    with pytest.raises(UnsupportedModelError, match=word):
        ModelConfig.from_hf(config)


NAN, INF = float("nan"), float("inf")
DAMAGED: list[dict[str, Any]] = [
    *(raw(rms_norm_eps=value) for value in (NAN, INF, -5, 0, "x", None, [1], 1e300, 10**400, True)),
    *(raw(rope_theta=value) for value in (NAN, INF, -5, 0, "a", [1], 10**400)),
    *(raw(rope_parameters=value) for value in ([1], "x", 5, {"full_attention": 5})),
    *(raw(rope_scaling={"type": "linear", "factor": value}) for value in (0, NAN, None, "x")),
    raw(rope_parameters={"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
                         "high_freq_factor": 1}),
    *(raw(tie_word_embeddings=value) for value in ("false", 1, [], None)),
    *(raw(architectures=value) for value in (5, "LlamaForCausalLM", {"a": 1})),
    raw(layer_types=5, use_sliding_window=True, architectures=["Qwen3ForCausalLM"]),
    raw("Qwen2", use_sliding_window=True, max_window_layers="x"),
    *(raw("Mistral", sliding_window=value) for value in ("x", [1], 1.5)),
    *(raw(max_position_embeddings=value) for value in (10**15, 10**400, 1.5, "x")),
    *(raw(vocab_size=value) for value in (10**12, -1, "512", True, 512.0)),
]  # fmt: skip


@pytest.mark.parametrize("config", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_value_is_refused_in_one_sentence(config: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedModelError, match=r"config.json is damaged: ") as caught:
        ModelConfig.from_hf(config)
    assert len(str(caught.value)) < 200 and "\n" not in str(caught.value)


STRANGE: list[dict[str, Any]] = [
    *(raw(architectures=value) for value in ([5], [["LlamaForCausalLM"]], [None], [{}])),
    *(raw(partial_rotary_factor=value) for value in ("x", [1])),
    raw(rope_parameters={"rope_type": ["a"]}),
]


@pytest.mark.parametrize("config", STRANGE, ids=range(len(STRANGE)))
def test_a_value_of_a_strange_type_is_not_supported(config: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedModelError, match="not supported"):
        ModelConfig.from_hf(config)


ACCEPTED: list[dict[str, Any]] = [
    raw("Mistral", sliding_window=4096, max_position_embeddings=4096),
    raw("Mistral", sliding_window=None),
    raw("Qwen2", sliding_window=1024, use_sliding_window=False),
    raw("Qwen2", sliding_window=1024, use_sliding_window=True, max_window_layers=30),
    raw("Qwen3", use_sliding_window=True, layer_types=["full_attention"] * 30),
]


@pytest.mark.parametrize("config", ACCEPTED)
def test_windows_that_never_close_are_no_reason_to_refuse(config: dict[str, Any]) -> None:
    assert ModelConfig.from_hf(config).num_layers == 30
