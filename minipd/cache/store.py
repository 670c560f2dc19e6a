"""The tensors of the KV cache: per layer, keys (N, P, K, D) and values of the same shape.

The store knows blocks and layers, nothing about sequences. All layers lie in one buffer, so that a
pool can register it once with a link; the buffer may be given from outside (a shared mapping).
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil
import torch
from torch import Tensor

from minipd.cache.sizes import CacheSizeError, check_sizes
from minipd.model.config import ModelConfig
from minipd.request import is_whole_number, shown

RESERVE_BYTES = 1 << 30  # left to activations, the tokenizer and the rest of the machine
RESERVE_SHARE = 0.1


class CacheTooSmallError(RuntimeError):
    """No KV cache of a useful size fits; the message says how much memory is missing."""


@dataclass(frozen=True, slots=True)
class KVLayout:
    """Everything two workers must agree on before KV may travel between them."""

    num_layers: int
    num_blocks: int
    block_size: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype

    def __post_init__(self) -> None:
        check_sizes(self.num_blocks, self.block_size)

    @classmethod
    def of(
        cls, config: ModelConfig, num_blocks: int, block_size: int, dtype: torch.dtype
    ) -> KVLayout:
        return cls(
            config.num_layers, num_blocks, block_size, config.num_kv_heads, config.head_dim, dtype
        )

    @property
    def block_bytes(self) -> int:
        """One block's keys (or values) in one layer: the unit that a link writes."""
        return self.block_size * self.num_kv_heads * self.head_dim * self.dtype.itemsize

    @property
    def total_bytes(self) -> int:
        return 2 * self.num_layers * self.num_blocks * self.block_bytes

    @property
    def shape(self) -> tuple[int, ...]:
        return (
            self.num_layers,
            2,
            self.num_blocks,
            self.block_size,
            self.num_kv_heads,
            self.head_dim,
        )


class KVStore:
    """Reads and writes rows by slot: `slot = block_id * block_size + offset`."""

    def __init__(
        self, layout: KVLayout, device: torch.device | str = "cpu", buffer: Tensor | None = None
    ) -> None:
        self.layout = layout
        if buffer is None:
            require_room(layout, device)
            buffer = torch.zeros(layout.shape, dtype=layout.dtype, device=device)
        assert buffer.shape == layout.shape, f"a store needs {layout.shape}, got {buffer.shape}"
        self.buffer = buffer  # (L, 2, N, P, K, D)
        self.keys = [layer[0] for layer in buffer]  # L x (N, P, K, D)
        self.values = [layer[1] for layer in buffer]  # L x (N, P, K, D)
        # Views made once: a decode step reads them for every sequence of every layer.
        self._key_rows = [keys.flatten(0, 1) for keys in self.keys]  # L x (N P, K, D)
        self._value_rows = [values.flatten(0, 1) for values in self.values]  # L x (N P, K, D)
        self._key_columns = [rows.permute(1, 2, 0) for rows in self._key_rows]  # L x (K, D, N P)
        self._value_heads = [rows.transpose(0, 1) for rows in self._value_rows]  # L x (K, N P, D)

    @property
    def device(self) -> torch.device:
        return self.buffer.device

    def write(self, layer: int, slots: range | Tensor, k: Tensor, v: Tensor) -> None:
        """Put rows `k` and `v` (T, K, D) at `slots`: a range of them, or (T,) int64."""
        for rows, new in ((self._key_rows[layer], k), (self._value_rows[layer], v)):
            if isinstance(slots, range):
                rows.narrow(0, slots.start, len(slots)).copy_(new)
            else:
                rows.index_copy_(0, slots, new)

    def read(self, layer: int, run: range | Tensor) -> tuple[Tensor, Tensor]:
        """A sequence's keys as columns (K, D, S) and its values (K, S, D): views for a `range` of
        slots, else gathered copies."""
        if isinstance(run, range):
            keys, values = self._key_columns[layer], self._value_heads[layer]
            return keys.narrow(2, run.start, len(run)), values.narrow(1, run.start, len(run))
        rows = self._key_rows[layer].index_select(0, run)  # (S, K, D)
        value_rows = self._value_rows[layer].index_select(0, run)  # (S, K, D)
        return rows.permute(1, 2, 0), value_rows.transpose(0, 1)


def slots_of(block_ids: list[int], start: int, stop: int, block_size: int) -> range | Tensor:
    """Slots of tokens `[start, stop)`: a `range` where the blocks lie in one run, else int64."""
    first, last = start // block_size, (stop - 1) // block_size
    ids = block_ids[first : last + 1]
    skipped = start - first * block_size
    if ids[-1] - ids[0] == last - first and all(b - a == 1 for a, b in zip(ids, ids[1:])):
        begin = ids[0] * block_size + skipped
        return range(begin, begin + stop - start)
    slots = torch.tensor(ids)[:, None] * block_size + torch.arange(block_size)  # (blocks, P)
    return slots.flatten()[skipped : skipped + stop - start]  # (stop - start,)


def free_bytes(device: torch.device | str) -> int:
    """Memory that could still be taken on `device`, bytes."""
    device = torch.device(device)
    if device.type == "cpu":
        return psutil.virtual_memory().available
    module = torch.get_device_module(device)
    kept_by_torch = module.memory_reserved(device) - module.memory_allocated(device)
    return module.mem_get_info(device)[0] + kept_by_torch


def require_room(layout: KVLayout, device: torch.device | str) -> None:
    """Refuse a cache that the device cannot hold, before anything is allocated for it."""
    free = free_bytes(device)
    if layout.total_bytes > free:
        raise CacheTooSmallError(
            f"A KV cache of {shown(layout.num_blocks)} blocks of {shown(layout.block_size)} tokens "
            f"needs {shown(layout.total_bytes >> 20)} MiB and {free >> 20} MiB are free: ask for "
            "fewer or smaller blocks."
        )


def fit_num_blocks(
    config: ModelConfig,
    block_size: int,
    dtype: torch.dtype,
    free: int,
    max_tokens: int,
) -> int:
    """Blocks that fit in `free` bytes after the reserve (1 GiB and a tenth), at most `max_tokens`.

    Raises `CacheTooSmallError` when not even one full context fits beside the reserve, unless
    `max_tokens` asks for less.
    """
    if not all(is_whole_number(size) and size >= 1 for size in (block_size, max_tokens)):
        sizes = f"{shown(max_tokens)} tokens in blocks of {shown(block_size)}"
        raise CacheSizeError(f"A KV cache of {sizes} is none: give two whole numbers from 1.")
    per_block = config.kv_bytes_per_token(dtype.itemsize) * block_size
    usable = int(free - RESERVE_BYTES - RESERVE_SHARE * free)
    wanted = -(-max_tokens // block_size)
    least = min(wanted, -(-config.max_context // block_size))
    if usable < least * per_block:
        needed, missing = least * per_block >> 20, least * per_block - usable >> 20
        raise CacheTooSmallError(
            f"A KV cache of {shown(least * block_size)} tokens needs {shown(needed)} MiB and "
            f"{shown(missing)} MiB are missing after the reserve; free some memory, use a 16-bit "
            "dtype, or set num_kv_blocks yourself."
        )
    return min(wanted, usable // per_block)
