"""What every link does: put one worker's KV blocks into another worker's store, one-sided.

The receiving worker exposes its store once. A sending worker connects to it once and then writes
without asking: `begin` a hand-off, `write` layer after layer while later layers are still being
computed, and `poll` until every byte is there. Only then may the manifest be sent.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import Any, Protocol

import torch
import xxhash
from torch import Tensor

from minipd.cache.store import KVLayout, KVStore


class LinkError(RuntimeError):
    """A link that cannot be set up here; the message says what is missing."""


class Digests:
    """Running digests of a hand-off: keys and values of each layer, in token order.

    On a CPU this is XXH3 (xxhash.com), which keeps up with memory; on other devices a sum with
    position weights, taken there, so that the bytes need not come to the host.
    """

    def __init__(self, store: KVStore) -> None:
        self.store = store
        self._hashers = [xxhash.xxh3_64() for _ in range(2 * store.layout.num_layers)]

    def add(self, layer: int, blocks: Items[int]) -> None:
        """Take in the next blocks of one layer as they stand in the store."""
        for hasher, rows in zip(
            self._hashers[2 * layer : 2 * layer + 2],
            (self.store.keys[layer], self.store.values[layer]),
            strict=True,
        ):
            for run in runs(blocks):
                hasher.update(_bytes_of(rows[run]))

    def result(self) -> tuple[int, ...]:
        return tuple(hasher.intdigest() for hasher in self._hashers)


def _bytes_of(rows: Tensor) -> memoryview:
    if rows.device.type == "cpu":
        return memoryview(rows.view(torch.uint8).numpy()).cast("B")
    words = rows.contiguous().view(torch.int16).flatten().to(torch.int64)
    weights = torch.arange(1, 2 * len(words), 2, device=rows.device)  # odd: no bit is lost
    return memoryview((words * weights).sum().cpu().view(torch.uint8).numpy())


def runs(blocks: Items[int]) -> list[slice]:
    """Block ids as few slices as possible: [4, 5, 6, 9] becomes 4:7 and 9:10."""
    found: list[slice] = []
    for block in blocks:
        if found and found[-1].stop == block:
            found[-1] = slice(found[-1].start, block + 1)
        else:
            found.append(slice(block, block + 1))
    return found


def copy_blocks(
    layer: int, source: KVStore, blocks: Items[int], target: KVStore, into: Items[int]
) -> None:
    """Copy blocks of one layer, keys and values; runs on both sides become one copy each."""
    at = 0
    while at < len(blocks):
        count = 1
        while (
            at + count < len(blocks)
            and blocks[at + count] == blocks[at] + count
            and into[at + count] == into[at] + count
        ):
            count += 1
        src, dst = slice(blocks[at], blocks[at] + count), slice(into[at], into[at] + count)
        target.keys[layer][dst].copy_(source.keys[layer][src], non_blocking=True)
        target.values[layer][dst].copy_(source.values[layer][src], non_blocking=True)
        at += count


class Transfer(Protocol):
    """One hand-off under way."""

    num_bytes: int
    busy_s: float  # time the sending worker itself spent on it

    def write(self, layer: int, blocks: Items[int], into: Items[int]) -> None:
        """Send these blocks of `layer`; their KV is final. May return before they have arrived."""
        ...

    def poll(self) -> bool:
        """Is everything written so far in the target's store?"""
        ...

    def digests(self) -> tuple[int, ...]:
        """Digests of what was sent, taken from the source's bytes."""
        ...


class Writer(Protocol):
    """A connection to one target's store."""

    def begin(self) -> Transfer: ...

    def close(self) -> None: ...


class Link(Protocol):
    """How KV travels in one cluster; each worker has its own copy, made from the same settings."""

    def make_store(self, layout: KVLayout, device: torch.device, name: str) -> KVStore:
        """The worker's own store, placed where others can write to it."""
        ...

    def expose(self, store: KVStore) -> Any:
        """A small picklable value with which another worker can connect."""
        ...

    def connect(self, source: KVStore, registration: Any) -> Writer: ...

    def close(self) -> None: ...
