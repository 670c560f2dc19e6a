"""How fast the simulator is, what memory it takes, and whether equal runs are equal.

Used by simulate.py, which runs it once per row of `RUNS`, each in a process of its own:

    python benchmarks/simulate_speed.py --prefill 32 --decode 320 --rate 1200 --requests 100000

prints one JSON object: seconds, the process's peak memory, and a fingerprint of every figure.
Nothing but the standard library is imported.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from minipd.fleet.calibrate import factors_for
from minipd.fleet.configs import find_model
from minipd.fleet.fleet import Fleet, WorkerKind
from minipd.fleet.gpus import find_device
from minipd.fleet.kvpool import kv_tokens
from minipd.fleet.network import Network
from minipd.fleet.simulate import simulate
from minipd.fleet.sources import equal_requests
from minipd.fleet.steps import StepModel
from minipd.fleet.timers import ModelTimer
from minipd.fleet.work import Parallel
from minipd.measure.slo import SLO

PROMPT, ANSWER = 1000, 150
# Prefill workers, decode workers, requests/s: the ratio of DeepSeek's units, and a balanced one.
RATIOS = {"32P320D": (32, 320, 1200.0), "128P224D": (128, 224, 4000.0)}
RUNS = (
    ("32P320D", 10_000),
    ("32P320D", 10_000),  # again: it must be the same to the last digit
    ("32P320D", 100_000),
    ("128P224D", 100_000),
    ("32P320D", 300_000),
)


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


def peak_bytes() -> int:
    """The most memory that this process has held. Linux's `ru_maxrss` would count that of the
    process that started it."""
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(x for x in status.read_text("ascii").splitlines() if x.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def measured(num_prefill: int, num_decode: int, rate: float, number: int) -> dict[str, Any]:
    rows = equal_requests(number, PROMPT, ANSWER, rate).rows
    began, cpu = perf_counter(), process_time()
    result = simulate(big_fleet(num_prefill, num_decode), rows, slo=SLO(0.5, 0.02))
    wall_s, cpu_s = perf_counter() - began, process_time() - cpu
    figures = json.dumps(result.to_dict(), sort_keys=True, default=str)
    return {
        "requests": number,
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "peak_bytes": peak_bytes(),
        "fingerprint": hashlib.sha256(figures.encode()).hexdigest()[:16],
        "finished": result.summary.finished,
        "leaked_blocks": result.leaked_blocks,
        "ttft_p90_ms": result.summary.percentile_ms("ttft_s", "p90"),
        "tpot_p90_ms": result.summary.percentile_ms("tpot_s", "p90"),
    }


def speed(quick: bool) -> dict[str, Any]:
    """Every run in a fresh process, one after another."""
    runs: list[dict[str, Any]] = []
    for name, number in RUNS:
        p, d, rate = RATIOS[name]
        options = {"prefill": p, "decode": d, "rate": rate}
        options["requests"] = number // 10 if quick else number
        words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        command = [sys.executable, __file__, *words]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        runs.append({"fleet": name, "rate_per_s": rate, **json.loads(told)})
        print(f"  {runs[-1]}", flush=True)
    return {"workers": 352, "prompt_tokens": PROMPT, "output_tokens": ANSWER, "runs": runs}


def missed(found: dict[str, Any]) -> list[str]:
    """A bar that was not kept, each in a few words. Seconds are those of one core: the run has one
    thread, and what other programs take of the core is not its own."""
    runs = found["runs"]
    long = [run for run in runs if run["requests"] == 100_000]
    told = [f"speed: {run['fleet']} {run['cpu_s']:.0f} s" for run in long if run["cpu_s"] > 60]
    told += [f"lost requests: {run}" for run in runs if run["finished"] != run["requests"]]
    same = [run for run in runs if run["fleet"] == "32P320D"]
    if same[0]["fingerprint"] != same[1]["fingerprint"]:
        told.append("two equal runs differ")
    if same[-1]["peak_bytes"] > 1.1 * same[0]["peak_bytes"]:
        told.append(f"memory: {[run['peak_bytes'] for run in same]}")
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prefill", type=int, required=True)
    parser.add_argument("--decode", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--requests", type=int, required=True)
    asked = parser.parse_args()
    print(json.dumps(measured(asked.prefill, asked.decode, asked.rate, asked.requests)))


if __name__ == "__main__":
    main()
