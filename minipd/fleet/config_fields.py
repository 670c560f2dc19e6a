"""Fields of a `config.json` that someone else wrote, each checked where it is used.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

MOST = 1_000_000_000  # any size
MOST_LAYERS = 10_000  # each is looked at
MOST_EXPERTS = 1_000_000  # likewise


class ConfigError(ValueError):
    """A model that is unknown, or a config.json that lacks what step times depend on."""


class Fields:
    """Every method raises `ConfigError` that names the field and says what it must be."""

    def __init__(self, raw: Mapping[str, Any], name: str) -> None:
        self.raw, self.name = raw, name

    def size(self, *names: str, default: int | None = None, most: int = MOST) -> int:
        """A whole number from 1 (0 if that is the default) to `most`, under any of `names`."""
        value = next((self.raw[n] for n in names if self.raw.get(n) is not None), default)
        if value is None:
            raise ConfigError(
                f"The config.json of {self.name} has no {names[0]}, which step times depend on; "
                "add it."
            )
        if not _is_whole(value, 0 if default == 0 else 1, most):
            needed = f"a whole number above 0 and up to {most} is needed"
            raise self._wrong(names[0], value, needed)
        return value

    def count(self, name: str) -> int:
        """A whole number that may be 0, and is where the field is absent."""
        value = self.raw.get(name) or 0
        if not _is_whole(value, 0, MOST):
            raise self._wrong(name, value, "a whole number, 0 or more, is needed")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.raw.get(name)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(name, value, "true or false is needed")
        return default if value is None else value

    def items(self, name: str) -> list[object]:
        """A list, empty where the field is absent."""
        value: object = self.raw.get(name) or []
        if not isinstance(value, list):
            raise self._wrong(name, value, "a list is needed")
        return cast("list[object]", value)

    def _wrong(self, name: str, value: object, needed: str) -> ConfigError:
        said = str(value)[:40]
        return ConfigError(f"The config.json of {self.name} has {name} = {said}; {needed}.")


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
