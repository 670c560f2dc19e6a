"""Where a simulated fleet's requests come from: a file, a generated workload, or equal requests.

Long files are read line by line, so that memory does not grow with them; they must then be in order
of arrival. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random

from minipd.measure.arrivals import ArrivalProcess, arrival_times
from minipd.measure.rows import TraceError, TraceRow, reshape
from minipd.measure.trace_files import AZURE_HEADER, MAX_LINE_CHARS, MINIPD_FORMAT
from minipd.measure.traces import PARSERS, read_trace, reshape_trace

SHORT_BYTES = 32 << 20  # files up to this size are read whole, and sorted if need be
MAX_REQUESTS = 1_000_000_000


@dataclass(slots=True)
class Source:
    """Rows to be used once, how many there are (None: unknown), and what a report must say."""

    rows: Iterable[TraceRow]
    count: int | None
    name: str
    notes: list[str]


@dataclass(frozen=True, slots=True)
class Reshaping:
    """How a trace is fitted to a fleet; see `minipd.measure.rows.reshape`."""

    time_factor: float = 1.0
    length_factor: float = 1.0
    max_prompt_tokens: int | None = None
    max_output_tokens: int | None = None
    limit: int | None = None


def from_file(path: Path, change: Reshaping = Reshaping(), *, skip_bad: bool = False) -> Source:
    """A trace file in any of the known formats; raises `TraceError`."""
    try:
        is_short = path.stat().st_size <= SHORT_BYTES
    except OSError as error:
        raise TraceError(f"{path} cannot be read ({error.strerror}); check the path.") from error
    if is_short:
        trace = reshape_trace(
            read_trace(path, skip_bad=skip_bad),
            time_factor=change.time_factor,
            length_factor=change.length_factor,
            max_prompt_tokens=change.max_prompt_tokens,
            max_output_tokens=change.max_output_tokens,
            limit=change.limit,
        )
        return Source(trace.rows, len(trace.rows), path.name, trace.notes)
    rows = islice(_changed(stream(path), change), change.limit)
    return Source(rows, None, path.name, ["Too long to be held: read line by line, as it is."])


def stream(path: Path) -> Iterator[TraceRow]:
    """Rows of a file one by one, the first at 0 s; raises `TraceError` naming a bad line."""
    start_s: float | None = None
    with path.open(encoding="utf-8-sig") as file:
        parse: Callable[[str], TraceRow] | None = None
        for number, line in enumerate(file, 1):
            text = line.strip()
            if not text:
                continue
            if parse is None:
                kind, is_header = _format_of(text, path.name)
                parse = PARSERS[kind]
                if is_header:
                    continue
            row = _parsed(parse, text, number, path.name)
            start_s = row.arrival_s if start_s is None else start_s
            yield replace(
                row,
                arrival_s=round(row.arrival_s - start_s, 6),
                prompt_tokens=max(1, row.prompt_tokens),
                output_tokens=max(1, row.output_tokens),
            )


def _parsed(parse: Callable[[str], TraceRow], text: str, number: int, name: str) -> TraceRow:
    try:
        if len(text) > MAX_LINE_CHARS:
            raise ValueError(f"is longer than {MAX_LINE_CHARS} characters")
        return parse(text)
    except ValueError as error:
        raise TraceError(f"Line {number} of {name} {error}.") from None


def _format_of(text: str, name: str) -> tuple[str, bool]:
    """The format that a file's first line shows, and whether that line is only a header."""
    if text.startswith("{"):
        is_own = f'"{MINIPD_FORMAT}"' in text
        return ("minipd", True) if is_own else ("mooncake", False)
    if [field.strip().lower() for field in text.split(",")] == [x.lower() for x in AZURE_HEADER]:
        return "azure", True
    raise TraceError(
        f"{name} begins with {text[:60]!r}; a trace begins with the header "
        f"{','.join(AZURE_HEADER)} or with a JSON object."
    )


def _changed(rows: Iterable[TraceRow], change: Reshaping) -> Iterator[TraceRow]:
    for row in rows:
        yield from reshape(
            [row],
            time_factor=change.time_factor,
            length_factor=change.length_factor,
            max_prompt_tokens=change.max_prompt_tokens,
            max_output_tokens=change.max_output_tokens,
        )[0]


def equal_requests(
    num_requests: int,
    prompt_tokens: int,
    output_tokens: int,
    rate_per_s: float,
    *,
    arrivals: ArrivalProcess = "poisson",
    cv: float = 1.0,
    seed: int = 0,
) -> Source:
    """`num_requests` alike; raises `WorkloadError` or `TraceError`."""
    for what, number, most in (
        ("requests", num_requests, MAX_REQUESTS),
        ("prompt tokens", prompt_tokens, 10_000_000),
        ("output tokens", output_tokens, 10_000_000),
    ):
        if not 1 <= number <= most:
            raise TraceError(f"{number} {what} were asked for; use 1 to {most}.")
    times = arrival_times(arrivals, rate_per_s, Random(f"minipd equal requests {seed}"), cv)
    rows = (TraceRow(t, prompt_tokens, output_tokens) for t in islice(times, num_requests))
    return Source(rows, num_requests, f"{prompt_tokens} in, {output_tokens} out", [])
