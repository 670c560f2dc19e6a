"""Freezes: gaps between tokens that are far too long, and how many tokens they cost.

A gap is *stalled* when it is longer than `k` undisturbed steps (k = 3). The undisturbed step is the
median length of steps that only decode; where there are none, the median gap. A freeze of s
seconds costs s / undisturbed step tokens: the figure that can be compared between a laptop and a
data centre, whose steps differ a hundredfold.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from minipd.measure.ordering import count, in_order, number
from minipd.measure.quantiles import percentile
from minipd.timeline import TERMINAL_KINDS, Event

DEFAULT_K = 3.0


@dataclass(slots=True)
class Stall:
    """One freeze of one worker: stalled gaps that overlap, merged. Seconds on the run's clock.

    `longest_s` is the longest single gap in it; `cause` the request whose prefill filled most of
    it, empty where none did.
    """

    worker: str
    start_s: float
    end_s: float
    longest_s: float
    undisturbed_s: float
    requests: list[str] = field(default_factory=list[str])
    cause: str = ""
    cause_tokens: int = 0

    @property
    def tokens(self) -> float:
        """Tokens that each frozen answer would have received meanwhile."""
        return self.longest_s / self.undisturbed_s


@dataclass(frozen=True, slots=True)
class Gap:
    """The wait for one token: `worker` is the one that ended it."""

    request_id: str
    worker: str
    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s


def token_gaps(events: Iterable[Event]) -> list[Gap]:
    """Every gap between consecutive tokens of one request, in order of their ends."""
    last_s: dict[str, float] = {}
    gaps: list[Gap] = []
    for event in in_order(events):
        if event.kind == "token":
            if event.request_id in last_s:
                start_s = last_s[event.request_id]
                gaps.append(Gap(event.request_id, event.worker, start_s, event.t_s))
            last_s[event.request_id] = event.t_s
        elif event.kind in TERMINAL_KINDS:
            last_s.pop(event.request_id, None)
    return gaps


def undisturbed_step_s(events: Iterable[Event]) -> float | None:
    """Median of pure decode steps, else of all gaps; None without either."""
    events = list(events)
    steps = [
        event.t_s - number(event, "start_s", event.t_s)
        for event in events
        if event.kind == "step" and count(event, "decode_seqs") and not _prefills(event)
    ]
    lengths = steps or [gap.length_s for gap in token_gaps(events)]
    return percentile(lengths, 50) if lengths else None


def _prefills(event: Event) -> bool:
    return count(event, "prefill_tokens") > 0


def find_stalls(
    events: Iterable[Event], k: float = DEFAULT_K, undisturbed_s: float | None = None
) -> list[Stall]:
    """All freezes in order of time. Pass one `undisturbed_s` to measure several runs alike."""
    ordered = in_order(events)
    step_s = undisturbed_s or undisturbed_step_s(ordered)
    if not step_s:
        return []
    stalls: list[Stall] = []
    open_by_worker: dict[str, Stall] = {}
    stalled = [gap for gap in token_gaps(ordered) if gap.length_s > k * step_s]
    for gap in sorted(stalled, key=lambda gap: (gap.start_s, gap.end_s)):
        stall = open_by_worker.get(gap.worker)
        if stall is None or gap.start_s >= stall.end_s:
            stall = Stall(gap.worker, gap.start_s, gap.end_s, 0.0, step_s)
            open_by_worker[gap.worker] = stall
            stalls.append(stall)
        stall.end_s = max(stall.end_s, gap.end_s)
        stall.longest_s = max(stall.longest_s, gap.length_s)
        stall.requests.append(gap.request_id)
    _name_causes(stalls, ordered)
    return stalls


def _name_causes(stalls: list[Stall], events: list[Event]) -> None:
    """Blame the prefill that overlaps a stall most, if it ran on the same worker."""
    started: dict[tuple[str, str], Event] = {}
    overlaps: dict[int, float] = {}
    for event in events:
        key = (event.worker, event.request_id)
        if event.kind == "prefill_started":
            started[key] = event
        elif event.kind == "prefill_finished" and key in started:
            begin = started.pop(key)
            for index, stall in enumerate(stalls):
                shared_s = min(stall.end_s, event.t_s) - max(stall.start_s, begin.t_s)
                if stall.worker == event.worker and shared_s > overlaps.get(index, 0.0):
                    overlaps[index] = shared_s
                    stall.cause, stall.cause_tokens = event.request_id, count(event, "tokens")
