"""The builder: same bytes every time, stale files found, nothing of a solution leaks."""

import json
import shutil

import nbformat
import pytest

from course import build
from course.source import CourseError, check_markers

EXERCISE = '''# %% [markdown]
# # Tasks
# %%
from minipd.lab import check
# %% tags=["exercise-1"]
def double(x):
    """Twice x."""
    ### BEGIN SOLUTION
    twice_as_much = x + x
    return twice_as_much
    ### END SOLUTION
# %% tags=["check", "exercise-1"]
check("00.1", double)
### BEGIN HIDDEN TESTS
assert double(21) == 42
### END HIDDEN TESTS
'''


@pytest.fixture
def small(tmp_path, root):
    """A copy of the course's sources with lesson 00 alone and one small exercise file."""
    others = shutil.ignore_patterns("0[1-9]_*", "1?_*", "__pycache__")
    shutil.copytree(root / "course", tmp_path / "course", ignore=others)
    folder = tmp_path / "course" / "lessons" / "00_your_machine"
    (folder / "exercises.py").write_text(EXERCISE)
    return tmp_path


def exercises_of(root):
    return root / "course" / "lessons" / "00_your_machine" / "exercises.py"


@pytest.mark.slow
def test_the_committed_files_are_up_to_date(root, capsys):
    assert build.main(["--check"], root) == 0, capsys.readouterr().out


@pytest.mark.slow
def test_two_builds_give_the_same_bytes(root):
    assert build.build_all(root) == build.build_all(root)


@pytest.mark.slow
def test_notebooks_are_valid_have_unique_ids_and_no_outputs(root):
    for path, text in build.build_all(root).items():
        if path.suffix == ".ipynb":
            book = nbformat.reads(text, as_version=4)
            nbformat.validate(book)
            ids = [cell.id for cell in book.cells]
            assert len(set(ids)) == len(ids)
            assert not any(cell.get("outputs") for cell in book.cells)


def test_check_lists_changed_missing_and_orphaned_files(small, capsys):
    assert build.main([], small) == 0
    assert build.main(["--check"], small) == 0
    (small / "notebooks" / "00_your_machine.ipynb").write_text("{}")
    (small / "solutions" / "00_your_machine.ipynb").unlink()
    (small / "exercises" / "99_gone.ipynb").write_text("{}")
    capsys.readouterr()
    assert build.main(["--check"], small) == 1
    listed = capsys.readouterr().out
    for name in ("notebooks/00_your_machine", "solutions/00_your_machine", "exercises/99_gone"):
        assert f"stale: {name}.ipynb" in listed
    assert "minipd/lab/banks" not in listed
    assert build.main([], small) == 0
    assert not (small / "exercises" / "99_gone.ipynb").exists()
    assert build.main(["--check"], small) == 0


def test_one_lesson_alone_leaves_every_other_file_as_it_is(small):
    build.main([], small)
    syllabus = small / "course" / "syllabus.md"
    syllabus.write_text("mine")
    (small / "exercises" / "99_gone.ipynb").write_text("{}")
    assert build.main(["--only", "00"], small) == 0
    assert syllabus.read_text() == "mine" and (small / "exercises" / "99_gone.ipynb").exists()


def test_a_lesson_without_its_teaching_page_stops_only_the_whole_build(small, capsys):
    exercises_of(small).with_name("teaching.md").unlink()
    assert build.main(["--only", "00"], small) == 0
    assert build.main([], small) == 1
    assert "00_your_machine has no teaching.md" in capsys.readouterr().err


def test_a_missing_source_is_named(small, capsys):
    for name in ("quiz.yaml", "mutants.yaml", "exercises.py", "lesson.py"):
        exercises_of(small).with_name(name).unlink()
        assert build.main(["--only", "00"], small) == 1
        assert name in capsys.readouterr().err


def test_an_edit_to_one_cell_keeps_the_ids_of_the_others(small):
    build.main([], small)
    path = small / "exercises" / "00_your_machine.ipynb"
    before = [cell["id"] for cell in json.loads(path.read_text())["cells"]]
    exercises_of(small).write_text(EXERCISE.replace("# # Tasks", "# # Other tasks"))
    build.main([], small)
    after = [cell["id"] for cell in json.loads(path.read_text())["cells"]]
    assert before[0] != after[0] and before[1:] == after[1:]


def test_stub_and_solution_versions(small):
    build.main([], small)
    stub = (small / "exercises" / "00_your_machine.ipynb").read_text()
    solution = (small / "solutions" / "00_your_machine.ipynb").read_text()
    assert "twice_as_much" not in stub and "double(21)" not in stub
    assert "raise NotImplementedError" in stub and "Exercise 00.1 is waiting" in stub
    assert "twice_as_much" in solution and "double(21)" in solution
    for text in (stub, solution):
        assert "### BEGIN" not in text and "### END" not in text


def test_nbgrader_can_grade_the_check_cells(small):
    build.main([], small)
    book = json.loads((small / "exercises" / "00_your_machine.ipynb").read_text())
    grading = [c["metadata"]["nbgrader"] for c in book["cells"] if "nbgrader" in c["metadata"]]
    assert [(g["grade_id"], g["solution"], g["grade"]) for g in grading] == [
        ("answer-00-1", True, False),
        ("check-00-1", False, True),
    ]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("    ### END SOLUTION\n", "", "never ends"),
        ("    ### BEGIN SOLUTION\n", "", "without having begun"),
        ("### END HIDDEN TESTS", "### END SOLUTION", "without having begun"),
        ("### BEGIN SOLUTION", "# BEGIN SOLUTION", "misspelt"),
        ("### END SOLUTION", "### End Solution", "misspelt"),
        ('tags=["exercise-1"]', 'tags=["exercise"]', "exercise-N"),
    ],
)
def test_bad_markers_stop_the_build(small, capsys, old, new, complaint):
    exercises_of(small).write_text(EXERCISE.replace(old, new, 1))
    assert build.main([], small) == 1
    message = capsys.readouterr().err
    assert complaint in message and "exercises.py, cell" in message


def test_markers_inside_each_other_are_refused():
    text = "### BEGIN SOLUTION\n### BEGIN HIDDEN TESTS\n### END HIDDEN TESTS\n### END SOLUTION"
    with pytest.raises(CourseError, match="begins inside SOLUTION"):
        check_markers(text, "x")


def test_a_solution_repeated_outside_its_markers_is_refused(small, capsys):
    leak = "# %%\ndef helper(x):\n    twice_as_much = x + x\n"
    exercises_of(small).write_text(EXERCISE + leak)
    assert build.main([], small) == 1
    assert "would show a solution" in capsys.readouterr().err


def test_a_badly_named_lesson_is_refused(small, capsys):
    (small / "course" / "lessons" / "Lesson one").mkdir()
    assert build.main([], small) == 1
    assert "must be named like" in capsys.readouterr().err


def test_an_uncited_figure_stops_the_build(small, capsys):
    lesson = exercises_of(small).with_name("lesson.py")
    lesson.write_text(lesson.read_text() + "\n# %% [markdown]\n# It is 37 % faster.\n")
    assert build.main([], small) == 1
    message = capsys.readouterr().err
    assert "37" in message and "facts.yaml" in message
