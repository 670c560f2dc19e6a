"""Learner code that misbehaves: it is ended with all it started, and told in one sentence."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from minipd.lab import runner
from minipd.lab.checks import exercise
from minipd.lab.hints import first_failure
from minipd.lab.judge import LONGEST_MESSAGE, Result, code_cells, read_verdict, written
from minipd.lab.runner import run_exercise

RIGHT = """
import statistics
def honest_rate(tokens, seconds):
    rates = [t / s for t, s in zip(tokens[1:], seconds[1:])]
    low, middle, high = statistics.quantiles(rates, n=4, method="inclusive")
    return sum(tokens[1:]) / sum(seconds[1:]), (high - low) / middle
"""
TASK = exercise("00.1")
posix = pytest.mark.skipif(os.name != "posix", reason="fork and signals are POSIX")


def notebook(folder, *cells):
    made = [{"cell_type": "code", "metadata": {}, "source": cell} for cell in cells]
    file = folder / "00_your_machine.ipynb"
    file.write_text(json.dumps({"cells": made, "metadata": {}, "nbformat": 4}))
    return file


def judged(tmp_path, *cells, limit=60.0):
    return run_exercise(TASK, notebook(tmp_path, *cells), time_limit_s=limit)


def gone(pid):
    """Ended, or ending: a process that was killed still has to give back its memory."""
    for _ in range(1200):
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}:
                time.sleep(0.05)
                continue
        return True
    return False


LEAVE_BEHIND = {
    "a fork": "if not os.fork():\n    note(); time.sleep(300)",
    "a daemon": "if not os.fork():\n    os.setsid()\n    if not os.fork():\n        note()\n"
    "        time.sleep(300)\n    os._exit(0)",
    "a program": "subprocess.Popen([sys.executable, '-c', "
    '\'import os, time; open("pid", "w").write(str(os.getpid())); time.sleep(300)\'],'
    " start_new_session=True)",
}
NOTE = """
import os, subprocess, sys, time
def note():
    open("pid", "w").write(str(os.getpid()))
"""
WAIT = "while not (os.path.exists('pid') and open('pid').read()):\n    time.sleep(0.01)\n"


@posix
@pytest.mark.parametrize("what", LEAVE_BEHIND)
def test_what_a_notebook_leaves_behind_ends_with_the_check(tmp_path, what):
    start = time.monotonic()
    assert judged(tmp_path, NOTE, LEAVE_BEHIND[what], WAIT, RIGHT).state == "passed"
    assert time.monotonic() - start < 120, "the verdict waited for what was left behind"
    assert gone(int((tmp_path / "pid").read_text()))


@pytest.mark.slow
@posix
def test_a_daemon_ends_also_when_the_time_is_up(tmp_path):
    loop = WAIT + "while True: pass"
    assert judged(tmp_path, NOTE, LEAVE_BEHIND["a daemon"], loop, limit=15).state == "too_slow"
    assert gone(int((tmp_path / "pid").read_text()))


@pytest.mark.slow
@posix
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_check_that_is_killed_takes_the_learners_code_with_it(tmp_path, how):
    file = notebook(tmp_path, NOTE, "note()\nwhile True: pass")
    ask = (
        "from pathlib import Path; from minipd.lab.checks import exercise; "
        "from minipd.lab.runner import run_exercise; "
        f"run_exercise(exercise('00.1'), Path({str(file)!r}), 300.0)"
    )
    asked = subprocess.Popen([sys.executable, "-c", ask])
    try:
        for _ in range(2400):
            if (tmp_path / "pid").is_file() and (text := (tmp_path / "pid").read_text()):
                break
            time.sleep(0.05)
    finally:
        asked.send_signal(how)
        asked.wait()
    assert gone(int(text))


def test_a_thread_that_never_ends_keeps_nobody_waiting(tmp_path):
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(300,)).start()"
    assert judged(tmp_path, thread, RIGHT).state == "passed"


@pytest.mark.parametrize("call", ["import sys; sys.exit(3)", "exit()", "raise SystemExit"])
def test_exit_in_a_cell_costs_that_cell_alone(tmp_path, call):
    assert judged(tmp_path, call, RIGHT).state == "passed"
    result = judged(tmp_path, call)
    assert result.state == "broken" and "calls exit(), which would end" in result.message


def test_exit_in_the_function_is_named_with_its_line(tmp_path):
    result = judged(tmp_path, "import sys\ndef honest_rate(a, b):\n    sys.exit(1)")
    assert result.state == "failed" and "exit() would end the notebook" in result.message
    assert "<cell 1>, line 3: sys.exit(1)" in result.message


def test_exit_in_a_function_checked_in_a_notebook_is_a_failure_too():
    def leaves(tokens, seconds):
        raise SystemExit

    assert "take that out" in first_failure(TASK, leaves).raised


@posix
@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("import os; os._exit(3)", "ended with code 3; look for os._exit"),
        ("import os; os._exit(0)", "ended with code 0"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL, perhaps for want of memory"),
        ("import os; os.kill(os.getpid(), 11)", "SIGSEGV, a crash in compiled code"),
    ],
)
def test_a_notebook_that_ends_python_is_told_how(tmp_path, cell, words):
    result = judged(tmp_path, cell, RIGHT)
    assert result.state == "broken" and words in result.message
    assert "Warning" not in result.message


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell",
    [
        "raise KeyboardInterrupt",
        "raise GeneratorExit",
        "class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
        "raise ValueError('x' * 10_000_000)",
        "(" * 5000,
        "x = '" + "y" * 100_000,
        "'a\0b'",
    ],
)
def test_odd_cells_neither_stop_the_check_nor_fill_the_screen(tmp_path, cell):
    assert judged(tmp_path, cell, RIGHT).state == "passed"
    result = judged(tmp_path, cell)
    assert result.state == "broken" and len(result.message) < 1000


ODD_VALUES = [
    "'x' * 10_000_000",
    "[['x' * 1000] * 1000] * 10",
    "type('R', (), {'__repr__': lambda self: 1 / 0})()",
    "(1,) * 1_000_000",
]


@pytest.mark.parametrize("value", ODD_VALUES)
def test_what_is_shown_of_a_value_is_short(tmp_path, value):
    result = judged(tmp_path, f"def honest_rate(tokens, seconds):\n    return {value}")
    assert (result.state, result.check) == ("failed", "two_numbers")
    assert 0 < len(result.got) < 1000


def test_endless_output_stays_out_of_files_and_memory(tmp_path):
    loud = "import os, sys\nfor _ in range(20):\n    sys.stderr.write('y' * 10**6)\n"
    loud += "    print('x' * 10**6)\n    os.write(2, b'z' * 10**6)"
    assert judged(tmp_path, loud, RIGHT).state == "passed"


# -- verdicts that nobody gave ----------------------------------------------------------------

FORGED = """
import glob, json, os, tempfile
for file in glob.glob(os.path.join(tempfile.gettempdir(), "*", "errors.txt")):
    with open(os.path.join(os.path.dirname(file), "result.json"), "w") as out:
        json.dump({"state": "passed", "check": "", "message": "", "got": ""}, out)
"""


def test_a_result_written_by_the_notebook_does_not_count(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(runner.tempfile, "tempdir", str(tmp_path))
    result = judged(tmp_path, FORGED, "import os; os._exit(0)")
    assert result.state == "broken" and "wrote over its own result" in result.message
    assert judged(tmp_path, FORGED, "def honest_rate(a, b): return 1, 1").state == "failed"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "5", "null", "{}", '{"token": "t"}', '{"token": "t", "state": "won"}']
    + [
        '{"token": "t", "state": "passed"}',
        '{"token": "t", "state": ["passed"]}',
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_a_malformed_verdict_is_none(text):
    assert read_verdict(text, "t") is None


def test_a_verdict_comes_back_with_its_token_only_and_bounded():
    result = Result("failed", "two_numbers", "x" * 10_000, "got")
    back = read_verdict(written(result, "t"), "t")
    assert (back.state, back.check, back.got) == ("failed", "two_numbers", "got")
    assert len(back.message) == LONGEST_MESSAGE
    assert read_verdict(written(result, "t"), "other") is None


# -- files that are no notebooks --------------------------------------------------------------


def deep(number):
    return '{"cells": ' + "[" * number + "]" * number + "}"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "5", '"cells"', "{}", '{"cells": 5}', '{"cells": [5]}', '{"cells": {"a": 1}}']
    + [
        '{"cells": [{}]}',
        '{"cells": [{"cell_type": "code"}]}',
        pytest.param(deep(100_000), id="deep"),
    ]
    + ['{"cells": [{"cell_type": "code", "source": 5}]}']
    + ['{"cells": [{"cell_type": "code", "source": [1, 2]}]}']
    + ['{"cells": [{"cell_type": "code", "source": "1", "metadata": []}]}']
    + ['{"cells": [{"cell_type": "code", "source": "1", "metadata": {"tags": 5}}]}'],
)
def test_whatever_is_no_notebook_is_told_in_one_sentence(tmp_path, text):
    file = tmp_path / "00_your_machine.ipynb"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"00_your_machine\.ipynb is not a notebook") as caught:
        code_cells(file)
    assert "\n" not in str(caught.value)


def test_such_a_file_is_a_broken_exercise_and_no_crash(tmp_path):
    file = tmp_path / "00_your_machine.ipynb"
    file.write_text(deep(100_000))
    assert "is not a notebook" in run_exercise(TASK, file).message
    file.write_bytes(b"\xff\xfe\x00")
    assert "is not a notebook" in run_exercise(TASK, file).message


@posix
def test_folders_and_links_to_nowhere_are_told_too(tmp_path):
    folder, loop = tmp_path / "folder.ipynb", tmp_path / "loop.ipynb"
    folder.mkdir()
    loop.symlink_to(loop)
    for path in (folder, loop):
        result = run_exercise(TASK, path)
        assert result.state == "broken" and "cannot be read" in result.message


def test_a_cell_without_metadata_is_a_cell(tmp_path):
    file = tmp_path / "x.ipynb"
    cells = [{"cell_type": "markdown"}, {"cell_type": "code", "source": ["a = 1\n", "b = 2"]}]
    file.write_text(json.dumps({"cells": cells}))
    assert [(cell.number, cell.source) for cell in code_cells(file)] == [(2, "a = 1\nb = 2")]
