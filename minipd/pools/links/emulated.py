"""A slower network than this machine has: real bytes, delivered as late as a real one would.

Each write waits its turn on the wire, takes `bytes / bandwidth`, and is in the target's store only
`latency` after it has left: before that moment the bytes are truly not there. A thread of the
sending worker carries them, so the prefill that is still running is not held up. The emulated
network is never faster than the link beneath it, which really moves the bytes.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch

from minipd.cache.store import KVLayout, KVStore
from minipd.pools.links.base import Link, LinkError, Transfer, Writer
from minipd.pools.streams import compute_mark

MAX_LATENCY_S, MIN_BYTES_PER_S = 60.0, 1.0  # beyond them no run would ever end


class NetworkError(LinkError, ValueError):
    """A network that cannot be emulated, or whose name nobody knows."""


@dataclass(frozen=True, slots=True)
class Network:
    """Latency in seconds and bandwidth in bytes per second of one direction of one link."""

    latency_s: float
    bytes_per_s: float

    def __post_init__(self) -> None:
        if not (self.latency_s >= 0 and self.bytes_per_s > 0):
            raise NetworkError("An emulated network needs a latency >= 0 and a bandwidth above 0.")
        if self.latency_s > MAX_LATENCY_S or not MIN_BYTES_PER_S <= self.bytes_per_s < math.inf:
            raise NetworkError(
                f"An emulated network needs a latency of at most {MAX_LATENCY_S:g} s and a finite "
                f"bandwidth of at least {MIN_BYTES_PER_S:g} B/s."
            )


# Bandwidths are line rates per GPU and direction as vendors state them; payload rates are lower.
# Vendors rarely state latencies end to end: these are round figures of the usual order, one way and
# software included, for teaching. Replace both by a measurement of your own network.
NETWORKS = {
    "nvlink4": Network(2e-6, 450e9),  # H100 SXM: 900 GB/s, both directions (NVIDIA H100 datasheet)
    "ib400": Network(2e-6, 50e9),  # NDR InfiniBand, 400 Gb/s a port (NVIDIA ConnectX-7 manual)
    # 3,200 Gb/s over 32 network cards for the 8 GPUs of a p5.48xlarge (AWS, "Maximize network
    # bandwidth on Amazon EC2 instances with multiple network cards"): 4 cards for each GPU.
    "efa400": Network(15e-6, 50e9),
    "roce100": Network(3e-6, 12.5e9),  # RDMA over Converged Ethernet on a 100 Gb/s port
    "eth25": Network(30e-6, 3.125e9),  # Ethernet, TCP
    "eth10": Network(30e-6, 1.25e9),
    "eth1": Network(50e-6, 0.125e9),
}


def network(name: str) -> Network:
    """A named network, or "BYTES_PER_SECOND:LATENCY_SECONDS" such as "125e6:50e-6"."""
    if name in NETWORKS:
        return NETWORKS[name]
    bandwidth, _, latency = name.partition(":")
    try:
        latency_s, bytes_per_s = float(latency or 0.0), float(bandwidth)
    except ValueError:
        near = get_close_matches(name.lower(), NETWORKS, n=1)
        guess = f"did you mean {near[0]!r}? U" if near else "u"
        raise NetworkError(
            f"There is no network {name[:40]!r}; {guess}se one of {', '.join(NETWORKS)} or give "
            "BYTES_PER_SECOND:LATENCY_SECONDS, like 125e6:50e-6."
        ) from None
    return Network(latency_s, bytes_per_s)


class EmulatedTransfer:
    """Queues each write for the wire; the real transfer gets it when its time has come."""

    def __init__(self, inner: Transfer, wire: Wire, device: torch.device) -> None:
        self._inner, self._wire, self._device = inner, wire, device
        self._num_sent = 0  # counted by the worker's thread
        self._num_delivered = 0  # counted by the wire's thread
        self._failure: str | None = None
        self.num_bytes = 0

    @property
    def busy_s(self) -> float:
        return self._inner.busy_s

    def write(self, layer: int, blocks: Items[int], into: Items[int]) -> None:
        self._num_sent += 1
        num_bytes = 2 * len(blocks) * self._wire.block_bytes
        self.num_bytes += num_bytes
        computed = compute_mark(self._device)

        def deliver() -> None:
            if self._failure is not None:
                return  # its blocks over there may have a new owner by now
            computed.synchronize()  # the wire's thread has a stream of its own
            self._inner.write(layer, list(blocks), list(into))
            self._num_delivered += 1

        self._wire.carry(num_bytes, deliver, self._failed)

    def _failed(self, failure: Exception) -> None:
        self._failure = f"{type(failure).__name__}: {failure}"

    def poll(self) -> bool:
        if self._failure is not None:
            raise LinkError(f"The emulated network broke: {self._failure}")
        return self._num_delivered == self._num_sent and self._inner.poll()

    def digests(self) -> tuple[int, ...]:
        return self._inner.digests()


@dataclass(frozen=True, slots=True)
class Job:
    due_s: float  # when the last byte is at the target, on `time.monotonic`
    deliver: Callable[[], None]
    failed: Callable[[Exception], None]


class Wire:
    """One sender's end of the network: first in, first out, one thread."""

    def __init__(self, network: Network, block_bytes: int) -> None:
        self.network, self.block_bytes = network, block_bytes
        self._free_at_s = 0.0
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._cut = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="wire")
        self._thread.start()

    def carry(
        self, num_bytes: int, deliver: Callable[[], None], failed: Callable[[Exception], None]
    ) -> None:
        """Have `deliver` called when `num_bytes` have crossed, after everything sent before."""
        left_s = max(self._free_at_s, time.monotonic()) + num_bytes / self.network.bytes_per_s
        self._free_at_s = left_s
        self._jobs.put(Job(left_s + self.network.latency_s, deliver, failed))

    def close(self) -> None:
        """Cut it: what is still under way is lost."""
        self._cut.set()
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:  # the wait too: this thread must never end without a word
                if self._cut.wait(max(0.0, job.due_s - time.monotonic())):
                    return
                with torch.inference_mode():
                    job.deliver()
            except Exception as failure:  # reported by that transfer's next poll
                job.failed(failure)


class EmulatedWriter:
    """A connection of the link beneath, reached through the wire."""

    def __init__(self, inner: Writer, wire: Wire, device: torch.device) -> None:
        self._inner, self._wire, self._device = inner, wire, device

    def begin(self) -> EmulatedTransfer:
        return EmulatedTransfer(self._inner.begin(), self._wire, self._device)

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
        return EmulatedWriter(self.inner.connect(source, registration), self._wire, source.device)

    def progress(self) -> None:
        self.inner.progress()

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
        self.inner.close()
