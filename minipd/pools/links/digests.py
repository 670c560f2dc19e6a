"""Digests of KV in transit: taken by the sender of what it sent, by the receiver of what it found.

On a CPU this is XXH3 (xxhash.com), which keeps up with memory. On other devices it is a sum of all
words times an odd weight of their position, modulo 2**64, taken there, so that no KV comes to the
host: an odd weight loses no bit of its word, and the weights of two places have nothing to do with
each other, so that exchanged blocks show. Neither is meant to stop a forger.
"""

from __future__ import annotations

from collections.abc import Sequence as Items

import torch
import xxhash
from torch import Tensor

from minipd.cache.store import KVStore
from minipd.pools.links.base import BOTH, as_bytes

WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Digests:
    """Of one hand-off: keys and values of each layer, in token order."""

    def __init__(self, store: KVStore) -> None:
        self._inner = Hashes(store) if store.device.type == "cpu" else WeightedSums(store)
        self.steps = self._inner.steps

    def add(self, layer: int, blocks: Items[int], parts: tuple[int, ...] = BOTH) -> None:
        """Take in the next blocks of one layer as they stand in the store; does not wait.

        `parts` is both keys (0) and values (1), or one of `steps`, each of them in its turn.
        """
        self._inner.add(layer, blocks, parts)

    def result(self) -> tuple[int, ...]:
        """One digest of the keys and one of the values per layer: 2 L numbers below 2**64."""
        return self._inner.result()


class Hashes:
    steps = ((0,), (1,))  # one tensor at a time: it is still in the core's cache from the copy

    def __init__(self, store: KVStore) -> None:
        self.store = store
        self._hashers = [xxhash.xxh3_64() for _ in range(2 * store.layout.num_layers)]

    def add(self, layer: int, blocks: Items[int], parts: tuple[int, ...] = BOTH) -> None:
        for part in parts:
            hasher = self._hashers[2 * layer + part]
            stored = as_bytes(self.store.buffer[layer, part])  # (N, P, K, D bytes)
            for run in runs(blocks):
                hasher.update(stored[run])

    def result(self) -> tuple[int, ...]:
        return tuple(hasher.intdigest() for hasher in self._hashers)


class WeightedSums:
    """A few kernels per layer and run; what they sum stays on the device until `result`."""

    steps = (BOTH,)  # together, for fewer kernels

    def __init__(self, store: KVStore) -> None:
        self.store = store
        layers = store.layout.num_layers
        self._sums = torch.zeros((layers, 2), dtype=torch.int64, device=store.device)  # (L, 2)
        self._num_words = [0] * layers
        self._weights = torch.empty(0, dtype=torch.int64, device=store.device)

    def add(self, layer: int, blocks: Items[int], parts: tuple[int, ...] = BOTH) -> None:
        assert parts == BOTH, "keys and values are summed together"
        pairs = self.store.buffer[layer].view(WORDS[self.store.layout.dtype.itemsize])
        for run in runs(blocks):
            words = pairs[:, run].flatten(1)  # (2, words): keys, values
            weights = self._next_weights(layer, words.shape[1])  # (words,)
            self._sums[layer] += (words * weights).sum(1)  # (2,)

    def _next_weights(self, layer: int, count: int) -> Tensor:
        """The weights that follow those which this layer has used."""
        start = self._num_words[layer]
        self._num_words[layer] = stop = start + count
        if len(self._weights) < stop:
            self._weights = position_weights(stop, self.store.device)  # (stop,)
        return self._weights[start:stop]

    def result(self) -> tuple[int, ...]:
        return tuple(total % 2**64 for total in self._sums.flatten().tolist())


def position_weights(count: int, device: torch.device) -> Tensor:
    """`count` fixed, scattered odd numbers (multiply and shift, as SplitMix64 does)."""
    mixed = torch.arange(1, count + 1, device=device) * -0x61C8864680B583EB
    mixed = (mixed ^ (mixed >> 30)) * -0x40A7B892E31B1A47
    return (mixed ^ (mixed >> 27)) | 1  # (count,)


def runs(blocks: Items[int]) -> list[slice]:
    """Block ids as few slices as possible: [4, 5, 6, 9] becomes 4:7 and 9:10."""
    found: list[slice] = []
    for block in blocks:
        if found and found[-1].stop == block:
            found[-1] = slice(found[-1].start, block + 1)
        else:
            found.append(slice(block, block + 1))
    return found
