"""Files of reference step times: a JSON list of rows, each one measured prefill or decode step.

A row has `system` (device), `model` (hub id), `tp`, `mode` (`static_ctx`: read `batch` prompts of
`isl` tokens; `static_gen`: one decode step of `batch` sequences that hold `isl` tokens), `isl`,
`batch` and `ms`. `pp` and `ep` may be given too. Other fields are ignored, and named in the report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minipd.fleet.configs import ConfigError, find_model
from minipd.fleet.json_files import JsonFileError, read_json
from minipd.fleet.models import Model
from minipd.fleet.near import nearest
from minipd.fleet.work import Chunk, Parallel, decode_step, prefill_step

MODES = ("static_ctx", "static_gen")
FIELDS = ("system", "model", "tp", "mode", "isl", "batch", "ms")
OPTIONAL = ("pp", "ep")
MOST = {"tp": 4096, "pp": 1024, "ep": 4096, "isl": 100_000_000, "batch": 10_000_000}


class ReferenceFileError(ValueError):
    """A file of reference times that cannot be used; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured step. `model` is what the file calls it, `shape` what that name stands for."""

    system: str
    model: str
    shape: Model
    tp: int
    mode: str
    isl: int
    batch: int
    ms: float
    pp: int = 1
    ep: int = 1

    @property
    def parallel(self) -> Parallel:
        return Parallel(self.tp, self.pp, self.ep)

    @property
    def chunks(self) -> list[Chunk]:
        if self.mode == "static_ctx":
            return prefill_step(self.isl, self.batch)
        return decode_step(self.isl, self.batch)

    def key(self) -> dict[str, Any]:
        names = ("system", "model", "tp", "pp", "ep", "mode", "isl", "batch", "ms")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class Reference:
    rows: tuple[Row, ...]
    ignored_fields: tuple[str, ...]


def read_reference(path: Path) -> Reference:
    """Read and check a file of reference times; raises `ReferenceFileError`."""
    entries = _entries(path)
    ignored: set[str] = set()
    rows: list[Row] = []
    for number, entry in enumerate(entries, start=1):
        where = f"{path.name}, row {number}"
        if not isinstance(entry, dict):
            raise ReferenceFileError(f"{where}: a row must be an object with {', '.join(FIELDS)}.")
        rows.append(_row(entry, where))
        ignored |= set(entry) - {*FIELDS, *OPTIONAL}
    return Reference(tuple(rows), tuple(sorted(map(str, ignored))))


def _entries(path: Path) -> list[Any]:
    try:
        raw: Any = read_json(path)
    except JsonFileError as error:
        raise ReferenceFileError(f"{error}; give a JSON list of step times.") from None
    if not isinstance(raw, list):
        raise ReferenceFileError(
            f"{path} holds {_kind(raw)}; it must be a list of rows with {', '.join(FIELDS)}."
        )
    if not raw:
        raise ReferenceFileError(f"{path} holds no rows; there is nothing to compare.")
    return raw


def _kind(raw: Any) -> str:
    return {dict: "one object", str: "a string"}.get(type(raw), f"a {type(raw).__name__}")


def _row(entry: Mapping[str, Any], where: str) -> Row:
    missing = [name for name in FIELDS if name not in entry]
    if missing:
        raise ReferenceFileError(
            f"{where}: {', '.join(missing)} missing; each row needs {', '.join(FIELDS)}."
        )
    mode = _text(entry, "mode", where)
    if mode not in MODES:
        near = nearest(mode, MODES, str.lower) or MODES[0]
        raise ReferenceFileError(
            f"{where}: the mode {mode[:40]!r} is unknown; did you mean {near}?"
        )
    model, system = _text(entry, "model", where), _text(entry, "system", where)
    try:
        shape = find_model(model)
    except ConfigError as error:
        raise ReferenceFileError(f"{where}: {error}") from None
    sizes = {name: _whole(entry, name, where) for name in ("tp", "isl", "batch")}
    extra = {name: _whole(entry, name, where) for name in OPTIONAL if entry.get(name) is not None}
    row = Row(system, model, shape, mode=mode, ms=_milliseconds(entry, where), **sizes, **extra)
    _check_split(row, where)
    return row


def _text(entry: Mapping[str, Any], name: str, where: str) -> str:
    value = entry[name]
    if not isinstance(value, str) or not value.strip():
        raise ReferenceFileError(f"{where}: {name} is {_shown(value)}; a name in quotes is needed.")
    return value


def _whole(entry: Mapping[str, Any], name: str, where: str) -> int:
    value = entry[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST[name]:
        raise ReferenceFileError(
            f"{where}: {name} is {_shown(value)}; a whole number from 1 to {MOST[name]} is needed."
        )
    return value


def _milliseconds(entry: Mapping[str, Any], where: str) -> float:
    value = entry["ms"]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0.0 < value < 1e12:
        raise ReferenceFileError(f"{where}: ms is {_shown(value)}; a time above 0 ms is needed.")
    return float(value)


def _shown(value: Any) -> str:
    return str(value)[:40] or "empty"


def _check_split(row: Row, where: str) -> None:
    """A model can be cut into no more parts than it has heads, layers and experts."""
    try:
        _ = row.parallel
    except ValueError as error:
        raise ReferenceFileError(f"{where}: {error}") from None
    heads = max(group.attention.heads for group in row.shape.layers)
    counts = [group.experts.count for group in row.shape.layers if group.experts]
    limits = {"tp": heads, "pp": row.shape.num_layers, "ep": max(counts, default=1)}
    for name, limit in limits.items():
        if getattr(row, name) > limit:
            raise ReferenceFileError(
                f"{where}: {name} is {getattr(row, name)}, but {row.model} can be cut into at most "
                f"{limit}."
            )
