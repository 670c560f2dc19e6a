"""The cache holds whole folders or none, whatever goes wrong while one is made."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from safetensors.numpy import load_file

from minipd.model import builtin, store
from minipd.model.load import fingerprint_of, load
from minipd.model.store import ModelLoadError, build_once, is_built


def leftovers(cache: Path) -> list[str]:
    """Everything below models/ except lock files."""
    return [path.name for path in (cache / "models").glob("*") if path.suffix != ".lock"]


def raising(error: BaseException) -> Any:
    def raise_it(*_: object, **__: object) -> NoReturn:
        raise error

    return raise_it


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_while_writing(cache: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def half(path: Path, *_: object) -> NoReturn:
        path.write_bytes(b"half a file")
        raise OSError(code, "no room")

    monkeypatch.setattr(builtin, "write_safetensors", half)
    with pytest.raises(ModelLoadError, match=r"disk .* is full: free some space"):
        load("tiny")
    assert leftovers(cache) == []


def test_too_little_space_is_said_before_the_work(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir()
    with pytest.raises(ModelLoadError, match=r"needs 1000000.00 GB in .* free"):
        store.require_free_space(cache, 10**15)


def test_unreadable_cache_folder(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.name == "posix" and os.geteuid() != 0:
        cache.mkdir(mode=0)
    else:  # the administrator may read everything: let the system call refuse instead
        denied = PermissionError(errno.EACCES, "Permission denied", str(cache))
        monkeypatch.setattr(Path, "mkdir", raising(denied))
    with pytest.raises(ModelLoadError, match="may not read or write the cache folder"):
        load("tiny")
    if cache.exists():
        cache.chmod(0o700)


def test_cache_folder_that_is_a_file(cache: Path) -> None:
    cache.write_text("not a folder")
    with pytest.raises(ModelLoadError, match="cannot be used .* set MINIPD_CACHE"):
        load("tiny")


def test_unwritable_cache_does_not_hinder_a_local_folder(
    cache: Path, make_hf: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder, _ = make_hf("Llama")
    blocked = tmp_path / "a-file"
    blocked.write_text("")
    monkeypatch.setenv("MINIPD_CACHE", str(blocked))
    assert load(folder).fingerprint == fingerprint_of(folder)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("broken")])
def test_interruption_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(builtin, "write_json", raising(error))
        with pytest.raises(type(error)):
            load("tiny")
    assert leftovers(cache) == []
    assert load("tiny").config.num_layers == 4


def test_what_a_killed_process_left_is_cleared(cache: Path) -> None:
    stale = cache / "models" / ".tiny-1-999999"
    stale.mkdir(parents=True)
    (stale / "model.safetensors").write_bytes(b"half")
    (cache / "models" / "tiny-1").mkdir()  # a folder that someone emptied counts as absent
    load("tiny")
    assert leftovers(cache) == ["tiny-1"]


def test_a_built_folder_is_not_built_again(cache: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "config.json").write_text("{}")

    assert not is_built("once")
    first = build_once("once", build)
    assert build_once("once", raising(AssertionError("built twice"))) == first
    assert is_built("once")


@pytest.mark.slow
def test_two_processes_at_once(cache: Path) -> None:
    script = "from minipd.model.load import load; print(load('tiny').fingerprint)"
    command = [sys.executable, "-c", script]
    root = Path(__file__).parents[2]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=root)
        for _ in range(2)
    ]
    answers = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], answers
    assert answers[0][0] == answers[1][0] != b""
    assert leftovers(cache) == ["tiny-1"]


def test_written_safetensors_are_read_back(tmp_path: Path) -> None:
    values = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b.c": np.ones(5, np.float32)}
    file = tmp_path / "x.safetensors"
    turned = (value.T.copy().T for value in values.values())  # not contiguous
    store.write_safetensors(file, {name: v.shape for name, v in values.items()}, turned)
    for name, value in load_file(file).items():
        assert np.array_equal(value, values[name])


def test_fingerprint_changes_with_one_weight_and_with_the_config(cache: Path) -> None:
    folder = load("tiny").folder
    before = fingerprint_of(folder)
    assert fingerprint_of(folder) == before == load("tiny").fingerprint
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    changed = fingerprint_of(folder)
    assert changed != before
    config = folder / "config.json"
    config.write_text(config.read_text().replace("10000.0", "20000.0"))
    assert fingerprint_of(folder) not in (before, changed)
