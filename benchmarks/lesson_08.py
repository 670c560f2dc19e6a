"""The figures that lesson 08 quotes: links, copies, a shared port, and the break-even, run.

    python benchmarks/lesson_08.py --out benchmarks/raw/lesson_08.json

Fits each link to every second size and checks it on the others; copies the same bytes directly,
staged and through a socket; sends two hand-offs through one port; predicts the break-even from
three measurements and runs it. All samples are kept, with the machine's load before and after.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from minipd.lab.break_even import added_s, break_even, spared_s
from minipd.lab.link_trials import (
    copies_into_fresh_memory,
    measure_copies,
    measure_links,
    two_senders,
)
from minipd.lab.remote_or_local import measure_server, probe, run_trial, slow_network
from minipd.measure.contest import split_cores
from minipd.measure.machine import describe_machine
from minipd.model.load import load
from minipd.pools.links.emulated import NETWORKS


def links() -> dict[str, Any]:
    """Fits with their points and held-out errors, and why a link is missing."""
    found, missing = measure_links()
    fits = {name: asdict(one) | {"worst_error": one.worst_error} for name, one in found.items()}
    return {"fits": fits, "missing": missing}


def scale(rounds: int) -> dict[str, Any]:
    """The break-even here: three measurements, the prediction, and every pair of the run."""
    model, cores = load("mini"), split_cores(2)
    server = measure_server(model, cores)
    network = slow_network(server)
    link = probe(network, model)
    trial = run_trial(network, rounds=rounds)
    return {
        "tokens_per_s": 1 / (server.prefill_s(1) - server.prefill_s(0)),
        "pass_s": server.prefill_s(0),
        "step_s": server.step_s,
        "chats": server.chats,
        "network": asdict(network),
        "link": asdict(link),
        "predicted_tokens": break_even(server, link),
        "measured_tokens": trial.break_even,
        "points": [
            {
                "tokens": n,
                "added_s": added,
                "spared_s": spared,
                "added_predicted_s": added_s(server, link, n),
                "spared_predicted_s": spared_s(server, n),
            }
            for n, added, spared in trial.points
        ],
        "pairs": [asdict(pair) for pair in trial.pairs],
        "note": trial.note,
    }


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    load_before = psutil.getloadavg()
    alone, both = two_senders(NETWORKS["eth1"])
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": describe_machine().to_dict(),
        "links": links(),
        "copies": [asdict(way) for way in measure_copies()],
        "two_senders": {"alone_s": alone, "both_s": both},
        "fresh_memory_s": list(copies_into_fresh_memory()),
        "break_even": [scale(options.rounds) for _ in range(2)],
        "load": {"before": load_before, "after": psutil.getloadavg()},
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"Written to {options.out}.")


if __name__ == "__main__":
    main()
