"""A run's times: requests are given in seconds from its start, workers stamp the shared clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from minipd.request import Request, RequestError
from minipd.timeline import Event


@dataclass(slots=True)
class Run:
    """What came of a list of requests: times are seconds since the run began."""

    timeline: list[Event] = field(default_factory=list[Event])
    outputs: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    leaked_blocks: dict[str, int] = field(default_factory=dict[str, int])

    @classmethod
    def of(cls, events: Iterable[Event], base: float, leaked_blocks: dict[str, int]) -> Run:
        """Events stamped on the shared clock, of a run that began at `base` on it."""
        timeline = sorted((_rebased(e, base) for e in events), key=lambda e: e.t_s)
        run = cls(timeline, {}, leaked_blocks)
        for event in timeline:
            if event.kind == "token":
                token_id = int(str(event.data["token_id"]))
                run.outputs.setdefault(event.request_id, []).append(token_id)
        return run


def checked(requests: Iterable[Request], check: Callable[[Request], None]) -> list[Request]:
    """The requests of a run, each of which passes `check`; raises `RequestError`."""
    found: dict[str, Request] = {}
    for request in requests:
        check(request)
        if request.id in found:
            raise RequestError(f"Two requests have the id {request.id!r}; give each its own.")
        if not 0.0 <= request.arrival_s < math.inf:
            raise RequestError(
                f"Request {request.id!r} arrives at {request.arrival_s} s; use seconds from "
                "the start of the run, 0 or more."
            )
        found[request.id] = request
    return list(found.values())


def shifted(request: Request, base: float) -> Request:
    """The request with its times on the shared clock."""
    deadline = None if request.deadline_s is None else request.deadline_s + base
    return replace(request, arrival_s=request.arrival_s + base, deadline_s=deadline)


def _rebased(event: Event, base: float) -> Event:
    data = dict(event.data)
    if "start_s" in data:
        data["start_s"] = float(str(data["start_s"])) - base
    return Event(event.t_s - base, event.kind, event.worker, event.request_id, data)
