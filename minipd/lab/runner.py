"""Runs a learner's notebook and one exercise's checks in a process of its own, with a time limit.

The child writes its verdict to a file; whatever the learner's code prints goes nowhere, and when
the time is up the child and everything it started are ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

import psutil

from minipd.lab.hints import Check, Exercise, Failure, NotDoneYet, first_failure

State = Literal["passed", "failed", "untouched", "too_slow", "broken"]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one exercise; `check` names the failed check, `message` says what happened."""

    state: State
    check: str = ""
    message: str = ""

    def failure(self, failed: Check) -> Failure:
        return Failure(failed, self.message)


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


def code_cells(notebook: Path) -> list[str]:
    """The learner's code, without the course's own check cells and without IPython's commands."""
    try:
        raw = cast(dict[str, Any], json.loads(notebook.read_text(encoding="utf-8")))
        cells = cast(list[dict[str, Any]], raw["cells"])
    except (ValueError, KeyError) as error:
        raise ValueError(
            f"{notebook.name} is not a notebook; save it again in JupyterLab."
        ) from error
    return [
        _plain(cell["source"])
        for cell in cells
        if cell["cell_type"] == "code" and "check" not in cell["metadata"].get("tags", [])
    ]


def _plain(source: str | list[str]) -> str:
    text = source if isinstance(source, str) else "".join(source)
    return "\n".join(line for line in text.split("\n") if not line.lstrip().startswith(("%", "!")))


def evaluate_cells(task: Exercise, cells: list[str]) -> Result:
    """Run cells in one namespace, then the checks; used in the child process."""
    namespace: dict[str, Any] = {"__name__": "__exercise__"}
    problems: list[str] = []
    for source in cells:
        try:
            exec(compile(source, "<your notebook>", "exec"), namespace)
        except Exception as error:
            problems.append(f"{type(error).__name__}: {error}")
    answer = namespace.get(task.defines)
    if not callable(answer):
        why = f" A cell failed with {problems[0]}" if problems else ""
        return Result("broken", message=f"no function called {task.defines} was found.{why}")
    try:
        failure = first_failure(task, answer)
    except NotDoneYet as stub:
        return Result("untouched", message=str(stub))
    if failure is None:
        return Result("passed")
    return Result("failed", failure.check.name, failure.raised)


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
