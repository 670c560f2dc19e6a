"""Two processes on one GPU (or on two with peer access): CUDA IPC.

The receiver's store is an ordinary allocation; torch describes it by a handle that another process
opens once and keeps. From then on it is a `DirectWriter`'s target like any other. CUDA orders
nothing between processes: the sender tells of a hand-off only after the event behind its last copy
is done, and the receiver reads only after it was told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import rebuild_cuda_tensor, reduce_tensor

from minipd.cache.store import KVLayout, KVStore
from minipd.pools.links.base import LinkError
from minipd.pools.links.direct import DirectWriter


@dataclass(frozen=True, slots=True)
class IpcHandle:
    """torch's own description of an allocation in another process, and what lies in it."""

    layout: KVLayout
    description: tuple[Any, ...]


class CudaIpc:
    """The exporter's store must live as long as anyone has it open: it is kept until `close`."""

    def __init__(self) -> None:
        self._mine: KVStore | None = None

    def make_store(self, layout: KVLayout, device: torch.device, name: str) -> KVStore:
        if device.type != "cuda":
            raise LinkError(f"CUDA IPC joins workers on GPUs, but {name} is on {device}.")
        self._mine = KVStore(layout, device)
        return self._mine

    def expose(self, store: KVStore) -> IpcHandle:
        _, description = reduce_tensor(store.buffer)
        return IpcHandle(store.layout, description)

    def connect(self, source: KVStore, registration: Any) -> DirectWriter:
        try:
            buffer = rebuild_cuda_tensor(*registration.description)  # (L, 2, N, P, K, D)
        except RuntimeError as refusal:
            raise LinkError(
                f"The target's memory could not be opened over CUDA IPC ({refusal}); run the "
                "workers as threads instead (pool='threads')."
            ) from refusal
        return DirectWriter(source, KVStore(registration.layout, buffer=buffer))

    def progress(self) -> None:
        pass

    def close(self) -> None:
        self._mine = None
