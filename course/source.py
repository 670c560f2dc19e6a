"""Reading an author's percent file into cells, and the two markers that it may hold.

`### BEGIN SOLUTION` / `### END SOLUTION` enclose what a learner writes; `### BEGIN HIDDEN TESTS` /
`### END HIDDEN TESTS` what only the solution notebook shows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import jupytext
import yaml

BLOCKS = ("SOLUTION", "HIDDEN TESTS")
_MARKER = re.compile(r"^\s*### (BEGIN|END) (SOLUTION|HIDDEN TESTS)\s*$")
_LOOKS_LIKE_MARKER = re.compile(r"^\s*#+\s*(BEGIN|END)\s+(SOLUTION|HIDDEN)", re.IGNORECASE)
_EXERCISE_TAG = re.compile(r"exercise-(\d+)")


class CourseError(ValueError):
    """A source that cannot be built; the message names file and place and says what is wrong."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a source; `tags` are the author's."""

    kind: Literal["markdown", "code"]
    source: str
    tags: tuple[str, ...] = ()

    @property
    def exercise_number(self) -> int | None:
        """The n of a tag `exercise-n`, else None."""
        found = [m for tag in self.tags if (m := _EXERCISE_TAG.fullmatch(tag))]
        return int(found[0][1]) if found else None


def read_cells(path: Path) -> list[Cell]:
    """The cells of a percent file, with its markers checked."""
    try:
        notebook = jupytext.read(path, fmt="py:percent")
    except (OSError, UnicodeDecodeError) as error:
        raise CourseError(f"{path.parent.name}/{path.name} cannot be read ({error}).") from error
    cells: list[Cell] = []
    for number, raw in enumerate(notebook.cells, 1):
        cell = Cell(raw.cell_type, raw.source, tuple(raw.metadata.get("tags", [])))
        where = f"{path.parent.name}/{path.name}, cell {number}"
        check_markers(cell.source, where)
        if cell.kind == "code" and "### BEGIN SOLUTION" in cell.source:
            _require(cell.exercise_number is not None, where, "its tags need one exercise-N")
        cells.append(cell)
    return cells


def read_mapping(path: Path) -> dict[str, Any]:
    """A YAML file that holds names and what they stand for; raises `CourseError`, one sentence."""
    try:
        raw: object = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise CourseError(f"{path.name}: {' '.join(str(error).split())[:300]}.") from error
    if not isinstance(raw, dict):
        raise CourseError(f"{path.name}: the file must hold names, each with what it stands for.")
    return cast("dict[str, Any]", raw)


def _require(condition: bool, where: str, what: str) -> None:
    if not condition:
        raise CourseError(f"{where}: {what}.")


def check_markers(source: str, where: str) -> None:
    """Raise `CourseError` unless every marker is spelt rightly, opened once and closed."""
    open_block = ""
    for number, line in enumerate(source.split("\n"), 1):
        marker = _MARKER.match(line)
        at = f"{where}, line {number}"
        if marker is None:
            _require(not _LOOKS_LIKE_MARKER.match(line), at, f"{line.strip()!r} is misspelt")
            continue
        side, block = marker[1], marker[2]
        if side == "BEGIN":
            _require(not open_block, at, f"{block} begins inside {open_block}")
            open_block = block
        else:
            _require(open_block == block, at, f"{block} ends without having begun")
            open_block = ""
    _require(not open_block, where, f"{open_block} begins and never ends")


def _block(name: str) -> re.Pattern[str]:
    begin, end = f"### BEGIN {name}", f"### END {name}"
    pattern = rf"^([ \t]*){begin}[ \t]*\n(.*?)^[ \t]*{end}[ \t]*(?:\n|\Z)"
    return re.compile(pattern, re.MULTILINE | re.DOTALL)


SOLUTION, HIDDEN = _block("SOLUTION"), _block("HIDDEN TESTS")


def stub_lines(indent: str, exercise_id: str) -> str:
    """What stands in an exercise notebook where the learner's answer goes."""
    sentence = f"Exercise {exercise_id} is waiting for you: put your code here."
    return f'{indent}# YOUR CODE HERE\n{indent}raise NotImplementedError("{sentence}")\n'


def stubbed(cell: Cell, lesson: str) -> str:
    """The learner's version: stubs for solutions, hidden tests left out."""
    exercise_id = f"{lesson}.{cell.exercise_number}"
    text = SOLUTION.sub(lambda m: stub_lines(m[1], exercise_id), cell.source)
    return HIDDEN.sub("", text).rstrip("\n")


def solved(cell: Cell) -> str:
    """The solution's version: everything, without the marker lines."""
    text = SOLUTION.sub(lambda m: m[2], cell.source)
    return HIDDEN.sub(lambda m: m[2], text).rstrip("\n")


def solution_lines(cells: list[Cell]) -> set[str]:
    """Lines inside solutions and hidden tests, stripped; short ones may stand anywhere."""
    lines: set[str] = set()
    for cell in cells:
        for pattern in (SOLUTION, HIDDEN):
            for match in pattern.finditer(cell.source):
                lines |= {line.strip() for line in match[2].split("\n")}
    return {line for line in lines if len(line) >= 15 and not line.startswith("#")}
