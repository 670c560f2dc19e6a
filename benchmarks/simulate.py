"""The simulator against what is known without it: queueing theory, published figures, a stopwatch.

    python benchmarks/simulate.py                 everything; some 15 minutes on one core
    python benchmarks/simulate.py --only speed md1 --quick

  speed      100,000 requests of 1,000 in / 150 out on 352 workers: seconds of one core, memory
  md1        mean TTFT of one worker, of two pipeline stages and of two-way tensor parallelism
             against M/D/1 (DistServe, eq. 1 to 3; facts C2)
  figure1    DistServe's first figure (facts C3): which ratio of workers, and how much it gains
  placement  DistServe's published step times for OPT-13B (facts 2.1): the best placement

Writes benchmarks/raw/simulate.json; exits with 1 when a bar is missed (not with --quick).
"""

from __future__ import annotations

import argparse
import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from minipd.fleet import distserve, queueing
from minipd.fleet.calibrate import factors_for
from minipd.fleet.configs import find_model
from minipd.fleet.fleet import Fleet, WorkerKind
from minipd.fleet.gpus import find_device
from minipd.fleet.kvpool import kv_tokens
from minipd.fleet.network import Network
from minipd.fleet.simulate import SimResult, simulate
from minipd.fleet.sources import equal_requests
from minipd.fleet.steps import StepModel
from minipd.fleet.timers import FixedTimer, ModelTimer, PointTimer
from minipd.fleet.work import Parallel
from minipd.measure.machine import describe_machine
from minipd.measure.report import write_json
from minipd.measure.rows import TraceRow
from minipd.measure.slo import SLO
from minipd.sched.limits import Limits

RAW = Path(__file__).parent / "raw" / "simulate.json"
LOADS = {0.1: 100_000, 0.3: 200_000, 0.5: 400_000, 0.7: 1_000_000, 0.9: 6_000_000}
SPEEDUP = 1.7  # K of two-way tensor parallelism
PLENTY = 1 << 30
# Prefill workers, decode workers, requests/s: the ratio of DeepSeek's units, and a balanced one.
RATIOS = {"32P320D": (32, 320, 1200.0), "128P224D": (128, 224, 4000.0)}


def paid(part: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    began, cpu = perf_counter(), process_time()
    found = part()
    return found | {"wall_s": perf_counter() - began, "cpu_s": process_time() - cpu}


# -- speed and memory --------------------------------------------------------------------------


def big_fleet(num_prefill: int, num_decode: int) -> Fleet:
    """Llama-3.1-8B on H100s, 400 Gb/s from each."""
    model, device = find_model("Llama-3.1-8B"), find_device("H100")
    timer = ModelTimer(StepModel(model, device, factors_for(device)))
    kind = WorkerKind(timer, kv_tokens(model, device.memory_bytes, Parallel()))
    return Fleet(
        kind,
        kind,
        num_prefill=num_prefill,
        num_decode=num_decode,
        kv_bytes_per_token=model.kv_bytes_per_token(),
        num_layers=model.num_layers,
        network=Network(0.38e-3, 50e9),
    )


def speed(quick: bool) -> dict[str, Any]:
    number = 10_000 if quick else 100_000
    found: dict[str, Any] = {"requests": number, "workers": 352}
    for name, (p, d, rate) in {
        "32P320D": (32, 320, 1200.0),
        "128P224D": (128, 224, 4000.0),
    }.items():
        rows = equal_requests(number, 1000, 150, rate).rows
        began, cpu = perf_counter(), process_time()
        result = simulate(big_fleet(p, d), rows, slo=SLO(0.5, 0.02))
        found[name] = {
            "wall_s": perf_counter() - began,
            "cpu_s": process_time() - cpu,
            "finished": result.summary.finished,
            "leaked_blocks": result.leaked_blocks,
            "rate_per_s": rate,
            "ttft_p90_ms": result.summary.percentile_ms("ttft_s", "p90"),
            "tpot_p90_ms": result.summary.percentile_ms("tpot_s", "p90"),
        }
    found["peak_bytes"] = {n: peak_bytes(n) for n in (8_000, 32_000)}
    return found


def peak_bytes(num_requests: int) -> int:
    """Of what a run allocates, on a small fleet that keeps up."""
    gc.collect()
    tracemalloc.start()
    simulate(big_fleet(2, 3), equal_requests(num_requests, 1000, 150, 50.0).rows)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


# -- M/D/1 -----------------------------------------------------------------------------------------


def one_queue(service_s: float, pipelined: int, rate: float, number: int) -> SimResult:
    """One prefill worker, one prompt at a time, one token each."""
    timer = FixedTimer(service_s, pipelined=pipelined)
    kind = WorkerKind(timer, PLENTY)
    fleet = Fleet(kind, kind, limits=Limits(PLENTY, 1))
    return simulate(fleet, equal_requests(number, 16, 1, rate).rows)


def md1(quick: bool) -> dict[str, Any]:
    forms: dict[str, tuple[float, int, Callable[[float], float]]] = {
        "single": (1.0, 1, lambda rate: queueing.single_ttft_s(rate, 1.0)),
        "pipeline": (1.0, 2, lambda rate: queueing.pipeline_ttft_s(rate, 1.0)),
        "tensor": (1.0 / SPEEDUP, 1, lambda rate: queueing.tensor_ttft_s(rate, 1.0, SPEEDUP)),
    }
    found: dict[str, Any] = {}
    for name, (service_s, pipelined, formula) in forms.items():
        found[name] = {}
        for load, number in LOADS.items():
            needed = number if name == "single" else min(number, 1_000_000)
            result = one_queue(service_s, pipelined, load, needed // 50 if quick else needed)
            latency = result.summary.latency["ttft_s"]
            assert latency is not None, "every request gets its token"
            error = latency.mean / formula(load) - 1.0
            found[name][str(load)] = {
                "mean_ttft_s": latency.mean,
                "formula_s": formula(load),
                "error": error,
                "requests": latency.count,
            }
            print(f"  {name} at {load}: {latency.mean:.4f} s, {error:+.2%}", flush=True)
    found["worst"] = max(abs(x["error"]) for form in forms for x in found[form].values())
    return found


# -- DistServe's first figure ------------------------------------------------------------------

FIGURE_SLO = SLO(ttft_s=0.4, tpot_s=0.04)
FIGURE_IN, FIGURE_OUT, FIGURE_RATES = 512, 64, (5.6, 10.0)
DECODE_BASE_S = 0.01


def figure_fleet(prefill_s: float, per_sequence_s: float, mode: str, p: int, d: int) -> Fleet:
    decode = ((0.0, DECODE_BASE_S), (1.0, DECODE_BASE_S + per_sequence_s))
    prompts = ((0.0, 0.0), (float(FIGURE_IN), prefill_s))
    kind = WorkerKind(PointTimer(prompts, decode), PLENTY)
    limits = Limits(PLENTY, 1)
    both = "colocated" if mode == "colocated" else "disaggregated"
    return Fleet(kind, kind, mode=both, num_prefill=p, num_decode=d, limits=limits)


def figure_rate(fleet: Fleet, number: int, most: float, slo: SLO = FIGURE_SLO) -> float:
    """The highest rate at which 90 % keep each limit."""

    def is_kept(rate: float) -> bool:
        result = simulate(fleet, equal_requests(number, FIGURE_IN, FIGURE_OUT, rate).rows)
        return distserve.keeps(result, slo, 0.9)

    return distserve.highest_rate(is_kept, most, most / 512)


def solve(rate_of: Callable[[float], float], rate: float, high: float) -> float:
    """The step time with which a phase alone reaches just this rate."""
    low = 0.0
    for _ in range(9):
        middle = (low + high) / 2
        low, high = (middle, high) if rate_of(middle) > rate else (low, middle)
    return (low + high) / 2


def figure1(quick: bool) -> dict[str, Any]:
    """The figure gives what each phase reaches alone on one GPU; the rest is simulated."""
    number = 400 if quick else 3000
    first, later = SLO(ttft_s=FIGURE_SLO.ttft_s), SLO(tpot_s=FIGURE_SLO.tpot_s)
    prefill_s = solve(
        lambda s: figure_rate(figure_fleet(s, 0.0, "split", 1, 8), number, 16.0, first),
        FIGURE_RATES[0],
        0.4,
    )
    per_sequence_s = solve(
        lambda s: figure_rate(figure_fleet(1e-6, s, "split", 1, 1), number, 32.0, later),
        FIGURE_RATES[1],
        0.01,
    )
    found: dict[str, Any] = {"prefill_s": prefill_s, "per_sequence_s": per_sequence_s}
    placements: dict[str, float] = {}
    for p, d in ((1, 1), (2, 1), (3, 1), (1, 2), (3, 2), (4, 2)):
        fleet = figure_fleet(prefill_s, per_sequence_s, "split", p, d)
        placements[f"{p}P{d}D"] = figure_rate(fleet, number, 8.0 * (p + d)) / (p + d)
    colocated = figure_rate(figure_fleet(prefill_s, per_sequence_s, "colocated", 0, 1), number, 8.0)
    small = {name: rate for name, rate in placements.items() if int(name[0]) + int(name[2]) <= 3}
    best = max(small, key=lambda name: small[name])
    gain = placements[best] / colocated if colocated else None
    return found | {
        "per_gpu": placements,
        "colocated": colocated,
        "best_up_to_3_gpus": best,
        "rate_2p1d": placements["2P1D"],
        "published": {"rate_2p1d": 10 / 3, "colocated": 1.6, "gain": 2.1},
        "gain_over_simulated": gain,
        "gain_over_published": placements["2P1D"] / 1.6,
    }


# -- DistServe's placement ---------------------------------------------------------------------


def placement(quick: bool) -> dict[str, Any]:
    slo, number = SLO(ttft_s=0.2, tpot_s=0.1), 300 if quick else 3000
    ranked = distserve.search(distserve.one_of_each(4), slo, num_requests=number)
    return {
        "slo": {"ttft_s": 0.2, "tpot_s": 0.1, "share": 0.9},
        "requests": number,
        "lengths": lengths(distserve.sharegpt_like(20_000, 1.0)),
        "ranked": [asdict(x) for x in ranked],
        "published": {"rate_per_gpu": 1.56, "tp_prefill": 2, "tp_decode": 1, "precision": 0.25},
    }


def lengths(rows: Iterator[TraceRow]) -> dict[str, Any]:
    drawn = list(rows)
    return {
        "prompt_deciles": distserve.PROMPT_DECILES,
        "answer_deciles": distserve.ANSWER_DECILES,
        "prompt_mean": sum(row.prompt_tokens for row in drawn) / len(drawn),
        "answer_mean": sum(row.output_tokens for row in drawn) / len(drawn),
    }


# -- all of it -------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[bool], dict[str, Any]]] = {
    "speed": speed,
    "md1": md1,
    "figure1": figure1,
    "placement": placement,
}


def missed(found: dict[str, Any]) -> list[str]:
    told: list[str] = []
    if "speed" in found:
        seconds = max(found["speed"][name]["wall_s"] for name in RATIOS)
        told += [f"speed: {seconds:.0f} s"] if seconds > 60 else []
        small, large = found["speed"]["peak_bytes"].values()
        told += [f"memory: {small} B, then {large} B"] if large > 1.25 * small else []
    if "md1" in found and found["md1"]["worst"] > 0.01:
        told.append(f"M/D/1: {found['md1']['worst']:.2%}")
    if "figure1" in found:
        part = found["figure1"]
        wrong = part["best_up_to_3_gpus"] != "2P1D" or abs(part["rate_2p1d"] / (10 / 3) - 1) > 0.03
        told += [f"figure 1: {part['per_gpu']}"] if wrong else []
    if "placement" in found:
        best = found["placement"]["ranked"][0]
        wrong = (best["tp_prefill"], best["tp_decode"]) != (2, 1)
        told += [f"placement: {best}"] if wrong else []
    return told


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--quick", action="store_true", help="fewer requests, no bars")
    parser.add_argument("--json", type=Path, default=RAW, help="file for the figures")
    options = parser.parse_args()
    found: dict[str, Any] = {"machine": describe_machine().to_dict(), "quick": options.quick}
    for name in options.only:
        found[name] = paid(lambda part=PARTS[name]: part(options.quick))
        print(f"{name}: {found[name]}", flush=True)
    write_json(options.json, found)
    faults = [] if options.quick else missed(found)
    for fault in faults:
        print(f"Missed: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
