"""Attention over the paged store, for a ragged batch of chunks.

Every path writes the chunk's keys and values into the store first, then lets each chunk's queries
see the sequence's tokens from 0 to their own. Three ways to compute the same thing:

- a whole prompt with nothing before it needs no store: causal SDPA over the fresh rows;
- any other chunk reads the store, in place where its blocks lie in one run, else by a gather;
- on CUDA in 16 bits, one kernel call reads the store through its block tables (`paged.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from minipd.cache.store import KVStore, slots_of
from minipd.engine.batch import Chunk

BLOCK_ROWS = 32
BLOCKED_LENGTHS = range(129, 1025)  # SDPA is as fast where blocks are few or large


@dataclass(slots=True)
class Span:
    """One chunk's rows in the batch, and the slots of its sequence up to its end."""

    count: int
    slots: range | Tensor  # S = tokens of the sequence up to the chunk's end
    mask: Tensor | None  # (T, S), True = may see; None where causal or everything is right

    @property
    def is_whole_prompt(self) -> bool:
        return self.count > 1 and self.mask is None


class GatherAttention:
    """The `attend` of one batch: build it once per step, call it once per layer."""

    def __init__(self, store: KVStore, chunks: Items[Chunk]) -> None:
        self.store = store
        self.on_stored: Callable[[int], None] | None = None  # told of each layer as it is stored
        self.in_blocks: dict[int, PromptInBlocks] = {}  # by length
        size, device = store.layout.block_size, store.device
        written: list[int] = []
        own: range | Tensor = range(0)
        self.spans: list[Span] = []
        for chunk in chunks:
            slots = slots_of(chunk.block_ids, 0, chunk.stop, size)  # S of them
            own = slots[chunk.start :]
            written.extend(own if isinstance(own, range) else own.tolist())
            slots = slots if isinstance(slots, range) else slots.to(device)
            count = len(chunk.token_ids)
            mask = _causal_mask(chunk.start, count, device) if chunk.start and count > 1 else None
            self.spans.append(Span(count, slots, mask))
        self.num_rows = len(written)
        is_one_run = len(chunks) == 1 and isinstance(own, range)
        self.slots = own if is_one_run else torch.tensor(written, device=device)  # (T,)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`q` (T, H, D), `k` and `v` (T, K, D) to (T, H, D); rows past `num_rows` are padding."""
        num_padding = len(q) - self.num_rows
        if num_padding:
            q, k, v = q[:-num_padding], k[:-num_padding], v[:-num_padding]
        self.store.write(layer, self.slots, k, v)
        if self.on_stored is not None:
            self.on_stored(layer)
        if len(self.spans) == 1 and self.spans[0].is_whole_prompt:
            return _pad(self._whole_prompt(q, k, v), num_padding)
        out = torch.empty_like(q)  # (T, H, D)
        scaled = q * q.shape[-1] ** -0.5  # (T, H, D)
        row = 0
        for span in self.spans:
            end = row + span.count
            if span.is_whole_prompt:
                out[row:end] = self._whole_prompt(q[row:end], k[row:end], v[row:end])
            elif span.count == 1 and q.dtype == torch.float32:
                _one_token(scaled[row], *self.store.read(layer, span.slots), out[row])
            else:
                keys, values = self.store.read(layer, span.slots)  # (K, D, S), (K, S, D)
                out[row:end] = _later_chunk(q[row:end], keys, values, span.mask)
            row = end
        return _pad(out, num_padding)

    def _whole_prompt(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """A whole prompt's attention, in blocks where that is quicker."""
        length = len(q)
        if q.device.type != "cpu" or q.dtype != torch.float32 or length not in BLOCKED_LENGTHS:
            return _prompt(q, k, v)
        if length not in self.in_blocks:
            self.in_blocks[length] = PromptInBlocks(q, k.shape[1])
        return self.in_blocks[length](q, k, v)


def _pad(x: Tensor, num_rows: int) -> Tensor:
    return F.pad(x, (0, 0, 0, 0, 0, num_rows)) if num_rows else x  # (T + num_rows, H, D)


def _causal_mask(start: int, count: int, device: torch.device) -> Tensor:
    """Query i of a chunk that begins at `start` sees tokens 0 .. start + i."""
    past = torch.arange(start + count, device=device)  # (S,)
    own = torch.arange(start, start + count, device=device)  # (T,)
    return past[None, :] <= own[:, None]  # (T, S)


def _heads_first(x: Tensor) -> Tensor:
    return x.transpose(0, 1)[None]  # (1, heads, rows, D), a view


def _prompt(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A whole prompt: causal, over its own fresh rows."""
    out = F.scaled_dot_product_attention(
        _heads_first(q), _heads_first(k), _heads_first(v), is_causal=True, enable_gqa=True
    )  # (1, H, T, D)
    return out[0].transpose(0, 1)  # (T, H, D)


class PromptInBlocks:
    """The same as SDPA with `is_causal`, up to a third faster on a CPU at these lengths.

    Each block of rows multiplies with the keys up to its own end only, and the H/K query heads of
    a KV head lie under one another, so that the products are large enough to run at full speed.
    Made once per batch and called once per layer: what it writes lies in the same memory each
    time, which is still in the processor's cache. So a result is valid until the next call.
    """

    def __init__(self, q: Tensor, num_kv_heads: int) -> None:
        """For queries such as `q` (T, H, D), of which only shape, dtype and device matter."""
        num_tokens, num_heads, size = q.shape
        group = num_heads // num_kv_heads  # G
        self.queries = q.new_empty(num_kv_heads, num_tokens, group * size)  # (K, T, G D)
        self.keys = q.new_empty(num_kv_heads, num_tokens, size)  # (K, T, D)
        self.values = torch.empty_like(self.keys)  # (K, T, D)
        self.mixed = q.new_empty(num_tokens, num_kv_heads, group, size)  # (T, K, G, D)
        self.scores = q.new_empty(num_heads * BLOCK_ROWS * num_tokens)  # (K rows G T,)
        self.out = q.new_empty(num_kv_heads, BLOCK_ROWS * group, size)  # (K, rows G, D)
        hidden = q.new_full((BLOCK_ROWS, BLOCK_ROWS), float("-inf")).triu_(1)  # later tokens
        self.hidden = hidden.repeat_interleave(group, 0)  # (rows G, rows)
        ends = range(BLOCK_ROWS, num_tokens + BLOCK_ROWS, BLOCK_ROWS)
        self.blocks = [self._block(end - BLOCK_ROWS, min(end, num_tokens)) for end in ends]

    def _block(self, start: int, end: int) -> tuple[Tensor, ...]:
        """Views of all that the rows from `start` to `end` take part in."""
        num_kv_heads, group, size = self.mixed.shape[1:]
        rows = self.queries.view(num_kv_heads, -1, size)[:, start * group : end * group]
        scores = self.scores[: rows[..., 0].numel() * end].view(*rows.shape[:2], end)
        own = scores[:, :, start:]  # (K, rows G, rows)
        hidden = self.hidden[: own.shape[1], : own.shape[2]]
        out = self.out[:, : rows.shape[1]]  # (K, rows G, D)
        by_token = out.view(num_kv_heads, -1, group, size).transpose(0, 1)  # (rows, K, G, D)
        keys, values = self.keys[:, :end].transpose(1, 2), self.values[:, :end]
        return rows, keys, scores, own, hidden, values, out, by_token, self.mixed[start:end]

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`q` (T, H, D), `k` and `v` (T, K, D) to (T, H, D)."""
        by_kv_head = q.view(len(q), len(self.keys), -1).transpose(0, 1)  # (K, T, G D)
        torch.mul(by_kv_head, q.shape[-1] ** -0.5, out=self.queries)
        self.keys.copy_(k.transpose(0, 1))
        self.values.copy_(v.transpose(0, 1))
        for rows, keys, scores, own, hidden, values, out, by_token, mixed in self.blocks:
            torch.bmm(rows, keys, out=scores)  # (K, rows G, end)
            own.add_(hidden)
            torch.bmm(torch.softmax(scores, -1, out=scores), values, out=out)  # (K, rows G, D)
            mixed.copy_(by_token)
        return self.mixed.view(q.shape)  # (T, H, D)


def _later_chunk(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    keys = keys.transpose(1, 2)[None]  # (1, K, S, D)
    out = F.scaled_dot_product_attention(
        _heads_first(q), keys, values[None], attn_mask=mask, enable_gqa=True
    )  # (1, H, T, D)
    return out[0].transpose(0, 1)  # (T, H, D)


def _one_token(q: Tensor, keys: Tensor, values: Tensor, out: Tensor) -> None:
    """Decode: attention in three lines, quicker here than SDPA, which is made for many queries.

    `q` (H, D) is scaled already. The H/K query heads that share a KV head become its H/K rows.
    `keys` is (K, D, S), `values` (K, S, D); the result goes into `out` (H, D).
    """
    grouped = q.view(len(keys), -1, q.shape[-1])  # (K, H/K, D)
    weights = torch.bmm(grouped, keys).softmax(-1)  # (K, H/K, S)
    torch.bmm(weights, values, out=out.view(grouped.shape))  # (K, H/K, D)
