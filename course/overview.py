"""What lessons say about themselves in their head cells, as rows of the syllabus and the guide.

A lesson's first text cell has a title, a question, minutes, needs and what one can do afterwards.
Both pages hold a generated part between two marks; all else in them is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from course.source import Cell, CourseError, read_cells

SYLLABUS, GUIDE = Path("course/syllabus.md"), Path("course/instructor-guide.md")
TEACHING = "teaching.md"
TEACHING_PARTS = ("50 min", "90 min", "180 min", "What to listen for", "Usual mistakes", "Grading")
BEGIN, END = "<!-- From the lessons' head cells: -->", "<!-- End of what the lessons say. -->"
_CITATION = re.compile(r" ?\[[a-z0-9]+(?:-[a-z0-9]+)+\]")
_TITLE = re.compile(r"# (Lesson \d\d: .+)")
_PARTS = {
    "question": r"\*\*The question:(?:\*\*)?(.+?)(?:\*\*)?$",
    "minutes": r"\*\*Minutes:?\*\*:?(.+)",
    "needs": r"\*\*You need:?\*\*:?(.+)",
}


@dataclass(frozen=True, slots=True)
class Head:
    """A lesson in a few words; `folder` is its name, like `00_your_machine`."""

    folder: str
    title: str
    question: str
    minutes: str
    needs: str
    afterwards: tuple[str, ...]


def read_head(folder: str, cells: Sequence[Cell]) -> Head:
    """What the first cell says; raises `CourseError` naming the part that it lacks."""
    text = cells[0].source if cells and cells[0].kind == "markdown" else ""
    title = _TITLE.match(text)
    if not title or not title[1].startswith(f"Lesson {folder[:2]}: "):
        raise _lacks(folder, f"the title `# Lesson {folder[:2]}: ...`")
    blocks = [" ".join(block.split()) for block in re.split(r"\n\s*\n", text)]
    found = {name: _part(folder, name, pattern, blocks) for name, pattern in _PARTS.items()}
    return Head(folder, title[1], **found, afterwards=_afterwards(folder, text))


def _lacks(folder: str, what: str) -> CourseError:
    return CourseError(f"{folder}/lesson.py: the first text cell lacks {what}.")


def _part(folder: str, name: str, pattern: str, blocks: Sequence[str]) -> str:
    for block in blocks:
        if match := re.match(pattern, block):
            return _tidy(match[1])
    raise _lacks(folder, f"its {name}: a paragraph that begins with **{_LABELS[name]}**")


_LABELS = {"question": "The question:", "minutes": "Minutes:", "needs": "You need:"}


def _afterwards(folder: str, text: str) -> tuple[str, ...]:
    _, found, rest = text.partition("**Afterwards you can")
    lines = rest.partition("\n- ")[2]
    if not found or not lines:
        raise _lacks(folder, "a list below **Afterwards you can**")
    items = re.split(r"\n- ", re.split(r"\n\s*\n(?!- )", lines)[0])
    return tuple(_tidy(item) for item in items)


def _tidy(text: str) -> str:
    """One line for a table's cell: no sources, no mark at the end, a vertical bar kept as text."""
    words = " ".join(_CITATION.sub("", text).split())
    return words.strip(" *").rstrip(".;").replace("|", "\\|")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def syllabus_table(heads: Sequence[Head]) -> str:
    """A row for each lesson: what it asks, takes, needs and gives."""
    rows = ["| lesson | question | minutes | needs | afterwards you can |", "|---|---|---|---|---|"]
    for head in heads:
        gains = "; ".join(head.afterwards)
        title = head.title.removeprefix("Lesson ").replace(":", "", 1)
        cells = (title, _capital(head.question), head.minutes, _capital(head.needs), gains)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def guide_index(heads: Sequence[Head]) -> str:
    """A link to each lesson's teaching page, with its question."""
    return "\n".join(
        f"- [{head.title}](lessons/{head.folder}/{TEACHING}): {_capital(head.question)}"
        for head in heads
    )


def with_section(name: Path, text: str, section: str) -> str:
    """A page with its generated part replaced; raises `CourseError` where the marks are gone."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise CourseError(f"{name.as_posix()} has lost its marks {BEGIN} and {END}.")
    return f"{before}{BEGIN}\n\n{section}\n\n{END}{after}"


def check_teaching(folder: Path) -> None:
    """Raise `CourseError` unless the lesson has an instructor's page with every part of one."""
    page = folder / TEACHING
    if not page.is_file():
        raise CourseError(f"{folder.name} has no {TEACHING}, the instructor's page of the lesson.")
    text = page.read_text(encoding="utf-8")
    missing = [part for part in TEACHING_PARTS if part.lower() not in text.lower()]
    if missing:
        raise CourseError(f"{folder.name}/{TEACHING} lacks: {', '.join(missing)}.")


def overview(root: Path, folders: Sequence[Path]) -> dict[Path, str]:
    """Syllabus and instructor guide with their generated parts, relative to `root`."""
    for folder in folders:
        check_teaching(folder)
    heads = [read_head(folder.name, read_cells(folder / "lesson.py")) for folder in folders]
    parts = {SYLLABUS: syllabus_table(heads), GUIDE: guide_index(heads)}
    return {
        name: with_section(name, (root / name).read_text(encoding="utf-8"), part)
        for name, part in parts.items()
    }
