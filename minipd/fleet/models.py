"""A model as the step-time model sees it: layers, weights, KV bytes, touched experts.

Symbols as everywhere: L layers, H query heads, K KV heads, D head size, E hidden size, V
vocabulary. Parameters count matrices only (norms and biases are less than a thousandth).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache

from minipd.fleet.attention import Attention, Matrix

# Popularity of experts follows rank ** -SKEW. 1.0 (Zipf) is what the measured kernel tables behind
# the reference times are taken with (ai-dynamo/aiconfigurator pull request 134); 0 is uniform.
SKEW = 1.0


@dataclass(frozen=True, slots=True)
class Experts:
    """The routed experts of a layer: `top_k` of `count`, each with a feed-forward of `width`."""

    count: int
    top_k: int
    width: int

    def touched(self, tokens: float, skew: float = SKEW) -> float:
        """Expected number of distinct experts that `tokens` tokens choose."""
        return touched_experts(self.count, self.top_k, tokens, skew)


def touched_experts(count: int, top_k: int, tokens: float, skew: float = SKEW) -> float:
    """Expected distinct experts when each of `tokens` tokens picks `top_k` of `count`.

    Expert i is picked by a token with chance `q_i`, the chances summing to `top_k`; it stays
    untouched with chance `(1 - q_i) ** tokens`, if tokens choose independently. So the expectation
    is `sum_i 1 - (1 - q_i) ** tokens`. With all experts equally popular (`skew` 0) that is the
    familiar `count (1 - (1 - top_k / count) ** tokens)`. Popular experts are shared by more tokens,
    so skew makes small batches touch fewer.
    """
    if tokens <= 0:
        return 0.0
    chances = _chances(count, top_k, skew)
    return sum(1.0 if q >= 1.0 else -math.expm1(tokens * math.log1p(-q)) for q in chances)


@cache
def _chances(count: int, top_k: int, skew: float) -> tuple[float, ...]:
    """`min(1, c * rank ** -skew)` with c such that they sum to `top_k`; found by halving."""
    popularity = [rank**-skew for rank in range(1, count + 1)]
    low, high = 0.0, 1.0 / popularity[-1]
    for _ in range(100):
        middle = (low + high) / 2
        if sum(min(1.0, middle * p) for p in popularity) < top_k:
            low = middle
        else:
            high = middle
    return tuple(min(1.0, high * p) for p in popularity)


@dataclass(frozen=True, slots=True)
class Layers:
    """`count` equal layers: attention, a feed-forward of `ffn_width` for every token (0: none;
    shared experts count here), and routed experts or None."""

    count: int
    attention: Attention
    ffn_width: int
    experts: Experts | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """What decides a model's step times; made by `minipd.fleet.configs` from a `config.json`.

    `weight_bytes` is bytes per weight and `kv_bytes` per cached value; `arithmetic` names the rate
    of the hardware table that its products run at ("bf16", "fp8", "float32").
    """

    name: str
    hidden: int
    vocab: int
    layers: tuple[Layers, ...]
    tied_embeddings: bool = False
    weight_bytes: float = 2.0
    kv_bytes: float = 2.0
    arithmetic: str = "bf16"
    ffn_matrices: int = 3  # gate, up and down; 2 without a gate
    max_context: int = 0
    source: str = field(default="", compare=False)

    @property
    def num_layers(self) -> int:
        return sum(group.count for group in self.layers)

    @property
    def expert_layers(self) -> int:
        return sum(group.count for group in self.layers if group.experts)

    def expert_parameters(self, experts: Experts) -> float:
        return float(self.ffn_matrices * self.hidden * experts.width)

    @property
    def parameters(self) -> float:
        """All weights, embedding and head included (one table when they are tied)."""
        tables = (1 if self.tied_embeddings else 2) * self.hidden * self.vocab
        return tables + sum(
            group.count * (self._always_used(group) + self._routed(group, count=None))
            for group in self.layers
        )

    @property
    def active_parameters(self) -> float:
        """Weights that one token multiplies with: top-k experts only, the head, no embedding."""
        return self.touched_parameters(0.0) + sum(
            group.count * self._routed(group, count=group.experts.top_k)
            for group in self.layers
            if group.experts
        )

    def touched_parameters(self, tokens: float, skew: float = SKEW) -> float:
        """Weights that a step of `tokens` tokens must read: all but untouched experts."""
        total = float(self.hidden * self.vocab)
        for group in self.layers:
            touched = group.experts.touched(tokens, skew) if group.experts else 0.0
            total += group.count * (self._always_used(group) + self._routed(group, touched))
        return total

    def kv_bytes_per_token(self, tp: int = 1) -> float:
        """KV bytes of one token on one device of `tp`, while inside every layer's window."""
        return self.kv_bytes * sum(
            group.count * group.attention.kv_values_per_token(tp) for group in self.layers
        )

    def kv_bytes_of(self, context: float, tp: int = 1) -> float:
        """KV bytes of a sequence of `context` tokens: windowed layers keep no more than that."""
        return self.kv_bytes * sum(
            group.count
            * group.attention.kv_values_per_token(tp)
            * min(context, group.attention.window or math.inf)
            for group in self.layers
        )

    def weight_bytes_on_device(self, tp: int = 1, pp: int = 1, ep: int = 1) -> float:
        """Weights on one device. Layers are shared among `pp` stages, matrices among `tp`
        devices, experts among `ep` (or `tp` where ep is 1); each stage may hold a table."""
        tables = (1 if self.tied_embeddings and pp == 1 else 2) * self.hidden * self.vocab / tp
        spread = ep if ep > 1 else tp
        body = sum(
            group.count
            * (
                sum(rows * columns for rows, columns in self.matrices(group, tp))
                + self._routed(group, count=None) / spread
            )
            for group in self.layers
        )
        return self.weight_bytes * (body / pp + (tables if pp == 1 else tables / 2))

    def matrices(self, group: Layers, tp: int) -> tuple[Matrix, ...]:
        """Every matrix that all tokens of a layer go through, on one device of `tp`."""
        width, up = group.ffn_width / tp, self.ffn_matrices - 1
        ffn = ((self.hidden, up * width), (width, self.hidden)) if width else ()
        router = ((self.hidden, group.experts.count),) if group.experts else ()
        return (*group.attention.matrices(tp), *ffn, *router)

    def _always_used(self, group: Layers) -> float:
        return sum(rows * columns for rows, columns in self.matrices(group, 1))

    def _routed(self, group: Layers, count: float | None) -> float:
        if group.experts is None:
            return 0.0
        number = group.experts.count if count is None else count
        return number * self.expert_parameters(group.experts)
