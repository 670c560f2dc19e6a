"""The catalogue of plausible wrong answers of each exercise, and putting an answer into a notebook.

`mutants.yaml` beside the exercises lists, per exercise id, answers that a learner might well give:
`body` replaces the stub, `fails` is the check whose hints must be the ones shown.
"""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course.source import CourseError, read_mapping

MIN_MUTANTS = 3
_STUB = re.compile(r"^([ \t]*)# YOUR CODE HERE\n[ \t]*raise NotImplementedError\([^\n]*\)", re.M)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One wrong answer; `mistake` says in a sentence what the learner believed."""

    exercise_id: str
    name: str
    mistake: str
    fails: str
    body: str


def read_mutants(path: Path) -> list[Mutant]:
    """All mutants of a lesson; raises `CourseError` if an exercise has fewer than three."""
    raw = read_mapping(path)
    for exercise_id, entries in raw.items():
        if not isinstance(entries, list) or len(entries) < MIN_MUTANTS:
            raise CourseError(f"{path.name}: exercise {exercise_id} needs {MIN_MUTANTS} mutants.")
    try:
        return [Mutant(str(name), **entry) for name, entries in raw.items() for entry in entries]
    except TypeError as error:
        raise CourseError(f"{path.name}: {error}.") from error


def with_answer(notebook: Path, exercise_id: str, body: str) -> dict[str, Any]:
    """An exercise notebook in which `body` stands where one exercise's stub stood."""
    book: dict[str, Any] = json.loads(notebook.read_text(encoding="utf-8"))
    for cell in book["cells"]:
        source = "".join(cell["source"])
        stub = _STUB.search(source)
        if stub and f"Exercise {exercise_id} " in stub[0]:
            answer = textwrap.indent(textwrap.dedent(body).strip("\n"), stub[1])
            cell["source"] = source[: stub.start()] + answer + source[stub.end() :]
            return book
    raise CourseError(f"{notebook.name} has no stub of exercise {exercise_id}.")
