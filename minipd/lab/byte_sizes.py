"""Amounts of memory as people write them: 512MB, 2GiB, 1000000."""

from __future__ import annotations

import re

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
    "TIB": 1 << 40,
}


class ByteSizeError(ValueError):
    """A text that is no amount of memory."""


def bytes_of(text: str, option: str) -> int:
    """Bytes; `option` is named when it cannot be read. Raises `ByteSizeError`."""
    found = re.fullmatch(r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*([A-Za-z]*)\s*", text, re.ASCII)
    unit = UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None:
        raise ByteSizeError(
            f"{option} {text[:40]!r} is no size; write it like 512MB, 2GiB or 1000000."
        )
    return int(float(found[1]) * unit)
