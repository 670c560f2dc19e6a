"""A slower network than this machine has: real bytes, delivered as late as a real one would.

Each write waits its turn on the wire, takes `bytes / bandwidth`, and is in the target's store only
`latency` after it has left: before that moment the bytes are truly not there. A thread of the
sending worker carries them, so the prefill that is still running is not held up.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Any

import torch

from minipd.cache.store import KVLayout, KVStore
from minipd.pools.links.base import Link, LinkError, Transfer, Writer


@dataclass(frozen=True, slots=True)
class Network:
    """Latency in seconds and bandwidth in bytes per second of one direction of one link."""

    latency_s: float
    bytes_per_s: float

    def __post_init__(self) -> None:
        if not (self.latency_s >= 0 and self.bytes_per_s > 0):
            raise LinkError("An emulated network needs a latency >= 0 and a bandwidth above 0.")


# Line rates of one port (GB/s = 1e9 bytes/s) and one-way latencies of the order that vendors state.
# They are round figures to teach with, to be replaced by a measurement of one's own network.
NETWORKS = {
    "nvlink4": Network(2e-6, 450e9),  # H100: 900 GB/s both ways (NVIDIA H100 datasheet)
    "ib400": Network(2e-6, 50e9),  # InfiniBand NDR, 400 Gbit/s
    "efa400": Network(15e-6, 50e9),  # AWS EFA, 400 Gbit/s per network card (p5 instances: 8)
    "roce100": Network(5e-6, 12.5e9),  # RDMA over Converged Ethernet, 100 Gbit/s
    "eth25": Network(30e-6, 3.125e9),  # Ethernet with TCP, 25 Gbit/s
    "eth10": Network(30e-6, 1.25e9),
    "eth1": Network(50e-6, 0.125e9),
}


def network(name: str) -> Network:
    """A named network, or "BYTES_PER_SECOND:LATENCY_SECONDS" such as "125e6:50e-6"."""
    if name in NETWORKS:
        return NETWORKS[name]
    try:
        bytes_per_s, _, latency_s = name.partition(":")
        return Network(float(latency_s or 0.0), float(bytes_per_s))
    except ValueError:
        raise LinkError(
            f"There is no network {name!r}; use one of {', '.join(NETWORKS)} or give "
            "BYTES_PER_SECOND:LATENCY_SECONDS, like 125e6:50e-6."
        ) from None


class EmulatedTransfer:
    """Queues each write for the wire and forwards it to the real transfer when its time has come."""

    def __init__(self, inner: Transfer, wire: Wire) -> None:
        self._inner, self._wire = inner, wire
        self._num_sent = 0  # counted by the worker's thread
        self._num_delivered = 0  # counted by the wire's thread
        self.num_bytes = 0
        self.busy_s = 0.0

    def write(self, layer: int, blocks: Items[int], into: Items[int]) -> None:
        self._num_sent += 1
        num_bytes = 2 * len(blocks) * self._wire.block_bytes
        self.num_bytes += num_bytes
        self._wire.carry(num_bytes, lambda: self._deliver(layer, list(blocks), list(into)))

    def _deliver(self, layer: int, blocks: list[int], into: list[int]) -> None:
        self._inner.write(layer, blocks, into)
        self._num_delivered += 1

    def poll(self) -> bool:
        if self._wire.failure is not None:
            raise LinkError(f"The emulated network broke: {self._wire.failure}")
        return self._num_delivered == self._num_sent and self._inner.poll()

    def digests(self) -> tuple[int, ...]:
        self.busy_s = self._inner.busy_s
        return self._inner.digests()


class Wire:
    """One sender's end of the network: first in, first out, one thread."""

    def __init__(self, network: Network, block_bytes: int) -> None:
        self.network, self.block_bytes = network, block_bytes
        self.failure: Exception | None = None
        self._free_at = 0.0
        self._jobs: queue.SimpleQueue[tuple[float, Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True, name="wire")
        self._thread.start()

    def carry(self, num_bytes: int, deliver: Any) -> None:
        """Have `deliver` called when `num_bytes` have crossed, after everything sent before."""
        left = max(self._free_at, time.monotonic()) + num_bytes / self.network.bytes_per_s
        self._free_at = left
        self._jobs.put((left + self.network.latency_s, deliver))

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            due, deliver = job
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                with torch.inference_mode():
                    deliver()
            except Exception as failure:  # reported by the worker's next poll
                self.failure = failure


class EmulatedWriter:
    def __init__(self, inner: Writer, wire: Wire) -> None:
        self._inner, self._wire = inner, wire

    def begin(self) -> EmulatedTransfer:
        return EmulatedTransfer(self._inner.begin(), self._wire)

    def close(self) -> None:
        self._inner.close()


class Emulated:
    """Any other link behind a network of one's choice; all of a worker's targets share its port."""

    def __init__(self, inner: Link, network: Network) -> None:
        self.inner, self.network = inner, network
        self._wire: Wire | None = None

    def make_store(self, layout: KVLayout, device: torch.device, name: str) -> KVStore:
        return self.inner.make_store(layout, device, name)

    def expose(self, store: KVStore) -> Any:
        return self.inner.expose(store)

    def connect(self, source: KVStore, registration: Any) -> EmulatedWriter:
        if self._wire is None:
            self._wire = Wire(self.network, source.layout.block_bytes)
        return EmulatedWriter(self.inner.connect(source, registration), self._wire)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
        self.inner.close()
