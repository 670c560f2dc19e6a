"""Which tensors of a checkpoint make up each parameter of the decoder, by their names there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from minipd.model.config import ModelConfig
from minipd.model.expert_config import ExpertConfig
from minipd.model.store import Shape


@dataclass(frozen=True, slots=True)
class Fused:
    """One parameter of the decoder, and the checkpoint's tensors (name, shape) it is made of."""

    name: str
    parts: tuple[tuple[str, Shape], ...]
    experts: int = 0  # the parts belong to so many experts in turn, and each makes a layer of it
    rotated: int = 0  # so many heads at its beginning are rotated: their pairs come side by side

    @property
    def num_values(self) -> int:
        return sum(math.prod(shape) for _, shape in self.parts)

    @property
    def is_turned(self) -> bool:
        """Whether it is stored (in, out); the embedding is looked up by rows and stays (V, E)."""
        return len(self.parts[0][1]) == 2 and self.name != "embed"


def recipe(config: ModelConfig) -> Iterator[Fused]:
    """Every parameter of `Decoder(config)`, in the order of the forward pass."""
    embed = ("model.embed_tokens.weight", (config.vocab_size, config.hidden_size))
    if not config.tie_word_embeddings:
        yield Fused("embed", (embed,))
    for index in range(config.num_layers):
        yield from _layer(config, f"layers.{index}.", f"model.layers.{index}.")
    yield Fused("final_norm", (("model.norm.weight", (config.hidden_size,)),))
    head = ("lm_head.weight", embed[1])
    yield Fused("head", (embed if config.tie_word_embeddings else head,))


def _layer(c: ModelConfig, ours: str, theirs: str) -> Iterator[Fused]:
    rows = {"q": c.num_heads * c.head_dim, "k": c.num_kv_heads * c.head_dim}
    rows["v"] = rows["k"]
    attention, mlp, size = f"{theirs}self_attn.", f"{theirs}mlp.", c.hidden_size
    yield Fused(f"{ours}input_norm", ((f"{theirs}input_layernorm.weight", (size,)),))
    qkv = tuple((f"{attention}{x}_proj.weight", (n, size)) for x, n in rows.items())
    rotated = c.num_heads + c.num_kv_heads
    yield Fused(f"{ours}qkv", qkv, rotated=rotated)
    if c.qkv_bias:
        biases = tuple((f"{attention}{x}_proj.bias", (n,)) for x, n in rows.items())
        yield Fused(f"{ours}qkv_bias", biases, rotated=rotated)
    if c.qk_norm:
        for x in ("q_norm", "k_norm"):
            yield Fused(f"{ours}{x}", ((f"{attention}{x}.weight", (c.head_dim,)),), rotated=1)
    yield Fused(f"{ours}o", ((f"{attention}o_proj.weight", (size, rows["q"])),))
    yield Fused(f"{ours}post_norm", ((f"{theirs}post_attention_layernorm.weight", (size,)),))
    if c.experts and c.has_experts(int(ours.split(".")[1])):
        yield from _experts(c.experts, size, f"{ours}experts.", mlp)
        return
    gate_up = tuple((f"{mlp}{x}_proj.weight", (c.ffn_size, size)) for x in ("gate", "up"))
    yield Fused(f"{ours}gate_up", gate_up)
    yield Fused(f"{ours}down", ((f"{mlp}down_proj.weight", (size, c.ffn_size)),))


def _experts(c: ExpertConfig, size: int, ours: str, theirs: str) -> Iterator[Fused]:
    each = [f"{theirs}experts.{number}." for number in range(c.count)]
    yield Fused(f"{ours}router.weight", ((f"{theirs}gate.weight", (c.count, size)),))
    gate_up = [(f"{e}{x}_proj.weight", (c.ffn_size, size)) for e in each for x in ("gate", "up")]
    yield Fused(f"{ours}gate_up", tuple(gate_up), c.count)
    down = [(f"{e}down_proj.weight", (size, c.ffn_size)) for e in each]
    yield Fused(f"{ours}down", tuple(down), c.count)
