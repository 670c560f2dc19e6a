"""Model folders in the cache: each one complete or absent, also with two processes at work."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from minipd.paths import cache_dir

Shape = tuple[int, ...]


class ModelLoadError(ValueError):
    """A model that cannot be had or read; the message is one sentence that says what to do."""


def first_line(error: BaseException) -> str:
    """What an error says, in one line of at most 200 characters."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def models_dir() -> Path:
    return cache_dir() / "models"


def is_built(name: str) -> bool:
    """Whether the cache holds this folder; folders appear there whole, so one file proves all."""
    with suppress(OSError):
        return (models_dir() / name / "config.json").is_file()
    return False


def build_once(name: str, build: Callable[[Path], None]) -> Path:
    """The cache's folder `name`; when it is missing, `build(empty_folder)` fills it first.

    Built under a lock in a temporary folder beside it and renamed at the end: an error, Ctrl-C or
    a killed process leaves no half folder, and a second process waits for the first one's result.
    """
    target = models_dir() / name
    with cache_errors_explained():
        if (target / "config.json").is_file():
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        # One lock for each kind of model: a file of each GGUF's own would stay behind.
        with FileLock(target.parent / f"{name.partition('-')[0]}.lock"):
            if not (target / "config.json").is_file():
                _build(target, build)
    return target


def _build(target: Path, build: Callable[[Path], None]) -> None:
    prefix = f".{target.name}-"
    # The lock is ours: whatever still carries this prefix belongs to a process that was killed.
    for leftover in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    working = target.parent / f"{prefix}{os.getpid()}"
    working.mkdir()
    try:
        build(working)
        shutil.rmtree(target, ignore_errors=True)
        os.replace(working, target)
    finally:
        shutil.rmtree(working, ignore_errors=True)


@contextmanager
def cache_errors_explained() -> Generator[None]:
    """Turns the operating system's refusals into a `ModelLoadError` with a remedy."""
    try:
        yield
    except OSError as error:
        where = f"the cache folder {cache_dir()}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            message = f"The disk of {where} is full: free some space there, or set MINIPD_CACHE "
            raise ModelLoadError(message + "to a folder on a larger disk.") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            message = f"minipd may not read or write {where}: correct its permissions, or set "
            raise ModelLoadError(message + "MINIPD_CACHE to a folder of yours.") from error
        message = f"{where[0].upper()}{where[1:]} cannot be used ({error}); set MINIPD_CACHE to "
        raise ModelLoadError(message + "another folder.") from error


def require_free_space(folder: Path, num_bytes: int) -> None:
    """Refuse before a long conversion rather than in the middle of it."""
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise ModelLoadError(
            f"This model needs {num_bytes / 1e9:.2f} GB in {folder}, which has {free / 1e9:.2f} "
            "GB free: free some space, or set MINIPD_CACHE to a folder on a larger disk."
        )


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8", newline="\n")


def write_safetensors(
    path: Path, shapes: Mapping[str, Shape], values: Iterable[np.ndarray[Any, Any]]
) -> None:
    """Write float32 tensors one at a time, in the order of `shapes`; one is in memory at once.

    Layout: 8 bytes little-endian header length, the JSON header, the raw values
    (safetensors format description, github.com/huggingface/safetensors).
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        end = offset + 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for (name, shape), value in zip(shapes.items(), values, strict=True):
            assert value.shape == shape, f"{name} must have the shape announced in the header"
            file.write(np.ascontiguousarray(value, dtype="<f4").data)


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes, as hexadecimal digits."""
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, remembered in the cache for as long as its size and time are unchanged."""
    path = path.resolve()
    stat = path.stat()
    state = [str(path), stat.st_size, stat.st_mtime_ns]
    memo = cache_dir() / "hashes" / (hashlib.sha256(str(path).encode()).hexdigest() + ".json")
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        known = json.loads(memo.read_text(encoding="utf-8"))
        if known["state"] == state:
            return str(known["sha256"])
    digest = hash_file(path)
    # A cache that cannot be written only costs the time of hashing again.
    with suppress(OSError):
        memo.parent.mkdir(parents=True, exist_ok=True)
        partial = memo.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps({"state": state, "sha256": digest}), encoding="utf-8")
        os.replace(partial, memo)
    return digest
