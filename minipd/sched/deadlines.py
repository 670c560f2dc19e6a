"""Which requests must end by when: a heap that the schedulers ask before every step."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

from minipd.request import Request, Sequence


class Deadlines:
    """`sequences` are those that are there; requests that have ended may linger here."""

    def __init__(self, sequences: dict[str, Sequence]) -> None:
        self.sequences = sequences
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def watch(self, request: Request) -> None:
        if request.deadline_s is not None and request.deadline_s < math.inf:
            if len(self._heap) > 2 * len(self.sequences) + 64:  # mostly of ended requests
                self._heap = [d for d in self._heap if self._counts(d)]
                heapq.heapify(self._heap)
            heapq.heappush(self._heap, (request.deadline_s, request.id))

    def due(self, now: float) -> Iterator[str]:
        """Requests whose time is over; each is told once."""
        while self._heap and self._heap[0][0] <= now:
            deadline = heapq.heappop(self._heap)
            if self._counts(deadline):
                yield deadline[1]

    def _counts(self, deadline: tuple[float, str]) -> bool:
        """Is it that of a request that is here, not of an earlier one of the same id?"""
        held = self.sequences.get(deadline[1])
        return held is not None and held.request.deadline_s == deadline[0]
