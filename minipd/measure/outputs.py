"""Files that a command leaves behind: tried before the work begins, replaced whole at its end.

Standard library only.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None


class OutputError(RuntimeError):
    """A file or folder that a command could not write at its end; the message names it."""


def probe_file(path: Path | None) -> None:
    """Raise `OutputError` now if `path` could not be written later; leaves nothing behind."""
    if path is None:
        return
    try:
        if path.is_dir():
            raise IsADirectoryError("it is a folder")
        if "\0" in str(path):
            raise ValueError("a name cannot hold a null character")
        if _is_replaceable(path):
            _probe(path.parent)
    except (OSError, ValueError) as error:
        raise OutputError(f"Cannot write {path} ({_reason(error)}); choose another file.") from None


def probe_folder(path: Path | None) -> None:
    """Raise `OutputError` now if files could not be written into the folder `path` later."""
    if path is None:
        return
    try:
        _probe(path)
    except (OSError, ValueError) as error:
        raise OutputError(
            f"Cannot write into {path} ({_reason(error)}); choose another folder."
        ) from None


def save_text(path: Path, text: str) -> None:
    """`replace_text` at the end of a command: raises `OutputError`, which names the file."""
    save_bytes(path, text.encode())


def save_bytes(path: Path, content: bytes) -> None:
    """`replace_bytes` at the end of a command: raises `OutputError`."""
    try:
        replace_bytes(path, content)
    except OSError as error:
        raise OutputError(f"Cannot write {path} ({_reason(error)}); choose another file.") from None


def replace_text(path: Path, text: str) -> None:
    """Write a whole text file or leave the old one as it was; raises OSError."""
    replace_bytes(path, text.encode())


def replace_bytes(path: Path, content: bytes) -> None:
    """Write a whole file or leave the old one as it was; raises OSError.

    Where there is something that is no ordinary file (a pipe, /dev/stdout), it is written to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not _is_replaceable(path):
        path.write_bytes(content)
        return
    target = path.resolve()  # of a link, the file it points to
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@contextmanager
def locked(file: FileIO) -> Generator[None]:
    """Keep other processes that ask for the same out of an open file, where the system can."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)  # ends when the file is closed, or the process
    yield


def _is_replaceable(path: Path) -> bool:
    return not path.exists() or (path.is_file() and path.parts[1:2] not in (("dev",), ("proc",)))


def _probe(folder: Path) -> None:
    """Try to make a file in `folder`, or in the nearest folder above it that is there."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is no folder")
    with tempfile.TemporaryFile(dir=folder):
        pass


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
