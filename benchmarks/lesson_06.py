"""The recorded figures of lesson 06: what it costs to read a prompt in pieces.

    python benchmarks/lesson_06.py --out benchmarks/raw/lesson_06.json

Whole prompts and pieces take turns, on one thread and in processor time, so that other programs
count only as far as they slow down memory; the quickest round counts. The load is kept, too.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from minipd.lab.reading_in_pieces import Pieces, measure_pieces, reread_bytes
from minipd.measure.machine import describe_machine, pinned
from minipd.model.load import load

SIZES = {
    "mini": {512: (16, 64, 256), 2048: (64, 256)},  # as in the lesson
    "smollm2-135m": {512: (64, 256), 2048: (64, 256, 512)},
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


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pin", type=int, default=1, help="the core to run on")
    options = parser.parse_args()
    load_before = psutil.getloadavg()
    with pinned((options.pin,)) as note:
        models = {name: measure(name, options.rounds) for name in SIZES}
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": describe_machine().to_dict(),
        "threads": 1,
        "note": note,
        "rounds": options.rounds,
        "models": models,
        "load": {"before": load_before, "after": psutil.getloadavg()},
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"Written to {options.out}.")


if __name__ == "__main__":
    main()
