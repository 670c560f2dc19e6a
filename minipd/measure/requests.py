"""One request's numbers, put together event by event.

TTFT, TPOT and ITL as facts section 4 defines them: TTFT from arrival to the first token; TPOT =
(last token - first token) / (n - 1), none for a single token; ITL the gaps between tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from minipd.measure.ordering import count, number, text
from minipd.timeline import TERMINAL_KINDS, Event
from minipd.values import value


@value
class RequestMetrics:
    """A request after its terminal event. Times in seconds; None where it never came so far.

    `queue_s`: arrival to the start of its first prefill. `prefill_s`: time in prefills, all of
    them. `handoff_s`: from the start of the first write to the commit on the decode worker, most
    of it hidden behind prefill; `copy_s` of it moved bytes and `verify_s` checked them, as the
    workers report. `exposed_handoff_s`: what the prefill could not hide, the rest of the copy after
    the last layer plus verification. `commit_delay_s`: end of prefill to commit on the shared
    clock, waiting for the decode worker's running step included.
    """

    id: str
    outcome: str  # finished, cancelled or failed
    reason: str
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    ttft_s: float | None = None
    tpot_s: float | None = None
    itl_s: tuple[float, ...] = ()
    e2e_s: float | None = None
    queue_s: float | None = None
    prefill_s: float = 0.0
    handoff_s: float | None = None
    copy_s: float = 0.0
    verify_s: float = 0.0
    exposed_handoff_s: float | None = None
    commit_delay_s: float | None = None
    handoff_bytes: int = 0
    preemptions: int = 0
    route: str = ""


@dataclass(slots=True)
class LiveRequest:
    """A request that has arrived and not ended; `feed` it its events in order of time."""

    id: str
    arrival_s: float
    prompt_tokens: int = 0
    token_s: list[float] = field(default_factory=list[float])
    queue_s: float | None = None
    prefill_s: float = 0.0
    handoff_s: float | None = None
    copy_s: float = 0.0
    verify_s: float = 0.0
    exposed_s: float | None = None
    commit_delay_s: float | None = None
    handoff_bytes: int = 0
    preemptions: int = 0
    route: str = ""
    _prefill_start_s: float | None = None
    _prefill_end_s: float | None = None
    _handoff_start_s: float | None = None

    def feed(self, event: Event) -> None:
        kind = event.kind
        if kind == "token":
            self.token_s.append(event.t_s)
        elif kind == "routed":
            self.route = text(event, "choice")
        elif kind == "preempted":
            self.preemptions += 1
        elif kind == "prefill_started" or kind == "prefill_finished":
            self._feed_prefill(event)
        else:
            self._feed_handoff(event)

    def _feed_prefill(self, event: Event) -> None:
        if event.kind == "prefill_started":
            self._prefill_start_s = event.t_s
            if self.queue_s is None:
                self.queue_s = event.t_s - self.arrival_s
            return
        self._prefill_end_s = event.t_s
        if self._prefill_start_s is not None:
            self.prefill_s += event.t_s - self._prefill_start_s
            self._prefill_start_s = None

    def _feed_handoff(self, event: Event) -> None:
        """Times of the last hand-off; one that was refused and repeated adds its copy time."""
        if event.kind == "handoff_started":
            self._handoff_start_s = event.t_s
        elif event.kind == "handoff_finished":
            self.copy_s += number(event, "copy_s")
            self.exposed_s = (self.exposed_s or 0.0) + number(event, "exposed_s")
            self.handoff_bytes += count(event, "bytes")
        elif event.kind == "committed":
            self.verify_s += number(event, "verify_s")
            if self._handoff_start_s is not None:
                self.handoff_s = event.t_s - self._handoff_start_s
            if self._prefill_end_s is not None:
                self.commit_delay_s = max(0.0, event.t_s - self._prefill_end_s)

    def answer(self, event: Event) -> tuple[int, float | None, tuple[float, ...]]:
        """Its tokens, their TPOT and the gaps between them; `event` is the terminal one."""
        times = self.token_s
        n = len(times)
        gaps = tuple(later - sooner for sooner, later in zip(times, times[1:], strict=False))
        return n, (times[-1] - times[0]) / (n - 1) if n > 1 else None, gaps

    def end(self, event: Event) -> RequestMetrics:
        """The finished record; `event` is the terminal one."""
        assert event.kind in TERMINAL_KINDS, "a request ends with a terminal event"
        output_tokens, tpot_s, gaps = self.answer(event)
        times = self.token_s
        return RequestMetrics(
            id=self.id,
            outcome=event.kind,
            reason=text(event, "reason"),
            arrival_s=self.arrival_s,
            prompt_tokens=self.prompt_tokens,
            output_tokens=output_tokens,
            ttft_s=times[0] - self.arrival_s if times else None,
            tpot_s=tpot_s,
            itl_s=gaps,
            e2e_s=times[-1] - self.arrival_s if times else None,
            queue_s=self.queue_s,
            prefill_s=self.prefill_s,
            handoff_s=self.handoff_s,
            copy_s=self.copy_s,
            verify_s=self.verify_s,
            exposed_handoff_s=None if self.exposed_s is None else self.exposed_s + self.verify_s,
            commit_delay_s=self.commit_delay_s,
            handoff_bytes=self.handoff_bytes,
            preemptions=self.preemptions,
            route=self.route,
        )


def arrive(event: Event) -> LiveRequest:
    """The live record of an `arrived` event."""
    return LiveRequest(event.request_id, event.t_s, count(event, "prompt_tokens"))
