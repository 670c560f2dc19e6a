"""Attention over the paged store, for a ragged batch of chunks.

Every path writes the chunk's keys and values into the store first, then lets each chunk's queries
see the sequence's tokens from 0 to their own. Three ways to compute the same thing:

- a whole prompt with nothing before it needs no store: causal SDPA over the fresh rows;
- any other chunk reads the store, in place where its blocks lie in one run, else by a gather;
- on CUDA in 16 bits, one kernel call reads the store through its block tables (`paged.py`).
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from minipd.cache.store import KVStore, slots_of
from minipd.engine.batch import Chunk


@dataclass(slots=True)
class Span:
    """Rows `[row, row + count)` of the batch, and the slots of their sequence up to their end."""

    row: int
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
        size, device = store.layout.block_size, store.device
        written: list[int] = []
        self.spans: list[Span] = []
        for chunk in chunks:
            slots = slots_of(chunk.block_ids, 0, chunk.stop, size)
            row, count = len(written), len(chunk.token_ids)
            written.extend(slots[chunk.start :])
            run = slots if isinstance(slots, range) else torch.tensor(slots, device=device)  # (S,)
            mask = _causal_mask(chunk.start, count, device) if chunk.start and count > 1 else None
            self.spans.append(Span(row, count, run, mask))
        self.num_rows = len(written)
        self.slots = torch.tensor(written, device=device)  # (T,)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`q` (T, H, D), `k` and `v` (T, K, D) to (T, H, D); rows past `num_rows` are padding."""
        real = self.num_rows
        self.store.write(layer, self.slots, k[:real], v[:real])
        out = torch.zeros_like(q) if len(q) > real else torch.empty_like(q)  # (T, H, D)
        for span in self.spans:
            rows = slice(span.row, span.row + span.count)
            if span.is_whole_prompt:
                out[rows] = _prompt(q[rows], k[rows], v[rows])
                continue
            keys, values = self.store.read(layer, span.slots)  # (S, K, D) each
            attend = _one_token if span.count == 1 else _later_chunk
            out[rows] = attend(q[rows], keys, values, span.mask)
        return out


def _causal_mask(start: int, count: int, device: torch.device) -> Tensor:
    """Query i of a chunk that begins at `start` sees tokens 0 .. start + i."""
    past = torch.arange(start + count, device=device)  # (S,)
    own = torch.arange(start, start + count, device=device)  # (T,)
    return past[None, :] <= own[:, None]  # (T, S)


def _heads_first(x: Tensor) -> Tensor:
    return x.transpose(0, 1)[None]  # (1, heads, rows, D), a view


def _prompt(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    out = F.scaled_dot_product_attention(
        _heads_first(q), _heads_first(k), _heads_first(v), is_causal=True, enable_gqa=True
    )  # (1, H, T, D)
    return out[0].transpose(0, 1)  # (T, H, D)


def _later_chunk(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    out = F.scaled_dot_product_attention(
        _heads_first(q), _heads_first(keys), _heads_first(values), attn_mask=mask, enable_gqa=True
    )  # (1, H, T, D)
    return out[0].transpose(0, 1)  # (T, H, D)


def _one_token(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Decode: the H/K query heads that share a KV head become its H/K query rows."""
    grouped = q.view(1, keys.shape[1], -1, q.shape[-1])  # (1, K, H/K, D)
    out = F.scaled_dot_product_attention(grouped, _heads_first(keys), _heads_first(values))
    return out.reshape(q.shape)  # (1, H, D)
