"""Sizes that every cache must have."""

from __future__ import annotations

from minipd.request import is_whole_number, shown


class CacheSizeError(ValueError):
    """A number of blocks, or a block size, that no cache can have."""


def check_sizes(num_blocks: int, block_size: int) -> None:
    """Refuse anything but whole numbers from 1; raises `CacheSizeError`."""
    if not all(is_whole_number(size) and size >= 1 for size in (num_blocks, block_size)):
        raise CacheSizeError(
            f"A cache needs blocks: got {shown(num_blocks)} of {shown(block_size)} tokens; give "
            "two whole numbers from 1."
        )
