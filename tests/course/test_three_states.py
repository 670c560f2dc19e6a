"""Every exercise in three states, on the very notebook that the learner edits.

All states of a lesson are judged in this process, one after the other, which is what a learner's
own process does too; that the whole command works in processes of its own is tested once for each
lesson (test_delivered) and on learner code that misbehaves (tests/lab/test_runner).
"""

import ast
import json
import time
from collections import Counter

import pytest

from course import build
from course.build import ROOT
from course.exercises import read_mutants, with_answer
from minipd.lab.check import run_check
from minipd.lab.checks import EXERCISES, exercise
from minipd.lab.hints import failure_text
from minipd.lab.runner import code_cells, evaluate_cells

FOLDERS = build.lesson_folders(ROOT / "course")
MUTANTS = [
    mutant
    for folder in FOLDERS
    if (folder / "mutants.yaml").exists()
    for mutant in read_mutants(folder / "mutants.yaml")
]
LESSON_CPU_S = 20.0  # for all states of a lesson's exercises: what keeps the whole course testable
CPU_S: Counter[str] = Counter()


def in_a_group(value, exercise_id, name):
    """All of a lesson's states in one process, also where tests run in parallel."""
    group = pytest.mark.xdist_group(f"states-{exercise_id[:2]}")
    return pytest.param(value, marks=group, id=name)


EACH_EXERCISE = pytest.mark.parametrize(
    "exercise_id", [in_a_group(one, one, one) for one in EXERCISES]
)
EACH_MUTANT = pytest.mark.parametrize(
    "mutant", [in_a_group(m, m.exercise_id, f"{m.exercise_id}-{m.name}") for m in MUTANTS]
)


def notebook(room, exercise_id):
    return next((ROOT / room).glob(f"{exercise_id[:2]}_*.ipynb"))


def judged(task, file):
    start = time.process_time()
    try:
        return evaluate_cells(task, code_cells(file))
    finally:
        CPU_S[task.lesson] += time.process_time() - start


@EACH_EXERCISE
def test_the_untouched_stub_asks_for_code_in_a_friendly_way(exercise_id):
    result = judged(exercise(exercise_id), notebook("exercises", exercise_id))
    assert result.state == "untouched"
    assert f"Exercise {exercise_id} is waiting for you" in result.message


@EACH_EXERCISE
def test_the_solution_passes(exercise_id):
    result = judged(exercise(exercise_id), notebook("solutions", exercise_id))
    assert result.state == "passed", result


@EACH_MUTANT
def test_each_mutant_fails_with_the_hint_that_names_its_mistake(mutant, tmp_path):
    task = exercise(mutant.exercise_id)
    file = tmp_path / "learner.ipynb"
    original = notebook("exercises", task.id)
    file.write_text(json.dumps(with_answer(original, task.id, mutant.body)))
    result = judged(task, file)
    assert (result.state, result.check) == ("failed", mutant.fails), result
    failed = next(check for check in task.checks if check.name == mutant.fails)
    text = failure_text(task, result.failure(failed), 3)
    assert all(hint in text for hint in (failed.hints.nudge, failed.hints.nearly_code))


@EACH_EXERCISE
def test_the_states_of_a_lesson_are_judged_in_bounded_time(exercise_id):
    """Its place is after the states above; CPU seconds, so that a busy machine changes nothing."""
    spent = CPU_S[exercise_id[:2]]
    print(f"lesson {exercise_id[:2]}: {spent:.1f} CPU seconds in all its states so far")
    assert spent < LESSON_CPU_S, "make the notebook's cells or the checks cheaper"


def test_every_exercise_has_mutants_and_every_mutant_an_exercise_and_a_check():
    for task in EXERCISES.values():
        own = [mutant for mutant in MUTANTS if mutant.exercise_id == task.id]
        assert len(own) >= 3
        assert {mutant.fails for mutant in own} <= {check.name for check in task.checks}
        assert len({check.name for check in task.checks}) == len(task.checks)
    assert {mutant.exercise_id for mutant in MUTANTS} == set(EXERCISES)


def test_one_mutant_through_the_whole_command(tmp_path, capsys):
    from rich.console import Console

    mutant = next(m for m in MUTANTS if m.name == "mean_of_rates")
    folder = tmp_path / "my-course" / "exercises"
    folder.mkdir(parents=True)
    original = notebook("exercises", mutant.exercise_id)
    book = with_answer(original, mutant.exercise_id, mutant.body)
    (folder / original.name).write_text(json.dumps(book))
    with (tmp_path / "out.txt").open("w") as file:
        assert not run_check("00", folder.parent, console=Console(file=file, width=120))
    said = (tmp_path / "out.txt").read_text()
    assert "not_mean_of_rates" in said and "Does a long run count" in said
    assert "not started" in said


def test_checks_and_exercise_notebooks_hold_no_solution():
    """A third hint may be one line of an answer, and a bug hunt shows most of one; neither the
    whole body, nor more than half of its statements in the checks."""
    checks = "".join(p.read_text() for p in (ROOT / "minipd/lab/checks").glob("*.py"))
    for folder in FOLDERS:
        solution = json.loads((ROOT / "solutions" / f"{folder.name}.ipynb").read_text())
        shown = (ROOT / "exercises" / f"{folder.name}.ipynb").read_text()
        bodies = _function_bodies(solution)
        assert len(bodies) >= 2
        for body in bodies:
            assert len(body) == 1 or any(line not in shown for line in body), body
            assert sum(line in checks for line in body) <= max(1, len(body) / 2), body
        assert "import solutions" not in checks and "/solutions" not in checks + shown


def _function_bodies(book):
    """The statements of each exercise's function as text, without its docstring."""
    bodies = []
    for cell in book["cells"]:
        if cell["cell_type"] == "code" and "exercise" in cell["metadata"].get("tags", []):
            for node in ast.parse("".join(cell["source"])).body:
                if isinstance(node, ast.FunctionDef):
                    bodies.append([ast.unparse(statement) for statement in node.body[1:]])
    return bodies
