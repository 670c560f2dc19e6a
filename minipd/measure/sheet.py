"""The learner's bench sheet: one line per measurement, kept for the whole course.

A JSON-lines file, so that a torn or edited line spoils nothing but itself. Free of torch.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from minipd import paths
from minipd.measure.report import percent

LOCK_WAIT_S = 20.0


class SheetError(RuntimeError):
    """The sheet's file cannot be written or read; the message says where else it could be."""


@dataclass(frozen=True, slots=True)
class SheetLine:
    """One run. Rates in tokens/s, MFU and MBU as shares of the ceilings measured in that run."""

    machine: str
    model: str
    dtype: str
    threads: int
    prefill_tok_s: float | None = None
    decode_tok_s: float | None = None
    mfu: float | None = None
    mbu: float | None = None
    device: str = "cpu"
    note: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True)
class Sheet:
    """What a sheet holds, oldest first, and one note for each line that could not be read."""

    lines: list[SheetLine]
    notes: list[str]


def append(line: SheetLine, path: Path | None = None) -> SheetLine:
    """Add a line, dated now unless it has a date; other processes may do the same at once."""
    path = path or paths.sheet_path()
    dated = replace(line, date=line.date or now())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock", timeout=LOCK_WAIT_S), path.open("ab+") as file:
            file.write(_fresh_line_start(path) + json.dumps(asdict(dated)).encode() + b"\n")
    except (OSError, Timeout) as error:
        raise SheetError(
            f"The bench sheet {path} cannot be written ({error}); "
            "set MINIPD_SHEET to a file that can."
        ) from error
    return dated


def read(path: Path | None = None) -> Sheet:
    """All readable lines; damaged ones stay in the file and are named in `notes`."""
    path = path or paths.sheet_path()
    if not path.exists():
        return Sheet([], [])
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SheetError(f"The bench sheet {path} cannot be read ({error}).") from error
    lines: list[SheetLine] = []
    notes: list[str] = []
    for number, raw in enumerate(text.split("\n"), 1):
        try:
            lines.extend(_parse(raw))
        except (ValueError, TypeError, RecursionError) as error:
            why = str(error)[:MAX_WHY_CHARS]
            notes.append(f"Line {number} of {path.name} is damaged and was skipped ({why}).")
    return Sheet(lines, notes)


def show_sheet(path: Path | None = None, export: Path | None = None) -> Sheet:
    """Print the sheet as a table; `export` also writes it as CSV (or JSON by that ending)."""
    sheet, console = read(path), Console()
    if sheet.lines:
        console.print(_table(sheet))
    else:
        console.print("The bench sheet is empty; `minipd bench` writes its first line.")
    for note in sheet.notes:
        console.print(note, style="yellow", markup=False)
    if export:
        export_sheet(sheet, export)
        console.print(f"Written to {export}.", markup=False)
    return sheet


def export_sheet(sheet: Sheet, target: Path) -> None:
    """Write all readable lines to `target`: a list of objects for `.json`, CSV otherwise."""
    rows = [asdict(line) for line in sheet.lines]
    try:
        if target.suffix == ".json":
            target.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
            return
        with target.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, _FIELDS)
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise SheetError(f"Cannot write {target} ({error}); choose another file.") from error


def now() -> str:
    """Local date and time with its offset, to the second (ISO 8601)."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


MAX_WHY_CHARS = 200  # of what is said about a damaged line
SHORT_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
_FIELDS = [field.name for field in fields(SheetLine)]
_TEXTS = ("machine", "model", "dtype", "device", "note", "date")
_RATES = ("prefill_tok_s", "decode_tok_s", "mfu", "mbu")


def _fresh_line_start(path: Path) -> bytes:
    """A line break when an interrupted writer left the last line without one."""
    content = path.read_bytes()
    return b"" if not content or content.endswith(b"\n") else b"\n"


def _parse(raw: str) -> Iterator[SheetLine]:
    """The line's record, nothing for a blank line; raises ValueError for anything else."""
    if not raw.strip():
        return
    record: Any = json.loads(raw)
    if not isinstance(record, dict):
        raise ValueError("not a record")
    known: dict[str, Any] = {name: record[name] for name in _FIELDS if name in record}
    for name, value in known.items():
        if not _fits(name, value):
            raise ValueError(f"{name} is {value!r}")
    yield SheetLine(**known)


def _fits(name: str, value: object) -> bool:
    if name in _TEXTS:
        return isinstance(value, str)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number or (value is None and name in _RATES)


def _table(sheet: Sheet) -> Table:
    table = Table(title="Bench sheet", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("date", no_wrap=True)
    table.add_column("machine", overflow="fold", ratio=1)
    table.add_column("model", no_wrap=True)
    table.add_column("dtype", no_wrap=True)
    for name in ("thr.", "prefill\ntok/s", "decode\ntok/s", "MFU", "MBU"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in sheet.lines:
        machine = line.machine if line.device == "cpu" else f"{line.device} of {line.machine}"
        rates = [_number(line.prefill_tok_s, "{:.1f}"), _number(line.decode_tok_s, "{:.2f}")]
        shares = ["-" if share is None else percent(share) for share in (line.mfu, line.mbu)]
        told = f"{machine}\nnote: {line.note}" if line.note else machine
        words = (line.date[:10], told, line.model, SHORT_DTYPES.get(line.dtype, line.dtype))
        table.add_row(*map(Text, (*words, str(line.threads), *rates, *shares)))
    return table


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
