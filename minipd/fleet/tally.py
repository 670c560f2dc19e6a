"""The numbers of a simulated run, by the same definitions as a real one's, in flat memory.

Where the simulator skips ahead, most tokens have no event of their own: they come as rows of equal
decode steps. `Tally` counts those beside the events. Percentiles carry a relative error of 0.5 %.
"""

from __future__ import annotations

from dataclasses import dataclass

from minipd.fleet.under_way import Row
from minipd.measure.metrics import RunMetrics
from minipd.measure.ordering import count
from minipd.measure.requests import LiveRequest
from minipd.measure.slo import SLO, SLOError
from minipd.request import Sequence
from minipd.timeline import Event

SAME = 0.002  # gaps that differ by less are counted as one
COUNTED = frozenset({"step", "prefill_started", "reserved", "worker_started", "role_changed"})


@dataclass(slots=True)
class SimRequest(LiveRequest):
    """Keeps the times of the first and the last known token only."""

    def tell_token(self, time_s: float) -> None:
        if len(self.token_s) < 2:
            self.token_s.append(time_s)
        else:
            self.token_s[1] = time_s

    def answer(self, event: Event) -> tuple[int, float | None, tuple[float, ...]]:
        """The last token comes with the terminal event, unless it ended for another reason."""
        tokens = count(event, "output_tokens")
        if event.kind == "finished":
            self.tell_token(event.t_s)
        times = self.token_s
        return tokens, (times[-1] - times[0]) / (tokens - 1) if tokens > 1 and times else None, ()


class Tally(RunMetrics):
    """Feed it the coordinator's events; workers tell it their rows (see `under_way.Observer`)."""

    def __init__(self, slo: SLO | None = None) -> None:
        if slo is not None and slo.itl_p99_s is not None:
            raise SLOError(
                "A limit on a request's own p99 of gaps needs a run with all its events."
            )
        super().__init__(slo, exact=False)
        self._last_decode_s: dict[str, float] = {}
        self._joined: dict[str, dict[str, None]] = {}  # by worker, since its last decode step
        self._seen: set[tuple[str, str]] = set()  # a worker and a kind of event that it has had

    def feed(self, event: Event) -> None:
        if event.kind == "token":
            live = self._live.get(event.request_id)
            if isinstance(live, SimRequest):
                self._token(live, event.t_s)
                return
        elif event.kind == "preempted" and event.request_id in self._live:
            self.left(event.request_id, event.worker)
        super().feed(event)

    def _feed_worker(self, event: Event) -> None:
        """Of kinds that are not counted, only the first one tells anything of a worker."""
        if event.kind not in COUNTED:
            key = event.worker, event.kind
            if key in self._seen:
                return
            self._seen.add(key)
        super()._feed_worker(event)

    def _live_of(self, event: Event) -> SimRequest:
        return SimRequest(event.request_id, event.t_s, count(event, "prompt_tokens"))

    def _token(self, live: SimRequest, time_s: float) -> None:
        """The token that ends a prefill; after a preemption it ends a gap as well."""
        if live.token_s:
            self._latencies["itl_s"].add(time_s - live.token_s[-1])
        live.tell_token(time_s)

    def left(self, request_id: str, worker: str) -> None:
        """A running sequence leaves its worker: its last token was the worker's last step's, unless
        it had not been in one yet."""
        if request_id in self._joined.get(worker, ()):
            del self._joined[worker][request_id]
            return
        live = self._live.get(request_id)
        last_s = self._last_decode_s.get(worker)
        if isinstance(live, SimRequest) and live.token_s and last_s is not None:
            live.tell_token(max(last_s, live.token_s[-1]))

    # -- what has no events ---------------------------------------------------------------------

    def joined(self, worker: str, request_id: str) -> None:
        self._joined.setdefault(worker, {})[request_id] = None

    def first_gaps(self, worker: str, end_s: float, sequences: list[Sequence]) -> None:
        """Those that were in the worker's decode step before have waited since its end, those that
        have joined since their own last token."""
        gaps, num_old = self._latencies["itl_s"], len(sequences)
        joined = self._joined.get(worker)
        if joined:
            news = [i for s in sequences if (i := s.request.id) in joined]
            num_old -= len(news)
            for request_id in news:
                live = self._live.get(request_id)
                if live is not None and live.token_s:
                    gaps.add(end_s - live.token_s[-1])
            joined.clear()
        last_s = self._last_decode_s.get(worker)
        if num_old and last_s is not None:
            gaps.add(end_s - last_s, num_old)
        self._last_decode_s[worker] = end_s

    def row(self, worker: str, row: Row) -> None:
        first_s, growth_s, _ = row.line
        steps, num = row.steps, len(row.sequences)
        end_s = row.end_s(steps)
        self._last_decode_s[worker] = end_s
        begun, piece = 0, _steps_alike(first_s, growth_s)
        while begun < steps:
            taken = steps - begun if steps - begun < piece else piece
            self._decode_steps.add(first_s + growth_s * (begun + (taken - 1) / 2), taken)
            from_step = begun or 1  # the gaps before the first tokens are told already
            if begun + taken > from_step:
                mean_s = first_s + growth_s * (from_step + begun + taken - 1) / 2
                self._latencies["itl_s"].add(mean_s, (begun + taken - from_step) * num)
            begun += taken
        self._use(worker, steps, steps * num, end_s - row.start_s)

    def _use(self, worker: str, steps: int, tokens: int, seconds: float) -> None:
        """As `WorkerUse.feed` would count that many decode steps."""
        use = self._use_of(worker)
        use.steps, use.decode_tokens = use.steps + steps, use.decode_tokens + tokens
        use.busy_s += seconds
        use.decode_busy_s += seconds
        use.stays[-1].busy_s += seconds


def _steps_alike(first_s: float, growth_s: float) -> int:
    """How many steps in a row differ by so little that one entry may stand for them."""
    if growth_s <= 0.0 or first_s <= 0.0:
        return 1 << 30
    return max(1, int(SAME * first_s / growth_s))
