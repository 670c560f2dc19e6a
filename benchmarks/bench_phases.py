"""The bars of prefill and decode: one pinned core, float32, against transformers, side by side.

    python benchmarks/bench_phases.py --pin 0

writes the raw samples to benchmarks/raw/ and exits with 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from minipd.measure.bench import run_bench

RAW = Path(__file__).parent / "raw"
BARS = {
    "ratio.tg128": 1.25,
    "ratio.pp512": 1.05,
    "ratio.batch16_vs_single": 7.0,
    "mbu": 0.65,
    "mfu": 0.75,
}


def figure(record: dict[str, Any], name: str) -> float:
    value: Any = record
    for key in name.split("."):
        value = value[key]
    return float(value)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--pin", default="0", help="the core to use (default 0)")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RAW / "phases-1-core-float32.json")
    options = parser.parse_args()
    record = run_bench(
        options.model,
        threads=1,
        pin=options.pin,
        vs="transformers",
        repetitions=options.repetitions,
        json_path=options.out,
        sheet=False,
    )
    reached = {name: figure(record, name) >= bar for name, bar in BARS.items()}
    for name, bar in BARS.items():
        word = "reached" if reached[name] else "MISSED"
        print(f"{name:24} {figure(record, name):6.2f}  bar {bar:.2f}  {word}")
    return 0 if all(reached.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
