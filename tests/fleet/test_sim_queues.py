"""Known waiting times: of prompts for a worker, of KV for a wire, of requests for memory."""

from __future__ import annotations

import tracemalloc

import pytest

from minipd.fleet import distserve, queueing
from minipd.fleet.fleet import Fleet, FleetError, Mode, WorkerKind
from minipd.fleet.network import Network, Wires
from minipd.fleet.simulate import SimResult, simulate
from minipd.fleet.sources import equal_requests
from minipd.fleet.timers import FixedTimer
from minipd.measure.rows import TraceRow
from minipd.measure.slo import SLO
from minipd.measure.summary import RunSummary
from minipd.sched.limits import Limits
from tests.fleet.simulated import MODES, fleet, rows

PLENTY = 1 << 30


def queue_fleet(service_s: float, pipelined: int = 1) -> Fleet:
    kind = WorkerKind(FixedTimer(service_s, pipelined=pipelined), PLENTY)
    return Fleet(kind, kind, limits=Limits(PLENTY, 1))  # one prompt per step


def mean_ttft(result: SimResult) -> float:
    latency = result.summary.latency["ttft_s"]
    assert latency is not None
    return latency.mean


@pytest.mark.parametrize("pipelined", [1, 2])
def test_waits_follow_lindley(pipelined: int) -> None:
    """Each wait is the last one plus its service less the gap: exact, on the very same arrivals."""
    arrivals = [row.arrival_s for row in equal_requests(2_000, 16, 1, 0.8).rows]
    free_s, total = 0.0, 0.0
    for arrival_s in arrivals:
        start_s = max(arrival_s, free_s)
        free_s = start_s + 1.0 / pipelined
        total += start_s + 1.0 - arrival_s
    result = simulate(queue_fleet(1.0, pipelined), equal_requests(2_000, 16, 1, 0.8).rows)
    assert mean_ttft(result) == pytest.approx(total / len(arrivals), rel=1e-9)


@pytest.mark.parametrize("load", [0.1, 0.3, 0.5, 0.7])
def test_mean_ttft_is_that_of_md1(load: float) -> None:
    """Within sampling noise of 6,000 requests; benchmarks/simulate.py has the long runs."""
    made = equal_requests(6_000, 16, 1, load).rows
    expected = queueing.single_ttft_s(load, 1.0)
    assert mean_ttft(simulate(queue_fleet(1.0), made)) == pytest.approx(expected, rel=0.04)


def test_two_stages_wait_less_than_one() -> None:
    made = equal_requests(6_000, 16, 1, 0.9).rows
    expected = queueing.pipeline_ttft_s(0.9, 1.0)
    assert mean_ttft(simulate(queue_fleet(1.0, 2), made)) == pytest.approx(expected, rel=0.02)


# -- KV on the way --------------------------------------------------------------------------------


def test_a_transfer_hides_behind_its_prefill() -> None:
    """1 GB/s, 4 layers: the first quarter can leave after 0.1 s of the 0.4 s."""
    wires = Wires(Network(0.01, 1e9), num_layers=4)
    end_s, copy_s = wires.send("a", "b", 1e8, 0.0, 0.4)
    assert (end_s, copy_s) == (pytest.approx(0.4 + 0.025 + 0.01), pytest.approx(0.1))
    slow = Wires(Network(0.0, 1e8), num_layers=4)
    assert slow.send("a", "b", 1e8, 0.0, 0.4)[0] == pytest.approx(0.1 + 1.0)


@pytest.mark.parametrize("shared", ["sender", "receiver", "trunk"])
def test_transfers_that_share_a_wire_take_turns(shared: str) -> None:
    network = Network(0.0, 1e9, 1e9 if shared == "trunk" else float("inf"))
    wires = Wires(network)
    first = wires.send("a", "x", 1e9, 0.0, 0.0)[0]
    sender = "a" if shared == "sender" else "b"
    second = wires.send(sender, "x" if shared == "receiver" else "y", 1e9, 0.0, 0.0)[0]
    assert (first, second) == (pytest.approx(1.0), pytest.approx(2.0))
    assert wires.send("c", "z", 1.0, 9.0, 9.0)[0] == pytest.approx(9.0)


def test_a_crowded_trunk_delays_answers_and_loses_none() -> None:
    free, crowded = (
        simulate(fleet(network=Network(trunk_bytes_per_s=rate)), rows()).summary
        for rate in (float("inf"), 3e7)
    )
    assert crowded.finished == free.finished == 120
    assert (crowded.percentile_ms("tpot_s", "p90") or 0) > 2 * (
        free.percentile_ms("tpot_s", "p90") or 0
    )


# -- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_ten_times_the_kv_capacity(mode: Mode) -> None:
    """All requests at once: most wait, none is lost."""
    made = fleet(mode, 1_280)
    crowd = [TraceRow(0.0, 400, 50) for _ in range(4 * 10 * 1_280 // 450)]
    result = simulate(made, crowd)
    assert result.summary.finished == len(crowd)
    assert result.leaked_blocks == 0


def test_what_can_never_be_served_is_left_out_and_told() -> None:
    mixed = [TraceRow(0.0, 300, 10), TraceRow(1.0, 5_000, 10), TraceRow(2.0, 300, 10)]
    result = simulate(fleet(kv_tokens=1_600), mixed)
    assert (result.summary.finished, result.refused) == (2, 1)
    assert "1 request(s) left out: each needs more KV than the 1600 tokens" in result.notes[0]
    with pytest.raises(FleetError, match="No request could be served: each is longer"):
        simulate(fleet(max_context=100), mixed)


def test_prefix_reuse_reads_less() -> None:
    plain, shared = (
        simulate(fleet("colocated", prefix_reuse=reuse), rows()).summary for reuse in (False, True)
    )

    def read(summary: RunSummary) -> int:
        return sum(worker.prefill_tokens for worker in summary.workers)

    assert read(shared) < 0.8 * read(plain)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_trace() -> None:
    def peak(number: int) -> int:
        tracemalloc.start()
        simulate(fleet(), equal_requests(number, 100, 5, 8.0).rows)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(50)
    assert peak(2_000) < peak(500) + 1_500 * 200  # bytes; a request's prompt alone has 840


# -- DistServe ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_distserve_places_two_gpus_on_prefill_and_one_on_decode() -> None:
    """Its README finds tp 2 and 1 at 1.56 requests/s per GPU, to a precision of 0.25 (facts 2.1);
    its lengths are ShareGPT's, ours have the same deciles."""
    ranked = distserve.search(
        distserve.one_of_each(), SLO(ttft_s=0.2, tpot_s=0.1), num_requests=400, precision=0.05
    )
    best = ranked[0]
    assert (best.tp_prefill, best.tp_decode) == (2, 1)
    assert best.rate_per_gpu == pytest.approx(1.56, abs=0.25)


def test_lengths_have_the_stated_deciles() -> None:
    drawn = sorted(row.prompt_tokens for row in distserve.sharegpt_like(5_000, 1.0))
    for n, decile in enumerate(distserve.PROMPT_DECILES[1:-1], 1):
        assert drawn[500 * n] == pytest.approx(decile, rel=0.1)


def test_highest_rate_halves() -> None:
    assert distserve.highest_rate(lambda rate: rate <= 1.3, 4.0, 0.01) == pytest.approx(
        1.3, abs=0.01
    )
    assert distserve.highest_rate(lambda rate: False, 4.0, 0.01) == 0.0
