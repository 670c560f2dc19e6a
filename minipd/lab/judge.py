"""Judges one exercise of a learner's notebook: runs its cells, then the checks.

`main` is what the runner's child process does. The learner's code shares that process, so whatever
it prints goes nowhere, and a verdict counts only with the token that its cells never see.
"""

from __future__ import annotations

import difflib
import json
import linecache
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

import psutil

from minipd.lab.hints import Check, Exercise, Failure, NotDoneYet, first_failure
from minipd.lab.watch import cut, raised_text

State = Literal["passed", "failed", "untouched", "too_slow", "broken"]
STATES: tuple[str, ...] = get_args(State)
LONGEST_MESSAGE = 2000  # characters
PARENT_CHECK_S = 0.5


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
    """The learner's code, without the course's own cells and without IPython's commands.

    Raises `ValueError`, one sentence, for whatever is no notebook.
    """
    try:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        found = [_cell(number, cell) for number, cell in enumerate(cells, 1)]
    except OSError as error:
        raise ValueError(f"{notebook.name} cannot be read ({error.strerror or error}).") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{notebook.name} is not a notebook; save it again in JupyterLab."
        ) from error
    return [cell for cell in found if cell and not NOT_RUN & set(cell.tags)]


def _cell(number: int, raw: dict[str, Any]) -> CodeCell | None:
    """A code cell; None for others. `TypeError` or `KeyError` where it is no cell at all."""
    if raw["cell_type"] != "code":
        return None
    source, tags = raw["source"], raw.get("metadata", {}).get("tags", [])
    text = source if isinstance(source, str) else "".join(source)
    commands = ("%", "!")  # blanked, so that line numbers stay the notebook's
    lines = ["" if line.lstrip().startswith(commands) else line for line in text.split("\n")]
    return CodeCell(number, "\n".join(lines), tuple(str(tag) for tag in tags))


def evaluate_cells(task: Exercise, cells: list[CodeCell]) -> Result:
    """Run cells in one namespace, then the checks; used in the child process."""
    namespace: dict[str, Any] = {"__name__": "__exercise__"}
    problems: dict[CodeCell, str] = {}
    for cell in cells:
        linecache.cache[cell.name] = (len(cell.source), None, cell.source.splitlines(True), "")
        try:
            exec(compile(cell.source, cell.name, "exec"), namespace)
        except BaseException as error:  # exit() and the like, too, end a cell and no more
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


def _problem(cell: CodeCell, error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        line = cut((error.text or "").strip())
        return (
            f"cell {cell.number} is not yet Python: {error.msg} in line {error.lineno}"
            f"{f': {line}' if line else ''}"
        )
    if isinstance(error, SystemExit):
        return f"cell {cell.number} calls exit(), which would end the notebook; take that out"
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


def written(result: Result, token: str) -> str:
    """A verdict as the child writes it, bounded whatever the learner's code produced."""
    texts = {name: cut(str(text), LONGEST_MESSAGE) for name, text in asdict(result).items()}
    return json.dumps(texts | {"token": token})


def read_verdict(text: str, token: str) -> Result | None:
    """The verdict in `text`; None unless the judge itself wrote it, whole."""
    try:
        raw: Any = json.loads(text)
        if raw.pop("token") == token and raw["state"] in STATES:
            texts = {name: str(raw[name]) for name in ("check", "message", "got")}
            return Result(cast(State, raw["state"]), **texts)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return None


def main() -> None:
    """The child: read what to judge from stdin, judge, write the verdict, and end at once.

    Threads that the learner's code left running, or what it would do at exit, keep nobody waiting.
    """
    order: dict[str, Any] = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with, args=(order["parent"],), daemon=True).start()
    from minipd.lab.checks import exercise

    task = exercise(order["exercise"])
    for text in _judged(task, Path(order["notebook"]), order["token"]):
        Path(order["out"]).write_text(text, encoding="utf-8")
    os._exit(0)


def _end_with(parent: int) -> None:
    """End this process, and on POSIX its group, once the one that asked has been killed: it can end
    nobody. (Not while a single call into compiled code keeps other threads from running.)"""
    with suppress(psutil.Error):
        asked = psutil.Process(parent)
        while os.getppid() == parent if os.name == "posix" else asked.is_running():
            time.sleep(PARENT_CHECK_S)
    if os.name == "posix":
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _judged(task: Exercise, notebook: Path, token: str) -> Iterator[str]:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # no input, and nothing the cells print can fill a disk
        os.dup2(nowhere, stream)
    try:
        result = evaluate_cells(task, code_cells(notebook))
    except ValueError as error:
        result = Result("broken", message=str(error))
    yield written(result, token)
