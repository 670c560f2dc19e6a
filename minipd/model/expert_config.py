"""What a `config.json` says about experts. Free of torch, as `config.py` is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minipd.model.fields import damaged, flag, size
from minipd.request import is_whole_number

MAX_EXPERTS = 2**16  # far above any real model; a damaged config may say anything


@dataclass(frozen=True, slots=True)
class ExpertConfig:
    """`top_k` of `count` feed-forwards of width `ffn_size` per token, in the numbered `layers`.

    `normalised`: the weights of a token's chosen experts are scaled to sum to 1.
    """

    count: int
    top_k: int
    ffn_size: int
    normalised: bool
    layers: frozenset[int]

    def num_parameters(self, hidden_size: int, per_layer: float) -> int:
        """The routers' weights, and those of `per_layer` experts in each layer that has any."""
        experts = round(len(self.layers) * per_layer * 3 * hidden_size * self.ffn_size)
        return len(self.layers) * hidden_size * self.count + experts


def read_experts(raw: Mapping[str, Any]) -> ExpertConfig | None:
    """The experts of a Qwen3-MoE config, or None where every layer is dense.

    A layer has experts unless `mlp_only_layers` names it; with `decoder_sparse_step` = n, only
    every n-th one has. Transformers 5 writes `num_experts` as `num_local_experts`.
    """
    name = "num_experts" if raw.get("num_experts") is not None else "num_local_experts"
    count = size(raw, name, 128, most=MAX_EXPERTS)
    top_k = size(raw, "num_experts_per_tok")
    if top_k > count:
        raise damaged("num_experts_per_tok", top_k, f"at most {name} = {count}")
    width, normalised = size(raw, "moe_intermediate_size"), flag(raw, "norm_topk_prob")
    layers = _layers_with_experts(raw)
    return ExpertConfig(count, top_k, width, normalised, layers) if layers else None


def _layers_with_experts(raw: Mapping[str, Any]) -> frozenset[int]:
    dense: Any = raw.get("mlp_only_layers") or []
    if not isinstance(dense, list) or not all(is_whole_number(index) for index in dense):
        raise damaged("mlp_only_layers", dense, "a list of whole numbers")
    step, layers = size(raw, "decoder_sparse_step"), size(raw, "num_hidden_layers")
    return frozenset(range(step - 1, layers, step)) - frozenset(dense)
