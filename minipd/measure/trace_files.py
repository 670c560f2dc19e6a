"""Parsers of trace lines: Azure 2023/2024 CSV, Mooncake JSON lines, and minipd's own JSON lines.

Each turns one line into a `TraceRow`, or raises `ValueError` with what is wrong (the caller adds
the line number). Standard library only.
"""

from __future__ import annotations

import json
import math
import re
from datetime import datetime, timezone
from typing import cast

from minipd.measure.rows import MAX_SECONDS, MAX_TOKENS, Segment, TraceRow

AZURE_HEADER = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOONCAKE_BLOCK = 512  # tokens behind one hash id (Mooncake FAST'25 traces)
MINIPD_FORMAT = "minipd-trace"

MAX_LINE_CHARS = 1_000_000
_STAMP = re.compile(r"^(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)?$", re.ASCII)


def parse_azure(line: str) -> TraceRow:
    """`2023-11-16 18:17:03.9799600,4808,10`; the arrival is seconds since 1970, UTC."""
    fields = [field.strip() for field in line.split(",")]
    if len(fields) != len(AZURE_HEADER):
        raise ValueError(f"has {len(fields)} fields instead of {len(AZURE_HEADER)}")
    arrival_s = _parse_stamp(fields[0])
    return TraceRow(
        arrival_s, _count(fields[1], "ContextTokens"), _count(fields[2], "GeneratedTokens")
    )


def parse_mooncake(line: str) -> TraceRow:
    """`{"timestamp": ms, "input_length": .., "output_length": .., "hash_ids": [..]}`.

    Each hash id stands for 512 prompt tokens and everything before them; the last may be partial.
    """
    raw = json_object(line)
    prompt_tokens = _count(raw.get("input_length"), "input_length")
    output_tokens = _count(raw.get("output_length"), "output_length")
    arrival_s = _time(raw.get("timestamp"), "timestamp", MAX_SECONDS * 1000) / 1000
    segments: list[Segment] = []
    left = prompt_tokens
    for hash_id in _list(raw.get("hash_ids", []), "hash_ids"):
        if left <= 0:
            raise ValueError(f"has more hash_ids than its {prompt_tokens} prompt tokens fill")
        if isinstance(hash_id, bool) or not isinstance(hash_id, int):
            raise ValueError(f"has the hash id {_short(hash_id)}, which is not a whole number")
        segments.append(Segment(f"block-{hash_id}", min(MOONCAKE_BLOCK, left)))
        left -= MOONCAKE_BLOCK
    return TraceRow(arrival_s, prompt_tokens, output_tokens, "", tuple(segments))


def parse_minipd(line: str) -> TraceRow:
    """One line of `write_trace`."""
    raw = json_object(line)
    segments = tuple(_segment(item) for item in _list(raw.get("segments", []), "segments"))
    row = TraceRow(
        _time(raw.get("arrival_s"), "arrival_s", MAX_SECONDS),
        _count(raw.get("prompt_tokens"), "prompt_tokens"),
        _count(raw.get("output_tokens"), "output_tokens"),
        str(raw.get("kind", "")),
        segments,
    )
    if row.shareable_tokens > row.prompt_tokens:
        raise ValueError(f"has segments longer than its {row.prompt_tokens} prompt tokens")
    return row


def to_minipd(row: TraceRow) -> str:
    """One line without its newline; the same row always gives the same characters."""
    fields: dict[str, object] = {
        "arrival_s": row.arrival_s,
        "prompt_tokens": row.prompt_tokens,
        "output_tokens": row.output_tokens,
    }
    if row.kind:
        fields["kind"] = row.kind
    if row.segments:
        fields["segments"] = [list(segment) for segment in row.segments]
    return json.dumps(fields, separators=(",", ":"))


def _parse_stamp(text: str) -> float:
    match = _STAMP.match(text)
    if not match:
        raise ValueError(f"has the time {_short(text)}; write it like 2023-11-16 18:17:03.979")
    seconds, fraction, zone = match.groups()
    offset = "+00:00" if zone in (None, "Z") else zone
    try:
        moment = datetime.fromisoformat(seconds + offset).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        raise ValueError(f"has the time {_short(text)}, which no calendar knows") from None
    return moment.timestamp() + float(fraction or 0.0)


def json_object(line: str) -> dict[str, object]:
    try:
        raw: object = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not valid JSON ({_short(str(error), 60)})") from None
    if not isinstance(raw, dict):
        raise ValueError("is not a JSON object")
    return cast("dict[str, object]", raw)


def _list(value: object, name: str) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"has {name} {_short(value)}, which is not a list")
    return cast("list[object]", value)


def _segment(item: object) -> Segment:
    parts = _list(item, "a segment")
    if len(parts) != 2 or not isinstance(parts[0], str):
        raise ValueError(f"has the segment {_short(item)}; write it as [name, tokens]")
    return Segment(parts[0], _count(parts[1], "segment tokens"))


def _number(value: object, name: str) -> float:
    if value is None or value == "":
        raise ValueError(f"has no {name}")
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"has {name} {_short(value)}, which is not a number")
    if isinstance(value, str) and (not value.isascii() or "_" in value):
        raise ValueError(f"has {name} {_short(value)}, which is not written in plain digits")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise ValueError(f"has {name} {_short(value)}, which is not a number") from None
    if not math.isfinite(number):
        raise ValueError(f"has {name} {_short(value)}, which is not a finite number")
    if number < 0:
        raise ValueError(f"has the negative {name} {_short(value)}")
    return number


def _count(value: object, name: str) -> int:
    number = _number(value, name)
    if number > MAX_TOKENS:
        raise ValueError(f"has {name} {_short(value)}, over the limit of {MAX_TOKENS} tokens")
    if number != int(number):
        raise ValueError(f"has {name} {_short(value)}, which is not a whole number of tokens")
    return int(number)


def _time(value: object, name: str, limit: float) -> float:
    number = _number(value, name)
    if number > limit:
        raise ValueError(f"has {name} {_short(value)}, more than ten years after the start")
    return number


def _short(value: object, limit: int = 40) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
