"""What a hand-off costs on a link: time = latency + bytes / bandwidth, on sizes not used for it.

    python benchmarks/links.py --json benchmarks/raw/links.json

moves blocks between two processes over shared memory, NIXL (where installed) and emulated networks,
fits the two constants to every second size, and predicts the sizes in between. Digests are taken on
the way, as in a real hand-off. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from minipd.cache.store import KVLayout
from minipd.measure.links import Point, fit_link, hold_out, medians
from minipd.measure.machine import describe_machine
from minipd.measure.report import progress_bar, write_json
from minipd.pools.links.base import Link, LinkError
from minipd.pools.links.choose import LinkKind, choose_link
from minipd.pools.links.emulated import Emulated, network
from minipd.pools.links.probe import time_link

LAYERS, BLOCK_SIZE, KV_HEADS, HEAD_DIM = 30, 16, 3, 64  # SmolLM2-135M's KV
BLOCK_COUNTS = (1, 2, 4, 8, 16, 32, 64, 96, 128)  # 16 to 2,048 tokens
EMULATED = ("eth10", "eth1")  # a faster one is held up by the copies of the link beneath
ERROR_BAR = 0.25


def link_maker(name: str, folder: str) -> Callable[[], Link]:
    """How to make a worker's end of the link called `name`."""
    kind: LinkKind = "nixl" if name == "nixl" else "direct"

    def make() -> Link:
        link = choose_link(kind, ["cpu"], folder, in_one_process=False)
        return Emulated(link, network(name)) if name in EMULATED else link

    make()  # says now what is missing
    return make


def samples_of(name: str, rounds: int, folder: str, tick: Callable[[], None]) -> list[Point]:
    """Each size once per round, smallest first; the first round warms up and is left out."""
    make = link_maker(name, folder)
    layout = KVLayout(LAYERS, max(BLOCK_COUNTS), BLOCK_SIZE, KV_HEADS, HEAD_DIM, torch.float32)
    counts = BLOCK_COUNTS * (rounds + 1)
    samples: list[Point] = []
    for sample in time_link(make(), make(), layout, counts):
        samples.append(sample)
        tick()
    return samples[len(BLOCK_COUNTS) :]


def record_of(samples: list[Point]) -> dict[str, Any]:
    fitted, checked = hold_out(medians(samples))
    fit = fit_link(fitted)
    errors = fit.errors(checked)
    return {
        "latency_s": fit.latency_s,
        "bytes_per_s": fit.bytes_per_s,
        "half_bytes": fit.half_bytes,
        "fitted": fitted,
        "held_out": checked,
        "held_out_errors": errors,
        "worst_error": max(abs(error) for error in errors),
        "samples": samples,
    }


def measure(names: list[str], rounds: int) -> dict[str, Any]:
    record: dict[str, Any] = {"machine": describe_machine().to_dict(), "links": {}, "missing": {}}
    memory = Path("/dev/shm")  # where a real cluster shares its stores, if the system has it
    folder = tempfile.mkdtemp(prefix="minipd-", dir=memory if memory.is_dir() else None)
    try:
        with progress_bar() as bar:
            for name in names:
                task = bar.add_task(name, total=(rounds + 1) * len(BLOCK_COUNTS))
                try:
                    samples = samples_of(name, rounds, folder, lambda task=task: bar.advance(task))
                    record["links"][name] = record_of(samples)
                except LinkError as missing:
                    record["missing"][name] = str(missing)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return record


def table(record: dict[str, Any]) -> Table:
    drawn = Table("link", "latency", "bandwidth", "half of it reached at", "worst held-out error")
    for name, link in record["links"].items():
        drawn.add_row(
            name,
            f"{link['latency_s'] * 1e3:.2f} ms",
            f"{link['bytes_per_s'] / 1e9:.2f} GB/s",
            f"{link['half_bytes'] / 1e6:.2f} MB",
            f"{link['worst_error']:.0%}",
        )
    for name, reason in record["missing"].items():
        drawn.add_row(name, reason)
    return drawn


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--links", nargs="+", default=["shared memory", "nixl", *EMULATED])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, help="file for the raw samples")
    options = parser.parse_args()
    torch.set_num_threads(1)
    record = measure(options.links, options.rounds)
    if options.json:
        write_json(options.json, record)
    Console().print(table(record))
    reached = all(link["worst_error"] <= ERROR_BAR for link in record["links"].values())
    print(f"held-out sizes within {ERROR_BAR:.0%}: {'reached' if reached else 'MISSED'}")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
