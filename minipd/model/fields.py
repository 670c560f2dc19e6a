"""Values of a `config.json`, of the right type and size or refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minipd.request import is_number, is_whole_number, shown

MAX_SIZE = 2**31 - 1


class UnsupportedModelError(ValueError):
    """A checkpoint that this decoder would compute wrongly; the message says what it can do."""


def damaged(key: str, value: object, wanted: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"config.json is damaged: it has {key} = {shown(value)}, which must be {wanted}."
    )


def size(raw: Mapping[str, Any], key: str, default: int | None = None, most: int = MAX_SIZE) -> int:
    """A whole number from 1 to `most`; `default` where the key is absent or null."""
    value = default if raw.get(key) is None else raw[key]
    if not (is_whole_number(value) and 1 <= value <= most):
        raise damaged(key, value, f"a whole number from 1 to {most}")
    return value


def number(raw: Mapping[str, Any], key: str) -> float:
    """A positive number that stays one in float32."""
    value = raw.get(key)
    if not (is_number(value) and 1e-30 <= value <= 1e30):
        raise damaged(key, value, "a positive number of ordinary size")
    return float(value)


def flag(raw: Mapping[str, Any], key: str) -> bool:
    value = raw.get(key, False)
    if not isinstance(value, bool):
        raise damaged(key, value, "true or false")
    return value
