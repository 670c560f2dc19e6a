"""Do paced workers behave like real ones? One trace on 1P1D, computed and then replayed.

    python benchmarks/paced.py --json benchmarks/raw/paced.json

measures this machine's step times, serves the demo's trace on real workers and on paced ones, and
compares medians of time to first token, of gaps between tokens and the throughput. Exits with 1
when one of them is more than 10 % off.
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
from minipd.pools.cluster import Cluster

BAR = 0.10


def figures(summary: RunSummary) -> dict[str, float]:
    return {
        "ttft_p50_ms": summary.percentile_ms("ttft_s", "p50") or 0.0,
        "itl_p50_ms": summary.percentile_ms("itl_s", "p50") or 0.0,
        "tpot_p50_ms": summary.percentile_ms("tpot_s", "p50") or 0.0,
        "output_tokens_per_s": summary.output_tokens_per_s,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--json", type=Path, help="file for the raw figures")
    options = parser.parse_args()
    model, cores = load(options.model), split_cores(2)
    rows, _ = reshape(demo_rows(), time_factor=measure_phases(model, cores).time_factor)
    requests = requests_of(rows, model.config, model.eos_ids)
    pace = measure_pace(model, cores)
    setup = fair_pair(model, requests, cores)
    found: dict[str, dict[str, float]] = {}
    for name, this in (("real", setup), ("paced", replace(setup, pace=pace))):
        with Cluster(this) as cluster:
            outcome = hold(cluster, [DISAGGREGATED], requests, keep=None)["disaggregated"]
        found[name] = figures(outcome.summary)
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
