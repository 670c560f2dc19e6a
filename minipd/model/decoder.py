"""The decoder: tokens and positions in, hidden rows out. It never sees a request or a batch.

Rows of many sequences lie one after another ("ragged"): T rows in all. Where a row's past is kept
is the business of `attend`, which the caller passes in; so the same forward pass serves a plain
notebook cache, the paged store, and a prefill whose KV leaves layer by layer.

Weights are stored (in, out), so that a layer reads `y = x @ W`, and fused: one product makes q, k
and v, one makes gate and up. On a CPU a single row against (in, out) also streams faster. The two
numbers of q and k that the rotary embedding turns together lie side by side (`recipe.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from minipd.model.config import ModelConfig
from minipd.model.experts import Experts
from minipd.model.layers import rms_norm, rotate, swiglu

# attend(layer, q (T, H, D), k (T, K, D), v (T, K, D)) -> (T, H, D)
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


HEAD_COLUMNS = 1024


def _weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape), requires_grad=False)


def num_head_groups(vocab_size: int) -> int:
    """Into how many groups of at least `HEAD_COLUMNS` columns the head is cut, all alike.

    A group lies in one piece of memory; a CPU's product with few rows, which copies its matrix in
    narrow strips, is then up to a third faster than with all V columns side by side.
    """
    most = max(1, vocab_size // HEAD_COLUMNS)
    return next(count for count in range(most, 0, -1) if vocab_size % count == 0)


class DecoderLayer(nn.Module):
    """Attention and feed-forward, each behind a norm and added to the residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        c, heads = config, config.num_heads + 2 * config.num_kv_heads
        self.input_norm = _weight(c.hidden_size)  # (E,)
        self.qkv = _weight(c.hidden_size, heads * c.head_dim)  # (E, (H + 2K) D)
        self.qkv_bias = _weight(heads * c.head_dim) if c.qkv_bias else None
        self.q_norm = _weight(c.head_dim) if c.qk_norm else None  # (D,)
        self.k_norm = _weight(c.head_dim) if c.qk_norm else None  # (D,)
        self.o = _weight(c.num_heads * c.head_dim, c.hidden_size)  # (H D, E)
        self.post_norm = _weight(c.hidden_size)  # (E,)
        self.gate_up = _weight(c.hidden_size, 2 * c.ffn_size)  # (E, 2F)
        self.down = _weight(c.ffn_size, c.hidden_size)  # (F, E)

    def forward(
        self, index: int, x: Tensor, turns: Tensor, attend: Attend, scratch: Tensor
    ) -> Tensor:
        """Layer number `index` on `x` (T, E), which it updates in place and returns.

        `scratch` (T, 2F) is overwritten: one piece of memory that all layers use in turn is still
        in the processor's cache, where a fresh one for each would have to be fetched.
        """
        eps = self.config.rms_norm_eps
        q, k, v = self.project(rms_norm(x, self.input_norm, eps), turns)
        mixed = attend(index, q, k, v)  # (T, H, D)
        x.addmm_(mixed.reshape(len(x), -1), self.o)  # (T, E)
        return self.feed_forward(x, rms_norm(x, self.post_norm, eps), scratch)  # (T, E)

    def feed_forward(self, x: Tensor, h: Tensor, scratch: Tensor) -> Tensor:
        """Add to `x` (T, E) what the feed-forward makes of its norm `h` (T, E)."""
        gate_up = torch.mm(h, self.gate_up, out=scratch)  # (T, 2F)
        return x.addmm_(swiglu(gate_up), self.down)  # (T, E)

    def project(self, h: Tensor, turns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (T, H, D), keys and values (T, K, D) of `h` (T, E), the first two rotated."""
        c = self.config
        qkv = h @ self.qkv if self.qkv_bias is None else torch.addmm(self.qkv_bias, h, self.qkv)
        qkv = qkv.view(len(h), -1, c.head_dim)  # (T, H + 2K, D)
        rotated, v = qkv.tensor_split((c.num_heads + c.num_kv_heads,), dim=1)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = rotated.tensor_split((c.num_heads,), dim=1)
            q, k = (rms_norm(t, w, c.rms_norm_eps) for t, w in ((q, self.q_norm), (k, self.k_norm)))
            return rotate(q, turns), rotate(k, turns), v
        q, k = rotate(rotated, turns).tensor_split((c.num_heads,), dim=1)
        return q, k, v


class SparseLayer(DecoderLayer):
    """A layer with experts: attention as ever, then the few of them that each token chooses."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        assert config.experts is not None, "a sparse layer has experts"
        del self.gate_up, self.down  # each expert has its own
        self.experts = Experts(config.experts, config.hidden_size)

    def feed_forward(self, x: Tensor, h: Tensor, scratch: Tensor) -> Tensor:
        """The same with experts, which make room for themselves."""
        return x.add_(self.experts(h))  # (T, E)


class Decoder(nn.Module):
    """All layers between token ids and logits. Parameters are created empty; `load` fills them."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        tied = config.tie_word_embeddings
        self.embed = None if tied else _weight(config.vocab_size, config.hidden_size)  # (V, E)
        self.layers = nn.ModuleList(
            SparseLayer(config) if config.has_experts(index) else DecoderLayer(config)
            for index in range(config.num_layers)
        )
        self.final_norm = _weight(config.hidden_size)  # (E,)
        self.num_groups = num_head_groups(config.vocab_size)  # C
        group_size = config.vocab_size // self.num_groups
        self.head = _weight(self.num_groups, config.hidden_size, group_size)  # (C, E, V/C)
        self._turns: Tensor | None = None

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Hidden rows (T, E) after the last norm. `token_ids` and `positions` are int64 (T,)."""
        x = self.embed_tokens(token_ids)  # (T, E)
        turns = self.turns(positions)  # (T, 1, D/2)
        scratch = x.new_empty(len(x), 2 * self.config.ffn_size)  # (T, 2F)
        for index, layer in enumerate(self.layers):
            x = layer(index, x, turns, attend, scratch)  # (T, E)
        return rms_norm(x, self.final_norm, self.config.rms_norm_eps)  # (T, E)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of the next token: `hidden` (R, E) to (R, V); pass only rows that are sampled."""
        groups = torch.bmm(hidden.expand(self.num_groups, -1, -1), self.head)  # (C, R, V/C)
        return groups.transpose(0, 1).flatten(1)  # (R, V)

    def embed_tokens(self, token_ids: Tensor) -> Tensor:
        """A fresh (T, E): later layers add to it in place. A tied head is read by its columns."""
        if self.embed is not None:
            return self.embed[token_ids]  # (T, E)
        size = self.head.shape[-1]
        return self.head[token_ids // size, :, token_ids % size]  # (T, E)

    def turns(self, positions: Tensor) -> Tensor:
        """For `rotate`: complex (T, 1, D/2) of the positions, from a table made at first use."""
        if self._turns is None:
            speeds = torch.tensor(
                self.config.rope.inverse_frequencies(self.config.head_dim), dtype=torch.float32
            )  # (D/2,)
            steps = torch.arange(self.config.max_context, dtype=torch.float32)  # (S,)
            angles = torch.outer(steps, speeds)[:, None]  # (S, 1, D/2)
            self._turns = torch.complex(angles.cos(), angles.sin()).to(self.head.device)
        return self._turns[positions]  # (T, 1, D/2)
