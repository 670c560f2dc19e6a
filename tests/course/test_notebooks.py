"""Lessons and solutions run from top to bottom; exercises fail only where the learner is asked."""

import os
import re
import tempfile
import time

import nbformat
import psutil
import pytest
from nbclient import NotebookClient

from course.build import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("notebooks")]
LIMIT_S = 120


def notebooks(*rooms):
    paths = [path for room in rooms for path in sorted((ROOT / room).glob("*.ipynb"))]
    return pytest.mark.parametrize("path", paths, ids=lambda p: f"{p.parent.name}/{p.stem}")


def executed(path, folder, **options):
    """The notebook after a run in `folder`, through a kernel that listens on a local socket."""
    book = nbformat.read(path, 4)
    client = NotebookClient(
        book,
        timeout=4 * LIMIT_S,
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


def outputs(book):
    return [output for cell in book.cells for output in cell.get("outputs", [])]


@notebooks("notebooks", "solutions")
def test_runs_without_warnings_or_bare_pictures(path, tmp_path):
    start = time.monotonic()
    book = executed(path, tmp_path)
    assert time.monotonic() - start < LIMIT_S * busy_factor(), "too slow for a lesson"
    for output in outputs(book):
        assert output.get("name") != "stderr", output
        assert "image/png" not in output.get("data", {}), "show figures with show(fig, alt=...)"
        page = output.get("data", {}).get("text/html", "")
        assert page.count("<img ") == page.count('<img alt="')
    text = " ".join(output.get("text", "") for output in outputs(book))
    assert "Warning" not in text
    if path.parent.name == "notebooks":  # nobody pressed a button: said so, measured all the same
        pages = [output.get("data", {}).get("text/html", "") for output in outputs(book)]
        assert sum("No prediction was made" in page for page in pages) >= 2


@notebooks("notebooks")
def test_a_lesson_predicts_before_it_measures(path):
    code = "\n".join(c.source for c in nbformat.read(path, 4).cells if c.cell_type == "code")
    predicted = re.findall(r'predict\(\s*"([^"]+)"', code)
    revealed = re.findall(r'reveal\(\s*"([^"]+)"', code)
    assert len(revealed) >= 2 and set(revealed) <= set(predicted)
    for name in revealed:
        places = [match.start() for match in re.finditer(f'"{re.escape(name)}"', code)]
        assert "predict(" in code[places[0] - 20 : places[0]], f"{name} is revealed first"


@notebooks("exercises")
def test_exercises_fail_only_in_their_check_cells(path, tmp_path):
    book = executed(path, tmp_path, allow_errors=True)
    assert any("check" in cell.metadata.get("tags", []) for cell in book.cells)
    for cell in book.cells:
        errors = [o for o in cell.get("outputs", []) if o.output_type == "error"]
        must_fail = "check" in cell.metadata.get("tags", [])
        assert bool(errors) == must_fail, cell.source
        for error in errors:
            assert error.ename == "NotImplementedError"
            assert "is waiting for you" in error.evalue
            assert len(error.traceback) == 1, "a learner sees one sentence, no traceback"
