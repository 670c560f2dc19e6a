"""Links that write straight into the target's store: the sender does the copying itself.

`SharedMemory` joins processes on one machine through a mapped file. `SameProcess` joins threads:
on one device, or on two that can reach each other's memory (peer copy); on CUDA the copies run on
a stream of their own, so that they overlap the prefill that is still running.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Items
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from minipd.cache.store import KVLayout, KVStore
from minipd.pools.links.base import Digests, copy_blocks


class DirectTransfer:
    """Copies at once; on a CPU the bytes are there when `write` returns."""

    def __init__(self, source: KVStore, target: KVStore, stream: Any) -> None:
        self.source, self.target, self.stream = source, target, stream
        self.num_bytes = 0
        self.busy_s = 0.0
        self._digests = Digests(source)
        self._device = torch.get_device_module(source.device)
        self._copied: Any = None

    def write(self, layer: int, blocks: Items[int], into: Items[int]) -> None:
        began = time.perf_counter()
        self.stream.wait_stream(self._device.current_stream())  # the layer's KV is written by then
        with self._device.stream(self.stream):
            copy_blocks(layer, self.source, blocks, self.target, into)
            self._digests.add(layer, blocks)
            self._copied = self._device.Event()
            self._copied.record(self.stream)
        self.num_bytes += 2 * len(blocks) * self.source.layout.block_bytes
        self.busy_s += time.perf_counter() - began

    def poll(self) -> bool:
        if self._copied is not None:
            self._copied.synchronize()
        return True

    def digests(self) -> tuple[int, ...]:
        return self._digests.result()


class DirectWriter:
    """A target store that this process can address."""

    def __init__(self, source: KVStore, target: KVStore) -> None:
        self.source, self.target = source, target
        self._stream = torch.get_device_module(source.device).Stream()

    def begin(self) -> DirectTransfer:
        return DirectTransfer(self.source, self.target, self._stream)

    def close(self) -> None:
        del self.target


class SameProcess:
    """Workers are threads of one process; the target's store is simply at hand."""

    def __init__(self) -> None:
        self.stores: dict[str, KVStore] = {}

    def make_store(self, layout: KVLayout, device: torch.device, name: str) -> KVStore:
        self.stores[name] = KVStore(layout, device)
        return self.stores[name]

    def expose(self, store: KVStore) -> Any:
        return next(name for name, known in self.stores.items() if known is store)

    def connect(self, source: KVStore, registration: Any) -> DirectWriter:
        return DirectWriter(source, self.stores[registration])

    def close(self) -> None:
        self.stores.clear()


@dataclass(frozen=True, slots=True)
class MappedFile:
    """Where a store lies: a file that every worker of the cluster maps."""

    path: str
    layout: KVLayout


class SharedMemory:
    """Workers are processes on one machine; each CPU store lies in a file in `folder`."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._mine: MappedFile | None = None

    def make_store(self, layout: KVLayout, device: torch.device, name: str) -> KVStore:
        self._mine = MappedFile(str(Path(self.folder) / f"{name}.kv"), layout)
        return _map(self._mine)

    def expose(self, store: KVStore) -> MappedFile:
        assert self._mine is not None, "make the store before exposing it"
        return self._mine

    def connect(self, source: KVStore, registration: Any) -> DirectWriter:
        return DirectWriter(source, _map(registration))

    def close(self) -> None:
        if self._mine is not None:
            Path(self._mine.path).unlink(missing_ok=True)


def _map(file: MappedFile) -> KVStore:
    numel = file.layout.total_bytes // file.layout.dtype.itemsize
    flat = torch.from_file(file.path, shared=True, size=numel, dtype=file.layout.dtype)
    return KVStore(file.layout, buffer=flat.view(file.layout.shape))  # (L, 2, N, P, K, D)
