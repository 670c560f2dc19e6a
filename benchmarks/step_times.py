"""How well the step-time model predicts a file of reference times, in five ways from easy to hard.

    python benchmarks/step_times.py REFERENCE.json

For each device in the file, with factors fitted on
  its own rows            (how well ten factors can describe it at all)
  all rows but one        (a new row of a known device and known models)
  all models but one      (a model never measured on the device)
  a third of its rows     (few measurements)
  no rows                 (a device never measured: the prior's centre)
Writes summaries to benchmarks/raw/step_times.json, no reference times; exits with 1 when a bar of
the first way is missed. `--write-factors` also stores the first way's factors in the package.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from minipd.fleet.calibrate import (
    device_for,
    fit_rows,
    left_out_predictions,
    prior_for,
    row_predictor,
)
from minipd.fleet.check_steps import Checked, grouped, summary
from minipd.fleet.factors import Factors
from minipd.fleet.reference import Row, read_reference

RAW = Path(__file__).parent / "raw" / "step_times.json"
FACTORS = Path(__file__).parent.parent / "minipd" / "fleet" / "data" / "factors.json"
BARS = {"median_error": 0.05, "p90_error": 0.12}
SEED = 1
FIGURES = ("rows", "median_error", "p90_error", "max_error", "bias")


def checked(rows: Sequence[Row], factors: Factors, origin: str) -> list[Checked]:
    device = device_for(rows[0].system)
    return [Checked(row, row_predictor(row, device)(factors) * 1e3, origin) for row in rows]


def own_rows(rows: Sequence[Row]) -> list[Checked]:
    return checked(rows, fit_rows(rows, device_for(rows[0].system)), "own rows")


def all_but_one(rows: Sequence[Row]) -> list[Checked]:
    predicted = left_out_predictions(rows, device_for(rows[0].system))
    return [Checked(row, ms, "all but one") for row, ms in zip(rows, predicted)]


def split(rows: Sequence[Row], is_tested: Callable[[int, Row], bool]) -> list[Checked]:
    """Rows that are not tested are fitted; those that are, predicted."""
    kept = [row for i, row in enumerate(rows) if not is_tested(i, row)]
    tested = [row for i, row in enumerate(rows) if is_tested(i, row)]
    return checked(tested, fit_rows(kept, device_for(rows[0].system)), "split")


def all_models_but_one(rows: Sequence[Row]) -> list[Checked]:
    models = dict.fromkeys(row.model for row in rows)
    return [c for name in models for c in split(rows, lambda _, row, n=name: row.model == n)]


def a_third(rows: Sequence[Row]) -> list[Checked]:
    order = list(range(len(rows)))
    random.Random(SEED).shuffle(order)
    part = {row: place % 3 for place, row in enumerate(order)}
    return [c for third in range(3) for c in split(rows, lambda i, _, t=third: part[i] != t)]


def no_rows(rows: Sequence[Row]) -> list[Checked]:
    return checked(rows, prior_for(device_for(rows[0].system)).centre, "no rows")


WAYS = {
    "own rows": own_rows,
    "all rows but one": all_but_one,
    "all models but one": all_models_but_one,
    "a third of the rows": a_third,
    "no rows": no_rows,
}


def by_system(rows: Sequence[Row]) -> dict[str, list[Row]]:
    names = dict.fromkeys(row.system for row in rows)
    return {name: [row for row in rows if row.system == name] for name in names}


def rounded(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: round(figures[name], 4) for name in FIGURES}


def run_way(rows: Sequence[Row], way: Callable[[Sequence[Row]], list[Checked]]) -> dict[str, Any]:
    results = {name: way(mine) for name, mine in by_system(rows).items()}
    everything = [c for found in results.values() for c in found]
    return {
        "all": rounded(summary(everything)),
        "by_system": {name: rounded(summary(found)) for name, found in results.items()},
        "by_system_and_model": {
            name: {k: rounded(v) for k, v in grouped(found, lambda c: c.row.model).items()}
            for name, found in results.items()
        },
        "by_mode": {k: rounded(v) for k, v in grouped(everything, lambda c: c.row.mode).items()},
    }


def print_table(title: str, lines: dict[str, dict[str, Any]]) -> None:
    table = Table(title=title)
    for column in ("", "rows", "median", "90th percentile", "largest"):
        table.add_column(column)
    for name, figures in lines.items():
        shares = (f"{figures[key]:.1%}" for key in ("median_error", "p90_error", "max_error"))
        table.add_row(name, str(figures["rows"]), *shares)
    Console().print(table)


def write_factors(rows: Sequence[Row], file: Path, digest: str) -> None:
    devices = {
        device_for(name).key: {
            "fitted_on": f"{len(mine)} rows of {file.name} (sha256 {digest[:16]}): "
            "NVIDIA AIConfigurator 0.12, vLLM backend, 16-bit weights",
            "date": date.today().isoformat(),
            "factors": {
                key: float(f"{value:.4g}")
                for key, value in asdict(fit_rows(mine, device_for(name))).items()
            },
        }
        for name, mine in by_system(rows).items()
    }
    FACTORS.write_text(json.dumps({"devices": devices}, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("reference", type=Path)
    parser.add_argument("--out", type=Path, default=RAW)
    parser.add_argument("--write-factors", action="store_true")
    options = parser.parse_args()
    rows = read_reference(options.reference).rows
    digest = hashlib.sha256(options.reference.read_bytes()).hexdigest()
    results = {name: run_way(rows, way) for name, way in WAYS.items()}
    print_table("Factors fitted on ...", {name: found["all"] for name, found in results.items()})
    for system, models in results["all models but one"]["by_system_and_model"].items():
        print_table(f"{system}: each model predicted from the others", models)
    record = {"reference_sha256": digest, "date": date.today().isoformat(), "ways": results}
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if options.write_factors:
        write_factors(rows, options.reference, digest)
    best = results["own rows"]["all"]
    for name, bar in BARS.items():
        word = "reached" if best[name] <= bar else "MISSED"
        print(f"{name:14} {best[name]:.3f}  bar {bar:.2f}  {word}")
    return 0 if all(best[name] <= bar for name, bar in BARS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
