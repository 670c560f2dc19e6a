"""Cells to notebook text: no outputs, ids from content, the same bytes at every build."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import nbformat
from nbformat import v4

from course.facts import Facts, link_citations, sources_cell
from course.source import Cell, CourseError, solution_lines, solved, stubbed

Flavour = Literal["notebooks", "exercises", "solutions"]
METADATA = {
    "kernelspec": {
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"name": "python"},
}


def build_notebook(cells: list[Cell], lesson: str, flavour: Flavour, facts: Facts) -> str:
    """One notebook as JSON text; raises `CourseError` if a solution would reach the learner."""
    book = v4.new_notebook(metadata=METADATA)
    seen: dict[str, int] = {}
    sources = sources_cell(cells, facts)
    for cell in [*cells, Cell("markdown", sources)] if sources else cells:
        book.cells.append(_built(cell, lesson, flavour, facts, seen))
    nbformat.validate(book)
    if flavour == "exercises":
        refuse_solutions(book, solution_lines(cells), lesson)
    return nbformat.writes(book, indent=1, sort_keys=True) + "\n"


def _built(cell: Cell, lesson: str, flavour: Flavour, facts: Facts, seen: dict[str, int]) -> Any:
    if cell.kind == "markdown":
        made = v4.new_markdown_cell(link_citations(cell.source, facts))
    else:
        made = v4.new_code_cell(stubbed(cell, lesson) if flavour == "exercises" else solved(cell))
    made.id = cell_id(cell, lesson, seen)
    # A check that fails must not keep "run all" from reaching the next exercise.
    goes_on = ("raises-exception",) if flavour == "exercises" and "check" in cell.tags else ()
    if cell.tags:
        made.metadata["tags"] = sorted((*cell.tags, *goes_on))
    if grading := nbgrader_metadata(cell, lesson):
        made.metadata["nbgrader"] = grading
    return made


def cell_id(cell: Cell, lesson: str, seen: dict[str, int]) -> str:
    """An id from the author's text; equal cells are numbered in order."""
    text = "\0".join((lesson, cell.kind, cell.source))
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    seen[digest] = seen.get(digest, 0) + 1
    return digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"


def nbgrader_metadata(cell: Cell, lesson: str) -> dict[str, Any] | None:
    """What nbgrader needs to collect and grade exercise and check cells; None for other cells."""
    number = cell.exercise_number
    if cell.kind != "code" or number is None:
        return None
    is_check = "check" in cell.tags
    made: dict[str, Any] = {
        "cell_type": "code",
        "grade": is_check,
        "grade_id": f"{'check' if is_check else 'answer'}-{lesson}-{number}",
        "locked": is_check,
        "schema_version": 3,
        "solution": not is_check,
        "task": False,
    }
    return made | {"points": 1} if is_check else made


def refuse_solutions(book: Any, hidden: set[str], lesson: str) -> None:
    """Raise `CourseError` if a line of a solution or a marker stands in an exercise notebook."""
    for cell in book.cells:
        for line in cell.source.split("\n"):
            if line.strip() in hidden or "### BEGIN" in line or "### END" in line:
                raise CourseError(
                    f"exercises/ of lesson {lesson} would show a solution: {line.strip()!r} stands "
                    "outside the SOLUTION markers too."
                )
