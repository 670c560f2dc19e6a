"""The figures that lesson 12 prints, and the same for a longer time and other draws of lengths.

    python benchmarks/lesson_12.py --out benchmarks/raw/lesson_12.json

Everything is computed, nothing is timed: any machine should write the same file, but for its date
and its own description. About two minutes.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from minipd.lab import claims
from minipd.lab import fleet_runs as fleet
from minipd.lab.bill_dial import ANSWERS, DEEPSEEK_96, KIMI_128, bill_of
from minipd.measure.machine import describe_machine
from minipd.measure.report import write_json
from minipd.measure.sheet import now

LIMITS = (0.03, 0.05, 0.1, 0.2)
SECONDS = {"as_in_the_lesson": 15.0, "a_minute": 60.0}
DRAWS, REQUESTS = 3, 1500


def best_split(steps: Any) -> tuple[int, int]:
    reads, writes = fleet.node_rates(steps)
    nodes = fleet.NODES
    readers = max(range(1, nodes), key=lambda p: min(p * reads, (nodes - p) * writes))
    return readers, nodes - readers


def placed() -> dict[str, Any]:
    """32 and 320 GPUs against the matched split."""
    steps = fleet.steps_on()
    splits = [(4, 40), (fleet.NODES // 2, fleet.NODES // 2), best_split(steps)]
    found = {
        name: [asdict(one) for one in fleet.splits_served(steps, splits, seconds)]
        for name, seconds in SECONDS.items()
    }
    return {"requests_per_s_of_a_node": fleet.node_rates(steps), **found}


def planned() -> dict[str, Any]:
    """GPUs of the best plan of each mode under each limit, and the promise kept at one of them."""
    plans = {limit: fleet.plan_for(limit) for limit in LIMITS}
    kept: dict[str, Any] = {}
    for scale in (1.0, 1.5):
        for mode, plan in fleet.plan_for(0.05, 40.0 * scale).items():
            work = plans[0.05][mode].decode.speeds.work
            draws = [fleet.varied_rows(work, REQUESTS, seed) for seed in range(DRAWS)]
            kept[f"{mode}, planned for {scale:g} times the load"] = {
                "gpus": plan.gpus,
                "equal": fleet.kept_promise(plan, fleet.equal_rows(work, REQUESTS)),
                "varied": [fleet.kept_promise(plan, rows) for rows in draws],
                "too_long_alone": [fleet.too_long_alone(plan, rows) for rows in draws],
            }
    return {
        "gpus": {f"{x:g}": {m: p.gpus for m, p in by.items()} for x, by in plans.items()},
        "kept_promise_at_0.05": kept,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/raw/lesson_12.json"))
    options = parser.parse_args()
    record = {
        "date": now(),
        "machine": describe_machine().to_dict(),
        "placed": placed(),
        "planned": planned(),
        "deepseek_nodes": claims.fleet_nodes(),
        "kimi_step_s": claims.kimi_step_s(),
        "usd_per_million_output": {
            name: {str(n): asdict(bill_of(pools, n)) for n in ANSWERS}
            for name, pools in (("deepseek", DEEPSEEK_96), ("kimi", KIMI_128))
        },
    }
    write_json(options.out, record)
    for part in ("placed", "planned"):
        print(record[part])


if __name__ == "__main__":
    main()
