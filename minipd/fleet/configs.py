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
from minipd.fleet.config_fields import MOST_EXPERTS, MOST_LAYERS, ConfigError, Fields
from minipd.fleet.json_files import JsonFileError, read_json
from minipd.fleet.models import Experts, Layers, Model
from minipd.fleet.near import nearest

BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "fp8": 1.0}
RATES = {"float32": "float32", "bfloat16": "bf16", "float16": "bf16", "fp8": "fp8"}


def model_from_config(raw: Mapping[str, Any], name: str = "", source: str = "") -> Model:
    """Read a config.json: Llama-like, Qwen-MoE, Mixtral, DeepSeek (MLA), Gemma and OPT families.

    Nested `text_config` is followed. Raises `ConfigError` naming the field that is missing or
    wrong.
    """
    inner = raw.get("text_config") or {}
    name = name or str(raw.get("model_type") or "this model")
    if not isinstance(inner, Mapping):
        raise ConfigError(f"The config.json of {name} has a text_config that is no JSON object.")
    raw = {**raw, **inner}
    fields = Fields(raw, name)
    hidden = fields.size("hidden_size", "n_embd", "d_model")
    dtype = _dtype(raw)
    gate = raw.get("model_type") not in ("opt", "gpt2")
    return Model(
        name=fields.name,
        hidden=hidden,
        vocab=fields.size("vocab_size"),
        layers=_layers(fields, hidden),
        tied_embeddings=fields.flag("tie_word_embeddings", raw.get("model_type") == "opt"),
        weight_bytes=BYTES[dtype],
        kv_bytes=4.0 if dtype == "float32" else 2.0,
        arithmetic=RATES[dtype],
        ffn_matrices=3 if gate else 2,
        max_context=fields.size("max_position_embeddings", "n_positions", default=0),
        source=source,
    )


def _dtype(raw: Mapping[str, Any]) -> str:
    quantised: Any = raw.get("quantization_config") or {}
    if isinstance(quantised, Mapping) and quantised.get("quant_method") == "fp8":
        return "fp8"
    named = str(raw.get("torch_dtype") or raw.get("dtype") or "bfloat16").removeprefix("torch.")
    return named if named in BYTES else "bfloat16"


def _layers(fields: Fields, hidden: int) -> tuple[Layers, ...]:
    """Consecutive equal layers as one group each; order does not change a step's time."""
    number = fields.size("num_hidden_layers", "n_layer", most=MOST_LAYERS)
    kinds = [_kind(fields, index) for index in range(number)]
    return tuple(
        Layers(len(list(same)), _attention(fields, hidden, sliding), *_ffn(fields, routed))
        for (sliding, routed), same in groupby(sorted(kinds))
    )


def _kind(fields: Fields, index: int) -> tuple[bool, bool]:
    """Whether layer `index` attends in a window, and whether it has routed experts."""
    raw, types = fields.raw, fields.items("layer_types")
    window = bool(raw.get("sliding_window")) and raw.get("use_sliding_window", True)
    if index < len(types):
        sliding = bool(window) and types[index] == "sliding_attention"
    elif raw.get("sliding_window_pattern"):  # Gemma 3: every n-th layer attends to everything
        sliding = bool(window) and bool((index + 1) % fields.size("sliding_window_pattern"))
    else:
        sliding = bool(window) and raw.get("model_type") in ("mistral", "mixtral")
    routed = _experts(fields) is not None and index >= fields.count("first_k_dense_replace")
    step = fields.count("decoder_sparse_step") or fields.count("moe_layer_freq") or 1
    skipped = index in fields.items("mlp_only_layers") or (index + 1) % step != 0
    return sliding, routed and not skipped


def _attention(fields: Fields, hidden: int, sliding: bool) -> Attention:
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
    kv_heads = fields.size("num_key_value_heads", default=heads, most=heads)
    head_dim = fields.size("head_dim", default=max(1, hidden // heads))
    shared = False
    if not sliding and raw.get("global_head_dim"):  # Gemma 4's layers that attend to everything
        head_dim = fields.size("global_head_dim")
        shared = bool(raw.get("attention_k_eq_v"))
        if shared:
            kv_heads = fields.size("num_global_key_value_heads", default=kv_heads)
    window = fields.size("sliding_window") if sliding else None
    return GroupedAttention(hidden, heads, kv_heads, head_dim, window, shared)


def _experts(fields: Fields) -> Experts | None:
    raw = fields.raw
    names = ("num_experts", "n_routed_experts", "num_local_experts")
    if not any(raw.get(name) for name in names):
        return None
    width = fields.size("moe_intermediate_size", "intermediate_size")
    top_k = fields.size("num_experts_per_tok", "top_k_experts")
    experts = Experts(fields.size(*names, most=MOST_EXPERTS), top_k, width)
    if experts.top_k > experts.count:
        raise ConfigError(
            f"The config.json of {fields.name} sends each token to {experts.top_k} of only "
            f"{experts.count} experts; check num_experts_per_tok."
        )
    return experts


def _ffn(fields: Fields, routed: bool) -> tuple[int, Experts | None]:
    """Width that every token goes through, and the routed experts, of one layer."""
    raw = fields.raw
    if not routed:
        return fields.size("intermediate_size", "ffn_dim", "n_inner"), None
    experts = _experts(fields)
    assert experts is not None, "a routed layer has experts"
    shared = fields.count("n_shared_experts") * experts.width
    shared = shared or fields.count("shared_expert_intermediate_size")
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
    path = _config_path(name)
    if path is not None:
        return read_config(path)
    near = nearest(name, list(table), _short)
    guess = f"the nearest is {near}" if near else f"known are {', '.join(table)}"
    raise ConfigError(
        f"The model {name[:80]!r} is unknown; {guess}; or give the path of its config.json."
    )


def read_config(path: Path) -> Model:
    try:
        raw: Any = read_json(path)
    except JsonFileError as error:
        raise ConfigError(f"{error}; give a model's config.json.") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path} holds no JSON object; it should be a model's config.json.")
    return model_from_config(raw, path.absolute().parent.name, str(path))


def _config_path(name: str) -> Path | None:
    """The config.json that `name` stands for as a path, whether it is there or not; else None."""
    try:
        path = Path(name)
        if name.strip() and path.is_dir():
            return path / "config.json"
    except (OSError, ValueError):  # too long for a path, or with characters that none can have
        return None
    return path if path.suffix == ".json" else None


def _short(name: str) -> str:
    """Hub ids of one architecture differ in owner and in words that change no size."""
    word = name.rsplit("/", 1)[-1].lower().replace("_", "-")
    for extra in ("meta-", "-instruct", "-it", "-base", "-chat", "-v0.1"):
        word = word.replace(extra, "") if extra[0] != "-" else word.removesuffix(extra)
    return word
