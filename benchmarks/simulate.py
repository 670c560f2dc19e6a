"""The simulator against what is known without it: queueing theory, published figures, a stopwatch.

    python benchmarks/simulate.py                 everything; some 15 minutes on one core
    python benchmarks/simulate.py --only speed    what needs a machine that does nothing else
    python benchmarks/simulate.py --only speed md1 --quick

  speed      100,000 requests of 1,000 in / 150 out on 352 workers: seconds of one core, memory,
             the same run again
  md1        mean TTFT of one worker, of two pipeline stages and of two-way tensor parallelism
             against M/D/1 (DistServe, eq. 1 to 3; facts C2)
  figure1    DistServe's first figure (facts C3): which ratio of workers, and how much it gains
  placement  DistServe's published step times for OPT-13B (facts 2.1): the best placement

Writes its parts into benchmarks/raw/simulate.json, leaving others there as they were, and the
table in docs/fleet.md anew; exits with 1 when a bar is missed. With --quick: no bars, no page.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import simulate_speed
from simulate_distserve import figure1, placement
from simulate_rows import doc_rows, rewrite

from minipd.fleet import queueing
from minipd.fleet.fleet import Fleet, WorkerKind
from minipd.fleet.simulate import SimResult, simulate
from minipd.fleet.sources import equal_requests
from minipd.fleet.timers import FixedTimer
from minipd.measure.machine import describe_machine
from minipd.measure.report import write_json
from minipd.measure.rows import TraceRow
from minipd.sched.limits import Limits

RAW = Path(__file__).parent / "raw" / "simulate.json"
PAGE = Path(__file__).parents[1] / "docs" / "fleet.md"
LOADS = {0.1: 50_000, 0.3: 50_000, 0.5: 100_000, 0.7: 200_000, 0.9: 300_000}  # requests
LONG_RUN, PIECE = 50_000_000, 1_000_000  # arrivals of the bare recursion, and how many at once
SPEEDUP = 1.7  # K of two-way tensor parallelism
QUEUES: dict[str, tuple[float, int, Callable[[float], float]]] = {  # seconds, stages, mean TTFT
    "single": (1.0, 1, lambda rate: queueing.single_ttft_s(rate, 1.0)),
    "pipeline": (1.0, 2, lambda rate: queueing.pipeline_ttft_s(rate, 1.0)),
    "tensor": (1.0 / SPEEDUP, 1, lambda rate: queueing.tensor_ttft_s(rate, 1.0, SPEEDUP)),
}
PLENTY = 1 << 30


def paid(part: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    began, cpu = perf_counter(), process_time()
    found = part()
    return found | {"wall_s": perf_counter() - began, "cpu_s": process_time() - cpu}


# -- M/D/1 -----------------------------------------------------------------------------------------


class Lindley:
    """The exact mean TTFT of one queue on the very arrivals that pass through `watched`: each
    prompt begins when it has come and the one before it has left the first stage."""

    def __init__(self, service_s: float, pipelined: int) -> None:
        self.service_s, self.stage_s = service_s, service_s / pipelined
        self.free_s = self.total_s = 0.0
        self.number = 0

    def watched(self, rows: Iterable[TraceRow]) -> Iterator[TraceRow]:
        for row in rows:
            start_s = max(row.arrival_s, self.free_s)
            self.free_s = start_s + self.stage_s
            self.total_s += start_s + self.service_s - row.arrival_s
            self.number += 1
            yield row


def one_queue(lindley: Lindley, pipelined: int, rate: float, number: int) -> SimResult:
    """One prefill worker, one prompt at a time, one token each."""
    timer = FixedTimer(lindley.service_s, pipelined=pipelined)
    kind = WorkerKind(timer, PLENTY)
    fleet = Fleet(kind, kind, limits=Limits(PLENTY, 1))
    return simulate(fleet, lindley.watched(equal_requests(number, 16, 1, rate).rows))


def lindley_long_run_s(service_s: float, pipelined: int, rate: float, number: int) -> float:
    """The recursion's mean TTFT over so many arrivals of its own."""
    rng, stage_s = np.random.default_rng(0), service_s / pipelined
    wait_s = total_s = 0.0
    for _ in range(number // PIECE):
        steps = np.cumsum(stage_s - rng.exponential(1.0 / rate, PIECE))
        waits = steps - np.minimum(np.minimum.accumulate(steps), -wait_s)
        wait_s, total_s = float(waits[-1]), total_s + float(waits.sum())
    return service_s + total_s / number


def md1(quick: bool) -> dict[str, Any]:
    """Against the formulas, which hold in the long run. The simulated mean differs from them by the
    luck of its sample, and at a load of 0.9 that luck is some per cent even after a million
    requests. It is taken out by what is exact on any arrivals, Lindley's recursion: its mean on the
    same arrivals is replaced by its mean over fifty million others (a control variate)."""
    found: dict[str, Any] = {}
    for name, (service_s, pipelined, formula) in QUEUES.items():
        found[name] = {}
        for load, number in LOADS.items():
            number = number if name == "single" else min(number, 50_000)
            lindley = Lindley(service_s, pipelined)
            result = one_queue(lindley, pipelined, load, number // 50 if quick else number)
            latency = result.summary.latency["ttft_s"]
            assert latency is not None, "every request gets its token"
            exact_s = lindley.total_s / lindley.number
            long_run_s = lindley_long_run_s(service_s, pipelined, load, LONG_RUN)
            adjusted_s = latency.mean - exact_s + long_run_s
            found[name][str(load)] = {
                "sample_mean_ttft_s": latency.mean,
                "mean_ttft_s": adjusted_s,
                "formula_s": formula(load),
                "error": adjusted_s / formula(load) - 1.0,
                "sample_error": latency.mean / formula(load) - 1.0,
                "error_against_lindley": latency.mean / exact_s - 1.0,
                "requests": latency.count,
            }
            print(f"  {name} at {load}: {found[name][str(load)]}", flush=True)
    points = [point for name in QUEUES for point in found[name].values()]
    for key in ("error", "error_against_lindley"):
        found[f"worst_{key}"] = max(abs(point[key]) for point in points)
    return found


# -- all of it -------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[bool], dict[str, Any]]] = {
    "speed": simulate_speed.speed,
    "md1": md1,
    "figure1": figure1,
    "placement": placement,
}


def missed(found: dict[str, Any]) -> list[str]:
    told: list[str] = []
    if "speed" in found:
        told += simulate_speed.missed(found["speed"])
    if "md1" in found:
        off, exact = (found["md1"][f"worst_error{x}"] for x in ("", "_against_lindley"))
        told += [f"M/D/1: {off:.2%}, {exact:.1e}"] if off > 0.01 or exact > 1e-9 else []
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
    found: dict[str, Any] = {}
    for name in options.only:
        found[name] = paid(lambda part=PARTS[name]: part(options.quick))
        found[name] |= {"machine": describe_machine().to_dict(), "quick": options.quick}
        print(f"{name}: {found[name]}", flush=True)
        kept: Any = json.loads(options.json.read_text("utf-8")) if options.json.is_file() else {}
        write_json(options.json, kept | {name: found[name]})  # each part as soon as it is there
    written: Any = json.loads(options.json.read_text("utf-8"))
    print("\n".join(doc_rows(written)))
    if options.json == RAW and not options.quick:
        rewrite(PAGE, written)
    faults = [] if options.quick else missed(found)
    for fault in faults:
        print(f"Missed: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
