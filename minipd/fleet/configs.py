"""From a Hugging Face `config.json` to a `Model`, and the table of models known by name.

The table, `data/models.json`, holds the size fields of each model's published `config.json` under
their own names, with the source of each; any other `config.json` is read by the same function.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

from minipd.fleet.attention import Attention, GroupedAttention, LatentAttention
from minipd.fleet.models import Experts, Layers, Model
from minipd.fleet.near import nearest

BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "fp8": 1.0}
RATES = {"float32": "float32", "bfloat16": "bf16", "float16": "bf16", "fp8": "fp8"}


class ConfigError(ValueError):
    """A model that is unknown, or a config.json that lacks what step times depend on."""


def model_from_config(raw: Mapping[str, Any], name: str = "", source: str = "") -> Model:
    """Read a config.json: Llama-like, Qwen-MoE, Mixtral, DeepSeek (MLA), Gemma and OPT families.

    Nested `text_config` is followed. Raises `ConfigError` naming the field that is missing or
    wrong.
    """
    raw = {**raw, **(raw.get("text_config") or {})}
    fields = _Fields(raw, name or str(raw.get("model_type", "this model")))
    hidden = fields.size("hidden_size", "n_embd", "d_model")
    dtype = _dtype(raw)
    gate = raw.get("model_type") not in ("opt", "gpt2")
    return Model(
        name=fields.name,
        hidden=hidden,
        vocab=fields.size("vocab_size"),
        layers=_layers(fields, hidden),
        tied_embeddings=bool(raw.get("tie_word_embeddings", raw.get("model_type") == "opt")),
        weight_bytes=BYTES[dtype],
        kv_bytes=4.0 if dtype == "float32" else 2.0,
        arithmetic=RATES[dtype],
        ffn_matrices=3 if gate else 2,
        max_context=fields.size("max_position_embeddings", "n_positions", default=0),
        source=source,
    )


class _Fields:
    """Sizes of a config.json, checked: whole positive numbers, under any of several names."""

    def __init__(self, raw: Mapping[str, Any], name: str) -> None:
        self.raw, self.name = raw, name

    def size(self, *names: str, default: int | None = None) -> int:
        value = next((self.raw[n] for n in names if self.raw.get(n) is not None), default)
        if value is None:
            raise ConfigError(
                f"The config.json of {self.name} has no {names[0]}, which step times depend on; "
                "add it."
            )
        if isinstance(value, bool) or not isinstance(value, int) or value < (default != 0):
            raise ConfigError(
                f"The config.json of {self.name} has {names[0]} = {str(value)[:40]}; a whole "
                "number above 0 is needed."
            )
        return value


def _dtype(raw: Mapping[str, Any]) -> str:
    quantised: Any = raw.get("quantization_config") or {}
    if isinstance(quantised, Mapping) and quantised.get("quant_method") == "fp8":
        return "fp8"
    named = str(raw.get("torch_dtype") or raw.get("dtype") or "bfloat16").removeprefix("torch.")
    return named if named in BYTES else "bfloat16"


def _layers(fields: _Fields, hidden: int) -> tuple[Layers, ...]:
    """Consecutive equal layers as one group each; order does not change a step's time."""
    number = fields.size("num_hidden_layers", "n_layer")
    kinds = [_kind(fields, index) for index in range(number)]
    return tuple(
        Layers(len(list(same)), _attention(fields, hidden, sliding), *_ffn(fields, routed))
        for (sliding, routed), same in groupby(sorted(kinds))
    )


def _kind(fields: _Fields, index: int) -> tuple[bool, bool]:
    """Whether layer `index` attends in a window, and whether it has routed experts."""
    raw, types = fields.raw, fields.raw.get("layer_types")
    window = bool(raw.get("sliding_window")) and raw.get("use_sliding_window", True)
    if isinstance(types, list) and index < len(types):
        sliding = bool(window) and types[index] == "sliding_attention"
    elif raw.get("sliding_window_pattern"):  # Gemma 3: every n-th layer attends to everything
        sliding = bool(window) and bool((index + 1) % fields.size("sliding_window_pattern"))
    else:
        sliding = bool(window) and raw.get("model_type") in ("mistral", "mixtral")
    routed = _experts(fields) is not None and index >= int(raw.get("first_k_dense_replace") or 0)
    step = int(raw.get("decoder_sparse_step") or raw.get("moe_layer_freq") or 1)
    skipped = index in (raw.get("mlp_only_layers") or ()) or (index + 1) % step != 0
    return sliding, routed and not skipped


def _attention(fields: _Fields, hidden: int, sliding: bool) -> Attention:
    raw, heads = fields.raw, fields.size("num_attention_heads", "n_head")
    if raw.get("kv_lora_rank"):
        return LatentAttention(
            hidden=hidden,
            heads=heads,
            kv_rank=fields.size("kv_lora_rank"),
            rope_dim=fields.size("qk_rope_head_dim"),
            nope_dim=fields.size("qk_nope_head_dim"),
            value_dim=fields.size("v_head_dim"),
            query_rank=fields.size("q_lora_rank") if raw.get("q_lora_rank") else None,
        )
    kv_heads = fields.size("num_key_value_heads", default=heads)
    head_dim = fields.size("head_dim", default=max(1, hidden // heads))
    shared = False
    if not sliding and raw.get("global_head_dim"):  # Gemma 4's layers that attend to everything
        head_dim = fields.size("global_head_dim")
        shared = bool(raw.get("attention_k_eq_v"))
        if shared:
            kv_heads = fields.size("num_global_key_value_heads", default=kv_heads)
    window = fields.size("sliding_window") if sliding else None
    return GroupedAttention(hidden, heads, kv_heads, head_dim, window, shared)


def _experts(fields: _Fields) -> Experts | None:
    raw = fields.raw
    names = ("num_experts", "n_routed_experts", "num_local_experts")
    if not any(raw.get(name) for name in names):
        return None
    width = fields.size("moe_intermediate_size", "intermediate_size")
    top_k = fields.size("num_experts_per_tok", "top_k_experts")
    experts = Experts(fields.size(*names), top_k, width)
    if experts.top_k > experts.count:
        raise ConfigError(
            f"The config.json of {fields.name} sends each token to {experts.top_k} of only "
            f"{experts.count} experts; check num_experts_per_tok."
        )
    return experts


def _ffn(fields: _Fields, routed: bool) -> tuple[int, Experts | None]:
    """Width that every token goes through, and the routed experts, of one layer."""
    raw = fields.raw
    if not routed:
        return fields.size("intermediate_size", "ffn_dim", "n_inner"), None
    experts = _experts(fields)
    assert experts is not None, "a routed layer has experts"
    shared = int(raw.get("n_shared_experts") or 0) * experts.width
    shared = shared or int(raw.get("shared_expert_intermediate_size") or 0)
    if raw.get("enable_moe_block"):  # Gemma 4: a plain feed-forward beside the experts
        shared = fields.size("intermediate_size")
    return shared, experts


@cache
def model_table() -> dict[str, Model]:
    """Every model known by name, keyed by its hub id."""
    text = files("minipd.fleet").joinpath("data/models.json").read_text("utf-8")
    entries = json.loads(text)
    return {
        name: model_from_config(entry["config"], name, entry["source"])
        for name, entry in entries.items()
    }


def find_model(name: str) -> Model:
    """A model by hub id or its last part (any case, `Meta-` and `-Instruct` may be left out), or a
    path to a config.json or its folder. Raises `ConfigError` with the nearest name."""
    table = model_table()
    by_short = {_short(known): model for known, model in table.items()}
    if _short(name) in by_short:
        return by_short[_short(name)]
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json" and path.is_file():
        return read_config(path)
    near = nearest(name, list(table), _short)
    guess = f"the nearest is {near}" if near else f"known are {', '.join(table)}"
    raise ConfigError(
        f"The model {name[:80]!r} is unknown; {guess}; or give the path of its config.json."
    )


def read_config(path: Path) -> Model:
    try:
        raw: Any = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as JSON ({error}); check the file.") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path} holds no JSON object; it should be a model's config.json.")
    return model_from_config(raw, path.parent.name, str(path))


def _short(name: str) -> str:
    """Hub ids of one architecture differ in owner and in words that change no size."""
    word = name.rsplit("/", 1)[-1].lower().replace("_", "-")
    for extra in ("meta-", "-instruct", "-it", "-base", "-chat", "-v0.1"):
        word = word.replace(extra, "") if extra[0] != "-" else word.removesuffix(extra)
    return word
