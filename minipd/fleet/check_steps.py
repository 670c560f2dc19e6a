"""How far the step-time model is from a file of reference times.

For devices with committed factors, those are used as they are. For any other device, each row is
predicted with factors fitted on the file's other rows of that device, so no row helps to predict
itself. Every figure is a relative error, |predicted / measured - 1|.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from minipd.fleet.calibrate import device_for, fit_rows, left_out_predictions, row_predictor
from minipd.fleet.factors import committed
from minipd.fleet.reference import Row, read_reference
from minipd.measure.outputs import save_text
from minipd.measure.quantiles import percentile

WORST = 10
COMMITTED, LEFT_OUT = "committed", "the file's other rows"


@dataclass(frozen=True, slots=True)
class Checked:
    """One row with its prediction; `error` is signed, above 0 when the model is too slow."""

    row: Row
    predicted_ms: float
    factors_from: str

    @property
    def error(self) -> float:
        return self.predicted_ms / self.row.ms - 1.0


def check_steps(path: Path) -> dict[str, Any]:
    """The report that `minipd plan --check-steps FILE --json OUT` writes."""
    reference = read_reference(path)
    checked = check_rows(reference.rows)
    systems = list(dict.fromkeys(row.system for row in reference.rows))
    return {
        "file": path.name,
        **summary(checked),
        "by_system": {name: _system_report(name, checked) for name in systems},
        "by_mode": grouped(checked, lambda c: c.row.mode),
        "by_model": grouped(checked, lambda c: c.row.model),
        "worst": [_shown(c) for c in sorted(checked, key=lambda c: -abs(c.error))[:WORST]],
        "ignored_fields": list(reference.ignored_fields),
        "rule": " ".join((__doc__ or "").split()),
    }


def run_check_steps(path: Path, json_path: Path | None = None) -> str:
    """Compare, write the report to `json_path` if there is one, and return it in words."""
    report = check_steps(path)
    if json_path:
        save_text(json_path, json.dumps(report, indent=2) + "\n")
    return in_words(report)


def check_rows(rows: Iterable[Row]) -> list[Checked]:
    """Every row with its prediction, device by device."""
    by_system: dict[str, list[Row]] = {}
    for row in rows:
        by_system.setdefault(row.system, []).append(row)
    return [checked for system, group in by_system.items() for checked in _system(system, group)]


def _system(system: str, rows: list[Row]) -> list[Checked]:
    device = device_for(system)
    known = committed().get(device.key)
    if known is None:
        predicted, origin = left_out_predictions(rows, device), LEFT_OUT
    else:
        predicted = [row_predictor(row, device)(known) * 1e3 for row in rows]
        origin = COMMITTED
    return [Checked(row, ms, origin) for row, ms in zip(rows, predicted)]


def summary(checked: Sequence[Checked]) -> dict[str, Any]:
    errors = [abs(c.error) for c in checked]
    return {
        "rows": len(errors),
        "median_error": percentile(errors, 50.0),
        "p90_error": percentile(errors, 90.0),
        "max_error": max(errors),
        "bias": percentile([c.error for c in checked], 50.0),
    }


def grouped(checked: Sequence[Checked], key: Callable[[Checked], str]) -> dict[str, Any]:
    """A summary per value of `key`, in order of appearance."""
    names = dict.fromkeys(key(c) for c in checked)
    return {name: summary([c for c in checked if key(c) == name]) for name in names}


def _system_report(system: str, checked: Sequence[Checked]) -> dict[str, Any]:
    mine = [c for c in checked if c.row.system == system]
    device = device_for(system)
    factors = committed().get(device.key) or fit_rows([c.row for c in mine], device)
    return {
        **summary(mine),
        "device": device.name,
        "factors_from": mine[0].factors_from,
        "factors": asdict(factors),
    }


def _shown(checked: Checked) -> dict[str, Any]:
    return {
        **checked.row.key(),
        "predicted_ms": checked.predicted_ms,
        "error": checked.error,
    }


def in_words(report: Mapping[str, Any]) -> str:
    """The report as a table of plain text, with its worst rows."""
    lines = [f"Step times of {report['file']}, predicted and measured"]
    lines.append(f"{'':34}{'rows':>6}{'median':>9}{'90th pct':>10}{'largest':>9}")
    lines.append(_line("all", report))
    for name, found in report["by_system"].items():
        lines.append(_line(f"{name} ({found['factors_from']})", found))
    for part in ("by_mode", "by_model"):
        lines += [_line(name, found) for name, found in report[part].items()]
    lines.append("Worst rows:")
    for row in report["worst"]:
        where = f"{row['system']} {row['model']} tp {row['tp']} {row['mode']}"
        size = f"{row['batch']} x {row['isl']}"
        times = f"{row['ms']:.2f} ms measured, {row['predicted_ms']:.2f} predicted"
        lines.append(f"  {row['error']:+7.1%}  {where}, {size}: {times}")
    if report["ignored_fields"]:
        lines.append(f"Fields not used: {', '.join(report['ignored_fields'])}")
    return "\n".join(lines)


def _line(name: str, found: Mapping[str, Any]) -> str:
    shares = (found["median_error"], found["p90_error"], found["max_error"])
    return f"{name[:46]:34}{found['rows']:>6}" + "".join(
        f"{share:>{width}.1%}" for share, width in zip(shares, (9, 10, 9))
    )
