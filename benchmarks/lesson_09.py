"""Lesson 09's figures on this machine: goodput of three modes, and the five cases that lose.

    python benchmarks/lesson_09.py --json benchmarks/raw/lesson_09.json

measures the pace of one of two workers, sweeps twice as many requests as the lesson on the jumping
clock, tries each winner on paced workers with two further seeds, and runs the losing cases. Exits
with 1 when a winner of the sweep is not the same with each seed alone.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from minipd.lab.goodput_sweep import (
    SEEDS,
    goodputs,
    sweep,
    table_of_steps,
    three_objectives,
    winner,
)
from minipd.lab.paced_runs import claims, try_claims
from minipd.lab.where_it_loses import losing_cases, losses_table, slower, try_cases
from minipd.measure.machine import describe_machine
from minipd.measure.report import write_json
from minipd.model.load import load

COUNT, FURTHER_SEEDS = 160, (3, 4)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--json", type=Path, help="file for the raw figures")
    options = parser.parse_args()
    pace = table_of_steps(load(options.model))
    swept, objectives = sweep(pace, COUNT), three_objectives(pace)
    winners = {reader: winner(goodputs(swept, slo)) for reader, slo in objectives.items()}
    alone = {
        reader: [winner(goodputs(swept, slo, [seed])) for seed in SEEDS]
        for reader, slo in objectives.items()
    }
    tried = try_cases(pace, losing_cases(pace))
    record: dict[str, object] = {
        "date": datetime.now().isoformat(timespec="seconds"),
        "machine": describe_machine().to_dict(),
        "model": options.model,
        "requests": COUNT,
        "pace": asdict(pace),
        "objectives": {reader: asdict(slo) for reader, slo in objectives.items()},
        "rates": swept.rates,
        "goodput_per_worker": {
            reader: {mode: rate / 2 for mode, rate in goodputs(swept, slo).items()}
            for reader, slo in objectives.items()
        },
        "winners": winners,
        "winners_of_each_seed": alone,
        "paced": {s: try_claims(pace, claims(swept, objectives), s) for s in FURTHER_SEEDS},
        "losses": losses_table(tried),
        "times_as_long": {name: slower(one) for name, one in tried.items()},
    }
    for name in ("goodput_per_worker", "winners_of_each_seed", "paced", "times_as_long"):
        print(name, record[name])
    if options.json:
        write_json(options.json, record)
    return 0 if all(set(alone[reader]) == {winners[reader]} for reader in winners) else 1


if __name__ == "__main__":
    sys.exit(main())
