"""Short measurements of links and copies for a lesson: what bytes cost, in seconds and CPU seconds.

Hand-offs have the shape of SmolLM2-135M's KV in float32; sizes in bytes, times in seconds.
"""

from __future__ import annotations

import mmap
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from minipd.cache.store import KVLayout, KVStore
from minipd.measure.links import LinkFit, Point, fit_link, hold_out
from minipd.pools.links.base import LinkError
from minipd.pools.links.choose import LinkKind, choose_link
from minipd.pools.links.direct import SameProcess
from minipd.pools.links.emulated import NETWORKS, Emulated, Network
from minipd.pools.links.probe import time_link

BLOCK_COUNTS = (2, 4, 8, 16, 32, 48, 64)  # 32 to 1,024 tokens of SmolLM2
LAYOUT = KVLayout(30, max(BLOCK_COUNTS), 16, 3, 64, torch.float32)
POLL_S, COPY_BYTES = 20e-6, 48_000_000
FRESH_BYTES = 6000 * mmap.PAGESIZE
FIT_BAR = 0.10  # of a fit, at sizes that it has not seen


@dataclass(frozen=True, slots=True)
class Measured:
    """One link: the fit to half of its sizes, and how far it is off at the others."""

    fit: LinkFit
    fitted: list[Point]
    held_out: list[Point]

    @property
    def worst_error(self) -> float:
        return max(abs(error) for error in self.fit.errors(self.held_out))


def fit_and_check(samples: Sequence[Point]) -> Measured:
    """The fastest of each size, since other programs only slow a link down; every second size
    between the ends is kept back to check the fit."""
    sizes = sorted({num_bytes for num_bytes, _ in samples})
    fitted, held_out = hold_out([(size, min(t for n, t in samples if n == size)) for size in sizes])
    return Measured(fit_link(fitted), fitted, held_out)


def time_between_processes(kind: LinkKind, rounds: int = 30) -> list[Point]:
    """Hand-offs to a process of its own, over shared memory ("direct") or NIXL.

    The first round warms up and is left out. Raises `LinkError` where the link is not installed.
    """
    memory = Path("/dev/shm")  # as the pools choose; a file on disk is slower, and less evenly so
    has_room = memory.is_dir() and shutil.disk_usage(memory).free > 3 * LAYOUT.total_bytes
    folder = tempfile.mkdtemp(prefix="minipd-", dir=memory if has_room else None)
    try:
        ends = [choose_link(kind, ["cpu"], folder, in_one_process=False) for _ in range(2)]
        counts = BLOCK_COUNTS * (rounds + 1)
        samples = list(time_link(ends[0], ends[1], LAYOUT, counts))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return samples[len(BLOCK_COUNTS) :]


def time_emulated(
    network: Network,
    block_counts: Sequence[int] = BLOCK_COUNTS,
    rounds: int = 3,
    layout: KVLayout = LAYOUT,
) -> list[Point]:
    """Hand-offs over an emulated network to a store in this process; first round left out."""
    link = Emulated(SameProcess(), network)
    source, target = (KVStore(layout, torch.device("cpu")) for _ in range(2))
    source.buffer.normal_()
    target.buffer.zero_()
    writer, samples = link.connect(source, target), []
    for count in tuple(block_counts) * (rounds + 1):
        samples.append(_hand_off(writer, layout, list(range(count))))
    link.close()
    return samples[len(block_counts) :]


def _hand_off(writer: Any, layout: KVLayout, blocks: list[int]) -> Point:
    began = time.perf_counter()
    transfer = writer.begin()
    for layer in range(layout.num_layers):
        transfer.write(layer, blocks, blocks)
    while not transfer.poll():
        time.sleep(POLL_S)
    return transfer.num_bytes, time.perf_counter() - began


def measure_links() -> tuple[dict[str, Measured], dict[str, str]]:
    """Shared memory, NIXL and an emulated cable, by name; and why a link is missing."""
    found: dict[str, Measured] = {}
    missing: dict[str, str] = {}
    kinds: dict[str, LinkKind] = {"shared memory": "direct", "NIXL": "nixl"}
    for name, kind in kinds.items():
        try:
            found[name] = fit_and_check(time_between_processes(kind))
        except LinkError as reason:
            missing[name] = str(reason)
    found["emulated 1 Gb/s"] = fit_and_check(time_emulated(NETWORKS["eth1"], BLOCK_COUNTS[:5]))
    return found, missing


def links_table(links: Mapping[str, Measured]) -> dict[str, list[object]]:
    """Fit of each link, and how far it is off at the sizes kept back."""
    made = list(links.values())
    return {
        "link": list(links),
        "latency (ms)": [f"{one.fit.latency_s * 1e3:.2f}" for one in made],
        "bandwidth (GB/s)": [f"{one.fit.bytes_per_s / 1e9:.2f}" for one in made],
        "worst error at held-out sizes": [f"{one.worst_error:.0%}" for one in made],
        "within 10 %": ["yes" if one.worst_error <= FIT_BAR else "no" for one in made],
    }


def emulated_table(blocks: int = 32) -> dict[str, list[object]]:
    """Every network that the engine can emulate: told, computed and timed for one hand-off."""
    heads = ("network", "Gb/s", "latency (us)", "computed (ms)", "timed here (ms)", "held up by")
    table: dict[str, list[object]] = {head: [] for head in heads}
    for name, network in NETWORKS.items():
        samples = time_emulated(network, (blocks,))
        told = LinkFit(network.latency_s, network.bytes_per_s).seconds(samples[0][0])
        took = median(seconds for _, seconds in samples)
        limit = "the cable" if told > 0.8 * took else "both" if told > took / 2 else "memory"
        rates = f"{network.bytes_per_s * 8 / 1e9:,g}", f"{network.latency_s * 1e6:g}"
        values = (name, *rates, f"{told * 1e3:.2f}", f"{took * 1e3:.1f}", limit)
        for head, value in zip(heads, values):
            table[head].append(value)
    return table


@dataclass(frozen=True, slots=True)
class Copying:
    """One way for the same bytes; medians. `cpu_s` is this process's, kernel included."""

    name: str
    copies: int
    seconds: float
    cpu_s: float


def measure_copies(num_bytes: int = COPY_BYTES, repetitions: int = 7) -> list[Copying]:
    """Straight into the target, by way of a buffer in between, and through a network socket."""
    source = np.random.default_rng(0).integers(0, 255, num_bytes, np.uint8)
    target, between = np.zeros_like(source), np.zeros_like(source)

    def direct() -> None:
        target[:] = source

    def staged() -> None:
        between[:] = source
        target[:] = between

    with _loopback(source, target) as through_socket:
        ways = (("direct", 1, direct), ("staged", 2, staged), ("socket", 2, through_socket))
        return [Copying(n, c, *_timed(way, repetitions)) for n, c, way in ways]


def _timed(way: Callable[[], None], repetitions: int) -> tuple[float, float]:
    way()  # every page has been touched, every buffer has its size
    runs: list[tuple[float, float]] = []
    for _ in range(repetitions):
        began, used = time.perf_counter(), time.process_time()
        way()
        runs.append((time.perf_counter() - began, time.process_time() - used))
    return median(run[0] for run in runs), median(run[1] for run in runs)


@contextmanager
def _loopback(source: Any, target: Any) -> Generator[Callable[[], None]]:
    """A TCP connection of this machine with itself: a call sends all bytes through it once."""
    goal, room = memoryview(target), len(target)
    with socket.create_server(("127.0.0.1", 0)) as server:
        out = socket.create_connection(server.getsockname())
        into, _ = server.accept()

    def send_all() -> None:
        sender = threading.Thread(target=out.sendall, args=(memoryview(source),))
        sender.start()
        at = 0
        while at < room:
            at += into.recv_into(goal[at:])
        sender.join()

    with out, into:
        yield send_all


def copies_table(ways: Sequence[Copying], num_bytes: int = COPY_BYTES) -> dict[str, list[object]]:
    return {
        "way": [way.name for way in ways],
        "copies": [way.copies for way in ways],
        "GB/s": [f"{num_bytes / 1e9 / way.seconds:.2f}" for way in ways],
        "CPU seconds per GB": [f"{way.cpu_s / num_bytes * 1e9:.2f}" for way in ways],
    }


def two_senders(network: Network, blocks: int = 16, rounds: int = 3) -> tuple[float, list[float]]:
    """Seconds of a hand-off alone, and of two at once on one sender's port; medians."""
    link = Emulated(SameProcess(), network)
    stores = [KVStore(LAYOUT, torch.device("cpu")) for _ in range(3)]
    writers = [link.connect(stores[0], target) for target in stores[1:]]
    ids = list(range(blocks))
    _together(writers, ids)  # every page has been touched
    alone = [_hand_off(writers[0], LAYOUT, ids)[1] for _ in range(rounds)]
    both = [_together(writers, ids) for _ in range(rounds)]
    link.close()
    return median(alone), [median(times) for times in zip(*both)]


def _together(writers: Sequence[Any], blocks: list[int]) -> list[float]:
    began = time.perf_counter()
    transfers = [writer.begin() for writer in writers]
    for layer in range(LAYOUT.num_layers):
        for transfer in transfers:
            transfer.write(layer, blocks, blocks)
    ended = [0.0 for _ in transfers]
    while not all(ended):
        for number, transfer in enumerate(transfers):
            if not ended[number] and transfer.poll():
                ended[number] = time.perf_counter() - began
        time.sleep(POLL_S)
    return ended


def copies_into_fresh_memory(times: int = 5) -> Iterator[float]:
    """Seconds of each copy into memory that the system has promised and not yet given."""
    source = np.ones(FRESH_BYTES, np.uint8)
    with mmap.mmap(-1, FRESH_BYTES) as fresh:
        target = np.frombuffer(fresh, np.uint8)
        for _ in range(times):
            began = time.perf_counter()
            target[:] = source
            yield time.perf_counter() - began
        del target
