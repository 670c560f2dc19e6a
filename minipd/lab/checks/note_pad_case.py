"""A small note-pad on which an answer to exercise 02.2 is tried."""

from __future__ import annotations

from typing import Any

from minipd.lab.hints import Answer

ROOM, IN_USE = 6, 2


class PadCase:
    """A pad with `in_use` rows, and `new` rows to add; every row holds a number of its own.

    Key rows hold 1, 2, ..., value rows -1, -2, ...; rows that nobody has written hold 0.
    """

    def __init__(self, answer: Answer, new: int, in_use: int = IN_USE) -> None:
        import torch

        def rows(first: int, count: int, sign: int) -> Any:
            numbers = torch.arange(first, first + count, dtype=torch.float32)
            return sign * numbers[:, None, None].repeat(1, 1, 2)  # (count, 1, 2)

        self.keys, self.values = torch.zeros(ROOM, 1, 2), torch.zeros(ROOM, 1, 2)
        self.keys[:in_use], self.values[:in_use] = rows(1, in_use, 1), rows(1, in_use, -1)
        k, v = rows(in_use + 1, new, 1), rows(in_use + 1, new, -1)
        self.made = answer(self.keys, self.values, in_use, k, v)

    @property
    def seen_keys(self) -> list[float]:
        return _numbers(self.made[0])

    @property
    def seen_values(self) -> list[float]:
        return _numbers(self.made[1])

    @property
    def length(self) -> int:
        return int(self.made[2])

    @property
    def pad_keys(self) -> list[float]:
        return _numbers(self.keys)


def _numbers(rows: Any) -> list[float]:
    """The number that each row holds."""
    return [float(row.flatten()[0]) for row in rows]
