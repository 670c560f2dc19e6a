"""A delivered copy of the course: `minipd check NN` works in it, and damage loses nobody's work."""

import json
import shutil

import pytest
from rich.console import Console

from course import build
from course.build import ROOT
from minipd.lab import launch
from minipd.lab.check import run_check
from minipd.lab.checks import lesson_exercises
from minipd.lab.deliver import MANIFEST, deliver, fingerprint, read_manifest

LESSONS = [folder.name for folder in build.lesson_folders(ROOT / "course")]


def checked(lesson, folder, tmp_path):
    with (tmp_path / "out.txt").open("w") as file:
        passed = run_check(lesson, folder, console=Console(file=file, width=120))
    return passed, (tmp_path / "out.txt").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", LESSONS)
def test_the_solutions_pass_the_whole_command_in_a_delivered_copy(name, tmp_path):
    folder = tmp_path / "my course"
    deliver(ROOT, folder)
    shutil.copy(ROOT / "solutions" / f"{name}.ipynb", folder / "exercises" / f"{name}.ipynb")
    passed, said = checked(name[:2], folder, tmp_path)
    assert passed and said.count("passed") == len(lesson_exercises(name[:2])), said


def test_an_untouched_copy_is_not_started(tmp_path):
    deliver(ROOT, tmp_path / "my-course")
    passed, said = checked("00", tmp_path / "my-course", tmp_path)
    assert not passed and said.count("not started") == len(lesson_exercises("00"))
    assert "Exercise 00.1 is waiting for you" in said


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "5", '{"files": 5}', '{"files": [1]}', "{}"]
    + [pytest.param('{"files":' + "[" * 100_000 + "]" * 100_000 + "}", id="deep")],
)
def test_a_damaged_list_of_delivered_files_loses_no_work(tmp_path, text, monkeypatch, capsys):
    root, folder = tmp_path / "course", tmp_path / "mine"
    for room in ("notebooks", "exercises"):
        (root / room).mkdir(parents=True)
    (root / "notebooks" / "00_a.ipynb").write_text('{"cells": []}')
    deliver(root, folder)
    (folder / "notebooks" / "00_a.ipynb").write_text("my work")
    (folder / MANIFEST).write_text(text)
    (root / "notebooks" / "00_a.ipynb").write_text('{"cells": [], "metadata": {"new": 1}}')
    monkeypatch.setattr(launch, "course_to_copy", lambda: root)
    monkeypatch.setattr(launch, "fetch_model", lambda console: None)
    monkeypatch.setattr(launch, "_serve", lambda arguments: None)
    launch.launch(folder, no_browser=True, port=8888)
    said = capsys.readouterr().err
    assert "cannot be read, so every notebook here counts as your work" in said
    assert (folder / "notebooks" / "00_a.ipynb").read_text() == "my work"
    assert (folder / "notebooks" / "00_a.new.ipynb").exists()
    assert read_manifest(folder)[1] == "", "the next delivery finds a whole list again"


def test_a_notebook_nested_too_deeply_is_compared_byte_by_byte():
    deep = b'{"cells": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert fingerprint(deep, ".ipynb") == fingerprint(deep, ".txt")


def test_outputs_are_no_change(tmp_path):
    cell = {"cell_type": "code", "source": "1", "metadata": {}, "outputs": []}
    run = cell | {"outputs": [{"output_type": "stream", "text": "x" * 10_000_000}]}
    prints = {fingerprint(json.dumps({"cells": [c]}).encode(), ".ipynb") for c in (cell, run)}
    assert len(prints) == 1
