"""Checking exercises: `check(...)` in a notebook, `minipd check NN` for a whole folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from minipd.lab.bank import lesson_number, lessons_with_quiz, load_bank
from minipd.lab.checks import EXERCISES, exercise, lesson_exercises
from minipd.lab.hints import RUNGS, Answer, Exercise, NotDoneYet, failure_text, first_failure
from minipd.lab.predict import calibration_line
from minipd.lab.progress import exercise_record, keep_exercise
from minipd.lab.quiz import score_line
from minipd.lab.runner import Result, run_exercise

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
    number = lesson_number(lesson) if lesson else ""
    tasks = list(EXERCISES.values()) if check_all else lesson_exercises(number)
    results = [_checked(task, folder, console) for task in tasks]
    console.print(_table(tasks, results))
    for task, result in zip(tasks, results, strict=True):
        if text := _explanation(task, result):
            console.print(text, markup=False)
    if check_all:
        _print_overall(tasks, results, console)
    return all(result.state == "passed" for result in results)


def _checked(task: Exercise, folder: Path, console: Console) -> Result:
    notebook = find_notebook(folder, task.lesson)
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
        return f"Exercise {task.id}: {result.message}"
    failed = next(one for one in task.checks if one.name == result.check)
    count = exercise_record(task.id).get("failures", {}).get(result.check, 1)
    opened = min(int(count), len(RUNGS))
    return failure_text(task, result.failure(failed), opened)


def _print_overall(tasks: Sequence[Exercise], results: Sequence[Result], console: Console) -> None:
    passed = sum(result.state == "passed" for result in results)
    console.print(f"Exercises: {passed} of {len(tasks)} passed.", markup=False)
    for lesson in lessons_with_quiz():
        console.print(score_line(load_bank(lesson)), markup=False)
    console.print(calibration_line(), markup=False)


def panel(lesson: str) -> None:
    """Show what is done so far in a lesson: exercises passed and quiz questions answered."""
    from minipd.lab.show import show_table

    tasks = lesson_exercises(lesson)
    states = ["passed" if exercise_record(t.id).get("passed") else "to do" for t in tasks]
    names = [f"Exercise {task.id}: {task.title}" for task in tasks]
    quiz_state = score_line(load_bank(lesson)).split(": ", 1)[1]
    columns = {"so far": [*names, "Quiz"], "state": [*states, quiz_state]}
    show_table(columns, f"Your progress in lesson {lesson}")
