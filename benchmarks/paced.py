"""Do paced workers behave like real ones? One trace on 1P1D, computed and then replayed.

    python benchmarks/paced.py --json benchmarks/raw/paced.json

serves the demo's trace on real workers and on paced ones, and compares medians of time to first
token, of gaps between tokens and the throughput. The paced ones keep step times that were measured
before and after the real run, so that a machine whose speed drifts is met in its middle. Exits with
1 when a figure is more than 10 % off.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, replace
from pathlib import Path

from minipd.measure.contest import DISAGGREGATED, fair_pair, hold, requests_of, split_cores
from minipd.measure.demo import demo_rows, measure_phases
from minipd.measure.machine import describe_machine
from minipd.measure.pace import measure_pace
from minipd.measure.report import write_json
from minipd.measure.rows import reshape
from minipd.measure.summary import RunSummary
from minipd.model.load import load
from minipd.pools.cluster import Cluster, Setup
from minipd.pools.paced import Pace

BAR = 0.10
Points = tuple[tuple[float, float], ...]


def figures(summary: RunSummary) -> dict[str, float]:
    return {
        "ttft_p50_ms": summary.percentile_ms("ttft_s", "p50") or 0.0,
        "itl_p50_ms": summary.percentile_ms("itl_s", "p50") or 0.0,
        "tpot_p50_ms": summary.percentile_ms("tpot_s", "p50") or 0.0,
        "output_tokens_per_s": summary.output_tokens_per_s,
    }


def between(one: Pace, other: Pace) -> Pace:
    """The mean of two measurements at the same points."""

    def mean(a: Points, b: Points) -> Points:
        return tuple((x, (s + t) / 2) for (x, s), (_, t) in zip(a, b, strict=True))

    slope = (one.per_context_token_s + other.per_context_token_s) / 2
    return Pace(mean(one.prefill, other.prefill), mean(one.decode, other.decode), slope)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--json", type=Path, help="file for the raw figures")
    options = parser.parse_args()
    model, cores = load(options.model), split_cores(2)
    rows, _ = reshape(demo_rows(), time_factor=measure_phases(model, cores).time_factor)
    requests = requests_of(rows, model.config, model.eos_ids)
    setup = fair_pair(model, requests, cores)

    def served(setup: Setup) -> dict[str, float]:
        with Cluster(setup) as cluster:
            outcome = hold(cluster, [DISAGGREGATED], requests, keep=None)["disaggregated"]
        return figures(outcome.summary)

    before = measure_pace(model, cores)
    found = {"real": served(setup)}
    pace = between(before, measure_pace(model, cores))
    found["paced"] = served(replace(setup, pace=pace))
    ratios = {name: found["paced"][name] / value for name, value in found["real"].items()}
    worst = max(abs(ratio - 1) for ratio in ratios.values())
    for name, ratio in ratios.items():
        real, paced = found["real"][name], found["paced"][name]
        print(f"{name}: real {real:.1f}, paced {paced:.1f} ({ratio:.3f})")
    if options.json:
        record = {"machine": describe_machine().to_dict(), "pace": asdict(pace), "ratios": ratios}
        write_json(options.json, record | found | {"bar": BAR, "worst": worst})
    return 0 if worst <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
