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
        size, device = store.layout.block_size, store.device
        written: list[int] = []
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
        self.slots = torch.tensor(written, device=device)  # (T,)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`q` (T, H, D), `k` and `v` (T, K, D) to (T, H, D); rows past `num_rows` are padding."""
        num_padding = len(q) - self.num_rows
        if num_padding:
            q, k, v = q[:-num_padding], k[:-num_padding], v[:-num_padding]
        self.store.write(layer, self.slots, k, v)
        mixed: list[Tensor] = []
        row = 0
        for span, queries in zip(self.spans, q.split([s.count for s in self.spans])):
            if span.is_whole_prompt:
                end = row + span.count
                mixed.append(_prompt(queries, k[row:end], v[row:end]))
            else:
                keys, values = self.store.read(layer, span.slots)  # (1, K, S, D) each
                attend = _one_token if span.count == 1 else _later_chunk
                mixed.append(attend(queries, keys, values, span.mask))
            row += span.count
        out = mixed[0] if len(mixed) == 1 else torch.cat(mixed)  # (T, H, D)
        return F.pad(out, (0, 0, 0, 0, 0, num_padding)) if num_padding else out


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
        _heads_first(q), keys, values, attn_mask=mask, enable_gqa=True
    )  # (1, H, T, D)
    return out[0].transpose(0, 1)  # (T, H, D)


def _one_token(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Decode: the H/K query heads that share a KV head become its H/K query rows."""
    grouped = q.view(1, keys.shape[1], -1, q.shape[-1])  # (1, K, H/K, D)
    out = F.scaled_dot_product_attention(grouped, keys, values)  # (1, K, H/K, D)
    return out.reshape(q.shape)  # (1, H, D)
