"""A plan on the simulator: the same workers, the real schedulers and router, requests one by one.

The plan's formulas and the simulator share the step-time model, so this checks queueing, batching
and matching, not the step times. Attention replicas are simulated as workers of their own, which do
not wait for each other's steps. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from minipd.fleet.fleet import Fleet, WorkerKind
from minipd.fleet.network import Network
from minipd.fleet.plan_pools import Pool
from minipd.fleet.plan_search import HANDOFF_S, Plan
from minipd.fleet.plan_space import Workload
from minipd.fleet.simulate import SimResult, simulate
from minipd.fleet.timers import Line, ModelTimer, Read
from minipd.measure.rows import Segment, TraceRow
from minipd.measure.slo import SLO
from minipd.sched.limits import Limits

LIVES = 12  # a run lasts so many times as long as a request
LEAST, MOST = 400, 20_000  # requests of a generated trace
MOST_TOKENS = 2_000_000  # of all answers together: some ten seconds of simulating
BLOCK = 16


@dataclass(slots=True)
class RankTimer:
    """One attention replica of several: the others are as busy as it is."""

    inner: ModelTimer

    @property
    def pipelined(self) -> int:
        return self.inner.pipelined

    @property
    def _ranks(self) -> int:
        return self.inner.model.parallel.attention_replicas

    def seconds(self, reads: Sequence[Read], sequences: int, context: int) -> float:
        alike = [read for read in reads for _ in range(self._ranks)]
        return self.inner.seconds(alike, sequences * self._ranks, context * self._ranks)

    def decode_line(self, sequences: int, context: int) -> Line:
        return self.inner.decode_line(sequences * self._ranks, context * self._ranks)


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure, predicted by the plan and found by the simulator; seconds or a share."""

    name: str
    predicted: float
    simulated: float


@dataclass(frozen=True, slots=True)
class Verified:
    result: SimResult
    compared: tuple[Compared, ...]
    requests: int


def poisson_rows(work: Workload, seed: int = 0) -> Iterator[TraceRow]:
    """Equal requests at random times; cached tokens are a prefix that all share."""
    plenty = LIVES * work.rate_per_s * (work.ttft_s + work.gaps * work.tpot_s)
    rng, now_s = Random(f"minipd plan {seed}"), 0.0
    shared = (Segment("shared", work.cached_tokens),) if work.cached_tokens else ()
    for _ in range(round(max(LEAST, min(MOST, plenty, MOST_TOKENS / work.osl)))):
        now_s += rng.expovariate(work.rate_per_s)
        yield TraceRow(now_s, work.isl, work.osl, segments=shared)


def fleet_of(plan: Plan) -> Fleet:
    """The plan's workers for the simulator."""
    prefill, decode = plan.prefill or plan.decode, plan.decode
    work, model = decode.speeds.work, decode.speeds.steps.model
    network = Network()
    if plan.link and plan.handoff:
        rate = plan.handoff.num_bytes / plan.handoff.copy_s
        network = Network(latency_s=HANDOFF_S, bytes_per_s=rate)
    return Fleet(
        prefill=_kind(prefill),
        decode=_kind(decode),
        mode=plan.mode,
        num_prefill=_ranks(prefill) if plan.prefill else 0,
        num_decode=_ranks(decode),
        limits=Limits(max_running=1 << 14, max_batch_tokens=prefill.prompts * work.new_tokens),
        chunk_tokens=decode.budget or 512,
        block_size=BLOCK,
        kv_bytes_per_token=model.kv_bytes_of(work.isl) / work.isl,
        num_layers=model.num_layers,
        network=network,
        prefix_reuse=work.cached_tokens >= BLOCK,
    )


def _ranks(pool: Pool) -> int:
    return pool.workers * pool.parallel.attention_replicas


def _kind(pool: Pool) -> WorkerKind:
    replicas = pool.parallel.attention_replicas
    timer = ModelTimer(pool.speeds.steps)
    return WorkerKind(
        timer=RankTimer(timer) if replicas > 1 else timer,
        kv_tokens=pool.speeds.kv_tokens // replicas,
        num_devices=pool.parallel.devices // replicas,
    )


def verify(
    plan: Plan,
    rows: Sequence[TraceRow] | None = None,
    on_end: Callable[[int], None] | None = None,
    seed: int = 0,
) -> Verified:
    """Serve a generated trace, or `rows`, on the plan's fleet. Raises `FleetError`."""
    work = plan.decode.speeds.work
    rows = list(poisson_rows(work, seed)) if rows is None else rows
    slo = SLO(ttft_s=work.ttft_s, tpot_s=work.tpot_s if work.gaps else None)
    result = simulate(fleet_of(plan), rows, slo=slo, on_end=on_end)
    return Verified(result, tuple(_compare(plan, result)), len(rows))


def _compare(plan: Plan, result: SimResult) -> Iterator[Compared]:
    work, latency = plan.decode.speeds.work, result.summary.latency
    late = f"p{work.attainment * 100:g}"
    predicted = {
        "ttft_s": (plan.pools[0].mean_ttft_s, plan.ttft_s),
        "tpot_s": (plan.decode.mean_tpot_s, plan.tpot_s),
    }
    for name, (mean, high) in predicted.items():
        found = latency[name]
        if found is None:
            continue
        label = name.removesuffix("_s").upper()
        yield Compared(f"{label} mean", mean, found.mean)
        if work.attainment in (0.5, 0.9, 0.99):
            yield Compared(f"{label} {late}", high, getattr(found, late))
    if result.summary.attainment is not None:
        yield Compared("within both SLOs", work.attainment, result.summary.attainment)
