"""The NIXL link: between two agents here, between two workers, and when the other end dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from minipd.cache.store import KVLayout
from minipd.pools.cluster import Cluster
from minipd.pools.links.base import LinkError, StuckError, Transfer
from minipd.pools.links.digests import Digests
from minipd.pools.links.nixl import Nixl, package
from tests.pools.helpers import answers, ask, check_same, check_sound, events, mixed, when

try:
    package()
except LinkError as missing:
    pytest.skip(str(missing), allow_module_level=True)

CPU = torch.device("cpu")
LAYOUT = KVLayout(3, 64, 4, 2, 8, torch.float32)
BLOCKS, INTO = [4, 5, 6, 9, 2], [0, 1, 7, 8, 3]


def finish(transfer: Transfer, *links: Nixl, timeout_s: float = 20.0) -> None:
    give_up = time.monotonic() + timeout_s
    while not transfer.poll():
        assert time.monotonic() < give_up, "the transfer never ends"
        for link in links:
            link.progress()


def test_the_bytes_arrive_and_nothing_else_changes():
    ours, theirs = Nixl(), Nixl()
    source, target = ours.make_store(LAYOUT, CPU, "p"), theirs.make_store(LAYOUT, CPU, "d")
    source.buffer.normal_()
    expected = target.buffer.clone()
    expected[:, :, INTO] = source.buffer[:, :, BLOCKS]
    writer = ours.connect(source, theirs.expose(target))
    transfer = writer.begin()
    for layer in range(3):
        transfer.write(layer, BLOCKS, INTO)
    finish(transfer, ours, theirs)

    assert torch.equal(target.buffer, expected)
    assert transfer.num_bytes == source.buffer[:, :, BLOCKS].numel() * 4
    digests = Digests(target)
    for layer in range(3):
        digests.add(layer, INTO)
    assert transfer.digests() == digests.result()
    writer.close()
    writer.close()  # again: nothing happens
    ours.close()
    theirs.close()


def test_a_writer_that_was_closed_gives_its_transfers_up():
    ours, theirs = Nixl(), Nixl()
    source, target = ours.make_store(LAYOUT, CPU, "p"), theirs.make_store(LAYOUT, CPU, "d")
    writer = ours.connect(source, theirs.expose(target))
    transfer = writer.begin()
    writer.close()
    transfer.write(0, BLOCKS, INTO)
    with pytest.raises(LinkError, match="the target has been given up"):
        transfer.poll()
    ours.close()
    theirs.close()


def test_a_store_that_cannot_be_reached_is_an_error_of_the_link():
    ours, theirs = Nixl(), Nixl()
    source, target = ours.make_store(LAYOUT, CPU, "p"), theirs.make_store(LAYOUT, CPU, "d")
    region = theirs.expose(target)
    broken = type(region)(region.layout, region.address, region.device_index, b"nonsense")
    with pytest.raises(LinkError, match="NIXL cannot reach the target"):
        ours.connect(source, broken)
    ours.close()
    theirs.close()


class StuckHandle:
    """A write that never ends; NIXL's own handles raise when they cannot be cancelled."""

    def __init__(self, can_cancel: bool) -> None:
        self.can_cancel = can_cancel

    def release(self) -> None:
        if not self.can_cancel:
            raise RuntimeError("still active")


@pytest.mark.parametrize("can_cancel", [True, False])
def test_a_stalled_write_that_cannot_be_taken_back_ends_the_worker(
    monkeypatch: pytest.MonkeyPatch, can_cancel: bool
) -> None:
    """The target would give its blocks to another request, and the write might still land there."""
    ours, theirs = Nixl(), Nixl()
    source, target = ours.make_store(LAYOUT, CPU, "p"), theirs.make_store(LAYOUT, CPU, "d")
    transfer = ours.connect(source, theirs.expose(target)).begin()
    transfer._posted.append(StuckHandle(can_cancel))
    monkeypatch.setattr(transfer.writer.agent, "check_xfer_state", lambda _: "PROC")
    assert not transfer.poll()
    monkeypatch.setattr("minipd.pools.links.nixl.STALL_S", 0.0)
    with pytest.raises(LinkError if can_cancel else StuckError, match="nothing has moved for 0 s"):
        transfer.poll()
    monkeypatch.undo()
    ours.close()
    theirs.close()


def test_closed_writers_are_forgotten():
    """A target that is restarted again and again leaves nothing behind in its senders."""
    ours, theirs = Nixl(), Nixl()
    source, target = ours.make_store(LAYOUT, CPU, "p"), theirs.make_store(LAYOUT, CPU, "d")
    region = theirs.expose(target)
    for _ in range(5):
        writer = ours.connect(source, region)
        assert ours._writers == [writer]
        writer.close()
    ours.close()
    theirs.close()


def be_a_target(connection) -> None:
    link = Nixl()
    store = link.make_store(LAYOUT, CPU, "d")
    connection.send(link.expose(store))
    while not connection.poll(0.001):
        link.progress()


@contextmanager
def target_process() -> Iterator[tuple[object, int]]:
    """Another process's store; yields how to reach it, and its process id."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=be_a_target, args=(there,), daemon=True)
    process.start()
    try:
        assert here.poll(120), "the target did not start"
        yield here.recv(), process.pid or 0
    finally:
        process.kill()
        process.join()


@pytest.mark.slow
def test_a_target_that_dies_is_an_error_of_the_link_and_soon():
    with target_process() as (registration, pid):
        link = Nixl()
        source = link.make_store(LAYOUT, CPU, "p")
        writer = link.connect(source, registration)
        alive = writer.begin()
        alive.write(0, BLOCKS, INTO)
        finish(alive, link)

        dying = writer.begin()
        dying.write(0, BLOCKS, INTO)
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
        began = time.monotonic()
        dying.write(1, BLOCKS, INTO)
        with pytest.raises(LinkError, match="NIXL lost the hand-off"):
            finish(dying, link)
        assert time.monotonic() - began < 15
        link.close()


@pytest.fixture(scope="module")
def cluster(start_nixl: Callable[[], Cluster]) -> Iterator[Cluster]:
    with start_nixl() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def start_nixl() -> Callable[[], Cluster]:
    from minipd.pools.setup import Setup

    return lambda: Cluster(Setup(model="tiny", num_blocks=256, link="nixl"))


@pytest.mark.slow
def test_two_workers_joined_by_nixl_answer_alike(llm, cluster):
    requests = mixed(12)
    run = cluster.run(requests, timeout_s=120)
    check_sound(run, requests)
    check_same(llm, requests, answers(llm, requests), run)
    assert len(events(run, "committed")) == len(events(run, "handoff_finished")) > 8
    assert not events(run, "handoff_refused")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="NIXL exists for Linux")
def test_a_decode_worker_that_dies_takes_no_request_with_it(llm, start_nixl):
    requests = [ask(f"k{n}", 60, 40) for n in range(4)]
    with start_nixl() as cluster:
        victim = cluster.supervisor.handles["worker-1"]
        seen = lambda e: e.kind == "token" and e.worker == "worker-1"  # noqa: E731
        when(cluster, seen, lambda: os.kill(victim.process.pid, signal.SIGKILL))
        run = cluster.run(requests, timeout_s=120)
    assert events(run, "worker_died"), "nobody noticed"
    check_sound(run, requests)
    check_same(llm, requests, answers(llm, requests), run)
