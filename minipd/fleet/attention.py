"""What one attention layer weighs, keeps and computes, on one of `tp` devices.

Two kinds. *Grouped* attention (MHA and GQA: H query heads share K KV heads) keeps keys and values
of each KV head. *Latent* attention (MLA, DeepSeek-V2, arXiv 2405.04434, section 2.1) keeps one
latent vector and one rotary key per token for all heads. A `window` bounds how far back a layer
looks.

Counts are floats, since devices may share heads unevenly; FLOPs count a multiply and an add as two.
"""

from __future__ import annotations

from dataclasses import dataclass

Matrix = tuple[float, float]  # rows of the weight (input values), columns (output values)


@dataclass(frozen=True, slots=True)
class GroupedAttention:
    """H query heads, K KV heads, head size D; hidden size E; `window` tokens, None for all.

    `values_from_keys`: no matrix of its own makes the values (Gemma 4's global layers); the cache
    keeps both all the same.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    window: int | None = None
    values_from_keys: bool = False

    def kv_heads_on_device(self, tp: int) -> float:
        """`K / tp`, but never less than one: beyond K devices, KV heads are copied."""
        return max(1.0, self.kv_heads / tp)

    def matrices(self, tp: int) -> tuple[Matrix, ...]:
        """The weights on one device: queries, keys and values in one product, then the output."""
        parts = 1 if self.values_from_keys else 2
        heads = self.heads / tp + parts * self.kv_heads_on_device(tp)
        return (
            (self.hidden, heads * self.head_dim),
            (self.heads / tp * self.head_dim, self.hidden),
        )

    def kv_values_per_token(self, tp: int) -> float:
        """Values kept per token and layer on one device: `2 K D / tp`."""
        return 2.0 * self.kv_heads_on_device(tp) * self.head_dim

    def flops_per_pair(self, tp: int, decode: bool) -> float:
        """Score and weighted sum of one query token and one key token: `4 H D / tp`."""
        return 4.0 * self.heads / tp * self.head_dim


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """MLA: per token one latent of `kv_rank` values and one rotary key of `rope_dim`.

    Prefill expands the latent to full keys (`nope_dim + rope_dim`) and values (`value_dim`) of all
    heads. Decode multiplies the queries into the latent space instead and attends to the cache as
    it is ("absorbed"), so that only the cache is read. The latent has no heads to cut: each device
    of a tensor-parallel group keeps all of it.
    """

    hidden: int
    heads: int
    kv_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    query_rank: int | None = None
    window: int | None = None

    def matrices(self, tp: int) -> tuple[Matrix, ...]:
        """Down-projections are whole on every device, up-projections are cut by heads."""
        heads = self.heads / tp
        query = heads * (self.nope_dim + self.rope_dim)
        down = float(self.kv_rank + self.rope_dim)
        if self.query_rank:
            queries = ((self.hidden, down + self.query_rank), (self.query_rank, query))
        else:
            queries = ((self.hidden, down + query),)
        expand = (self.kv_rank, heads * (self.nope_dim + self.value_dim))
        return (*queries, expand, (heads * self.value_dim, self.hidden))

    def kv_values_per_token(self, tp: int) -> float:
        return float(self.kv_rank + self.rope_dim)

    def flops_per_pair(self, tp: int, decode: bool) -> float:
        key, value = self.nope_dim + self.rope_dim, self.value_dim
        if decode:
            key, value = self.kv_rank + self.rope_dim, self.kv_rank
        return 2.0 * self.heads / tp * (key + value)


Attention = GroupedAttention | LatentAttention


def causal_pairs(new: float, context: float, window: int | None) -> float:
    """Pairs of a query and a key it sees, for `new` tokens after `context` cached ones.

    Without a window the t-th new token sees `context + t` keys, in all
    `new * context + new (new + 1) / 2`. With one, no token sees more than `window` keys.
    """
    if window is None or context + new <= window:
        return new * context + new * (new + 1) / 2
    growing = max(0.0, window - context)  # tokens that do not fill the window yet
    return growing * context + growing * (growing + 1) / 2 + (new - growing) * window


def cached_tokens_read(new: float, context: float, window: int | None) -> float:
    """Cached tokens that a chunk must read: once each, and only those inside the window."""
    return context if window is None else min(context, float(window + new))
