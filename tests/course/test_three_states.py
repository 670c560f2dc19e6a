"""Every exercise in three states, on the very notebook that the learner edits."""

import ast
import json

import pytest

from course import build
from course.build import ROOT
from course.exercises import read_mutants, with_answer
from minipd.lab.check import run_check
from minipd.lab.checks import EXERCISES, exercise
from minipd.lab.hints import failure_text
from minipd.lab.runner import code_cells, evaluate_cells, run_exercise

FOLDERS = build.lesson_folders(ROOT / "course")
MUTANTS = [mutant for folder in FOLDERS for mutant in read_mutants(folder / "mutants.yaml")]


def notebook(room, exercise_id):
    return next((ROOT / room).glob(f"{exercise_id[:2]}_*.ipynb"))


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_the_untouched_stub_asks_for_code_in_a_friendly_way(exercise_id):
    result = run_exercise(exercise(exercise_id), notebook("exercises", exercise_id))
    assert result.state == "untouched"
    assert f"Exercise {exercise_id} is waiting for you" in result.message


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_the_solution_passes(exercise_id):
    result = run_exercise(exercise(exercise_id), notebook("solutions", exercise_id))
    assert result.state == "passed", result


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.exercise_id}-{m.name}")
def test_each_mutant_fails_with_the_hint_that_names_its_mistake(mutant, tmp_path):
    task = exercise(mutant.exercise_id)
    file = tmp_path / "learner.ipynb"
    original = notebook("exercises", task.id)
    file.write_text(json.dumps(with_answer(original, task.id, mutant.body)))
    result = evaluate_cells(task, code_cells(file))
    assert (result.state, result.check) == ("failed", mutant.fails), result
    failed = next(check for check in task.checks if check.name == mutant.fails)
    text = failure_text(task, result.failure(failed), 3)
    assert all(hint in text for hint in (failed.hints.nudge, failed.hints.nearly_code))


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
    for folder in FOLDERS:
        solution = json.loads((ROOT / "solutions" / f"{folder.name}.ipynb").read_text())
        hidden = _function_bodies(solution)
        shown = (ROOT / "exercises" / f"{folder.name}.ipynb").read_text()
        checks = "".join(p.read_text() for p in (ROOT / "minipd/lab/checks").glob("*.py"))
        assert len(hidden) >= 3
        for line in hidden:
            assert line not in shown and line not in checks, line
        assert "import solutions" not in checks and "/solutions" not in checks + shown


def _function_bodies(book):
    """Statements of the solution's functions as text, without their docstrings."""
    lines = []
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            for node in ast.walk(ast.parse("".join(cell["source"]))):
                if isinstance(node, ast.FunctionDef):
                    lines += [ast.unparse(statement) for statement in node.body[1:]]
    return lines
