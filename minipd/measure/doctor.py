"""`minipd doctor`: is everything here, and how fast can this machine compute and read?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from minipd.measure.checks import Check, Package, package_versions, run_checks
from minipd.measure.hardware import NoiseMeter
from minipd.measure.machine import Machine, describe_machine
from minipd.measure.report import ceilings_table, progress_bar, write_json
from minipd.measure.sheet import now

LISTENING_S = 0.5
MEASURED_DTYPES = ("float32", "bfloat16")
STYLES = {"OK": "green", "NOTE": "yellow", "FAIL": "bold red"}
RULE = (
    "A ceiling is the best sample. Results are indicative when the middle half of the samples "
    "spans more than 10 % of their median, or other programs were busy during the measurement."
)


def run_doctor(json_path: Path | None = None, quick: bool = False) -> bool:
    """Check, measure, print; True when nothing FAILs. `quick` takes fewer samples."""
    console, machine = Console(), describe_machine()
    checks = run_checks(machine, listen(LISTENING_S))
    console.print(checks_table(checks))
    healthy = all(check.status != "FAIL" for check in checks)
    ceilings = _measure(machine, quick) if machine.devices else []
    if ceilings:
        console.print(ceilings_table(ceilings))
        console.print(Text(_reading_size(ceilings)))
    console.print(_verdict(healthy))
    if json_path:
        write_json(json_path, _record(machine, checks, ceilings, healthy))
    return healthy


def listen(seconds: float) -> str | None:
    """Do nothing for a moment, and hear what the rest of the machine does meanwhile."""
    meter = NoiseMeter()
    time.sleep(seconds)
    return meter.read().remark


def checks_table(checks: list[Check]) -> Table:
    table = Table(title="This computer")
    for name in ("", "check", "found", "what to do"):
        table.add_column(name, overflow="fold")
    for check in checks:
        words = map(Text, (check.name, check.found, check.remedy))
        table.add_row(Text(check.status, style=STYLES[check.status]), *words)
    return table


def cases(machine: Machine) -> Iterator[tuple[str, str, int]]:
    """Device, dtype and threads to measure: on a CPU one thread, and one per usable core."""
    for device in machine.devices:
        counts = sorted({1, machine.usable_cores}) if device.name == "cpu" else [1]
        for dtype in MEASURED_DTYPES:
            for threads in counts:
                yield device.name, dtype, threads


def _measure(machine: Machine, quick: bool) -> list[dict[str, Any]]:
    from minipd.measure.ceilings import CeilingError, measure_ceilings

    results: list[dict[str, Any]] = []
    with progress_bar() as progress:
        todo = list(cases(machine))
        task = progress.add_task("ceilings", total=len(todo))
        for device, dtype, threads in todo:
            progress.update(task, description=f"{device}, {dtype}, {threads} threads")
            try:
                results.append(measure_ceilings(device, dtype, threads, quick).to_dict())
            except CeilingError as error:
                case = {"device": device, "dtype": dtype, "threads": threads}
                results.append(case | {"error": str(error)})
            progress.advance(task)
    return results


def _reading_size(ceilings: list[dict[str, Any]]) -> str:
    for entry in ceilings:
        if "error" not in entry:
            return f"Reads cover {entry['read_bytes'] / 1e6:.0f} MB: {entry['read_bytes_reason']}."
    return ""


def _verdict(healthy: bool) -> Text:
    if healthy:
        return Text("Nothing stands in the way. Next: minipd bench", style="green")
    return Text("Something FAILs: do what its row says, then run minipd doctor again.", "bold red")


def _record(
    machine: Machine, checks: list[Check], ceilings: list[dict[str, Any]], healthy: bool
) -> dict[str, Any]:
    packages: list[Package] = package_versions()
    return {
        "ok": healthy,
        "date": now(),
        "machine": machine.to_dict(),
        "checks": [asdict(check) for check in checks],
        "packages": {p.name: p.found for p in packages},
        "ceilings": ceilings,
        "rule": RULE,
    }
