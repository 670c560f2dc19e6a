"""Checking exercises: `check(...)` in a notebook, `minipd check NN` for a whole folder."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from minipd.lab.bank import lesson_number, load_bank
from minipd.lab.calibration import calibration_line
from minipd.lab.checks import EXERCISES, exercise, lesson_exercises
from minipd.lab.hints import RUNGS, Answer, Exercise, NotDoneYet, failure_text, first_failure
from minipd.lab.progress import exercise_record, keep_exercise
from minipd.lab.quiz import score_line
from minipd.lab.runner import Result, run_exercise
from minipd.lab.standing import next_step, overall_table, standing, standings

WORDS = {
    "passed": "passed",
    "failed": "not yet",
    "untouched": "not started",
    "too_slow": "too slow",
    "broken": "does not run",
}


class CheckFailed(AssertionError):
    """An answer that failed a named check; shown as its hints alone, without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class CheckError(ValueError):
    """There is nothing to check; the message says where exercises were looked for."""


def check(exercise_id: str, answer: Answer) -> None:
    """Check one answer in a notebook: prints that it passed, or raises with the next hint.

    An untouched stub raises its own friendly `NotImplementedError`.
    """
    task = exercise(exercise_id)
    try:
        failure = first_failure(task, answer)
    except NotDoneYet as stub:
        raise _without_traceback(NotImplementedError(str(stub))) from None
    if failure is None:
        keep_exercise(exercise_id, passed=True)
        print(f"Exercise {exercise_id} passed: all {len(task.checks)} checks hold.")
        return
    failed = "" if failure.raised else failure.check.name  # an error opens no hint
    kept = keep_exercise(exercise_id, passed=False, failed_check=failed)
    text = failure_text(task, failure, kept["failures"].get(failed, 1))
    raise CheckFailed(text) from None


def _without_traceback(error: Exception) -> Exception:
    shown: Any = error
    shown._render_traceback_ = lambda: [f"Not started yet: {error}"]
    return error


def find_notebook(folder: Path, lesson: str) -> Path:
    """The learner's exercise notebook of a lesson: in `folder/exercises` or in `folder` itself."""
    for place in (folder / "exercises", folder):
        found = sorted(place.glob(f"{lesson}_*.ipynb"))
        if found:
            return found[0]
    raise CheckError(
        f"There is no exercise notebook of lesson {lesson} in {folder}; name your copy of the "
        "course with --folder, or make one with `minipd lab`."
    )


def run_check(
    lesson: str | None,
    folder: Path = Path("my-course"),
    check_all: bool = False,
    console: Console | None = None,
) -> bool:
    """Check a lesson's exercises (or all) in the learner's folder; True when every one passes.

    Learner code runs in processes of its own, each with its exercise's time limit.
    """
    console = console or Console(highlight=False)
    places = _all_places(folder, console) if check_all else _place(folder, lesson or "")
    tasks = [task for number in places for task in lesson_exercises(number)]
    results = [_checked(task, places[task.lesson], console) for task in tasks]
    console.print(_table(tasks, results))
    for task, result in zip(tasks, results, strict=True):
        if text := _explanation(task, result):
            console.print(text, markup=False)
    done = all(result.state == "passed" for result in results)
    if check_all:
        _print_overall(console)
    elif not done:
        where = ", ".join(map(str, places.values()))
        console.print(f"Your answers: {where}", markup=False, soft_wrap=True)
    return done


def _place(folder: Path, lesson: str) -> dict[str, Path]:
    number = lesson_number(lesson)
    lesson_exercises(number)  # an unknown lesson is named before any file is looked for
    return {number: find_notebook(folder, number)}


def _all_places(folder: Path, console: Console) -> dict[str, Path]:
    """The notebooks that are there, by lesson; what a folder lacks is said and does not stop it."""
    places: dict[str, Path] = {}
    missing: list[str] = []
    for number in dict.fromkeys(task.lesson for task in EXERCISES.values()):
        try:
            places[number] = find_notebook(folder, number)
        except CheckError:
            missing.append(number)
    if not places:
        find_notebook(folder, missing[0])
    if missing:
        console.print(
            f"{folder} has no exercises of lesson {', '.join(missing)} yet; `minipd lab` brings "
            "them.",
            markup=False,
        )
    return places


def _checked(task: Exercise, notebook: Path, console: Console) -> Result:
    with console.status(f"Checking exercise {task.id}: {task.title}"):
        result = run_exercise(task, notebook)
    failed = "" if result.message else result.check
    keep_exercise(task.id, passed=result.state == "passed", failed_check=failed)
    return result


def _table(tasks: Sequence[Exercise], results: Sequence[Result]) -> Table:
    table = Table("exercise", "title", "result")
    for task, result in zip(tasks, results, strict=True):
        table.add_row(task.id, task.title, WORDS[result.state])
    return table


def _explanation(task: Exercise, result: Result) -> str:
    if result.state == "passed":
        return ""
    if result.state != "failed":
        named = result.message.startswith(f"Exercise {task.id}")  # a stub's own sentence
        return result.message if named else f"Exercise {task.id}: {result.message}"
    failed = next(one for one in task.checks if one.name == result.check)
    count = exercise_record(task.id).get("failures", {}).get(result.check, 1)
    opened = min(int(count), len(RUNGS))
    return failure_text(task, result.failure(failed), opened)


def _print_overall(console: Console) -> None:
    """A row for each lesson, the sums, and how good the learner's predictions are."""
    all_standings = standings()
    columns = overall_table(all_standings)
    table = Table(*columns)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    console.print(table)
    passed, tasks = sum(len(s.passed) for s in all_standings), len(EXERCISES)
    right, questions = (sum(getattr(s, n) for s in all_standings) for n in ("right", "questions"))
    console.print(
        f"Exercises: {passed} of {tasks} passed. Quizzes: {right} of {questions} answered rightly.",
        markup=False,
    )
    console.print(calibration_line(), markup=False)


def panel(lesson: str) -> None:
    """Show what is done so far in a lesson, exercise by exercise, and what comes next."""
    from minipd.lab.show import display_html, html_table

    number = lesson_number(lesson)
    here = standing(number)
    states = ["passed" if one in here.passed else "to do" for one in here.exercises]
    names = [f"Exercise {task.id}: {task.title}" for task in lesson_exercises(number)]
    quiz_state = score_line(load_bank(number)).split(": ", 1)[1]
    columns = {"so far": [*names, "Quiz"], "state": [*states, quiz_state]}
    display_html(html_table(columns, f"Your progress in lesson {number}") + next_html(number))


def next_html(lesson: str) -> str:
    """What comes next, as a link where it is another file, and how many lessons are done."""
    words, path = next_step(lesson)
    link = f'<a href="{html.escape(path, quote=True)}">{html.escape(words)}</a>' if path else words
    done = [one.lesson for one in standings() if one.done]
    so_far = f" Lessons done so far: {', '.join(done)}." if done else ""
    return f"<p>Next after this lesson's text: {link}.{so_far}</p>"
