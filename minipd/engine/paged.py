"""Attention on CUDA in 16 bits: one kernel call reads the store through its block tables.

`torch.nn.attention.varlen.varlen_attn` differs between torch versions, devices and page sizes, so
nothing here is assumed: `paged_attention_works` makes one trial call on the device and compares it
with the gather path. Where it fails, the engine gathers.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items

import torch
from torch import Tensor

from minipd.cache.store import KVLayout, KVStore, slots_of
from minipd.engine.attention import GatherAttention
from minipd.engine.batch import Chunk

TRIAL_TOLERANCE = 2e-2  # 16-bit rounding of attention outputs of size about 1


class PagedInputs:
    """The index tensors of one batch: which rows, which pages, how many tokens of each sequence."""

    def __init__(self, store: KVStore, chunks: Items[Chunk], max_blocks: int | None = None) -> None:
        size, device = store.layout.block_size, store.device
        counts = [len(c.token_ids) for c in chunks]
        width = max_blocks or max(len(c.block_ids) for c in chunks)
        tables = [(c.block_ids + [0] * width)[:width] for c in chunks]
        written = [int(s) for c in chunks for s in slots_of(c.block_ids, c.start, c.stop, size)]
        ends = [0, *torch.tensor(counts).cumsum(0).tolist()]
        self.slots = torch.tensor(written, device=device)  # (T,) int64
        self.row_ends = torch.tensor(ends, dtype=torch.int32, device=device)  # (B + 1,)
        self.lengths = torch.tensor([c.stop for c in chunks], dtype=torch.int32, device=device)
        self.tables = torch.tensor(tables, dtype=torch.int32, device=device)  # (B, blocks)
        self.max_rows = max(counts)
        self.max_length = max(c.stop for c in chunks)
        self.num_rows = len(written)

    def fill(self, other: PagedInputs) -> None:
        """Copy another batch of the same shape into these tensors, which keep their addresses."""
        for name in ("slots", "row_ends", "lengths", "tables"):
            getattr(self, name).copy_(getattr(other, name))


class PagedAttention:
    """The `attend` of one batch. `num_splits=1` makes a sequence's sums independent of others."""

    def __init__(self, store: KVStore, inputs: PagedInputs, *, deterministic: bool = False) -> None:
        self.store = store
        self.inputs = inputs
        self.on_stored: Callable[[int], None] | None = None  # told of each layer as it is stored
        self.num_splits = 1 if deterministic else None

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`q` (T, H, D), `k` and `v` (T, K, D) to (T, H, D); rows past `num_rows` are padding."""
        from torch.nn.attention.varlen import varlen_attn

        at, real = self.inputs, self.inputs.num_rows
        self.store.write(layer, at.slots, k[:real], v[:real])
        if self.on_stored is not None:
            self.on_stored(layer)
        mixed = varlen_attn(
            q[:real],
            self.store.keys[layer],
            self.store.values[layer],
            at.row_ends,
            None,
            at.max_rows,
            at.max_length,
            window_size=(-1, 0),  # causal: a row sees the tokens up to its own
            enable_gqa=True,
            seqused_k=at.lengths,
            block_table=at.tables,
            num_splits=self.num_splits,
        )
        assert isinstance(mixed, Tensor), "varlen_attn was not asked for anything but the output"
        return mixed if len(q) == real else torch.cat((mixed, torch.zeros_like(q[real:])))


def why_not_paged(layout: KVLayout, num_heads: int, device: torch.device) -> str | None:
    """None where paged attention runs on `device` and agrees with the gather path, else why not."""
    if device.type != "cuda" or layout.dtype not in (torch.float16, torch.bfloat16):
        return "paged attention needs CUDA and a 16-bit dtype"
    try:
        error = _trial_error(layout, num_heads, device)
    except Exception as failure:  # whatever a version raises, the gather path remains
        return f"varlen_attn refused a trial call ({type(failure).__name__}: {failure})"
    return None if error < TRIAL_TOLERANCE else f"varlen_attn is off by {error:.3g} in a trial call"


@torch.inference_mode()
def _trial_error(layout: KVLayout, num_heads: int, device: torch.device) -> float:
    """Largest difference between both paths on a prompt, a later chunk and a decode together."""
    small = KVLayout(1, 8, layout.block_size, layout.num_kv_heads, layout.head_dim, layout.dtype)
    size = small.block_size
    chunks = [
        Chunk("prompt", [0] * (size + 3), 0, [5, 2], None),
        Chunk("later", [0] * 5, size - 2, [0, 7], None),
        Chunk("decode", [0], size + 1, [3, 6], None),
    ]
    generator = torch.Generator(device="cpu").manual_seed(0)
    rows = sum(len(c.token_ids) for c in chunks)
    heads = num_heads + 2 * small.num_kv_heads
    qkv = torch.randn(rows, heads, small.head_dim, generator=generator).to(device, small.dtype)
    q, k, v = qkv.split((num_heads, small.num_kv_heads, small.num_kv_heads), dim=1)
    past = torch.randn(small.shape, generator=generator).to(device, small.dtype)
    stores = [KVStore(small, device, past.clone()) for _ in range(2)]
    paged = PagedAttention(stores[0], PagedInputs(stores[0], chunks))(0, q, k, v)
    gathered = GatherAttention(stores[1], chunks)(0, q, k, v)
    return float((paged.float() - gathered.float()).abs().max().item())
