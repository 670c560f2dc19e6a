"""How much KV to keep below the device, as it is asked for; what cannot be had is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import psutil

from minipd.cache.books import ALWAYS, FetchPolicy
from minipd.cache.disk import BlockFolder
from minipd.request import is_whole_number, shown

DEFAULT_DISK_BYTES = 1 << 30


class TierError(ValueError):
    """Tiers that cannot be had; the message says what to change."""


@dataclass(frozen=True, slots=True)
class TierSizes:
    """What to keep below the device: bytes of host memory, and a folder with bytes on disk."""

    host_bytes: int = 0
    disk: Path | str | None = None
    disk_bytes: int | None = None  # None: 1 GiB
    policy: FetchPolicy = ALWAYS

    def __post_init__(self) -> None:
        for name, size in (("host_kv_bytes", self.host_bytes), ("disk_kv_bytes", self.disk_bytes)):
            if size is not None and not (is_whole_number(size) and size >= 0):
                raise TierError(f"{name} is {shown(size)}; use a whole number of bytes from 0.")
        if self.disk is None and self.disk_bytes is not None:
            raise TierError("disk_kv_bytes needs a folder: give disk_kv as well.")

    def disk_blocks(self, folder: BlockFolder) -> int:
        limit = DEFAULT_DISK_BYTES if self.disk_bytes is None else self.disk_bytes
        return limit // folder.file_bytes

    def of_worker(self, name: str) -> TierSizes:
        """The same with a folder of the worker's own, so that each keeps to its own bound."""
        return self if self.disk is None else replace(self, disk=Path(self.disk) / name)

    def __bool__(self) -> bool:
        return bool(self.host_bytes) or self.disk is not None


def host_slots(sizes: TierSizes, block_bytes: int) -> int:
    """How many blocks the host's memory is to hold. Raises `TierError`."""
    if not sizes.host_bytes:
        return 0
    free = psutil.virtual_memory().available
    if sizes.host_bytes > free:
        raise TierError(
            f"{sizes.host_bytes >> 20} MiB of host memory for KV were asked for and {free >> 20} "
            "MiB are free: ask for less."
        )
    return _whole_blocks("host_kv_bytes", sizes.host_bytes, block_bytes)


def _whole_blocks(name: str, num_bytes: int, block_bytes: int) -> int:
    if num_bytes < block_bytes:
        raise TierError(f"{name} of {num_bytes} holds no block: one needs {block_bytes} bytes.")
    return num_bytes // block_bytes


def open_folder(sizes: TierSizes, identity: str, block_bytes: int) -> BlockFolder | None:
    """The folder that keeps `identity`'s blocks; None where none is wanted. Raises `TierError`."""
    if sizes.disk is None:
        return None
    try:
        folder = BlockFolder(Path(sizes.disk).expanduser(), identity, block_bytes)
    except OSError as error:
        _refuse_folder(sizes.disk, error)
    if sizes.disk_bytes is not None:
        _whole_blocks("disk_kv_bytes", sizes.disk_bytes, folder.file_bytes)
    return folder


def _refuse_folder(folder: Path | str, error: OSError) -> NoReturn:
    raise TierError(
        f"No KV can be kept in {folder} ({error.strerror or error}): choose a folder that can be "
        "written to."
    ) from error
