"""KV blocks as files: one per block, in a folder that belongs to one model, layout and dtype.

A file is a header of 512 bytes, a line of JSON, and the block's bytes as they lie in memory. It is
written beside its place and then renamed, so that nobody ever reads half of one; its size, its
header and its digest are checked on every read, and what does not match is deleted and not served.
Nothing is ever unpickled. Several engines may share the folder: each counts what it knows of.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

import xxhash

HEADER_BYTES = 512
FORMAT = "minipd-kv-1"
ENDING, UNFINISHED = ".kv", ".tmp"
ABANDONED_S = 3600.0  # an unfinished file this old has no writer any more


class DamagedBlockError(RuntimeError):
    """A file that is not what it should be; it has been deleted."""


class BlockFolder:
    """`identity` says whose KV this is (fingerprint, layout, dtype); any other's is refused."""

    def __init__(self, root: Path, identity: str, block_bytes: int) -> None:
        self.folder = root / identity
        self.identity = identity
        self.block_bytes = block_bytes
        self.folder.mkdir(parents=True, exist_ok=True)
        probe = self.folder / f"{uuid.uuid4().hex}{UNFINISHED}"
        probe.write_bytes(b"")
        probe.unlink()

    @property
    def file_bytes(self) -> int:
        return HEADER_BYTES + self.block_bytes

    def _path(self, name: bytes) -> Path:
        return self.folder / f"{name.hex()}{ENDING}"

    def scan(self) -> list[bytes]:
        """Names of the files that are there, that used longest ago first; remains are deleted."""
        found: list[tuple[float, bytes]] = []
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError, ValueError):
                state = path.stat()
                if path.suffix == UNFINISHED and time.time() - state.st_mtime > ABANDONED_S:
                    path.unlink()
                if path.suffix == ENDING:
                    found.append((state.st_mtime, bytes.fromhex(path.stem)))
        return [name for _, name in sorted(found)]

    def write(self, name: bytes, block: Any) -> None:
        """`block` is a flat array of bytes. Raises OSError: a full disk, a folder that is gone."""
        unfinished = self.folder / f"{uuid.uuid4().hex}{UNFINISHED}"
        try:
            with unfinished.open("wb") as file:
                file.write(self._header(name, xxhash.xxh3_64_hexdigest(block)))
                file.write(block)
            os.replace(unfinished, self._path(name))
        except BaseException:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise

    def read(self, name: bytes, into: Any) -> None:
        """Fill `into`, a flat array of bytes. Raises `DamagedBlockError`, or OSError if missing."""
        path = self._path(name)
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
            count = file.readinto(into)
            is_longer = bool(file.read(1))
        if count != self.block_bytes or is_longer:
            self._refuse(path, "its size is wrong")
        if header != self._header(name, xxhash.xxh3_64_hexdigest(into)):
            self._refuse(path, "its header or its digest does not match")
        with contextlib.suppress(OSError):
            os.utime(path)  # used just now: the next run forgets others first

    def _refuse(self, path: Path, why: str) -> None:
        with contextlib.suppress(OSError):
            path.unlink()
        raise DamagedBlockError(f"the KV file {path.name} was dropped: {why}")

    def delete(self, name: bytes) -> None:
        with contextlib.suppress(OSError):  # another engine was faster
            self._path(name).unlink()

    def _header(self, name: bytes, digest: str) -> bytes:
        told = {"format": FORMAT, "model": self.identity, "block": name.hex()}
        told |= {"bytes": str(self.block_bytes), "xxh3_64": digest}
        return json.dumps(told).encode().ljust(HEADER_BYTES - 1) + b"\n"
