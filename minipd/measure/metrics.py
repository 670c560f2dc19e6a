"""A run's numbers, computed from its timeline alone, one event at a time.

    metrics = RunMetrics(slo=SLO(ttft_s=2.0, tpot_s=0.1))
    for event in events: metrics.feed(event)
    summary = metrics.result()

Events must come in order of time: `summarise` sorts a list, `ordering.as_they_come` a stream. With
`exact=False` memory does not grow with the run: only requests under way and histograms are kept,
and percentiles carry a relative error of at most 0.5 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from minipd.measure.ordering import Roles, count, in_order, number
from minipd.measure.quantiles import Distribution, Exact, Histogram, mean
from minipd.measure.requests import LiveRequest, RequestMetrics, arrive
from minipd.measure.slo import SLO
from minipd.measure.stalls import DEFAULT_K
from minipd.measure.summary import HandoffTotals, LatencySummary, RunSummary
from minipd.measure.worker_use import WorkerUse, pool_shares
from minipd.timeline import TERMINAL_KINDS, Event

LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s", "handoff_s", "commit_delay_s")


@dataclass(slots=True)
class _Counts:
    """What is counted over all requests, kept ones or not."""

    arrived: int = 0
    outcomes: dict[str, int] = field(default_factory=dict[str, int])
    prompt_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    refused_handoffs: int = 0
    orphan_events: int = 0


class RunMetrics:
    """Streaming aggregator over one run.

    `keep` chooses by request id whose latencies, SLOs and goodput are counted (say, the chats
    alone); throughput, counts and workers always cover everything. `k` and `undisturbed_s` define
    a stalled gap (see `stalls`); give all runs of a comparison the same `undisturbed_s`.
    """

    def __init__(
        self,
        slo: SLO | None = None,
        keep: Callable[[str], bool] | None = None,
        *,
        exact: bool = True,
        k: float = DEFAULT_K,
        undisturbed_s: float | None = None,
    ) -> None:
        self.slo = slo or SLO()
        self.requests: list[RequestMetrics] = []  # ended ones, filled only when exact
        self._keep = keep
        self._exact = exact
        self._k = k
        self._undisturbed_s = undisturbed_s
        self._live: dict[str, LiveRequest] = {}
        self._workers: dict[str, WorkerUse] = {}
        self._roles = Roles()
        self._latencies = {name: self._distribution() for name in LATENCIES}
        self._decode_steps = self._distribution()
        self._counts = _Counts()
        self._handoffs = HandoffTotals()
        self._judged = self._good = 0
        self._first_s: float | None = None
        self._last_s = 0.0

    def _distribution(self) -> Distribution:
        return Exact() if self._exact else Histogram()

    def feed(self, event: Event) -> None:
        if event.worker:
            self._feed_worker(event)
        if not event.request_id:
            return
        if event.kind == "arrived":
            self._arrive(event)
            return
        live = self._live.get(event.request_id)
        if live is None:
            self._counts.orphan_events += event.kind in ("token", *TERMINAL_KINDS)
        elif event.kind in TERMINAL_KINDS:
            del self._live[event.request_id]
            self._last_s = max(self._last_s, event.t_s)
            self._end(live.end(event))
        else:
            if event.kind == "handoff_refused":
                self._counts.refused_handoffs += 1
            live.feed(event)

    def _feed_worker(self, event: Event) -> None:
        self._roles.feed(event)
        self._use_of(event.worker).feed(event, self._roles.get(event.worker))
        if event.kind != "step" or count(event, "prefill_tokens"):
            return
        if count(event, "decode_seqs"):
            self._decode_steps.add(event.t_s - number(event, "start_s", event.t_s))

    def _use_of(self, worker: str) -> WorkerUse:
        if worker not in self._workers:
            self._workers[worker] = WorkerUse(worker)
        return self._workers[worker]

    def _arrive(self, event: Event) -> None:
        self._counts.arrived += 1
        self._live[event.request_id] = self._live_of(event)
        if self._first_s is None:
            self._first_s = event.t_s

    def _live_of(self, event: Event) -> LiveRequest:
        return arrive(event)

    def _end(self, request: RequestMetrics) -> None:
        counts = self._counts
        counts.outcomes[request.outcome] = counts.outcomes.get(request.outcome, 0) + 1
        counts.preemptions += request.preemptions
        self._handoffs.add(request)
        if request.outcome == "finished":
            counts.prompt_tokens += request.prompt_tokens
            counts.output_tokens += request.output_tokens
        if self._exact:
            self.requests.append(request)
        if self._keep is None or self._keep(request.id):
            self._judge(request)

    def _judge(self, request: RequestMetrics) -> None:
        """Users who walked away are judged neither good nor bad; deadlines and faults are bad."""
        if request.outcome != "cancelled" or request.reason == "deadline":
            self._judged += 1
            self._good += self.slo.met_by(request)
        for gap_s in request.itl_s:
            self._latencies["itl_s"].add(gap_s)
        for name, distribution in self._latencies.items():
            if name != "itl_s" and (value := getattr(request, name)) is not None:
                distribution.add(value)

    def undisturbed_s(self) -> float | None:
        """The given step, else the median pure decode step, else the median gap."""
        if self._undisturbed_s is not None:
            return self._undisturbed_s
        for distribution in (self._decode_steps, self._latencies["itl_s"]):
            if distribution.count:
                return distribution.percentile(50)
        return None

    def result(self) -> RunSummary:
        """The numbers so far; requests still under way are counted as `unfinished` only."""
        counts = self._counts
        duration_s = max(0.0, self._last_s - (self._first_s or 0.0))
        step_s = self.undisturbed_s()
        stalled = self._latencies["itl_s"].share_above(self._k * step_s) if step_s else 0.0
        per_s = 1.0 / duration_s if duration_s else 0.0
        workers = [self._workers[name] for name in sorted(self._workers)]
        return RunSummary(
            duration_s=duration_s,
            arrived=counts.arrived,
            finished=counts.outcomes.get("finished", 0),
            cancelled=counts.outcomes.get("cancelled", 0),
            failed=counts.outcomes.get("failed", 0),
            unfinished=len(self._live),
            preemptions=counts.preemptions,
            refused_handoffs=counts.refused_handoffs,
            orphan_events=counts.orphan_events,
            latency={name: summarise_latency(d) for name, d in self._latencies.items()},
            output_tokens_per_s=counts.output_tokens * per_s,
            input_tokens_per_s=counts.prompt_tokens * per_s,
            requests_per_s=counts.outcomes.get("finished", 0) * per_s,
            goodput_per_s=self._good * per_s,
            attainment=self._good / self._judged if self._judged else None,
            undisturbed_step_s=step_s,
            stalled_share=stalled if stalled == stalled else 0.0,
            workers=workers,
            pools=pool_shares(workers, self._first_s or 0.0, self._last_s),
            handoffs=self._handoffs,
            relative_error=0.0 if self._exact else Histogram().relative_error,
        )


def summarise_latency(distribution: Distribution) -> LatencySummary | None:
    """None where there was nothing to measure."""
    if not distribution.count:
        return None
    p50, p90, p99, top = (distribution.percentile(p) for p in (50, 90, 99, 100))
    return LatencySummary(distribution.count, mean(distribution), p50, p90, p99, top)


def summarise(
    events: Iterable[Event],
    slo: SLO | None = None,
    keep: Callable[[str], bool] | None = None,
    *,
    k: float = DEFAULT_K,
    undisturbed_s: float | None = None,
) -> RunSummary:
    """Exact numbers of a whole timeline, in whatever order its events come."""
    return run_metrics(events, slo, keep, k=k, undisturbed_s=undisturbed_s).result()


def run_metrics(
    events: Iterable[Event],
    slo: SLO | None = None,
    keep: Callable[[str], bool] | None = None,
    *,
    k: float = DEFAULT_K,
    undisturbed_s: float | None = None,
) -> RunMetrics:
    """As `summarise`, but hands back the aggregator, whose `requests` hold each one's numbers."""
    metrics = RunMetrics(slo, keep, k=k, undisturbed_s=undisturbed_s)
    for event in in_order(events):
        metrics.feed(event)
    return metrics
