"""How much a scheduler may run at once."""

from __future__ import annotations

from dataclasses import dataclass

from minipd.request import is_whole_number, shown


class LimitsError(ValueError):
    """Limits that no batch could keep."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`max_running` sequences hold KV at once; a step reads `max_batch_tokens` of prompts."""

    max_running: int = 16
    max_batch_tokens: int = 2048

    def __post_init__(self) -> None:
        for limit in (self.max_running, self.max_batch_tokens):
            if not (is_whole_number(limit) and limit >= 1):
                raise LimitsError(
                    f"{shown(limit)} would never run anything; use a whole number from 1."
                )
