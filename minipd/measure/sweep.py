"""Sweeps: one measurement at many settings, interrupted at any time and resumed.

    sweep = Sweep(path, measure, about={"model": name})
    for done in sweep.run(cross(grid(rate=[1, 2, 4], seed=[0, 1]), [{"mode": "chunked"}])):
        print(done.point, done.result)

`measure` gets one point and returns plain values. Each finished point is a line of the file before
the next one begins, so Ctrl-C or a crash costs at most the point that was being measured; the same
call again goes on where it ended. Lines of two processes at one file stay whole, but each process
measures what it did not find when it began.
"""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from time import perf_counter
from typing import Any, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from minipd.interrupts import held_back, let_through
from minipd.measure.outputs import locked

FORMAT, VERSION = "minipd-sweep", 1
Value = str | int | float | bool | None
Point = dict[str, Value]
Result = dict[str, Any]


class SweepError(ValueError):
    """A sweep's file or point that cannot be used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Finished:
    """One point and what was measured there; `took_s` is how long that took."""

    point: Point
    result: Result
    took_s: float


def grid(**axes: Iterable[Value]) -> list[Point]:
    """Every combination of the axes' values; the last axis changes fastest."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def cross(*parts: Iterable[Mapping[str, Value]]) -> list[Point]:
    """Every combination of one point of each part, say of a grid and of some pairs xPyD."""
    return [
        {name: value for part in chosen for name, value in part.items()}
        for chosen in itertools.product(*parts)
    ]


class Sweep:
    """What is in the file already, and `measure` for what is not.

    `about` says what else the results depend on (model, machine, trace); a file that was begun with
    another one is refused, so that results of two kinds never mix.
    """

    def __init__(
        self,
        path: str | Path,
        measure: Callable[[Point], Result],
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.path, self.measure = Path(path), measure
        self.about: dict[str, Any] = json.loads(_dumps(dict(about or {}), "about"))
        self.finished: dict[str, Finished] = {}
        self._read()

    def at(self, point: Point) -> Finished:
        """From the file, or measured now and kept."""
        key = _dumps(point, "point")
        if key not in self.finished:
            with held_back():  # Ctrl-C stops the measurement, never a line half-way
                began = perf_counter()
                with let_through():
                    result = self.measure(dict(point))
                done = Finished(dict(point), result, perf_counter() - began)
                line = {"point": point, "result": result, "took_s": round(done.took_s, 4)}
                self._append(_dumps(line, f"result at {key}"))
                self.finished[key] = done
        return self.finished[key]

    def run(self, points: Iterable[Point], title: str = "sweep") -> list[Finished]:
        """All points in their order, with a bar that tells the time left where someone sees it."""
        todo = list(points)
        self._check(todo)
        missing = sum(_dumps(point, "point") not in self.finished for point in todo)
        done: list[Finished] = []
        with _bar() as bar:
            task = bar.add_task(title, total=len(todo), completed=0, left=self._left(missing))
            for point in todo:
                missing -= _dumps(point, "point") not in self.finished
                done.append(self.at(point))
                bar.update(task, completed=len(done), left=self._left(missing))
        return done

    def _check(self, points: list[Point]) -> None:
        keys = [_dumps(point, "point") for point in points]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise SweepError(f"The point {twice} is there twice; add a seed to repeat it.")

    def _left(self, missing: int) -> str:
        took_s = [done.took_s for done in self.finished.values()]
        return time_left(missing * sum(took_s) / len(took_s)) if took_s and missing else ""

    # -- the file -----------------------------------------------------------------------------

    def _append(self, line: str) -> None:
        """Write a whole line or none: on a full disk what was written of it is taken back."""
        try:
            with self.path.open("ab", buffering=0) as file, locked(file):
                before = os.fstat(file.fileno()).st_size
                try:
                    whole = (line + "\n").encode()
                    if file.write(whole) < len(whole):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(file.fileno())
                except BaseException:
                    os.truncate(file.fileno(), before)
                    raise
        except OSError as error:
            raise SweepError(f"Cannot write {self.path} ({error}); choose another file.") from error

    def _read(self) -> None:
        """Load the file, or begin it; a last line that was cut off is removed from it."""
        header = _dumps({"format": FORMAT, "version": VERSION, "about": self.about}, "about")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            may_write = not self.path.exists() or os.access(self.path, os.W_OK)
            with self.path.open("a+b" if may_write else "rb", buffering=0) as file, locked(file):
                lines = self._lines(file, header)
        except SweepError:
            raise
        except (OSError, ValueError) as error:
            raise SweepError(f"Cannot use {self.path} ({error}); choose another file.") from error
        for number, line in enumerate(lines[1:], 2):
            self._take(number, _object(line))

    def _lines(self, file: FileIO, header: str) -> list[str]:
        file.seek(0)
        raw = file.readall()
        if header.encode().startswith(raw):  # nothing, or not even its first line
            file.truncate(0)
            file.write((header + "\n").encode())
            return []
        whole = raw[: raw.rfind(b"\n") + 1]
        lines = whole.decode("utf-8").splitlines() or [""]
        self._check_header(_object(lines[0]))
        if len(whole) < len(raw):
            file.truncate(len(whole))
        return lines

    def _take(self, number: int, found: dict[str, Any]) -> None:
        if not all(isinstance(found.get(name), dict) for name in ("point", "result")):
            raise SweepError(
                f"Line {number} of {self.path} is no finished point; remove that line, and its "
                "point will be measured again."
            )
        done = Finished(found["point"], found["result"], _seconds(found.get("took_s")))
        self.finished.setdefault(_dumps(done.point, "point"), done)

    def _check_header(self, header: dict[str, Any]) -> None:
        if header.get("format") != FORMAT or header.get("version") != VERSION:
            raise SweepError(
                f"{self.path} is no sweep that this minipd can read; choose another file."
            )
        about = header.get("about")
        before = cast("dict[str, Any]", about) if isinstance(about, dict) else {}
        both = before.keys() | self.about.keys()
        other = sorted(name for name in both if before.get(name) != self.about.get(name))
        if other:
            raise SweepError(
                f"{self.path} was begun with another {', '.join(other)}: choose another file, or "
                "remove that one to begin anew."
            )


def time_left(seconds: float) -> str:
    if seconds < 90:
        return f"about {max(1, round(seconds))} s left"
    if seconds < 5400:
        return f"about {round(seconds / 60)} min left"
    return f"about {seconds / 3600:.1f} h left"


def _bar() -> Progress:
    console = Console(stderr=True)
    columns = "{task.description}", BarColumn(), "{task.completed}/{task.total}"
    return Progress(
        *columns,
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        console=console,
        transient=True,
        disable=not (console.is_terminal or console.is_jupyter),
    )


def _dumps(value: object, what: str) -> str:
    try:
        return json.dumps(value, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SweepError(f"The {what} must be plain, finite values ({error}).") from error


def _seconds(value: object) -> float:
    """For the time left only: what is no length of time counts as none."""
    if not isinstance(value, (int, float)) or not 0.0 <= value < math.inf:
        return 0.0
    return float(value)


def _object(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
