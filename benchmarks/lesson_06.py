"""The recorded figures of lesson 06: a freeze foretold, and what it costs to read in pieces.

    python benchmarks/lesson_06.py --out benchmarks/raw/lesson_06.json

The freeze: the lesson's morning on two real workers, several times; before each, the two speeds
are measured as in the lesson, and each document's wait is foretold from them. Exits with 1 when
forecast and wait differ by more than 25 % in the median.

Pieces: whole prompts and pieces take turns, on one thread and in processor time, so that other
programs count only as far as they slow down memory; the quickest round counts. The load is kept.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from minipd.lab.collision import Servers
from minipd.lab.model_choice import lesson_model
from minipd.lab.reading_in_pieces import Pieces, measure_pieces, reread_bytes
from minipd.measure.contest import split_cores
from minipd.measure.demo import measure_phases
from minipd.measure.machine import describe_machine, pinned
from minipd.model.load import load

SIZES = {
    "mini": {512: (16, 64, 256), 2048: (64, 256)},  # as in the lesson
    "smollm2-135m": {512: (64, 256), 2048: (64, 256, 512)},
}


BAR = 0.25  # of the wait


def freezes(mornings: int) -> dict[str, Any]:
    """Of each morning every document's wait, and what was foretold just before."""
    name, why = lesson_model()
    print(why)
    model, cores = load(name), split_cores(2)
    servers = Servers(model, cores, 1.0 / measure_phases(model, cores).decode_tok_s)
    rows: list[dict[str, Any]] = []
    try:
        for morning in range(mornings):
            speed = measure_phases(model, cores, repetitions=2)
            found = servers.serve("colocated").freezes
            for freeze in found:
                foretold_s = freeze.expected_s(speed)
                error = foretold_s / freeze.length_s - 1.0
                words = f"{foretold_s:.3f} s foretold, {freeze.length_s:.3f} s waited, {error:+.0%}"
                print(f"morning {morning + 1}, {freeze.worker}: {words}", flush=True)
                rows.append(
                    asdict(freeze)
                    | {"morning": morning, "tokens": freeze.tokens, "speed": asdict(speed)}
                    | {"foretold_s": foretold_s, "error": error}
                )
    finally:
        servers.close()
    median_error = statistics.median(abs(one["error"]) for one in rows)
    return {
        "model": name,
        "note": servers.note,
        "freezes": rows,
        "median_error": median_error,
        "within_bar": sum(abs(one["error"]) <= BAR for one in rows),
        "bar": BAR,
    }


def row(piece: Pieces, again: dict[str, float]) -> dict[str, Any]:
    """One size of piece: its quickest round, the surplus, and the bytes fetched again."""
    return asdict(piece) | {"extra": piece.extra, "fetched_again_bytes": again}


def measure(name: str, rounds: int) -> dict[str, Any]:
    """All lengths and sizes of one model."""
    model = load(name)
    found = measure_pieces(model, SIZES[name], rounds)
    rows = [row(p, reread_bytes(model.config, p.prompt_tokens, p.piece_tokens)) for p in found]
    return {"fingerprint": model.fingerprint, "pieces": rows}


def main() -> int:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mornings", type=int, default=6)
    parser.add_argument("--pin", type=int, default=1, help="the core to run on")
    options = parser.parse_args()
    load_before = psutil.getloadavg()
    foretold = freezes(options.mornings)
    with pinned((options.pin,)) as note:
        models = {name: measure(name, options.rounds) for name in SIZES}
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": describe_machine().to_dict(),
        "threads": 1,
        "note": note,
        "rounds": options.rounds,
        "foretold": foretold,
        "models": models,
        "load": {"before": load_before, "after": psutil.getloadavg()},
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    within, number = foretold["within_bar"], len(foretold["freezes"])
    print(f"{within} of {number} waits within {BAR:.0%} of their forecast.")
    print(f"Written to {options.out}.")
    return 0 if foretold["median_error"] <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
