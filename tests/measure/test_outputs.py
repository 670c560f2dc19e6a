"""Result files: tried first, replaced whole, never half-written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from minipd.measure.outputs import OutputError, probe_file, probe_folder, replace_text
from minipd.measure.report import ReportError, write_json


def test_a_file_that_could_be_written_passes_and_nothing_is_left(tmp_path: Path) -> None:
    probe_file(tmp_path / "new" / "deep" / "r.json")
    probe_folder(tmp_path / "new" / "pictures")
    probe_file(None)
    probe_folder(None)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path, tmp_path / "file" / "r.json", tmp_path / "a\0b"):
        with pytest.raises(OutputError, match="choose another file"):
            probe_file(path)
    for path in (tmp_path / "file", tmp_path / "file" / "p"):
        with pytest.raises(OutputError, match="choose another folder"):
            probe_folder(path)


def test_an_old_file_survives_a_failed_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.json"
    write_json(path, {"a": 1})

    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ReportError, match="No space left"):
        write_json(path, {"a": 2})
    monkeypatch.undo()
    assert path.read_text() == '{\n  "a": 1\n}\n'
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="links and devices of POSIX")
def test_links_are_followed_and_devices_stay_devices(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    replace_text(link, "new")
    assert link.is_symlink() and target.read_text() == "new"
    probe_file(Path(os.devnull))
    replace_text(Path(os.devnull), "gone")
    assert Path(os.devnull).is_char_device()
