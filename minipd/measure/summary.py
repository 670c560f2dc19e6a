"""The shape of a run's results, as numbers, as JSON and as rows of a table."""

from __future__ import annotations

from dataclasses import dataclass

from minipd.measure.requests import RequestMetrics
from minipd.measure.worker_use import WorkerUse


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """Seconds. Percentiles by linear interpolation between order statistics (numpy's default)."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float

    def to_dict(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in ("count", "mean", "p50", "p90", "p99", "max")}


@dataclass(slots=True)
class HandoffTotals:
    """Sums over all requests whose KV travelled; seconds and bytes."""

    count: int = 0
    bytes: int = 0
    copy_s: float = 0.0
    verify_s: float = 0.0
    exposed_s: float = 0.0
    prefill_s: float = 0.0

    def add(self, request: RequestMetrics) -> None:
        if request.exposed_handoff_s is None:
            return
        self.count += 1
        self.bytes += request.handoff_bytes
        self.copy_s += request.copy_s
        self.verify_s += request.verify_s
        self.exposed_s += request.exposed_handoff_s
        self.prefill_s += request.prefill_s

    @property
    def share_of_prefill(self) -> float | None:
        """Copying and verifying over the prefill time of the same requests."""
        return (self.copy_s + self.verify_s) / self.prefill_s if self.prefill_s else None

    @property
    def exposed_share(self) -> float | None:
        """The part that no prefill hid, over all of copying and verifying."""
        total_s = self.copy_s + self.verify_s
        return self.exposed_s / total_s if total_s else None


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run at a glance; see `metrics` and facts section 4 for every definition.

    Throughput counts the tokens of finished requests over `duration_s`, first arrival to last
    terminal event. `attainment`: share of kept requests, failed ones included and those cancelled
    by their user left out, that met the SLO; `goodput_per_s` those that did, per second (divide by
    the number of workers to compare). `stalled_share`: share of token gaps over k undisturbed
    steps. `latency` keys: ttft_s, tpot_s, itl_s, e2e_s, queue_s, handoff_s, commit_delay_s.
    """

    duration_s: float
    arrived: int
    finished: int
    cancelled: int
    failed: int
    unfinished: int
    preemptions: int
    refused_handoffs: int
    orphan_events: int
    latency: dict[str, LatencySummary | None]
    output_tokens_per_s: float
    input_tokens_per_s: float
    requests_per_s: float
    goodput_per_s: float
    attainment: float | None
    undisturbed_step_s: float | None
    stalled_share: float
    workers: list[WorkerUse]
    pools: dict[str, float]
    handoffs: HandoffTotals
    relative_error: float

    @property
    def unreasoned_prefill_tokens(self) -> int:
        """Silent re-prefill over all workers; anything but 0 is a fault."""
        return sum(worker.unreasoned_prefill_tokens for worker in self.workers)

    def percentile_ms(self, name: str, percentile: str) -> float | None:
        """`percentile_ms("itl_s", "p99")` in milliseconds; None if nothing was measured."""
        latency = self.latency[name]
        return None if latency is None else 1000.0 * getattr(latency, percentile)

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        plain: dict[str, object] = {
            name: getattr(self, name)
            for name in self.__slots__
            if name not in ("latency", "workers", "handoffs")
        }
        plain["latency"] = {n: v.to_dict() if v else None for n, v in self.latency.items()}
        plain["workers"] = [worker_dict(worker, self.duration_s) for worker in self.workers]
        plain["handoffs"] = handoff_dict(self.handoffs)
        plain["unreasoned_prefill_tokens"] = self.unreasoned_prefill_tokens
        return plain


def worker_dict(worker: WorkerUse, window_s: float) -> dict[str, object]:
    return {
        "worker": worker.worker,
        "role": worker.role,
        "busy_share": worker.busy_share(window_s),
        "steps": worker.steps,
        "prefill_tokens": worker.prefill_tokens,
        "prefill_tokens_by_reason": dict(worker.prefill_tokens_by_reason),
        "tokens_by_place": worker.tokens_by_place,
        "unreasoned_prefill_tokens": worker.unreasoned_prefill_tokens,
        "decode_tokens": worker.decode_tokens,
    }


def handoff_dict(handoffs: HandoffTotals) -> dict[str, object]:
    return {
        "count": handoffs.count,
        "bytes": handoffs.bytes,
        "copy_s": handoffs.copy_s,
        "verify_s": handoffs.verify_s,
        "exposed_s": handoffs.exposed_s,
        "share_of_prefill": handoffs.share_of_prefill,
        "exposed_share": handoffs.exposed_share,
    }
