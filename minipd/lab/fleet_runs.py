"""Lesson 12: a fleet of nodes in the simulator, plans under several limits, lengths that vary.

A node is eight H100 GPUs that hold Llama-3.1-70B together. All figures are computed: step times
from the step-time model, waiting from the simulator. The same calls give the same figures anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from minipd.fleet.calibrate import factors_for
from minipd.fleet.configs import find_model
from minipd.fleet.fleet import Fleet, WorkerKind
from minipd.fleet.gpus import find_device
from minipd.fleet.kvpool import kv_tokens
from minipd.fleet.network import Network
from minipd.fleet.plan_report import named, sentences
from minipd.fleet.plan_search import Plan, Terms
from minipd.fleet.plan_space import Workload
from minipd.fleet.plan_verify import fleet_of
from minipd.fleet.planner import Answer, make_plan
from minipd.fleet.simulate import SimResult, simulate
from minipd.fleet.sources import equal_requests
from minipd.fleet.steps import StepModel
from minipd.fleet.timers import ModelTimer
from minipd.fleet.work import Parallel
from minipd.lab.show import Table
from minipd.measure.rows import TraceRow
from minipd.measure.slo import SLO
from minipd.sched.limits import Limits

MODEL, GPU, GPUS_PER_NODE = "Llama-3.1-70B", "H100", 8
NODES = 44  # 352 GPUs
READ, WRITE = 2000, 500  # tokens of a request
TOGETHER = 128  # answers that a node writes at once
FULL = 0.9  # of what rate matching promises: a pool that is quite full has an endless queue
TTFT_S, TPOT_S = 1.0, 0.03
PROMISE = SLO(ttft_s=TTFT_S, tpot_s=TPOT_S)
HANDOFF_S, BYTES_PER_S = 0.38e-3, 8 * 50e9  # a 400 Gb/s adapter for each GPU of a node
LONGEST = 30_000


def steps_on(gpu: str = GPU, tp: int = GPUS_PER_NODE, model: str = MODEL) -> StepModel:
    """How long steps of a model take on `tp` GPUs of a kind."""
    device = find_device(gpu)
    return StepModel(find_model(model), device, factors_for(device), Parallel(tp))


def node_rates(steps: StepModel) -> tuple[float, float]:
    """Requests per second that one node reads, and that one node writes."""
    step_s = steps.decode_s(READ + WRITE / 2, TOGETHER)
    return 1.0 / steps.prefill_s(READ), TOGETHER / (step_s * (WRITE - 1))


def node_fleet(steps: StepModel, readers: int, writers: int) -> Fleet:
    """Nodes of one kind in two pools; hand-offs over the node's own adapters."""
    model, device = steps.model, steps.device
    room = kv_tokens(model, device.memory_bytes, steps.parallel)
    kind = WorkerKind(ModelTimer(steps), room, GPUS_PER_NODE)
    return Fleet(
        kind,
        kind,
        num_prefill=readers,
        num_decode=writers,
        kv_bytes_per_token=model.kv_bytes_per_token(),
        num_layers=model.num_layers,
        network=Network(HANDOFF_S, BYTES_PER_S),
        limits=Limits(max_running=TOGETHER, max_batch_tokens=READ),
    )


def serve_on(
    steps: StepModel, readers: int, writers: int, rate_per_s: float, requests: int
) -> SimResult:
    """Equal requests at random times on the fleet."""
    rows = equal_requests(requests, READ, WRITE, rate_per_s).rows
    return simulate(node_fleet(steps, readers, writers), rows, slo=PROMISE)


def setting() -> str:
    """The fleet, its requests and what they are promised, in one line."""
    return (
        f"{NODES} nodes, {NODES * GPUS_PER_NODE} GPUs; "
        f"a request: {READ:,} tokens in, {WRITE} out; promise: TTFT {1e3 * TTFT_S:,.0f} ms, "
        f"TPOT {1e3 * TPOT_S:.0f} ms"
    )


@dataclass(frozen=True, slots=True)
class Served:
    """What one split of the fleet was asked for, and how much of it came in time."""

    readers: int
    writers: int
    rate_per_s: float
    requests: int
    attainment: float
    ttft_p90_s: float
    tpot_p90_s: float


def splits_served(
    steps: StepModel, splits: Sequence[tuple[int, int]], seconds: float
) -> list[Served]:
    """Each split at `FULL` of what rate matching promises it, for `seconds` of arrivals."""
    reads, writes = node_rates(steps)
    found: list[Served] = []
    for readers, writers in splits:
        rate = FULL * min(readers * reads, writers * writes)
        requests = round(rate * seconds)
        summary = serve_on(steps, readers, writers, rate, requests).summary
        first, gaps = summary.latency["ttft_s"], summary.latency["tpot_s"]
        assert first and gaps, "every request writes several tokens"
        share = summary.attainment or 0.0
        found.append(Served(readers, writers, rate, requests, share, first.p90, gaps.p90))
    return found


def served_table(served: Sequence[Served]) -> Table:
    return {
        "reading GPUs": [GPUS_PER_NODE * one.readers for one in served],
        "writing GPUs": [GPUS_PER_NODE * one.writers for one in served],
        "requests": [one.requests for one in served],
        "requests/s": [f"{one.rate_per_s:.0f}" for one in served],
        "kept the promise": [f"{one.attainment:.0%}" for one in served],
        "TTFT p90 (ms)": [f"{1e3 * one.ttft_p90_s:.0f}" for one in served],
        "TPOT p90 (ms)": [f"{1e3 * one.tpot_p90_s:.1f}" for one in served],
    }


# -- plans -----------------------------------------------------------------------------------------


def _answer(tpot_s: float, rate_per_s: float) -> Answer:
    """For prompts of 4,000 tokens, answers of 300 and a TTFT of 2 s."""
    device = find_device(GPU)
    work = Workload(4000, 300, rate_per_s, ttft_s=2.0, tpot_s=tpot_s)
    return make_plan(find_model(MODEL), Terms(device), factors_for(device), work)


def plan_for(tpot_s: float, rate_per_s: float = 40.0) -> dict[str, Plan]:
    """The cheapest fleet of each mode that keeps the limits."""
    return {plan.mode: plan for plan in _answer(tpot_s, rate_per_s).plans}


def plan_words(tpot_s: float, rate_per_s: float = 40.0) -> list[str]:
    """What the planner says about the cheapest of them."""
    return list(sentences(_answer(tpot_s, rate_per_s)))


def plans_table(plans: dict[float, dict[str, Plan]]) -> Table:
    """GPUs by limit and mode, how much more the fleets without a split need, and the split."""
    modes = ("colocated", "chunked", "disaggregated")
    table: dict[str, list[object]] = {"TPOT within (ms)": [round(1e3 * t) for t in plans]}
    for mode in modes:
        table[f"{mode} (GPUs)"] = [p[mode].gpus if mode in p else "-" for p in plans.values()]
    table["colocated / split"] = [f"{gain(p, 'colocated'):.2f}" for p in plans.values()]
    table["chunked / split"] = [f"{gain(p, 'chunked'):.2f}" for p in plans.values()]
    table["the split"] = [short_name(p["disaggregated"]) for p in plans.values()]
    return table


def gain(plans: dict[str, Plan], without: str) -> float:
    """How many times as many GPUs the fleet without a split needs for the same work."""
    return plans[without].gpus / plans["disaggregated"].gpus


def varied_rows(work: Workload, requests: int, seed: int = 0) -> list[TraceRow]:
    """Random times, and lengths that vary around the same means (exponential)."""
    draw, now_s = Random(f"lesson 12 {seed}"), 0.0
    rows: list[TraceRow] = []
    for _ in range(requests):
        now_s += draw.expovariate(work.rate_per_s)
        read, write = (1 + round(draw.expovariate(1 / mean)) for mean in (work.isl, work.osl))
        rows.append(TraceRow(now_s, min(read, LONGEST), 1 + min(write, LONGEST)))
    return rows


def equal_rows(work: Workload, requests: int) -> list[TraceRow]:
    """The same load with every request alike."""
    return list(equal_requests(requests, work.isl, work.osl, work.rate_per_s).rows)


def kept_promise(plan: Plan, rows: Sequence[TraceRow]) -> float:
    """The share of requests within both limits when the plan's fleet serves the rows."""
    work = plan.decode.speeds.work
    slo = SLO(ttft_s=work.ttft_s, tpot_s=work.tpot_s)
    return simulate(fleet_of(plan), rows, slo=slo).summary.attainment or 0.0


def too_long_alone(plan: Plan, rows: Sequence[TraceRow]) -> float:
    """The share of prompts that one empty worker of the plan reads in more than the TTFT limit."""
    speeds = plan.pools[0].speeds
    limit = speeds.work.ttft_s
    return sum(speeds.steps.prefill_s(row.prompt_tokens) > limit for row in rows) / len(rows)


def short_name(plan: Plan) -> str:
    return named(plan)
