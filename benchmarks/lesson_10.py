"""The figures that lesson 10 quotes: four paced workers, three splits, three ways to choose.

    python benchmarks/lesson_10.py --out benchmarks/raw/lesson_10.json

measures this machine's step times with the model `mini`, then runs every split at several rates
with two draws of arrivals. Takes about two minutes; nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from minipd.lab import pool_ratio as ratio
from minipd.measure.contest import split_cores
from minipd.measure.machine import describe_machine
from minipd.measure.pace import measure_pace
from minipd.measure.report import write_json
from minipd.measure.sheet import now
from minipd.measure.slo import SLO
from minipd.model.load import load

WORKERS, SEEDS, SECONDS = 4, 2, 2.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/raw/lesson_10.json"))
    options = parser.parse_args()
    model, slo = load("mini"), SLO(ttft_s=0.4, tpot_s=0.06)
    pace, factor = ratio.lesson_pace(measure_pace(model, split_cores(2)))
    with tempfile.TemporaryDirectory() as folder:
        sweep = ratio.RatioSweep(model, pace, slo, Path(folder))
        points = sweep.run(WORKERS, ratio.MIX, SEEDS, SECONDS)
    splits = ratio.splits(WORKERS)
    ways = {
        "rate_matching": {s: ratio.matched_rate(pace, ratio.MIX, 0.06, s) for s in splits},
        "queue": {s: ratio.queued_rate(pace, ratio.MIX, slo, s) for s in splits},
        "measured": ratio.swept_rates(points),
    }
    ways |= {f"draw_{n}": ratio.swept_rates(points, n) for n in range(SEEDS)}
    record = {
        "date": now(),
        "machine": describe_machine().to_dict(),
        "model": model.name,
        "time_factor": factor,
        "pace": {"prefill": pace.prefill, "decode": pace.decode},
        "points": points,
        "requests_per_s": {
            way: {f"{p}P{d}D": rate for (p, d), rate in rates.items()}
            for way, rates in ways.items()
        },
        "chosen": {way: "{}P{}D".format(*ratio.best(rates)) for way, rates in ways.items()},
    }
    write_json(options.out, record)
    print(record["requests_per_s"], record["chosen"])


if __name__ == "__main__":
    main()
