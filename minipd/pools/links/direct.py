"""Links that write straight into the target's store: the sender does the copying itself.

`SharedMemory` joins processes on one machine through a mapped file. `SameProcess` joins threads:
on one device, or on two that can reach each other's memory (peer copy); on CUDA the copies run on
a stream of their own, so that they overlap the prefill that is still running.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence as Items
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from minipd.cache.store import KVLayout, KVStore
from minipd.pools.links.base import copy_blocks
from minipd.pools.links.digests import Digests
from minipd.pools.streams import CopyStream, is_done

PAGE_BYTES = 4096


class DirectTransfer:
    """Copies at once; on a CPU the bytes are there when `write` returns.

    On a GPU it is done when the event behind the last copy is. The receiver's reads are ordered by
    that alone: it starts them after a message that was sent after the event was seen to be done.
    """

    def __init__(self, source: KVStore, target: KVStore, copies: CopyStream) -> None:
        self.source, self.target, self.copies = source, target, copies
        self.num_bytes = 0
        self.busy_s = 0.0
        self._digests = Digests(source)
        self._copied: Any = None

    def write(self, layer: int, blocks: Items[int], into: Items[int]) -> None:
        began = time.perf_counter()
        with self.copies.behind_compute():
            for parts in self._digests.steps:
                copy_blocks(layer, self.source, blocks, self.target, into, parts)
                self._digests.add(layer, blocks, parts)
        self._copied = self.copies.mark()
        self.num_bytes += 2 * len(blocks) * self.source.layout.block_bytes
        self.busy_s += time.perf_counter() - began

    def poll(self) -> bool:
        return self._copied is None or is_done(self._copied)

    def digests(self) -> tuple[int, ...]:
        return self._digests.result()


class DirectWriter:
    """A target store that this process can address."""

    def __init__(self, source: KVStore, target: KVStore) -> None:
        self.source = source
        self._target: KVStore | None = target
        self._copies = CopyStream(source.device)

    def begin(self) -> DirectTransfer:
        assert self._target is not None, "this writer is closed"
        return DirectTransfer(self.source, self._target, self._copies)

    def close(self) -> None:
        """Transfers under way keep the target's memory until they are forgotten."""
        self._target = None


class SameProcess:
    """Workers are threads of one process; the target's store is simply at hand."""

    def make_store(self, layout: KVLayout, device: torch.device, name: str) -> KVStore:
        return KVStore(layout, device)

    def expose(self, store: KVStore) -> KVStore:
        return store

    def connect(self, source: KVStore, registration: Any) -> DirectWriter:
        return DirectWriter(source, registration)

    def progress(self) -> None:
        pass

    def close(self) -> None:
        pass


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
        assert device.type == "cpu", f"a mapped file cannot hold a store on {device}"
        Path(self.folder).mkdir(mode=0o700, exist_ok=True)
        self._mine = MappedFile(str(Path(self.folder) / f"{name}.kv"), layout)
        with Path(self._mine.path).open("wb") as file:
            if hasattr(os, "posix_fallocate"):  # fail now, not with a signal at the first write
                os.posix_fallocate(file.fileno(), 0, layout.total_bytes)
        return _map(self._mine)

    def expose(self, store: KVStore) -> MappedFile:
        assert self._mine is not None, "make the store before exposing it"
        return self._mine

    def connect(self, source: KVStore, registration: Any) -> DirectWriter:
        """Its pages are touched here: the first hand-off would pay a page fault for each."""
        target = _map(registration)
        target.buffer.view(-1)[:: PAGE_BYTES // target.layout.dtype.itemsize].sum()
        return DirectWriter(source, target)

    def progress(self) -> None:
        pass

    def close(self) -> None:
        """On Windows the file stays until the last worker that maps it has gone."""
        with contextlib.suppress(OSError):
            if self._mine is not None:
                Path(self._mine.path).unlink(missing_ok=True)
            Path(self.folder).rmdir()  # by the last one out, if the coordinator was killed


def _map(file: MappedFile) -> KVStore:
    numel = file.layout.total_bytes // file.layout.dtype.itemsize
    flat = torch.from_file(file.path, shared=True, size=numel, dtype=file.layout.dtype)
    return KVStore(file.layout, buffer=flat.view(file.layout.shape))  # (L, 2, N, P, K, D)
