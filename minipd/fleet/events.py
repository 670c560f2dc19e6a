"""The simulator's clock: a list of things to do, each at its time. Standard library only.

At one instant things happen in the order in which they were asked for, so that equal inputs give
equal runs, down to the last digit.
"""

from __future__ import annotations

import gc
import heapq
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any


class Agenda:
    """`now` jumps from one entry to the next. Entries cannot be taken back: let them find out
    when they are called that they no longer matter."""

    def __init__(self) -> None:
        self.now = 0.0
        self._later: list[tuple[float, int, Callable[[Any], None], Any]] = []  # a heap
        self._next: deque[Callable[[], None]] = deque()
        self._number = 0

    def clock(self) -> float:
        return self.now

    def at(self, time_s: float, act: Callable[[Any], None], what: Any = None) -> None:
        """Call `act(what)` at `time_s`, which must not be past."""
        assert time_s >= self.now, f"{time_s} s is past, it is {self.now} s"
        self._number += 1
        heapq.heappush(self._later, (time_s, self._number, act, what))

    def soon(self, act: Callable[[], None]) -> None:
        """Call `act()` at this very time, after what is being done."""
        self._next.append(act)

    def run(self, after_each: Callable[[], None] | None = None) -> None:
        """Do one thing after the other until none is left."""
        soon, later, pop = self._next, self._later, heapq.heappop
        while soon or later:
            if soon:
                soon.popleft()()
            else:
                self.now, _, act, what = pop(later)
                act(what)
            if after_each is not None:
                after_each()


@contextmanager
def few_collections() -> Generator[None]:
    """Look for garbage in circles a hundred times less often: a run makes none of its own, and
    looking took a twentieth of its time."""
    before = gc.get_threshold()
    gc.set_threshold(100 * before[0], *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
