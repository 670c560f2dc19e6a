"""Times one link between two processes: the same classes, stores and writes as in a hand-off."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection

import torch

from minipd.cache.store import KVLayout, KVStore
from minipd.pools.links.base import Link, LinkError, Writer

TARGET_START_S = 120.0
IDLE_S = 0.001
POLL_S = 20e-6


def time_link(
    ours: Link, theirs: Link, layout: KVLayout, block_counts: Iterable[int], device: str = "cpu"
) -> Iterator[tuple[int, float]]:
    """(bytes, seconds) of one hand-off for each entry of `block_counts`, as they are measured.

    `ours` and `theirs` are two workers' ends of the same link. A hand-off of n blocks writes n
    blocks of every layer, keys and values, and ends when `poll` says that all have arrived;
    digests are taken on the way, as always.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    target = context.Process(target=_be_a_target, args=(theirs, layout, device, there), daemon=True)
    target.start()
    there.close()
    try:
        source = ours.make_store(layout, torch.device(device), "probe-source")
        source.buffer.normal_()
        if not here.poll(TARGET_START_S):
            raise LinkError(f"The other end of the link did not start in {TARGET_START_S:.0f} s.")
        writer = ours.connect(source, here.recv())
        for count in block_counts:
            yield _time_one(ours, writer, source, list(range(count)))
        writer.close()
    finally:
        here.close()  # which ends the target
        target.join(timeout=10)
        target.kill()
        ours.close()


def _time_one(link: Link, writer: Writer, store: KVStore, blocks: list[int]) -> tuple[int, float]:
    began = time.perf_counter()
    transfer = writer.begin()
    for layer in range(store.layout.num_layers):
        transfer.write(layer, blocks, blocks)
    while not transfer.poll():
        link.progress()
        time.sleep(POLL_S)  # a thread of the link may need Python's lock
    return transfer.num_bytes, time.perf_counter() - began


def _be_a_target(link: Link, layout: KVLayout, device: str, connection: Connection) -> None:
    store = link.make_store(layout, torch.device(device), "probe-target")
    store.buffer.zero_()
    connection.send(link.expose(store))
    try:
        while not connection.poll(IDLE_S):
            link.progress()
    except OSError:  # the other end has gone, on Windows
        pass
    link.close()
