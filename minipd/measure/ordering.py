"""Putting events of several workers into one order, whole lists or as they come in."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from minipd.timeline import Event

# At one instant: what must have come first. Anything not named stands in the middle.
_EARLY = ("worker_started", "role_changed", "arrived", "routed", "reserved", "prefill_started")
_LATE = ("finished", "cancelled", "failed", "worker_died")
_RANK = {kind: n for n, kind in enumerate(_EARLY)} | {kind: 50 + n for n, kind in enumerate(_LATE)}
_HANDOFF = {"handoff_started": 20, "handoff_finished": 21, "committed": 22, "token": 30, "step": 40}


def order_key(event: Event) -> tuple[float, int, int]:
    """Sorts by time; at equal times by the order in which a request lives, then by token index."""
    rank = _RANK.get(event.kind, _HANDOFF.get(event.kind, 10))
    index = event.data.get("index", 0)
    return event.t_s, rank, index if isinstance(index, int) else 0


def in_order(events: Iterable[Event]) -> list[Event]:
    """All events in order of time; the sort keeps the given order where nothing else decides."""
    return sorted(events, key=order_key)


def as_they_come(events: Iterable[Event], lag_s: float = 0.25) -> Iterator[Event]:
    """The same order for a live stream in which an event may arrive up to `lag_s` late.

    Holds back at most the events of the last `lag_s` seconds.
    """
    waiting: list[tuple[tuple[float, int, int], int, Event]] = []
    newest_s = float("-inf")
    for number, event in enumerate(events):
        heapq.heappush(waiting, (order_key(event), number, event))
        newest_s = max(newest_s, event.t_s)
        while waiting and waiting[0][2].t_s < newest_s - lag_s:
            yield heapq.heappop(waiting)[2]
    while waiting:
        yield heapq.heappop(waiting)[2]


def number(event: Event, name: str, default: float = 0.0) -> float:
    """A number of an event's data; `default` where it is missing or no number."""
    value = event.data.get(name)
    return float(value) if isinstance(value, (int, float)) else default


def count(event: Event, name: str) -> int:
    """A whole number of an event's data; 0 where it is missing."""
    value = event.data.get(name)
    return int(value) if isinstance(value, (int, float)) else 0


def text(event: Event, name: str) -> str:
    value = event.data.get(name, "")
    return value if isinstance(value, str) else ""


# What only workers of one role do; used where a timeline does not say the roles.
_IMPLIED_ROLE = {"reserved": "decode", "committed": "decode", "handoff_started": "prefill"}


class Roles:
    """Workers' roles as told by `worker_started` and `role_changed`, else as their acts imply.

    A run that does not tell the roles lets a decode worker's prefill pass until its first
    reservation: record the roles at the start of every run.
    """

    def __init__(self) -> None:
        self._told: dict[str, str] = {}
        self._implied: dict[str, str] = {}

    def feed(self, event: Event) -> None:
        if event.kind in ("worker_started", "role_changed"):
            self._told[event.worker] = text(event, "role")
        elif event.kind in _IMPLIED_ROLE:
            self._implied.setdefault(event.worker, _IMPLIED_ROLE[event.kind])

    def get(self, worker: str) -> str:
        """`prefill`, `decode` or `both` (also for a worker of which nothing is known)."""
        return self._told.get(worker) or self._implied.get(worker) or "both"
