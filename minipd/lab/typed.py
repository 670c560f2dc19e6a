"""Numbers as people type them, read the same way by predictions and by both faces of the quiz."""

from __future__ import annotations

import math
import re

EXAMPLE = "Type a number, like 1250 or 1.25e3."
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?(?:[eE][+-]?\d+)?")


class TypedNumberError(ValueError):
    """What was typed is no number, or could be two; the message says how to write it."""


def read_number(text: str) -> float:
    """The number typed; a comma counts only between groups of three digits, never as a point."""
    plain = text.strip().replace("_", "")
    if "," in plain and not _THOUSANDS.fullmatch(plain):
        raise TypedNumberError(
            "Write the decimal point as a point, like 538.1; a comma may only stand before groups "
            "of three digits, like 1,250."
        )
    try:
        value = float(plain.replace(",", ""))
    except ValueError:
        raise TypedNumberError(EXAMPLE) from None
    if not math.isfinite(value):
        raise TypedNumberError(EXAMPLE)
    return value
