"""Checks in a notebook and from the command line, with learner code that misbehaves."""

import importlib
import io
import json
import os
import re
import statistics
import time
from dataclasses import replace

import psutil
import pytest
from rich.console import Console

from minipd.lab.bank import lessons_with_quiz, load_bank
from minipd.lab.check import CheckError, CheckFailed, check, find_notebook, panel, run_check
from minipd.lab.checks import EXERCISES, UnknownExerciseError, exercise, lesson_exercises
from minipd.lab.hints import first_failure
from minipd.lab.predict import keep_prediction, reveal
from minipd.lab.progress import exercise_record, keep_answer, keep_exercise
from minipd.lab.runner import code_cells, evaluate_cells, run_exercise

LESSONS = lessons_with_quiz()


def right(tokens, seconds):
    rates = [t / s for t, s in zip(tokens[1:], seconds[1:], strict=True)]
    low, middle, high = statistics.quantiles(rates, n=4, method="inclusive")
    return sum(tokens[1:]) / sum(seconds[1:]), (high - low) / middle


def inverted(tokens, seconds):
    rate, spread = right(tokens, seconds)
    return 1 / rate, spread


def stub(tokens, seconds):
    raise NotImplementedError("Exercise 00.1 is waiting for you.")


def write_notebook(folder, *cells):
    place = folder / "exercises"
    place.mkdir(parents=True, exist_ok=True)
    made = [{"cell_type": "code", "metadata": {}, "source": cell} for cell in cells]
    file = place / "00_your_machine.ipynb"
    file.write_text(json.dumps({"cells": made, "metadata": {}, "nbformat": 4}))
    return file


def said(lesson, folder, check_all=False):
    out = io.StringIO()
    passed = run_check(lesson, folder, check_all, Console(file=out, width=120))
    return passed, out.getvalue()


def test_a_right_answer_passes_and_is_remembered(capsys):
    check("00.1", right)
    assert "Exercise 00.1 passed" in capsys.readouterr().out
    assert exercise_record("00.1")["passed"] is True


def test_hints_open_one_by_one_for_the_same_failed_check():
    hints = next(c for c in exercise("00.1").checks if c.name == "not_inverted").hints
    texts = []
    for _ in range(4):
        with pytest.raises(CheckFailed, match="not_inverted") as caught:
            check("00.1", inverted)
        texts.append(str(caught.value))
        assert caught.value._render_traceback_() == [str(caught.value)]
    assert hints.nudge in texts[0] and hints.concept not in texts[0]
    assert hints.concept in texts[1] and hints.nearly_code not in texts[1]
    assert hints.nearly_code in texts[2] and texts[3] == texts[2]


def test_another_failed_check_starts_at_its_own_first_hint():
    for answer in (inverted, inverted, lambda tokens, seconds: (1.0, 1.0)):
        with pytest.raises(CheckFailed) as caught:
            check("00.1", answer)
    assert "Nudge" in str(caught.value) and "Concept" not in str(caught.value)


def test_a_stub_raises_its_own_sentence_without_a_traceback():
    with pytest.raises(NotImplementedError, match="is waiting for you") as caught:
        check("00.1", stub)
    assert len(caught.value._render_traceback_()) == 1
    assert exercise_record("00.1") == {}


def test_an_error_in_the_answer_is_shown_with_its_line_and_without_hints():
    def typo(tokens, seconds):
        return totl / 2, 1.0  # noqa: F821

    for answer, name in ((lambda tokens, seconds: 1 / 0, "ZeroDivision"), (typo, "totl / 2, 1.0")):
        with pytest.raises(CheckFailed, match=name) as caught:
            check("00.1", answer)
        assert "line " in str(caught.value) and "Nudge" not in str(caught.value)
    assert exercise_record("00.1")["failures"] == {}, "an error opens no hint for later"


def test_a_function_that_takes_other_arguments_gets_no_misleading_hint():
    with pytest.raises(CheckFailed, match="TypeError.*unexpected keyword") as caught:
        check("00.2", lambda *args: (2.0, "memory"))
    assert "Nudge" not in str(caught.value)


def test_a_failure_shows_what_the_function_returned():
    with pytest.raises(CheckFailed) as caught:
        check("00.2", lambda *args, **kwargs: (2.0, "Memory"))
    assert "step_time(50, 4, 1, flops_per_s=1000" in str(caught.value)
    assert "returned (2, 'Memory')" in str(caught.value)


@pytest.mark.parametrize("answer", [None, "text", 3, (1,), (1, "x"), [1, 2]])
def test_nonsense_fails_the_first_check(answer):
    failure = first_failure(exercise("00.1"), lambda tokens, seconds: answer)
    assert failure is not None and failure.check.name == "two_numbers"


def test_unknown_exercises_and_lessons_are_named():
    with pytest.raises(UnknownExerciseError, match=r"there are 00\.1, 00\.2"):
        check("00.9", right)
    with pytest.raises(UnknownExerciseError, match=r"choose one of 00, 01"):
        lesson_exercises("55")


RIGHT_CELL = """
import statistics
def honest_rate(tokens, seconds):
    rates = [t / s for t, s in zip(tokens[1:], seconds[1:])]
    low, middle, high = statistics.quantiles(rates, n=4, method="inclusive")
    return sum(tokens[1:]) / sum(seconds[1:]), (high - low) / middle
"""


def test_a_folder_is_reported_exercise_by_exercise(tmp_path):
    write_notebook(
        tmp_path, "%matplotlib inline\n!ls", RIGHT_CELL, "def step_time(*a, **b): return 1"
    )
    passed, text = said("00", tmp_path)
    assert not passed
    assert "passed" in text and "not yet" in text and "time_and_limit" in text
    assert exercise_record("00.1")["passed"] and not exercise_record("00.2")["passed"]


def test_a_broken_cell_elsewhere_does_not_hide_a_right_answer(tmp_path):
    file = write_notebook(tmp_path, "1 / 0", "this is no python", RIGHT_CELL)
    assert evaluate_cells(exercise("00.1"), code_cells(file)).state == "passed"
    assert evaluate_cells(exercise("00.2"), code_cells(file)).state == "broken"


def test_a_missing_function_says_which_and_why(tmp_path):
    write_notebook(tmp_path, "import no_such_module\ndef honest_rate(): pass")
    _, text = said("00", tmp_path)
    assert "no function called honest_rate" in text and "no_such_module" in text


def test_a_cell_that_is_no_python_and_a_misspelt_name_are_told_apart(tmp_path):
    file = write_notebook(tmp_path, "def honest_rate(tokens, seconds)\n    return 1", "x = 1")
    book = json.loads(file.read_text())
    spelt = "def step_tme(*a): return 1"
    book["cells"].append({"cell_type": "code", "metadata": {}, "source": spelt})
    for cell, tag in ((book["cells"][0], "exercise-1"), (book["cells"][2], "exercise-2")):
        cell["metadata"]["tags"] = ["exercise", tag]
    file.write_text(json.dumps(book))
    _, text = said("00", tmp_path)
    assert "cell 1 is not yet Python: expected ':' in line 1" in text
    assert "it defines step_tme; the check needs step_time" in text
    assert text.count("is not yet Python") == 1, "a fault in one exercise is no news for another"


def test_an_error_in_a_notebook_names_the_cell_and_the_line(tmp_path):
    write_notebook(tmp_path, "%matplotlib inline", "def honest_rate(a, b):\n    return totl, 1.0")
    _, text = said("00", tmp_path)
    assert "NameError" in text and "<cell 2>, line 2: return totl, 1.0" in text
    assert "Nudge" not in text.split("Exercise 00.2")[0]


def test_cells_for_the_notebook_only_are_not_run(tmp_path):
    file = write_notebook(tmp_path, RIGHT_CELL, "raise SystemExit")
    book = json.loads(file.read_text())
    book["cells"][1]["metadata"]["tags"] = ["try"]
    file.write_text(json.dumps(book))
    assert run_exercise(exercise("00.1"), file).state == "passed"


@pytest.mark.slow
def test_an_endless_loop_is_ended_with_all_it_started(tmp_path):
    loop = "import subprocess, sys\nP = subprocess.Popen([sys.executable, '-c', "
    loop += "'import time; time.sleep(600)'])\nopen('pid', 'w').write(str(P.pid))\n"
    file = write_notebook(tmp_path, loop + "while True: pass")
    start = time.monotonic()
    result = run_exercise(exercise("00.1"), file, time_limit_s=12)
    assert result.state == "too_slow" and "never ends" in result.message
    assert time.monotonic() - start < 120, "it waited for what the notebook had started"
    pid = int((file.parent / "pid").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_learner_code_cannot_fill_the_screen(tmp_path, capfd):
    write_notebook(tmp_path, "print('x' * 1000)\nimport sys; sys.stderr.write('y' * 100000)")
    said("00", tmp_path)
    out, err = capfd.readouterr()
    assert "xxx" not in out and "yyy" not in err


def test_a_damaged_notebook_is_explained(tmp_path):
    file = write_notebook(tmp_path, "1")
    file.write_text("{")
    assert "is not a notebook" in run_exercise(exercise("00.1"), file).message


def test_a_folder_without_the_course_says_how_to_get_it(tmp_path):
    with pytest.raises(CheckError, match="minipd lab"):
        find_notebook(tmp_path, "00")


def test_all_checks_what_is_there_and_adds_where_one_stands(tmp_path):
    keep_prediction("00.x", 20.0)
    reveal("00.x", 10.0)
    keep_answer("00", "which-phase", correct=True)
    write_notebook(tmp_path, RIGHT_CELL)
    passed, text = said(None, tmp_path, check_all=True)
    rows = [re.sub(r"[^\w. ]+", " ", line).split() for line in text.split("\n")]
    assert ["00", "1", "of", "2", "1", "of", "11", "begun"] in rows and not passed
    total, questions = len(EXERCISES), sum(len(load_bank(n).questions) for n in LESSONS)
    assert f"Exercises: 1 of {total} passed. Quizzes: 1 of {questions} answered rightly." in text
    assert "Calibration over 1 prediction in lesson 00: typically a factor of 2 off" in text
    others = sorted({task.lesson for task in EXERCISES.values()} - {"00"})
    one_line = " ".join(text.split())
    assert not others or f"has no exercises of lesson {', '.join(others)} yet" in one_line


def test_all_in_a_folder_without_any_lesson_says_how_to_get_them(tmp_path):
    with pytest.raises(CheckError, match="minipd lab"):
        said(None, tmp_path, check_all=True)


def test_an_unknown_lesson_is_named_before_files_are_looked_for(tmp_path):
    with pytest.raises(UnknownExerciseError, match="Lesson 77 has no exercises"):
        said("77", tmp_path)


@pytest.fixture
def pages(monkeypatch):
    shown = []
    monkeypatch.setattr(importlib.import_module("minipd.lab.show"), "display_html", shown.append)
    return shown


def test_the_panel_shows_what_is_done_and_what_comes_next(pages):
    check("00.1", right)
    panel("00")
    assert pages[0].count("passed") == 1 and "to do" in pages[0] and "0 of 11" in pages[0]
    assert "Next after this lesson's text: the quiz at the end of this lesson" in pages[0]
    for question in load_bank("00").questions:
        keep_answer("00", question.id, correct=True)
    panel("0")
    link = '<a href="../exercises/00_your_machine.ipynb">exercise 00.2</a>'
    assert link in pages[1] and "Lessons done" not in pages[1]
    keep_exercise("00.2", passed=True)
    panel("00")
    assert "exercise 00" not in pages[2] and "Lessons done so far: 00." in pages[2]


def test_children_get_their_own_time_limit_from_the_exercise(tmp_path):
    file = write_notebook(tmp_path, "import time; time.sleep(20)")
    short = replace(exercise("00.1"), time_limit_s=2.0)
    assert run_exercise(short, file).state == "too_slow"
    assert os.path.exists(file)
