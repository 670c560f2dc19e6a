"""Runs a learner's notebook and one exercise's checks in a process of its own, with a time limit.

The child writes its verdict to a file; whatever the learner's code prints goes nowhere, and when
the time is up the child and everything it started are ended.
"""

from __future__ import annotations

import difflib
import json
import linecache
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import psutil

from minipd.lab.hints import Check, Exercise, Failure, NotDoneYet, first_failure
from minipd.lab.watch import raised_text

State = Literal["passed", "failed", "untouched", "too_slow", "broken"]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one exercise: `check` names the failed check, `message` says what happened
    (for a failed check: what the learner's code raised), `got` what their function returned.
    """

    state: State
    check: str = ""
    message: str = ""
    got: str = ""

    def failure(self, failed: Check) -> Failure:
        return Failure(failed, self.message, self.got)


def run_exercise(task: Exercise, notebook: Path, time_limit_s: float | None = None) -> Result:
    """Run the notebook's cells and the checks of one exercise in a fresh process."""
    limit = task.time_limit_s if time_limit_s is None else time_limit_s
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        command = [sys.executable, "-m", "minipd.lab.runner", task.id, str(notebook.resolve())]
        child = subprocess.Popen(
            [*command, str(out)],
            cwd=notebook.resolve().parent,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            _, errors = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return Result(
                "too_slow",
                message=f"it was still running after {limit:g} s; look for a loop that never ends.",
            )
        finally:
            _end(child)
        return _read_result(out, errors.decode(errors="replace"))


def _environment() -> dict[str, str]:
    """The child finds this very minipd, installed or not, and opens no window for its plots."""
    places = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(place for place in places if place)
    return {**os.environ, "PYTHONPATH": path, "MPLBACKEND": "agg"}


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and all that it started; nothing happens if it has ended already."""
    try:
        family = [*psutil.Process(child.pid).children(recursive=True), psutil.Process(child.pid)]
    except psutil.NoSuchProcess:
        family = []
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    child.wait()
    if child.stderr:
        child.stderr.close()


def _read_result(out: Path, errors: str) -> Result:
    if not out.exists():
        last = (errors.strip().splitlines() or ["it ended without a word"])[-1]
        return Result("broken", message=f"the notebook stopped Python: {last}")
    return Result(**json.loads(out.read_text(encoding="utf-8")))


class CodeCell(NamedTuple):
    """One cell of the learner's: its place in the notebook (from 1), its code, its tags."""

    number: int
    source: str
    tags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"<cell {self.number}>"


NOT_RUN = {"check", "try"}  # cells of the course's own: checks, and what only a notebook shows


def code_cells(notebook: Path) -> list[CodeCell]:
    """The learner's code, without the course's own cells and without IPython's commands."""
    try:
        raw = cast(dict[str, Any], json.loads(notebook.read_text(encoding="utf-8")))
        cells = cast(list[dict[str, Any]], raw["cells"])
    except (ValueError, KeyError) as error:
        raise ValueError(
            f"{notebook.name} is not a notebook; save it again in JupyterLab."
        ) from error
    return [
        CodeCell(number, _plain(cell["source"]), tuple(cell["metadata"].get("tags", [])))
        for number, cell in enumerate(cells, 1)
        if cell["cell_type"] == "code" and not NOT_RUN & set(cell["metadata"].get("tags", []))
    ]


def _plain(source: str | list[str]) -> str:
    text = source if isinstance(source, str) else "".join(source)
    commands = ("%", "!")  # blanked, so that line numbers stay the notebook's
    return "\n".join(
        "" if line.lstrip().startswith(commands) else line for line in text.split("\n")
    )


def evaluate_cells(task: Exercise, cells: list[CodeCell]) -> Result:
    """Run cells in one namespace, then the checks; used in the child process."""
    namespace: dict[str, Any] = {"__name__": "__exercise__"}
    problems: dict[CodeCell, str] = {}
    for cell in cells:
        linecache.cache[cell.name] = (len(cell.source), None, cell.source.splitlines(True), "")
        try:
            exec(compile(cell.source, cell.name, "exec"), namespace)
        except Exception as error:
            problems[cell] = _problem(cell, error)
    answer = namespace.get(task.defines)
    if not callable(answer):
        return Result("broken", message=_why_missing(task, cells, problems, namespace))
    try:
        failure = first_failure(task, answer)
    except NotDoneYet as stub:
        return Result("untouched", message=str(stub))
    if failure is None:
        return Result("passed")
    return Result("failed", failure.check.name, failure.raised, failure.got)


def _problem(cell: CodeCell, error: Exception) -> str:
    if isinstance(error, SyntaxError):
        line = (error.text or "").strip()
        return (
            f"cell {cell.number} is not yet Python: {error.msg} in line {error.lineno}"
            f"{f': {line}' if line else ''}"
        )
    return f"cell {cell.number} failed with {raised_text(error)}"


def _why_missing(
    task: Exercise,
    cells: list[CodeCell],
    problems: dict[CodeCell, str],
    namespace: dict[str, Any],
) -> str:
    """Why a function is not there: its own cell's fault, a misspelt name, or another cell's."""
    own = [cell for cell in cells if f"exercise-{task.id.split('.')[1]}" in cell.tags]
    for cell in own:
        if cell in problems:
            return problems[cell] + "."
    functions = [name for name, value in namespace.items() if callable(value)]
    if near := difflib.get_close_matches(task.defines, functions, 1, 0.7):
        return f"it defines {near[0]}; the check needs {task.defines}."
    others = [] if own else list(problems.values())
    why = f" One cell has a fault: {others[0]}." if others else ""
    return f"no function called {task.defines} was found.{why}"


def main(exercise_id: str, notebook: str, out: str) -> None:
    """The child: judge one exercise and write the verdict."""
    from minipd.lab.checks import exercise

    try:
        result = evaluate_cells(exercise(exercise_id), code_cells(Path(notebook)))
    except ValueError as error:
        result = Result("broken", message=str(error))
    Path(out).write_text(json.dumps(asdict(result)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
