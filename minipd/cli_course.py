"""The commands for learners and instructors: exercises and quizzes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

CourseFolder = Annotated[
    Path, typer.Option("--folder", metavar="DIR", help="Folder of your copy of the course.")
]


def check(
    lesson: Annotated[str | None, typer.Argument(metavar="[NN]", help="Lesson, like 00.")] = None,
    folder: CourseFolder = Path("my-course"),
    check_all: Annotated[bool, typer.Option("--all", help="Check every lesson.")] = False,
) -> None:
    """Check your exercises, with hints.

    --all checks every lesson in your folder and adds how far you are: exercises, quizzes, and how
    good your predictions are on the whole.
    """
    if lesson is None and not check_all:
        raise typer.BadParameter("name a lesson, like `minipd check 00`, or ask for --all.")
    from minipd.lab.check import run_check

    if not run_check(lesson, folder, check_all):
        raise typer.Exit(1)


def quiz(
    lesson: Annotated[str, typer.Argument(metavar="NN", help="Lesson number, like 00.")],
    form: Annotated[
        Literal["gift", "qti"] | None,
        typer.Option("--export", help="Write the quiz as a file: gift (Moodle), qti (Canvas)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="With --export: where to.")
    ] = None,
) -> None:
    """Take a quiz in the terminal, or export it for a learning platform.

    What a platform's format cannot express becomes the nearest kind of question, and is named.
    """
    if form is None and out is not None:
        raise typer.BadParameter("--out needs --export gift or --export qti.")
    if form is not None:
        from minipd.lab.export import export_quiz

        export_quiz(lesson, form, out)
        return
    from minipd.lab.quiz_terminal import run_quiz

    run_quiz(lesson)
