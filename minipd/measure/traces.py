"""Reading and writing traces of requests, and saying exactly what was changed on the way.

`read_trace` finds the format itself: Azure 2023 CSV, Mooncake JSON lines or minipd's own. A line
that cannot be used stops the reading with its number, or is skipped and counted if asked. Standard
library only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Literal, cast

from minipd.measure.rows import MAX_SECONDS, Trace, TraceError, TraceRow, reshape
from minipd.measure.trace_files import (
    AZURE_HEADER,
    MAX_LINE_CHARS,
    MINIPD_FORMAT,
    json_object,
    parse_azure,
    parse_minipd,
    parse_mooncake,
    to_minipd,
)

VERSION = 1  # of the own format
TraceFormat = Literal["azure", "mooncake", "minipd"]
PARSERS: dict[str, Callable[[str], TraceRow]] = {
    "azure": parse_azure,
    "mooncake": parse_mooncake,
    "minipd": parse_minipd,
}


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: str


def read_trace(path: str | Path, *, skip_bad: bool = False) -> Trace:
    """All rows in order of arrival, the first at 0 s (own format: times as written).

    Unsorted rows are sorted and the trace's notes say so; rows that ask for no prompt or no answer
    count as one token and are noted. A bad line raises `TraceError`; with `skip_bad` it is left
    out and the notes say how many there were and what was wrong with the first.
    """
    path = Path(path)
    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        raise TraceError(f"{path.name} is empty; give a trace with at least one request.")
    trace = Trace([], path.name, _detect(path, first))
    body = _chain(first, lines) if trace.format == "mooncake" else lines  # no header there
    _parse_all(trace, body, skip_bad)
    if not trace.rows:
        raise TraceError(f"{path.name} holds no usable request after line {first.number}.")
    _tidy(trace)
    return trace


def _lines(path: Path) -> Iterator[_Line]:
    """Non-empty lines as UTF-8 text; refuses binary files and absurdly long lines."""
    try:
        file = path.open("rb")
    except OSError as error:
        reason = error.strerror or str(error)
        raise TraceError(f"{path} cannot be read ({reason}); check the path.") from error
    with file:
        number = 0
        while raw := _read_line(file, path):
            number += 1
            if len(raw) > MAX_LINE_CHARS:
                raise TraceError(
                    f"Line {number} of {path.name} is longer than {MAX_LINE_CHARS} characters."
                )
            text = _decode(raw, number, path.name)
            if text.strip():
                yield _Line(number, text.strip())


def _read_line(file: BinaryIO, path: Path) -> bytes:
    try:
        return file.readline(MAX_LINE_CHARS + 1)
    except OSError as error:  # a disk or a network drive may fail long after opening
        reason = error.strerror or str(error)
        raise TraceError(f"Reading {path} failed ({reason}); check the disk.") from error


def _decode(raw: bytes, number: int, name: str) -> str:
    try:
        text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise TraceError(f"Line {number} of {name} is not text; give a CSV or JSON-lines file.")
    return text


def _detect(path: Path, first: _Line) -> TraceFormat:
    if first.text.startswith("{"):
        if f'"{MINIPD_FORMAT}"' not in first.text:
            return "mooncake"
        _check_version(path, first)
        return "minipd"
    if _header_fields(first.text) == [name.lower() for name in AZURE_HEADER]:
        return "azure"
    raise TraceError(
        f"Line {first.number} of {path.name} is {first.text[:60]!r}; a trace starts with the "
        f"header {','.join(AZURE_HEADER)} or with a JSON object."
    )


def _check_version(path: Path, first: _Line) -> None:
    try:
        version = json_object(first.text).get("version")
    except ValueError as error:
        raise TraceError(f"Line {first.number} of {path.name} {error}; mend the header.") from error
    if version != VERSION:
        raise TraceError(
            f"{path.name} has version {str(version)[:40]} of the minipd trace format and this "
            f"minipd reads version {VERSION}; write the trace again."
        )


def _header_fields(text: str) -> list[str]:
    return [field.strip().lower() for field in text.split(",")]


def _chain(first: _Line, rest: Iterator[_Line]) -> Iterator[_Line]:
    yield first
    yield from rest


def _parse_all(trace: Trace, lines: Iterable[_Line], skip_bad: bool) -> None:
    parse, skipped, first_fault = PARSERS[trace.format], 0, ""
    for line in lines:
        try:
            trace.rows.append(parse(line.text))
        except ValueError as error:
            fault = f"Line {line.number} of {trace.source} {error}"
            if not skip_bad:
                raise TraceError(
                    f"{fault}; mend the line or skip bad lines (--skip-bad-lines)."
                ) from error
            skipped, first_fault = skipped + 1, first_fault or fault
    if skipped:
        told = "1 bad line was" if skipped == 1 else f"{skipped} bad lines were"
        trace.notes.append(f"{told} skipped; the first: {first_fault}.")


def _tidy(trace: Trace) -> None:
    """Sort by arrival, start at 0 s, lift empty prompts and answers to one token; note each."""
    rows = trace.rows
    swaps = sum(later.arrival_s < row.arrival_s for row, later in zip(rows, rows[1:], strict=False))
    if swaps:
        rows.sort(key=lambda row: row.arrival_s)
        trace.notes.append(f"Rows were not in order of arrival ({swaps} steps back): sorted.")
    start_s = 0.0 if trace.format == "minipd" else rows[0].arrival_s
    empty = sum(row.prompt_tokens < 1 or row.output_tokens < 1 for row in rows)
    if empty:
        trace.notes.append(f"{empty} rows without a prompt or an answer count as 1 token there.")
    span_s = rows[-1].arrival_s - start_s
    if span_s > MAX_SECONDS:
        raise TraceError(
            f"{trace.source} spans {span_s / 31_557_600:.0f} years; at most ten are read, so check "
            "its times."
        )
    trace.rows = [_tidy_row(row, start_s) for row in rows]


def _tidy_row(row: TraceRow, start_s: float) -> TraceRow:
    return replace(
        row,
        arrival_s=round(row.arrival_s - start_s, 6),
        prompt_tokens=max(1, row.prompt_tokens),
        output_tokens=max(1, row.output_tokens),
    )


def reshape_trace(
    trace: Trace,
    *,
    time_factor: float = 1.0,
    length_factor: float = 1.0,
    max_prompt_tokens: int | None = None,
    max_output_tokens: int | None = None,
    limit: int | None = None,
) -> Trace:
    """The trace fitted to a smaller machine (see `rows.reshape`); its notes tell every change."""
    if limit is not None and limit < 1:
        raise TraceError(f"The first {limit} rows are none; use a limit of 1 or more.")
    kept = trace.rows[:limit]
    rows, changes = reshape(
        kept,
        time_factor=time_factor,
        length_factor=length_factor,
        max_prompt_tokens=max_prompt_tokens,
        max_output_tokens=max_output_tokens,
    )
    cut = len(trace.rows) - len(kept)
    cut_note = [f"Only the first {len(kept)} of {len(trace.rows)} rows are used."] if cut else []
    notes = [*trace.notes, *cut_note, *changes.sentences()]
    return Trace(rows, trace.source, trace.format, notes)


def write_trace(path: str | Path, rows: Iterable[TraceRow], **about: str | int | float) -> int:
    """Write rows as JSON lines behind a header that holds `about` (seed, generator ...).

    The same rows and words give the same bytes on every system. Returns the number of rows.
    """
    header = {"format": MINIPD_FORMAT, "version": VERSION, **about}
    lines = [json.dumps(header, separators=(",", ":")), *(to_minipd(row) for row in rows)]
    Path(path).write_bytes(("\n".join(lines) + "\n").encode("ascii"))
    return len(lines) - 1


def read_about(path: str | Path) -> dict[str, object]:
    """The header of a trace written by `write_trace`: format, version and what was said of it."""
    with Path(path).open(encoding="ascii") as file:
        return cast("dict[str, object]", json.loads(file.readline()))
