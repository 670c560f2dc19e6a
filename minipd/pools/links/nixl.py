"""NIXL, the transfer library of Dynamo, vLLM and SGLang: one-sided writes between processes.

It registers a store once, tells others how to reach it in a few hundred bytes, and then writes into
it over whatever the machines share: RDMA, NVLink, TCP, or, on one machine without any of these, the
kernel's copy between processes. https://github.com/ai-dynamo/nixl; an optional package for Linux.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import time
from collections import deque
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Any

import torch

from minipd.cache.store import KVLayout, KVStore
from minipd.pools.links.base import LinkError, StuckError, paired_runs
from minipd.pools.links.digests import Digests
from minipd.pools.streams import CopyStream, is_done

PACKAGES = ("nixl_cu12", "nixl_cu13")  # the same library, built for two versions of CUDA
STALL_S = 10.0  # without any progress for so long, a target counts as lost


@dataclass(frozen=True, slots=True)
class Region:
    """Where a store lies in its process, and its agent's own words on how to reach it."""

    layout: KVLayout
    address: int
    device_index: int
    agent: bytes

    @property
    def memory(self) -> str:
        return "DRAM" if self.device_index < 0 else "VRAM"

    def pieces(self, layer: int, blocks: slice) -> list[tuple[int, int, int]]:
        """(address, bytes, device) of the keys and of the values of a run of blocks."""
        shape, block = self.layout, self.layout.block_bytes
        size = (blocks.stop - blocks.start) * block
        starts = [(2 * layer + part) * shape.num_blocks + blocks.start for part in (0, 1)]
        return [(self.address + s * block, size, max(0, self.device_index)) for s in starts]


class Nixl:
    """Each worker is a NIXL agent. Without a thread of its own: `progress` answers connections."""

    def __init__(self) -> None:
        package()
        self._agent: Any = None
        self._registered: Any = None
        self._region: Region | None = None
        self._writers: list[NixlWriter] = []

    def make_store(self, layout: KVLayout, device: torch.device, name: str) -> KVStore:
        os.environ.setdefault("NIXL_LOG_LEVEL", "ERROR")
        api: Any = importlib.import_module(f"{package()}._api")
        store = KVStore(layout, device)
        try:
            settings = api.nixl_agent_config(enable_prog_thread=False, backends=["UCX"])
            self._agent = api.nixl_agent(name, settings)
            self._registered = self._agent.register_memory([store.buffer])
            words = self._agent.get_agent_metadata()
        except Exception as failure:  # its exceptions have no common base but this
            raise LinkError(f"NIXL could not take the KV store of {name} ({failure}).") from failure
        self._region = Region(layout, store.buffer.data_ptr(), store.buffer.get_device(), words)
        return store

    def expose(self, store: KVStore) -> Region:
        assert self._region is not None, "make the store before exposing it"
        return self._region

    def connect(self, source: KVStore, registration: Any) -> NixlWriter:
        assert self._region is not None, "make the store before connecting it"
        writer = NixlWriter(self._agent, source, self._region, registration)
        self._writers = [w for w in self._writers if w.is_open] + [writer]
        return writer

    def progress(self) -> None:
        if self._agent is not None:
            self._agent.get_new_notifs()  # nobody sends any: this lets it answer its peers

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
        if self._agent is not None:
            self._agent.deregister_memory(self._registered)
        self._agent = self._registered = None


class NixlWriter:
    """A target's agent, known to ours."""

    def __init__(self, agent: Any, source: KVStore, here: Region, there: Region) -> None:
        self.agent, self.source, self.here, self.there = agent, source, here, there
        self.is_open = True
        self.copies = CopyStream(source.device)
        try:
            self.peer: str = agent.add_remote_agent(there.agent)
            agent.make_connection(self.peer)
        except Exception as failure:
            raise LinkError(f"NIXL cannot reach the target ({failure}).") from failure

    def begin(self) -> NixlTransfer:
        return NixlTransfer(self)

    def close(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        with contextlib.suppress(Exception):  # the peer may be gone, and the connection with it
            self.agent.remove_remote_agent(self.peer)


class NixlTransfer:
    """A few requests, one per layer, each a list of runs of blocks."""

    def __init__(self, writer: NixlWriter) -> None:
        self.writer = writer
        self.num_bytes = 0
        self.busy_s = 0.0
        self._digests = Digests(writer.source)
        self._computed: deque[tuple[Any, list[Any]]] = deque()  # event, descriptors: not posted yet
        self._posted: list[Any] = []
        self._failure: str | None = None
        self._moved_s = time.monotonic()

    def write(self, layer: int, blocks: Items[int], into: Items[int]) -> None:
        began = time.perf_counter()
        pairs = list(paired_runs(blocks, into))
        writer = self.writer
        ours = [piece for src, _ in pairs for piece in writer.here.pieces(layer, src)]
        theirs = [piece for _, dst in pairs for piece in writer.there.pieces(layer, dst)]
        with writer.copies.behind_compute():
            self._digests.add(layer, blocks)
        self._computed.append((writer.copies.mark(), [ours, theirs]))
        self.num_bytes += 2 * len(blocks) * writer.source.layout.block_bytes
        self._post_computed()
        self.busy_s += time.perf_counter() - began

    def poll(self) -> bool:
        began = time.perf_counter()
        try:
            self._post_computed()
            self._posted = [handle for handle in self._posted if not self._has_arrived(handle)]
            if self._failure is None and (self._posted or self._computed):
                self._check_moving()
            if self._failure is not None:
                self._abandon()
                raise LinkError(f"NIXL lost the hand-off: {self._failure}.")
        finally:
            self.busy_s += time.perf_counter() - began
        return not self._posted and not self._computed

    def digests(self) -> tuple[int, ...]:
        return self._digests.result()

    def _post_computed(self) -> None:
        """Give NIXL what the device has finished: it knows nothing of streams."""
        while self._failure is None and self._computed and is_done(self._computed[0][0]):
            _, (ours, theirs) = self._computed.popleft()
            self._post(ours, theirs)
            self._moved_s = time.monotonic()

    def _post(self, ours: list[Any], theirs: list[Any]) -> None:
        writer = self.writer
        if not writer.is_open:
            self._failure = "the target has been given up"
            return
        try:
            src = writer.agent.get_xfer_descs(ours, writer.here.memory)
            dst = writer.agent.get_xfer_descs(theirs, writer.there.memory)
            handle = writer.agent.initialize_xfer("WRITE", src, dst, writer.peer)
            self._posted.append(handle)
            if writer.agent.transfer(handle) == "ERR":
                self._failure = "a write was refused"
        except Exception as failure:  # the peer has gone
            self._failure = str(failure) or type(failure).__name__

    def _has_arrived(self, handle: Any) -> bool:
        """True once, when the write is complete at the target; its handle is released."""
        if self._failure is not None:
            return False
        try:
            state = self.writer.agent.check_xfer_state(handle)
            if state == "DONE":
                handle.release()
                self._moved_s = time.monotonic()
        except Exception as failure:
            state, self._failure = "ERR", str(failure) or type(failure).__name__
        if state == "ERR" and self._failure is None:
            self._failure = "a write failed"
        return state == "DONE"

    def _check_moving(self) -> None:
        if not self.writer.is_open:
            self._failure = "the target has been given up"
        elif time.monotonic() - self._moved_s > STALL_S:
            self._failure = f"nothing has moved for {STALL_S:.0f} s"
            if not self._abandon():  # the target lives, and will give these blocks to others
                raise StuckError(f"NIXL cannot take back a write, and {self._failure}")

    def _abandon(self) -> bool:
        """Let go of all that is under way; True when nothing of it can arrive any more."""
        posted, self._posted, self._computed = self._posted, [], deque()
        for handle in posted:
            try:
                handle.release()
            except Exception:  # not to be cancelled: kept until the agent goes
                self._posted.append(handle)
        return not self._posted


def package() -> str:
    """The installed build of NIXL that fits torch; raises `LinkError` where there is none."""
    cuda = str(torch.version.cuda or "")
    wanted = [name for name in PACKAGES if not cuda or name.endswith(cuda.split(".")[0])]
    for name in wanted:
        if importlib.util.find_spec(name) is not None:
            return name
    best = (wanted or list(PACKAGES))[0].replace("_", "-")
    raise LinkError(
        f"The NIXL link needs the package {best}, which exists for Linux: pip install {best}, "
        "or use another link."
    )
