"""Lessons and solutions run from top to bottom; exercises fail only where the learner is asked.

Lessons take timings, so they run alone; solutions and exercises run beside other tests.
"""

import os
import re
import tempfile
import time

import nbformat
import psutil
import pytest
from nbclient import NotebookClient

from course.build import ROOT

LIMIT_S = 120  # of a lesson on a machine of its own
ENDING_S = 60  # in which a process that was told to end has ended


def alone(test):
    """For tests whose cells take timings."""
    return pytest.mark.slow(pytest.mark.serial(pytest.mark.xdist_group("notebooks")(test)))


# Lessons that serve real requests on pinned workers, or sleep by a clock, and so need the machine.
NEED_THE_MACHINE = ("00", "06", "07", "08", "09", "10")


def notebooks(*rooms, only=lambda path: True):
    paths = [path for room in rooms for path in sorted((ROOT / room).glob("*.ipynb"))]
    chosen = [path for path in paths if only(path)]
    return pytest.mark.parametrize("path", chosen, ids=lambda p: f"{p.parent.name}/{p.stem}")


def needs_the_machine(path):
    return path.name.startswith(NEED_THE_MACHINE)


def executed(path, folder, **options):
    """The notebook after a run in `folder`, through a kernel that listens on a local socket."""
    book = nbformat.read(path, 4)
    client = NotebookClient(
        book,
        timeout=10 * LIMIT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        store_widget_state=True,
        **options,
    )
    client.create_kernel_manager()
    with tempfile.TemporaryDirectory(prefix="k") as sockets:  # socket paths must be short
        if os.name == "posix":
            client.km.transport = "ipc"  # else the kernel warns about its open port
            client.km.ip = f"{sockets}/k"
        client.execute()
    return book


def busy_factor():
    """How many programs share each core: a lesson takes that much longer, and nobody's fault."""
    return max(1.0, psutil.getloadavg()[0] / (psutil.cpu_count() or 1))


def processes_in(folder):
    """Processes that stay, with this as their folder: a kernel, and what a notebook started."""
    end = time.monotonic() + ENDING_S
    while found := [p for p in psutil.process_iter(["cwd", "status"]) if is_in(folder, p.info)]:
        if time.monotonic() > end:
            break
        time.sleep(0.1)
    return found


def is_in(folder, told):
    return told["cwd"] == str(folder) and told["status"] != psutil.STATUS_ZOMBIE


def stray_values(book):
    """Values of last expressions that are no widgets: a learner would see a bare number."""
    results = [o.data for o in outputs(book) if o.output_type == "execute_result"]
    return [data for data in results if "application/vnd.jupyter.widget-view+json" not in data]


def pages(book):
    return [output.get("data", {}).get("text/html", "") for output in outputs(book)]


def outputs(book):
    return [output for cell in book.cells for output in cell.get("outputs", [])]


def check_outputs(book, folder):
    """No warning, no picture without words, no process left behind."""
    assert processes_in(folder) == [], "a notebook left a process behind"
    for output in outputs(book):
        assert output.get("name") != "stderr", output
        assert "image/png" not in output.get("data", {}), "show figures with show(fig, alt=...)"
        page = output.get("data", {}).get("text/html", "")
        assert page.count("<img ") == len(re.findall(r'<img alt="[^"\s]', page)), page[:500]
    text = " ".join(output.get("text", "") for output in outputs(book))
    assert "Warning" not in text and "Traceback" not in text


@alone
@notebooks("notebooks", only=needs_the_machine)
def test_a_lesson_on_pinned_workers_runs_without_warnings_or_bare_pictures(path, tmp_path):
    check_lesson(path, tmp_path)


@pytest.mark.slow
@notebooks("notebooks", only=lambda path: not needs_the_machine(path))
def test_a_lesson_runs_without_warnings_or_bare_pictures(path, tmp_path):
    """Beside another one: what the cells take of time is theirs to print, not ours to judge."""
    check_lesson(path, tmp_path)


def check_lesson(path, tmp_path):
    start = time.monotonic()
    book = executed(path, tmp_path)
    seconds = time.monotonic() - start
    print(f"{path.name}: {seconds:.0f} s, load {psutil.getloadavg()}")
    assert seconds < 3 * LIMIT_S * busy_factor(), "too slow for a lesson"
    check_outputs(book, tmp_path)
    # Nobody pressed a button: said so, measured all the same.
    assert sum("No prediction was made" in page for page in pages(book)) >= 2
    assert stray_values(book) == [], "a table or picture has a bare value below it"
    assert any("Your progress in lesson" in page for page in pages(book))
    if path == ROOT / "notebooks" / "00_your_machine.ipynb":
        assert any("one stroke for each token" in page for page in pages(book))


@pytest.mark.slow
@notebooks("solutions")
def test_a_solution_runs_without_warnings_or_bare_pictures(path, tmp_path):
    book = executed(path, tmp_path)
    check_outputs(book, tmp_path)
    passed = [o.text for o in outputs(book) if "passed: all" in o.get("text", "")]
    checks = [c for c in book.cells if "check" in c.metadata.get("tags", [])]
    assert len(passed) == len(checks) > 0


LONG_CELL, LONGEST = 9, 12


@notebooks("notebooks", "exercises")
def test_cells_stay_short(path):
    """About seven lines of code, one idea; a call or a table of texts may take a few more."""
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type == "code" and "exercise" not in cell.metadata.get("tags", []):
            lines = [line for line in cell.source.split("\n") if line.strip()]
            limit = LONGEST if cell.source.count("(") <= len(lines) else LONG_CELL
            assert len(lines) <= limit, f"{len(lines)} lines:\n{cell.source}"


REVEAL = """
from minipd.lab.predict import keep_prediction, reveal
keep_prediction("99.number", 20.0, "GB/s", "a guess")
keep_prediction("99.choice", "a")
reveal("99.number", 10.0, "GB/s")
"""


@pytest.mark.slow
def test_a_reveal_at_the_end_of_a_cell_prints_no_value(tmp_path):
    path = tmp_path / "probe.ipynb"
    cells = [
        nbformat.v4.new_code_cell(REVEAL),
        nbformat.v4.new_code_cell('reveal("99.choice", "b")'),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    book = executed(path, tmp_path)
    assert sum("predicted" in page for page in pages(book)) == 2
    assert stray_values(book) == []


@notebooks("notebooks")
def test_a_lesson_predicts_before_it_measures(path):
    code = "\n".join(c.source for c in nbformat.read(path, 4).cells if c.cell_type == "code")
    predicted = re.findall(r'predict\(\s*"([^"]+)"', code)
    revealed = re.findall(r'reveal\(\s*"([^"]+)"', code)
    assert len(revealed) >= 2 and set(revealed) <= set(predicted)
    for name in revealed:
        places = [match.start() for match in re.finditer(f'"{re.escape(name)}"', code)]
        assert "predict(" in code[places[0] - 20 : places[0]], f"{name} is revealed first"


@pytest.mark.slow
@notebooks("exercises")
def test_exercises_fail_only_in_their_check_cells(path, tmp_path):
    book = executed(path, tmp_path, allow_errors=True)
    assert processes_in(tmp_path) == [] and "stderr" not in {o.get("name") for o in outputs(book)}
    assert any("check" in cell.metadata.get("tags", []) for cell in book.cells)
    for cell in book.cells:
        errors = [o for o in cell.get("outputs", []) if o.output_type == "error"]
        must_fail = "check" in cell.metadata.get("tags", [])
        assert bool(errors) == must_fail, cell.source
        for error in errors:
            assert error.ename == "NotImplementedError"
            assert "is waiting for you" in error.evalue
            assert len(error.traceback) == 1, "a learner sees one sentence, no traceback"
