"""The pools of GPUs: streams, two devices, CUDA IPC. On a CPU the same classes run the same lines.

What needs a GPU carries the marker `gpu`. Sixteen-bit and GPU arithmetic may pick another token at
a near-tie, so there the rule of `check_same` stands for equality, as everywhere.
"""

from __future__ import annotations

import multiprocessing

import pytest
import torch

from minipd.cache.store import KVLayout, KVStore
from minipd.pools.cluster import Cluster
from minipd.pools.links.base import paired_runs
from minipd.pools.links.cuda_ipc import CudaIpc
from minipd.pools.links.digests import Digests
from minipd.pools.links.direct import SameProcess
from minipd.pools.links.emulated import Emulated, Network
from minipd.pools.setup import Setup
from minipd.pools.streams import ON_CPU, CopyStream, compute_mark, confine, is_done, own_stream
from tests.pools.helpers import answers, check_same, check_sound, events, mixed, when

HAS_CUDA = torch.cuda.is_available()
NUM_GPUS = torch.cuda.device_count()
needs_gpu = pytest.mark.skipif(not HAS_CUDA, reason="there is no CUDA device")
needs_two = pytest.mark.skipif(NUM_GPUS < 2, reason="there are not two CUDA devices")
ONE = [
    pytest.param("cpu", id="cpu"),
    pytest.param("cuda:0", id="cuda", marks=[pytest.mark.gpu, needs_gpu]),
]
TWO = [
    pytest.param(("cpu", "cpu"), id="cpu"),
    pytest.param(("cuda:0", "cuda:0"), id="one gpu", marks=[pytest.mark.gpu, needs_gpu]),
    pytest.param(("cuda:0", "cuda:1"), id="two gpus", marks=[pytest.mark.gpu, needs_two]),
]
LAYOUT = KVLayout(4, 256, 16, 3, 64, torch.float32)
BLOCKS, INTO = list(range(100, 228)), [*range(64), *range(128, 192)]


# -- streams ----------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ONE)
def test_a_workers_stream_is_its_own(device):
    module = torch.get_device_module(torch.device(device))
    outside = module.current_stream()
    with own_stream(device, in_thread=True) as remarks:
        if device != "cpu":
            assert module.current_stream() != outside
        assert remarks == ((ON_CPU,) if device == "cpu" else ())
        total = torch.ones(1000, device=device).sum()
    assert total.item() == 1000
    assert module.current_stream() == outside


@pytest.mark.parametrize("device", ONE)
def test_a_share_of_the_sms_is_given_or_the_reason_said(device):
    with own_stream(device, 0.5) as remarks:
        total = torch.ones(1000, device=device).sum()
    assert total.item() == 1000
    (remark,) = remarks
    said = ("no SMs to split on cpu",) if device == "cpu" else ("confined to", "no green context")
    assert any(words in remark for words in said)


@pytest.mark.parametrize("share", [0.0, 1.0, 1.5, -0.1])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match="between 0 and 1"):
        confine(torch.device("cpu"), share)


@pytest.mark.parametrize("device", ONE)
def test_copies_run_behind_the_computation(device):
    where = torch.device(device)
    copies = CopyStream(where)
    big = torch.rand(1500, 1500, device=where)
    power = big @ big
    for _ in range(20):  # on a GPU this is still running when the copy is asked for
        power = (power @ big).clamp(-1, 1)
    with copies.behind_compute():
        copied = power.clone()
    mark = copies.mark()
    mark.synchronize()
    assert is_done(mark)
    assert torch.equal(copied, power)
    done = compute_mark(where)
    done.synchronize()
    assert is_done(done)


# -- hand-offs --------------------------------------------------------------------------------


def by_hand(source: KVStore, target: KVStore) -> torch.Tensor:
    expected = target.buffer.cpu()
    for src, dst in paired_runs(BLOCKS, INTO):
        expected[:, :, dst] = source.buffer[:, :, src].cpu()
    return expected


@pytest.mark.parametrize("network", [None, Network(1e-3, 1e9)], ids=["direct", "emulated"])
@pytest.mark.parametrize("devices", TWO)
def test_kv_that_is_still_being_computed_arrives_whole(devices, network):
    link = SameProcess() if network is None else Emulated(SameProcess(), network)
    source = link.make_store(LAYOUT, torch.device(devices[0]), "p")
    target = link.make_store(LAYOUT, torch.device(devices[1]), "d")
    with own_stream(devices[0]):
        transfer = link.connect(source, link.expose(target)).begin()
        noise = torch.rand(1500, 1500, device=devices[0])
        for layer in range(LAYOUT.num_layers):
            for _ in range(10):
                noise = (noise @ noise).clamp(0, 1)
            source.buffer[layer].fill_(layer + 1).add_(noise.mean())
            transfer.write(layer, BLOCKS, INTO)
        while not transfer.poll():
            pass
        sent = transfer.digests()
    found = Digests(target)
    for layer in range(LAYOUT.num_layers):
        found.add(layer, INTO)
    expected = by_hand(source, KVStore(LAYOUT, devices[1]))
    assert torch.equal(target.buffer.cpu(), expected)
    assert found.result() == sent
    link.close()


def write_over_ipc(handle, done) -> None:
    link = CudaIpc()
    source = link.make_store(LAYOUT, torch.device("cuda:0"), "p")
    source.buffer.copy_(torch.arange(source.buffer.numel()).view(LAYOUT.shape))
    writer = link.connect(source, handle)
    for _ in range(2):  # the handle is opened once and used again
        transfer = writer.begin()
        for layer in range(LAYOUT.num_layers):
            transfer.write(layer, BLOCKS, INTO)
        while not transfer.poll():
            pass
    done.send(transfer.digests())
    done.recv()  # keep our memory until the other side has looked
    writer.close()


@pytest.mark.gpu
@needs_gpu
def test_another_process_writes_over_cuda_ipc():
    link = CudaIpc()
    target = link.make_store(LAYOUT, torch.device("cuda:0"), "d")
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=write_over_ipc, args=(link.expose(target), there), daemon=True)
    process.start()
    assert here.poll(120), "the other process did not write"
    sent = here.recv()
    found = Digests(target)
    for layer in range(LAYOUT.num_layers):
        found.add(layer, INTO)
    assert found.result() == sent
    written = torch.arange(target.buffer.numel()).view(LAYOUT.shape).to(torch.float32)
    assert torch.equal(target.buffer[:, :, INTO].cpu(), written[:, :, BLOCKS])
    here.send("seen")
    process.join(30)
    assert process.exitcode == 0
    link.close()


# -- whole clusters ---------------------------------------------------------------------------

CLUSTERS = [
    *(
        pytest.param(
            {"pool": "threads", "devices": p.values[0]}, id=f"threads {p.id}", marks=p.marks
        )
        for p in TWO
    ),
    pytest.param({"pool": "threads", "prefill_sm_share": 0.5}, id="threads, cpu, SM share"),
    pytest.param(
        {"pool": "threads", "devices": ("cuda:0",), "prefill_sm_share": 0.5},
        id="threads, one gpu, SM share",
        marks=[pytest.mark.gpu, needs_gpu],
    ),
    pytest.param(
        {"pool": "processes", "devices": ("cuda:0",)},
        id="processes, one gpu",
        marks=[pytest.mark.gpu, needs_gpu],
    ),
    pytest.param(
        {"pool": "processes", "devices": ("cuda:0", "cuda:1")},
        id="processes, two gpus",
        marks=[pytest.mark.gpu, needs_two],
    ),
]


@pytest.mark.parametrize("where", CLUSTERS)
def test_every_pool_answers_alike(llm, where):
    requests = mixed(12)
    with Cluster(Setup(model="tiny", num_blocks=256, **where)) as cluster:
        run = cluster.run(requests, timeout_s=120)
        notes = [note for known in cluster.supervisor.started.values() for note in known.notes]
    check_sound(run, requests)
    check_same(llm, requests, answers(llm, requests), run)
    assert len(events(run, "committed")) > 8
    assert not events(run, "handoff_refused")
    on_cpu = where.get("devices", ("cpu",))[0] == "cpu"
    assert (ON_CPU in notes) == on_cpu, "streams do nothing on a CPU, and the worker says so"
    assert ("prefill_sm_share" in where) == any("SMs" in note for note in notes)


@pytest.mark.parametrize("where", CLUSTERS)
def test_the_two_workers_swap_their_roles_while_requests_run(llm, where):
    """An SM share stays with the worker that was started with it."""
    requests = mixed(12)
    with Cluster(Setup(model="tiny", num_blocks=256, **where)) as cluster:

        def swap() -> None:
            cluster.change_role("worker-0", "decode")
            cluster.change_role("worker-1", "prefill")

        when(cluster, lambda e: (e.kind, e.request_id) == ("token", "m1"), swap)
        run = cluster.run(requests, timeout_s=120)
        cluster.on_event = None
        assert cluster.roles == {"worker-0": "decode", "worker-1": "prefill"}
        again = cluster.run(requests, timeout_s=120)
    for found in (run, again):
        check_sound(found, requests)
        check_same(llm, requests, answers(llm, requests), found)
        assert not events(found, "handoff_refused")
    assert {e.worker for e in events(again, "committed")} == {"worker-0"}
