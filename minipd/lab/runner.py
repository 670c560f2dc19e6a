"""Runs a learner's notebook and one exercise's checks in a process of its own, with a time limit.

Whatever the notebook starts is ended with it: its process group, and by a token in their
environment also processes that left the group.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import psutil

from minipd.lab.hints import Exercise
from minipd.lab.judge import CodeCell, Result, State, code_cells, evaluate_cells, read_verdict

__all__ = ["CodeCell", "Result", "State", "code_cells", "evaluate_cells", "run_exercise"]

FAMILY = "MINIPD_CHECK_FAMILY"  # in the environment of everything that a check starts
ROUNDS = 5  # of looking for processes that one of the family started meanwhile
_CHILD = "from minipd.lab.judge import main; main()"
_MAX_ERROR_BYTES = 10_000
_MAX_VERDICT_BYTES = 100_000


def run_exercise(task: Exercise, notebook: Path, time_limit_s: float | None = None) -> Result:
    """Run the notebook's cells and the checks of one exercise in a fresh process."""
    limit = task.time_limit_s if time_limit_s is None else time_limit_s
    family, token = secrets.token_hex(16), secrets.token_hex(16)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        out, errors = Path(folder) / "result.json", Path(folder) / "errors.txt"
        order: dict[str, str | int] = {
            "exercise": task.id,
            "notebook": str(notebook.absolute()),
            "out": str(out),
            "parent": os.getpid(),
        }
        with errors.open("wb") as error_file:
            child = _started(notebook.absolute().parent, family, error_file)
            try:
                _tell(child, json.dumps(order | {"token": token}))
                child.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                return Result(
                    "too_slow",
                    message=f"it was still running after {limit:g} s; look for a loop that never "
                    "ends, or, if your computer is very busy, run it again.",
                )
            finally:
                _end(child, family)
        return _read_result(out, token, errors, child.returncode)


def _started(folder: Path, family: str, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    # Nobody waits for a pipe to close: a process that the notebook leaves behind would keep it
    # open. In a session of its own, the child's process group can be ended as a whole.
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD],
        cwd=folder,
        env=_environment(family),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        start_new_session=True,
    )


def _tell(child: subprocess.Popen[bytes], order: str) -> None:
    assert child.stdin is not None, "the child reads its order from a pipe"
    with contextlib.suppress(BrokenPipeError):  # it could not even start: its errors say why
        child.stdin.write(order.encode() + b"\n")
        child.stdin.close()


def _environment(family: str) -> dict[str, str]:
    """The child finds this very minipd, installed or not, and opens no window for its plots."""
    places = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(place for place in places if place)
    return {**os.environ, "PYTHONPATH": path, "MPLBACKEND": "agg", FAMILY: family}


def _end(child: subprocess.Popen[bytes], family: str) -> None:
    """End the child and all that it started, wherever in the system that went."""
    if hasattr(os, "killpg"):
        # The group lives as long as one process of it does, so its number is nobody else's yet.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    child.wait()
    for _ in range(ROUNDS):
        left = list(_family(family))
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        if not left:
            return
        psutil.wait_procs(left, timeout=0.5)  # no child of ours: nobody tells us when it has gone


def _family(family: str) -> Iterator[psutil.Process]:
    """Living processes that carry the token; those of other users cannot be read, nor be ours."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(FAMILY) == family:
                yield process


def _read_result(out: Path, token: str, errors: Path, code: int) -> Result:
    text = _start_of(out, _MAX_VERDICT_BYTES)
    if result := read_verdict(text, token):
        return result
    if text:
        return Result("broken", message="the notebook wrote over its own result; take that out.")
    return Result("broken", message=f"the notebook stopped Python: {_how_it_ended(errors, code)}")


def _start_of(path: Path, limit: int) -> str:
    try:
        with path.open("rb") as file:
            return file.read(limit).decode(errors="replace")
    except OSError:
        return ""


def _how_it_ended(errors: Path, code: int) -> str:
    """Why there is no verdict: the child's last words, its signal, or its exit code."""
    if said := _start_of(errors, _MAX_ERROR_BYTES).strip():
        return said.splitlines()[-1]
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        why = {"SIGKILL": ", perhaps for want of memory", "SIGSEGV": ", a crash in compiled code"}
        return f"it was ended by {name}{why.get(name, '')}."
    return f"it ended with code {code}; look for os._exit or a crash."
