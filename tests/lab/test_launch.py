"""`minipd lab`: the copy keeps a learner's work through updates, and JupyterLab serves it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest

from minipd.lab import launch
from minipd.lab.deliver import MANIFEST, Delivery, DeliveryError, deliver, fingerprint

LESSON = "notebooks/00_first.ipynb"
EXERCISE = "exercises/00_first.ipynb"
SOLUTION = "solutions/00_first.ipynb"


def notebook(*sources: str) -> str:
    cells = [nbformat.v4.new_code_cell(source, id=f"c{i}") for i, source in enumerate(sources)]
    return nbformat.writes(nbformat.v4.new_notebook(cells=cells))


def write(root: Path, name: str, *sources: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(notebook(*sources), encoding="utf-8")
    return path


def run_cells(path: Path) -> None:
    """What running and saving does: outputs and counts change, sources become lists of lines."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    for cell in raw["cells"]:
        cell["source"] = "".join(cell["source"]).splitlines(keepends=True)
        cell["execution_count"] = 7
        cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "2\n"}]
    raw["metadata"]["language_info"] = {"name": "python", "version": "3.12"}
    path.write_text(json.dumps(raw), encoding="utf-8")


def sources(path: Path) -> list[str]:
    return [cell.source for cell in nbformat.read(path, as_version=4).cells]


def actions(deliveries: list[Delivery]) -> dict[str, str]:
    return {d.name: d.action for d in deliveries}


@pytest.fixture
def course(tmp_path: Path) -> Path:
    root = tmp_path / "course"
    write(root, LESSON, "1 + 1")
    write(root, EXERCISE, "raise NotImplementedError")
    write(root, SOLUTION, "answer = 42")
    (root / "notebooks" / ".ipynb_checkpoints").mkdir()
    write(root, "notebooks/.ipynb_checkpoints/00_first-checkpoint.ipynb", "old")
    return root


def test_first_copy_has_lessons_and_exercises_but_no_solutions(course, tmp_path):
    mine = tmp_path / "my course é"
    assert actions(deliver(course, mine)) == {LESSON: "new", EXERCISE: "new"}
    assert sources(mine / LESSON) == ["1 + 1"]
    kept = sorted(p.relative_to(mine).as_posix() for p in mine.rglob("*") if p.is_file())
    assert kept == [MANIFEST, EXERCISE, LESSON]


def test_solutions_come_when_asked_for(course, tmp_path):
    assert actions(deliver(course, tmp_path / "mine", with_solutions=True))[SOLUTION] == "new"


def test_a_second_copy_changes_nothing(course, tmp_path):
    mine = tmp_path / "mine"
    deliver(course, mine)
    before = {p: p.read_bytes() for p in mine.rglob("*") if p.is_file()}
    assert set(actions(deliver(course, mine)).values()) == {"same"}
    assert {p: p.read_bytes() for p in mine.rglob("*") if p.is_file()} == before


def test_an_untouched_file_follows_the_course(course, tmp_path):
    mine = tmp_path / "mine"
    deliver(course, mine)
    write(course, LESSON, "2 + 2")
    assert actions(deliver(course, mine))[LESSON] == "updated"
    assert sources(mine / LESSON) == ["2 + 2"]
    assert not list(mine.rglob("*.old.ipynb")), "there was no run worth keeping"


def test_running_a_notebook_is_no_change_and_its_outputs_are_kept(course, tmp_path):
    mine = tmp_path / "mine"
    deliver(course, mine)
    run_cells(mine / LESSON)
    assert actions(deliver(course, mine))[LESSON] == "same"
    assert b"stdout" in (mine / LESSON).read_bytes()
    write(course, LESSON, "2 + 2")
    done = {d.name: d for d in deliver(course, mine)}[LESSON]
    assert done.action == "updated"
    assert done.backup is not None
    assert b"stdout" in done.backup.read_bytes()


def test_work_is_kept_and_the_new_version_stands_beside_it_once(course, tmp_path):
    mine = tmp_path / "mine"
    deliver(course, mine)
    write(mine, EXERCISE, "my own answer")
    assert actions(deliver(course, mine))[EXERCISE] == "kept"
    write(course, EXERCISE, "raise NotImplementedError('clearer')")
    done = {d.name: d for d in deliver(course, mine)}[EXERCISE]
    assert done.action == "beside"
    assert done.written.name == "00_first.new.ipynb"
    assert sources(mine / EXERCISE) == ["my own answer"]
    assert sources(done.written) == ["raise NotImplementedError('clearer')"]
    assert actions(deliver(course, mine))[EXERCISE] == "kept"


def test_work_in_the_new_version_is_not_lost_to_the_next_one(course, tmp_path):
    mine = tmp_path / "mine"
    deliver(course, mine)
    write(mine, EXERCISE, "first answer")
    write(course, EXERCISE, "version 2")
    deliver(course, mine)
    write(mine, "exercises/00_first.new.ipynb", "second answer")
    write(course, EXERCISE, "version 3")
    done = {d.name: d for d in deliver(course, mine)}[EXERCISE]
    assert sources(mine / "exercises/00_first.new.ipynb") == ["second answer"]
    assert done.written.name == "00_first.new2.ipynb"
    assert sources(done.written) == ["version 3"]


def test_a_deleted_file_comes_back(course, tmp_path):
    mine = tmp_path / "mine"
    deliver(course, mine)
    (mine / LESSON).unlink()
    assert actions(deliver(course, mine))[LESSON] == "new"


@pytest.mark.parametrize("damage", ["{", "[]", '{"files": 3}', None])
def test_without_a_readable_manifest_everything_counts_as_work(course, tmp_path, damage):
    mine = tmp_path / "mine"
    deliver(course, mine)
    if damage is None:
        (mine / MANIFEST).unlink()
    else:
        (mine / MANIFEST).write_text(damage)
    write(course, LESSON, "2 + 2")
    assert actions(deliver(course, mine))[LESSON] == "beside"
    assert sources(mine / LESSON) == ["1 + 1"]


def test_a_broken_notebook_counts_as_work(course, tmp_path):
    mine = tmp_path / "mine"
    deliver(course, mine)
    (mine / LESSON).write_text("half a noteb")
    write(course, LESSON, "2 + 2")
    assert actions(deliver(course, mine))[LESSON] == "beside"
    assert (mine / LESSON).read_text() == "half a noteb"


def test_fingerprint_sees_text_and_order_but_not_outputs(tmp_path):
    one = notebook("a", "b").encode()
    assert fingerprint(one, ".ipynb") != fingerprint(notebook("b", "a").encode(), ".ipynb")
    assert fingerprint(one, ".ipynb") != fingerprint(notebook("ab").encode(), ".ipynb")
    ran = write(tmp_path, "n.ipynb", "a", "b")
    run_cells(ran)
    assert fingerprint(one, ".ipynb") == fingerprint(ran.read_bytes(), ".ipynb")
    assert fingerprint(one, ".txt") != fingerprint(ran.read_bytes(), ".txt")


def test_the_course_itself_is_refused_as_a_folder(course):
    with pytest.raises(DeliveryError, match="choose another folder"):
        deliver(course, course)


def test_a_folder_that_cannot_be_written_is_explained(course, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DeliveryError, match="--folder"):
        deliver(course, tmp_path / "file")


def test_report_names_what_a_learner_must_know(course, tmp_path):
    mine = tmp_path / "mine"
    assert launch.report(deliver(course, mine), mine) == [f"2 new files in {mine}."]
    assert launch.report(deliver(course, mine), mine) == []
    write(mine, EXERCISE, "my own answer")
    run_cells(mine / LESSON)
    write(course, EXERCISE, "clearer")
    write(course, LESSON, "2 + 2")
    said = "\n".join(launch.report(deliver(course, mine), mine))
    assert f"{LESSON} was brought up to date." in said
    assert "the new version is 00_first.new.ipynb" in said
    assert "in 00_first.old.ipynb" in said


def test_the_first_lesson_is_the_lowest_number(tmp_path):
    for name in ("10_later", "02_second", "notes"):
        write(tmp_path, f"notebooks/{name}.ipynb", "1")
    assert launch.first_lesson(tmp_path) == "notebooks/02_second.ipynb"
    with pytest.raises(DeliveryError, match="holds no lesson"):
        launch.first_lesson(tmp_path / "empty")


def test_lab_listens_on_this_machine_only_and_keeps_its_token(tmp_path):
    arguments = launch.lab_arguments(tmp_path, LESSON, no_browser=True, port=8123)
    assert "--ServerApp.ip=127.0.0.1" in arguments
    assert f"--LabApp.default_url=/lab/tree/{LESSON}" in arguments
    assert "--no-browser" in arguments
    assert "token" not in " ".join(arguments)


def test_no_model_is_no_reason_not_to_open(monkeypatch, capsys, course, tmp_path):
    import minipd.model.load as load

    def offline(name: str) -> None:
        raise RuntimeError(f"{name} could not be downloaded.")

    served: list[list[str]] = []
    monkeypatch.setattr(load, "find_folder", offline)
    monkeypatch.setattr(launch, "course_root", lambda: course)
    monkeypatch.setattr(launch, "_serve", served.append)
    launch.launch(tmp_path / "mine", True, 8888)
    assert len(served) == 1
    assert "smollm2-135m could not be downloaded." in capsys.readouterr().err


def test_a_missing_course_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr(launch, "course_root", lambda: None)
    with pytest.raises(DeliveryError, match="install minipd again"):
        launch.launch(tmp_path / "mine", True, 8888)


SERVE = """
import sys
from pathlib import Path
from minipd.lab import launch
launch.course_root = lambda: Path(sys.argv[1])
launch.fetch_model = lambda console: None
launch.launch(Path(sys.argv[2]), True, 8950)
"""


@pytest.mark.slow
def test_jupyterlab_serves_the_first_lesson_and_stops(course, tmp_path):
    mine = tmp_path / "mine"
    home = {name: str(tmp_path / "home") for name in ("HOME", "JUPYTER_RUNTIME_DIR")}
    log = tmp_path / "server.log"
    with log.open("w") as file:
        server = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(course), str(mine)],
            stderr=file,
            stdout=file,
            env={**os.environ, **home},
        )
    try:
        address = wait_for_address(log, server)
        assert f"/lab/tree/{LESSON}" in address
        base, token = re.fullmatch(r"(http://[^/]+)/.*token=(\w+)", address).groups()
        content = json.load(get(f"{base}/api/contents/{LESSON}?token={token}"))
        assert content["content"]["cells"][0]["source"] == "1 + 1"
        settings = "@jupyterlab/apputils-extension:notification"
        news = json.load(get(f"{base}/lab/api/settings/{settings}?token={token}"))
        assert news["schema"]["properties"]["fetchNews"]["default"] == "false"
        with pytest.raises(urllib.error.HTTPError):
            get(f"{base}/api/contents/{LESSON}")
    finally:
        server.terminate()
        server.wait(100)


def wait_for_address(log: Path, server: subprocess.Popen[bytes]) -> str:
    for _ in range(900):
        found = re.search(r"http://127\.0\.0\.1:\d+/\S*token=\w+", log.read_text())
        if found:
            return found[0]
        assert server.poll() is None, log.read_text()
        time.sleep(0.2)
    raise AssertionError(f"no address within three minutes: {log.read_text()}")


def get(url: str):
    return urllib.request.urlopen(url, timeout=100)
