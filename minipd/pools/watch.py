"""What the timeline says of the last seconds, event by event, for a policy that re-balances."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from minipd.sched.rebalance import Observation
from minipd.sched.router import WorkerLoad
from minipd.timeline import TERMINAL_KINDS, Event

LATE = 0.9  # the percentile of TTFT that counts


# Whom a request waits for after such an event, and before its first token; "": nobody is short.
WAITS_FOR = {"reserved": "reader", "prefill_started": ""}


class Watch:
    """Feed it every event; memory stays within `window_s` seconds of events and the live requests.

    Free of torch and of any clock: a simulator can feed it as well.
    """

    def __init__(self, window_s: float = 5.0) -> None:
        self.window_s = window_s
        self._arrived_s: dict[str, float] = {}  # of those without their first token
        self._waits_for: dict[str, str] = {}
        self._last_token_s: dict[str, float] = {}
        self._ttfts: deque[tuple[float, float]] = deque()  # (when, seconds)
        self._gaps: deque[tuple[float, float]] = deque()
        self._steps: deque[tuple[float, float, str]] = deque()  # (end, start, worker)

    def feed(self, event: Event) -> None:
        request_id = event.request_id
        if event.kind == "step":
            self._steps.append((event.t_s, float(str(event.data["start_s"])), event.worker))
        elif event.kind == "arrived":
            self._arrived_s[request_id] = event.t_s
        elif event.kind == "token":
            self._token(request_id, event.t_s)
        elif event.kind in TERMINAL_KINDS:
            for kept in (self._arrived_s, self._waits_for, self._last_token_s):
                kept.pop(request_id, None)
        elif request_id in self._arrived_s and event.kind == "routed":
            self._waits_for[request_id] = "place" if event.data["choice"] == "remote" else ""
        elif request_id in self._arrived_s and event.kind in WAITS_FOR:
            self._waits_for[request_id] = WAITS_FOR[event.kind]

    def _token(self, request_id: str, now_s: float) -> None:
        self._waits_for.pop(request_id, None)
        if request_id in self._arrived_s:
            self._ttfts.append((now_s, now_s - self._arrived_s.pop(request_id)))
        elif request_id in self._last_token_s:
            self._gaps.append((now_s, now_s - self._last_token_s[request_id]))
        self._last_token_s[request_id] = now_s

    def observe(
        self, now_s: float, prefill: list[WorkerLoad], decode: list[WorkerLoad]
    ) -> Observation:
        """What was seen in the window that ends now; `prefill` and `decode` are who is ready."""
        from_s = now_s - self.window_s
        for seen in (self._ttfts, self._gaps, self._steps):
            while seen and seen[0][0] < from_s:
                seen.popleft()
        short = list(self._waits_for.values())
        waits = [now_s - arrived_s for arrived_s in self._arrived_s.values()]
        gaps = [gap_s for _, gap_s in self._gaps]
        return Observation(
            now_s=now_s,
            prefill=prefill,
            decode=decode,
            ttft_s=_percentile([*waits, *(ttft_s for _, ttft_s in self._ttfts)]),
            tpot_s=sum(gaps) / len(gaps) if gaps else None,
            prefill_busy=self._busy({load.name for load in prefill}, from_s),
            waiting_for_place=short.count("place"),
            waiting_for_reader=short.count("reader"),
        )

    def _busy(self, workers: set[str], from_s: float) -> float:
        busy_s = sum(end - max(start, from_s) for end, start, w in self._steps if w in workers)
        return busy_s / (self.window_s * len(workers)) if workers else 0.0


def _percentile(values: Iterable[float]) -> float | None:
    """The smallest value that `LATE` of all do not exceed."""
    ranked = sorted(values)
    return ranked[max(0, -int(-LATE * len(ranked) // 1) - 1)] if ranked else None
