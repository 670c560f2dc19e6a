"""The cheapest fleet that keeps the SLOs, what decides its size, and whether to split at all.

    answer = make_plan(model, terms, factors, work)

Every way to spread a replica is tried in three modes, colocated, chunked and disaggregated, each
with as few workers as it needs. Where nothing keeps the SLOs, the nearest ones that can be kept are
found. Standard library only; some seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from minipd.fleet.factors import Factors
from minipd.fleet.models import Model
from minipd.fleet.pareto import Point, front, sweep
from minipd.fleet.plan_advice import Advice, advise, binding
from minipd.fleet.plan_pools import both_pool
from minipd.fleet.plan_search import (
    Plan,
    PlanMode,
    Terms,
    budgets,
    decode_pools,
    prefill_pools,
    prompt_batches,
    split_plans,
    together_plans,
)
from minipd.fleet.plan_space import PlanError, Speeds, Workload, build_speeds

LOOSEST = 1000.0  # SLOs are loosened by up to this factor before the rate itself is blamed


@dataclass(frozen=True, slots=True)
class Nearest:
    """SLOs, or a rate, that can be kept: what was changed, and the cheapest plan then."""

    changed: str
    work: Workload
    plan: Plan


@dataclass(frozen=True, slots=True)
class Answer:
    """`plans`: the best of each mode, cheapest first. `best` is None where nothing keeps the SLOs;
    then `nearest` says what would, and `why_not` what is in the way."""

    model: Model
    terms: Terms
    work: Workload
    best: Plan | None
    runner_up: Plan | None
    plans: tuple[Plan, ...]
    front: tuple[Point, ...]
    binding: tuple[str, ...]
    advice: Advice | None
    nearest: tuple[Nearest, ...] = ()
    why_not: str = ""


def make_plan(model: Model, terms: Terms, factors: Factors, work: Workload) -> Answer:
    """Raises `PlanError` where the model does not fit into the fleet."""
    if terms.most_gpus < 1:
        raise PlanError(f"--gpus is {terms.most_gpus}; use 1 or more.")
    terms.link_for(1)  # an unknown link is refused before the search
    speeds = build_speeds(model, terms.device, factors, work, terms.most_gpus)
    plans = all_plans(speeds, terms)
    points = tuple(front(sweep(speeds, terms)))
    if not plans:
        why, near = _why_not(speeds, terms), tuple(nearest(speeds, terms))
        return Answer(model, terms, work, None, None, (), points, (), None, near, why)
    by_mode: dict[PlanMode, Plan] = {}
    for plan in plans:
        by_mode.setdefault(plan.mode, plan)
    return Answer(
        model,
        terms,
        work,
        best=plans[0],
        runner_up=plans[1] if len(plans) > 1 else None,
        plans=tuple(by_mode.values()),
        front=points,
        binding=binding(plans[0], speeds),
        advice=advise(by_mode, speeds, terms),
    )


def all_plans(speeds: Sequence[Speeds], terms: Terms) -> list[Plan]:
    """Everything that keeps the SLOs, best first."""
    found = together_plans(speeds, terms) + split_plans(speeds, terms)
    return sorted(found, key=lambda plan: plan.order)


def can_serve(speeds: Sequence[Speeds], terms: Terms) -> bool:
    """Whether anything keeps the SLOs, without finding how little would do."""
    for one in speeds:
        workers, work = terms.most_gpus // one.parallel.devices, one.work
        if any(not both_pool(one, workers, budget=c).broken for c in budgets(work)):
            return True
        if one.parallel.attention_replicas == 1 and any(
            not both_pool(one, workers, prompts=b).broken for b in prompt_batches(work)
        ):
            return True
    reading = min((p.gpus for p in prefill_pools(speeds, terms)), default=math.inf)
    writing = min((p.gpus for p in decode_pools(speeds, terms)), default=math.inf)
    return reading + writing <= terms.most_gpus and bool(split_plans(speeds, terms))


def nearest(speeds: Sequence[Speeds], terms: Terms) -> list[Nearest]:
    """One SLO loosened, the other, both alike; where none helps, the rate lowered."""
    ways: dict[str, Callable[[Workload, float], Workload]] = {
        "TTFT": lambda w, f: replace(w, ttft_s=_up(w.ttft_s * f)),
        "TPOT": lambda w, f: replace(w, tpot_s=_up(w.tpot_s * f)),
        "TTFT and TPOT": lambda w, f: replace(
            w, ttft_s=_up(w.ttft_s * f), tpot_s=_up(w.tpot_s * f)
        ),
    }
    found = [near for name, way in ways.items() if (near := _loosened(name, way, speeds, terms))]
    if len(found) > 1:
        found = [near for near in found if near.changed != "TTFT and TPOT"]
    if found:
        return found
    lower = _loosened("rate", lambda w, f: replace(w, rate_per_s=w.rate_per_s / f), speeds, terms)
    return [lower] if lower else []


def _loosened(
    name: str, way: Callable[[Workload, float], Workload], speeds: Sequence[Speeds], terms: Terms
) -> Nearest | None:
    """The least factor that helps, to 2 %."""

    def under(factor: float) -> list[Speeds]:
        return [one.under(way(one.work, factor)) for one in speeds]

    low, high = 1.0, LOOSEST
    if not can_serve(under(high), terms):
        return None
    while high > 1.02 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if can_serve(under(middle), terms) else (middle, high)
    loosened = under(high)
    plans = all_plans(loosened, terms)
    return Nearest(name, loosened[0].work, plans[0]) if plans else None


def _up(seconds: float) -> float:
    """Rounded up to three digits, so that what is shown can be kept."""
    unit = 10.0 ** (math.floor(math.log10(seconds)) - 2)
    return round(math.ceil(seconds / unit - 1e-9) * unit, 12)


def _why_not(speeds: Sequence[Speeds], terms: Terms) -> str:
    """What is in the way, in one sentence."""
    work = speeds[0].work
    first_s = min(one.prefill_s(1) for one in speeds)
    step_s = min(one.decode_s(1) for one in speeds)
    if work.ttft_s < first_s:
        return (
            f"A TTFT of {work.ttft_s * 1e3:g} ms is below one prefill step: the fastest spread "
            f"reads {work.new_tokens} tokens in {first_s * 1e3:.3g} ms."
        )
    if work.gaps and work.tpot_s < step_s:
        return (
            f"A TPOT of {work.tpot_s * 1e3:g} ms is below one decode step: the fastest spread "
            f"needs {step_s * 1e3:.3g} ms for a single sequence."
        )
    return (
        f"No fleet of up to {terms.most_gpus} x {terms.device.name} keeps both SLOs at "
        f"{work.rate_per_s:g} requests/s."
    )
