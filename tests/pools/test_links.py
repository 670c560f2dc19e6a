"""Links at rest and under way: bytes, digests, order, and what is said when one cannot be had."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minipd.cache.store import KVLayout, KVStore
from minipd.pools.links import emulated as emulated_module
from minipd.pools.links import nixl
from minipd.pools.links.base import BrokenTransfer, Link, LinkError, Transfer, paired_runs
from minipd.pools.links.choose import choose_link
from minipd.pools.links.cuda_ipc import CudaIpc
from minipd.pools.links.digests import Digests, Hashes, WeightedSums, position_weights, runs
from minipd.pools.links.direct import SameProcess, SharedMemory
from minipd.pools.links.emulated import NETWORKS, Emulated, Network, Wire, network
from minipd.pools.links.probe import time_link
from tests.counted_clock import count_time

CPU = torch.device("cpu")
BLOCKS, INTO = [4, 5, 6, 9, 2], [0, 1, 7, 8, 3]


def layout(dtype: torch.dtype = torch.float32, num_blocks: int = 12) -> KVLayout:
    return KVLayout(3, num_blocks, 4, 2, 8, dtype)


def fill(store: KVStore, seed: int) -> KVStore:
    generator = torch.Generator().manual_seed(seed)
    store.buffer.copy_(torch.randn(store.buffer.shape, generator=generator))
    return store


def pair(kind: str, folder: str, dtype: torch.dtype) -> tuple[Link, Link]:
    """Two workers' ends of one link."""
    made: dict[str, Callable[[], Link]] = {
        "same process": SameProcess,
        "shared memory": lambda: SharedMemory(folder),
        "emulated": lambda: Emulated(SharedMemory(folder), Network(1e-4, 1e8)),
    }
    return made[kind](), made[kind]()


def wait_for(transfer: Transfer, timeout_s: float = 60.0) -> None:
    give_up = time.monotonic() + timeout_s
    while not transfer.poll():
        assert time.monotonic() < give_up, "the transfer never ends"
        time.sleep(1e-4)


def send(transfer: Transfer, num_layers: int) -> None:
    for layer in range(num_layers):
        transfer.write(layer, BLOCKS, INTO)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["same process", "shared memory", "emulated"])
def test_the_bytes_arrive_and_nothing_else_changes(kind, dtype, tmp_path):
    ours, theirs = pair(kind, str(tmp_path / "stores"), dtype)
    source = fill(ours.make_store(layout(dtype), CPU, "p"), 1)
    target = fill(theirs.make_store(layout(dtype, num_blocks=10), CPU, "d"), 2)
    expected = target.buffer.clone()
    expected[:, :, INTO] = source.buffer[:, :, BLOCKS]

    writer = ours.connect(source, theirs.expose(target))
    transfer = writer.begin()
    send(transfer, 3)
    wait_for(transfer)

    assert torch.equal(target.buffer, expected)
    assert transfer.num_bytes == source.buffer[:, :, BLOCKS].numel() * dtype.itemsize
    assert transfer.busy_s > 0
    assert transfer.digests() == digests_of(target, INTO)
    writer.close()
    ours.close()
    theirs.close()
    assert not list(tmp_path.iterdir()), "a shared file or its folder was left behind"


def digests_of(store: KVStore, blocks: list[int]) -> tuple[int, ...]:
    digests = Digests(store)
    for layer in range(store.layout.num_layers):
        digests.add(layer, blocks)
    return digests.result()


@pytest.mark.slow
def test_a_link_can_be_timed_between_two_processes(tmp_path):
    ends = [SharedMemory(str(tmp_path / "stores")) for _ in range(2)]
    timed = list(time_link(*ends, layout(), [1, 12, 1]))
    assert [num_bytes for num_bytes, _ in timed] == [3 * 2 * n * 256 for n in (1, 12, 1)]
    assert all(0 < seconds < 60 for _, seconds in timed)


# -- runs -------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_paired_runs_say_the_same_as_block_by_block(pairs):
    blocks, into = [a for a, _ in pairs], [b for _, b in pairs]
    found = list(paired_runs(blocks, into))
    spread = [
        (a, b) for x, y in found for a, b in zip(range(x.start, x.stop), range(y.start, y.stop))
    ]
    assert spread == pairs
    for (x, y), (v, w) in zip(found, found[1:]):  # no two neighbours could have been one
        assert (x.stop, y.stop) != (v.start, w.start)


@given(st.lists(st.integers(0, 9), max_size=12))
def test_runs_say_the_same_as_block_by_block(blocks):
    assert [b for run in runs(blocks) for b in range(run.start, run.stop)] == blocks


# -- digests ----------------------------------------------------------------------------------

KINDS = [Hashes, WeightedSums]


def result(kind, store: KVStore, blocks: list[int]) -> tuple[int, ...]:
    digests = kind(store)
    for layer in range(store.layout.num_layers):
        digests.add(layer, blocks)
    return digests.result()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_digest_sees_what_can_go_wrong(kind, dtype):
    store = fill(KVStore(layout(dtype)), 1)
    good = result(kind, store, BLOCKS)
    assert good == result(kind, store, BLOCKS)
    assert len(good) == 6 and all(0 <= x < 2**64 for x in good)

    exchanged = result(kind, store, [5, 4, 6, 9, 2])
    assert all(a != b for a, b in zip(good, exchanged)), "two exchanged blocks were not seen"

    as_bytes = store.buffer.view(torch.uint8)
    before = as_bytes[1, 1, 9, 3, 1, -1].item()
    as_bytes[1, 1, 9, 3, 1, -1] = before ^ 1
    wrong = [i for i, x in enumerate(result(kind, store, BLOCKS)) if x != good[i]]
    assert wrong == [3], "one bit in the values of layer 1 belongs to digest 3 alone"
    as_bytes[1, 1, 9, 3, 1, -1] = before

    store.buffer[2] = 0
    wrong = [i for i, x in enumerate(result(kind, store, BLOCKS)) if x != good[i]]
    assert wrong == [4, 5], "the layer that never came is layer 2"


@pytest.mark.parametrize("kind", KINDS)
def test_a_digest_depends_on_the_tokens_not_on_where_their_blocks_lie(kind):
    store, other = fill(KVStore(layout()), 1), KVStore(layout())
    other.buffer[:, :, INTO] = store.buffer[:, :, BLOCKS]
    assert result(kind, other, INTO) == result(kind, store, BLOCKS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_digest_may_be_taken_piece_by_piece(kind):
    store = fill(KVStore(layout()), 1)
    pieces = kind(store)
    for layer in range(3):
        for block in BLOCKS:
            pieces.add(layer, [block])
    assert pieces.result() == result(kind, store, BLOCKS)


def test_the_weighted_sum_is_what_plain_python_makes_of_it():
    store = fill(KVStore(layout(torch.float16)), 1)
    weights = position_weights(64 * len(BLOCKS), CPU).tolist()
    assert all(w % 2 for w in weights) and len(set(weights)) == len(weights)
    words = store.buffer.view(torch.int16)[2, 0, BLOCKS].flatten().tolist()
    by_hand = sum(w * x for w, x in zip(weights, words)) % 2**64
    assert result(WeightedSums, store, BLOCKS)[4] == by_hand


# -- the emulated network ---------------------------------------------------------------------


def emulated(net: Network, num_blocks: int = 12) -> tuple[Emulated, KVStore, KVStore]:
    link = Emulated(SameProcess(), net)
    source = fill(link.make_store(layout(num_blocks=num_blocks), CPU, "p"), 1)
    return link, source, link.make_store(layout(num_blocks=num_blocks), CPU, "d")


def test_the_bytes_are_not_there_before_their_time():
    link, source, target = emulated(Network(0.2, 1e9))
    transfer = link.connect(source, link.expose(target)).begin()
    began = time.monotonic()
    send(transfer, 3)
    while not target.buffer.any() and not transfer.poll():
        time.sleep(1e-4)
    assert time.monotonic() - began >= 0.2, "bytes came before the latency was over"
    wait_for(transfer)
    assert torch.equal(target.buffer[:, :, INTO], source.buffer[:, :, BLOCKS])
    link.close()


def test_writes_share_the_wire_and_pay_the_latency_once(monkeypatch):
    """On a clock that is counted: both are sent at once, then each delivery is looked at."""
    clock = count_time(monkeypatch)
    link, source, target = emulated(Network(0.1, 5 * 2 * 256 / 0.05))  # 0.05 s a layer
    writer = link.connect(source, link.expose(target))
    first, second = writer.begin(), writer.begin()
    send(first, 3)
    send(second, 3)
    seen = []
    while clock.under_way:
        clock.move_to(99.0)
        seen.append((round(clock.now, 6), first.poll(), second.poll()))
    times = [0.15, 0.2, 0.25, 0.3, 0.35, 0.4]  # 6 x 0.05 s on the wire, 0.1 s once
    assert seen == [(t, t >= 0.25, t >= 0.4) for t in times]
    link.close()


def test_a_wire_delivers_in_order_each_after_its_own_wait(monkeypatch):
    """The wire's own thread, whose waits are noted instead of waited for."""
    waits, order, over = [], [], threading.Event()
    monkeypatch.setattr(emulated_module, "time", SimpleNamespace(monotonic=lambda: 5.0))
    wire = emulated_module.Wire(Network(0.25, 1e3), block_bytes=1)

    def note(seconds: float) -> bool:
        waits.append(seconds)
        return False

    monkeypatch.setattr(wire._cut, "wait", note)
    for n in range(4):
        last = over.set if n == 3 else None
        wire.carry(500, lambda n=n, last=last: (order.append(n), last and last()), print)
    assert over.wait(60) and order == [0, 1, 2, 3]
    assert waits == pytest.approx([0.75, 1.25, 1.75, 2.25])
    wire.close()


def test_a_cut_wire_does_not_keep_anyone_waiting():
    link, source, target = emulated(Network(60.0, 1e3))
    transfer = link.connect(source, link.expose(target)).begin()
    began = time.monotonic()
    send(transfer, 3)
    assert not target.buffer.any(), "the sender was held up"
    link.close()
    assert time.monotonic() - began < 45, "somebody waited for the latency of 60 s"


def test_a_failed_delivery_is_told_by_its_own_transfer_only():
    link, source, target = emulated(Network(0.0, 1e9))
    writer = link.connect(source, link.expose(target))
    bad, good = writer.begin(), writer.begin()
    bad.write(0, [0], [99])  # there is no block 99
    good.write(0, [0], [1])
    wait_for(good)
    with pytest.raises(LinkError, match="emulated network broke"):
        wait_for(bad)
    link.close()


def test_the_wire_keeps_its_pace():
    arrived: list[float] = []
    wire = Wire(Network(0.0, 1e6), 1)
    began = time.monotonic()
    for _ in range(10):
        wire.carry(20_000, lambda: arrived.append(time.monotonic() - began), arrived.append)
    while len(arrived) < 10:
        time.sleep(0.001)
    wire.close()
    assert all(at >= 0.02 * (i + 1) for i, at in enumerate(arrived)), arrived
    assert arrived == sorted(arrived)


def test_networks_have_names_and_can_be_given_in_figures():
    assert network("eth1") is NETWORKS["eth1"]
    assert network("125e6:50e-6") == Network(50e-6, 125e6)
    assert network("1e9") == Network(0.0, 1e9)
    for nonsense in ("", "ethernet", "1e9:soon", "1:2:3"):
        with pytest.raises(LinkError, match="use one of nvlink4"):
            network(nonsense)
    for impossible in ("0", "-1:1", "1e9:-1", "nan"):
        with pytest.raises(LinkError, match="latency >= 0 and a bandwidth above 0"):
            network(impossible)
    for endless in ("1e9:inf", "inf", "inf:inf", "1e9:1e300", "1e-300"):
        with pytest.raises(LinkError, match="latency of at most 60 s and a finite bandwidth"):
            network(endless)
    with pytest.raises(LinkError, match="did you mean 'ib400'"):
        network("ib4000")


def test_a_wait_that_no_clock_can_do_is_told_by_its_transfer():
    failures: list[Exception] = []
    wire = Wire(Network(0.0, 1.0), 1)
    wire.carry(10**300, lambda: None, failures.append)
    give_up = time.monotonic() + 60
    while not failures and time.monotonic() < give_up:
        time.sleep(0.001)
    assert isinstance(failures[0], OverflowError)
    wire.close()


# -- which link -------------------------------------------------------------------------------


def test_the_link_follows_from_where_the_workers_are(tmp_path):
    def kind(*devices: str, in_one_process: bool = False) -> type:
        return type(choose_link("direct", devices, str(tmp_path), in_one_process=in_one_process))

    assert kind("cpu") is SharedMemory
    assert kind("cuda:0") is kind("cuda:0", "cuda:1") is CudaIpc
    assert kind("cpu", in_one_process=True) is SameProcess
    assert kind("cuda:0", "cuda:1", in_one_process=True) is SameProcess
    with pytest.raises(LinkError, match="devices of one kind, .* have cpu and cuda"):
        kind("cuda", "cpu")


def test_a_missing_package_is_named_with_its_remedy(monkeypatch, tmp_path):
    monkeypatch.setattr(nixl.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LinkError, match="pip install nixl-cu1[23]"):
        choose_link("nixl", ["cpu"], str(tmp_path), in_one_process=False)
    with pytest.raises(LinkError, match="NIXL joins processes"):
        choose_link("nixl", ["cpu"], str(tmp_path), in_one_process=True)


def test_cuda_ipc_says_what_it_is_for():
    with pytest.raises(LinkError, match="worker-0 is on cpu"):
        CudaIpc().make_store(layout(), CPU, "worker-0")


def test_a_transfer_that_could_not_begin_tells_when_asked():
    transfer = BrokenTransfer("no link to worker-1")
    transfer.write(0, [0], [0])
    with pytest.raises(LinkError, match="no link to worker-1"):
        transfer.poll()
