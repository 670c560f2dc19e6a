"""Which link joins which workers."""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import Literal

from minipd.pools.links.base import Link, LinkError
from minipd.pools.links.cuda_ipc import CudaIpc
from minipd.pools.links.direct import SameProcess, SharedMemory
from minipd.pools.links.nixl import Nixl

LinkKind = Literal["direct", "nixl"]


def choose_link(kind: LinkKind, devices: Items[str], folder: str, *, in_one_process: bool) -> Link:
    """A worker's own end of the link; `folder` holds the stores that are shared as files.

    `direct` is what the workers' places allow: a copy or peer copy between threads, a shared
    mapping between processes on a CPU, CUDA IPC between processes on GPUs.
    """
    types = sorted({name.split(":")[0] for name in devices})
    if len(types) > 1:
        raise LinkError(
            f"KV travels between devices of one kind, but the workers have {' and '.join(types)}."
        )
    if kind == "nixl":
        if in_one_process:
            raise LinkError("NIXL joins processes; use pool='processes', or link='direct'.")
        return Nixl()
    if in_one_process:
        return SameProcess()
    return SharedMemory(folder) if types == ["cpu"] else CudaIpc()
