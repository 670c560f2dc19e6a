"""Build notebooks and quiz banks from `course/lessons`: `python -m course.build [--check]`.

The tables of lessons in the syllabus and the instructor guide are built too. `--check` writes
nothing, lists what is stale and exits with 1 if anything is. `--only 03` builds one lesson and
touches no other file.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from course.exercises import read_mutants
from course.facts import Facts, read_facts, uncited_figures
from course.glossary import Word, read_glossary, words_cell
from course.notebook import build_notebook
from course.overview import overview, read_head
from course.quizbank import compile_bank
from course.source import Cell, CourseError, read_cells
from course.values import engine_values

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("notebooks", "exercises", "solutions")
BANKS = Path("minipd/lab/banks")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_LESSON_NAME = re.compile(r"\d\d_[a-z0-9_]+")


def lesson_folders(course: Path) -> list[Path]:
    """The lessons' folders in order; raises `CourseError` for a name that is not `NN_slug`."""
    folders = sorted(folder for folder in (course / "lessons").iterdir() if folder.is_dir())
    folders = [folder for folder in folders if not folder.name.startswith(("_", "."))]
    for folder in folders:
        if not _LESSON_NAME.fullmatch(folder.name):
            raise CourseError(f"The lesson folder {folder.name!r} must be named like 00_a_title.")
    return folders


def headings(cells: list[Cell]) -> list[str]:
    """The titles of all headings, in order: the places that quizzes may point to."""
    return [
        title
        for cell in cells
        if cell.kind == "markdown"
        for title in _HEADING.findall(cell.source)
    ]


def headings_of_lesson(lessons: Path, number: str) -> set[str]:
    """The headings of another lesson, read from its source; raises `CourseError` without one."""
    for source in sorted(lessons.glob(f"{number}_*/lesson.py")):
        return set(headings(read_cells(source)))
    raise CourseError(f"lesson {number} has no lesson.py yet, so its headings cannot be looked up")


def check_prose(name: str, cells: list[Cell], facts: Facts) -> None:
    """Raise `CourseError` for a figure in a text cell that no fact vouches for."""
    for cell in cells:
        if cell.kind == "markdown" and (found := uncited_figures(cell.source, facts)):
            start = cell.source.strip().split("\n")[0]
            raise CourseError(
                f"{name}: the text cell {start!r} has figures without a source "
                f"({', '.join(found)}); let a cell print them, or cite facts.yaml."
            )


def build_lesson(folder: Path, facts: Facts, glossary: list[Word]) -> Iterator[tuple[Path, str]]:
    """Every file that one lesson gives, relative to the repository, with its text."""
    lesson, name = folder.name[:2], f"{folder.name}.ipynb"
    text, tasks = read_cells(folder / "lesson.py"), read_cells(folder / "exercises.py")
    read_head(folder.name, text)
    check_prose(f"{folder.name}/lesson.py", text, facts)
    check_prose(f"{folder.name}/exercises.py", tasks, facts)
    read_mutants(folder / "mutants.yaml")
    if words := words_cell(glossary, lesson):
        text.append(Cell("markdown", words))
    yield Path("notebooks", name), build_notebook(text, lesson, "notebooks", facts)
    yield Path("exercises", name), build_notebook(tasks, lesson, "exercises", facts)
    yield Path("solutions", name), build_notebook(tasks, lesson, "solutions", facts)

    def earlier(number: str) -> set[str]:
        return headings_of_lesson(folder.parent, number)

    bank = compile_bank(folder / "quiz.yaml", set(headings(text)), engine_values(), earlier)
    yield BANKS / f"{lesson}.json", bank


def build_all(root: Path = ROOT, only: str = "") -> dict[Path, str]:
    """Every built file of the course (or of lesson `only`), relative to `root`, with its text."""
    facts = read_facts(root / "course" / "facts.yaml")
    folders = [f for f in lesson_folders(root / "course") if f.name.startswith(only)]
    glossary = read_glossary(root / "course" / "glossary.yaml")
    built = dict(file for folder in folders for file in build_lesson(folder, facts, glossary))
    return built if only else built | overview(root, folders)


def stale_files(root: Path, built: dict[Path, str], only: str = "") -> list[str]:
    """Built files that are missing, differ, or (unless only a lesson counts) lost their source."""
    stale = [path for path, text in built.items() if _read(root / path) != text]
    if only:
        return [path.as_posix() for path in stale]
    for room, ending in [*((Path(room), "ipynb") for room in ROOMS), (BANKS, "json")]:
        there = {path.relative_to(root) for path in (root / room).glob(f"*.{ending}")}
        stale += sorted(there - set(built))
    return [path.as_posix() for path in stale]


def _read(path: Path) -> str | None:
    return path.read_bytes().decode() if path.exists() else None


def write_files(root: Path, built: dict[Path, str], only: str = "") -> None:
    """Write what changed, and remove built files whose source is gone."""
    for name in stale_files(root, built, only):
        path = root / name
        if Path(name) in built:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(built[Path(name)].encode())
        else:
            path.unlink()


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m course.build", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only list stale files")
    parser.add_argument("--only", default="", metavar="NN", help="one lesson, like 03")
    options = parser.parse_args(arguments)
    only_check, only = bool(options.check), str(options.only)
    try:
        built = build_all(root, only)
    except CourseError as error:
        print(f"course.build: {error}", file=sys.stderr)
        return 1
    stale = stale_files(root, built, only)
    if only_check:
        for name in stale:
            print(f"stale: {name}; run `python -m course.build`")
        return 1 if stale else 0
    write_files(root, built, only)
    print(f"{len(built)} files, {len(stale)} of them updated.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
