"""Copying the course into a learner's folder, and bringing it up to date without losing their work.

A notebook's text decides whether the learner changed it; running it (its outputs) is no change.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

MANIFEST = ".minipd-course.json"
Action = Literal["new", "same", "updated", "kept", "beside"]


class DeliveryError(RuntimeError):
    """The course cannot be copied; the message is one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What happened to one file: `written` is the file that now holds the course's version.

    `backup` is where the learner's run of an unchanged notebook went, outputs and all.
    """

    name: str
    action: Action
    written: Path
    backup: Path | None = None


def fingerprint(content: bytes, suffix: str) -> str:
    """SHA-256 of what an author or a learner writes: for notebooks, cell types and sources only."""
    if suffix == ".ipynb":
        try:
            cells = cast(list[dict[str, Any]], json.loads(content)["cells"])
            # Sources may be a string or a list of lines, by whoever saved the notebook last.
            text = [(c["cell_type"], "".join(c["source"])) for c in cells]
            content = json.dumps(text).encode()
        except (ValueError, KeyError, TypeError, RecursionError):
            pass  # not a readable notebook: compare it byte by byte
    return hashlib.sha256(content).hexdigest()


def read_manifest(folder: Path) -> tuple[dict[str, str], str]:
    """Fingerprints delivered earlier, and a sentence where they are unreadable.

    Without them every file counts as the learner's work, so that nothing is written over.
    """
    path = folder / MANIFEST
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {str(name): str(value) for name, value in found.items()}, ""
    except FileNotFoundError:
        return {}, ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}, (
            f"{path} cannot be read, so every notebook here counts as your work: new versions are "
            "put beside them."
        )


def _write_safely(path: Path, content: bytes) -> None:
    """Write through a temporary file, so that an interruption never leaves half a notebook."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half_done = path.with_name(path.name + ".part")
    half_done.write_bytes(content)
    os.replace(half_done, path)


def _free_name(path: Path, word: str, content: bytes) -> Path:
    """`name.word.ipynb`, numbered when that name is already taken by something else."""
    number = 1
    while True:
        label = word if number == 1 else f"{word}{number}"
        candidate = path.with_name(f"{path.stem}.{label}{path.suffix}")
        if not candidate.exists() or candidate.read_bytes() == content:
            return candidate
        number += 1


def _has_outputs(content: bytes) -> bool:
    return b'"output_type"' in content


def _deliver_file(source: Path, target: Path, name: str, delivered: str | None) -> Delivery:
    new = source.read_bytes()
    if not target.exists():
        _write_safely(target, new)
        return Delivery(name, "new", target)
    old = target.read_bytes()
    old_print, new_print = (fingerprint(content, source.suffix) for content in (old, new))
    if old_print == new_print:
        return Delivery(name, "same", target)
    if old_print == delivered:
        backup = _free_name(target, "old", old) if _has_outputs(old) else None
        if backup:
            _write_safely(backup, old)
        _write_safely(target, new)
        return Delivery(name, "updated", target, backup)
    if new_print == delivered:
        return Delivery(name, "kept", target)
    beside = _free_name(target, "new", new)
    _write_safely(beside, new)
    return Delivery(name, "beside", beside)


def _course_files(root: Path, rooms: tuple[str, ...]) -> Iterator[tuple[Path, str]]:
    """Files of the course with their names relative to `root`, without checkpoints and caches."""
    for room in rooms:
        for path in sorted((root / room).rglob("*")):
            parts = path.relative_to(root).parts
            hidden = any(part.startswith((".", "__")) for part in parts)
            if path.is_file() and not hidden:
                yield path, "/".join(parts)


def deliver(root: Path, folder: Path, *, with_solutions: bool = False) -> list[Delivery]:
    """Copy the course at `root` into `folder`; returns what happened to each file.

    A file the learner did not touch is brought up to date; one they changed stays, and the new
    version is written beside it once; one they deleted comes back. Raises `DeliveryError`.
    """
    rooms = ("notebooks", "exercises", *(("solutions",) if with_solutions else ()))
    if folder.resolve() == root.resolve():
        raise DeliveryError(f"{folder} is the course itself; choose another folder to work in.")
    manifest, _ = read_manifest(folder)
    done: list[Delivery] = []
    try:
        for source, name in _course_files(root, rooms):
            done.append(_deliver_file(source, folder / name, name, manifest.get(name)))
            manifest[name] = fingerprint(source.read_bytes(), source.suffix)
        record = json.dumps({"files": manifest}, indent=1, sort_keys=True) + "\n"
        _write_safely(folder / MANIFEST, record.encode())
    except OSError as error:
        raise DeliveryError(
            f"The course cannot be copied to {folder} ({error.strerror or error}); "
            "choose a folder you may write to with --folder."
        ) from error
    return done
