"""Why a plan is as large as it is, and whether splitting prefill from decode is worth it here.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from minipd.fleet.plan_pools import MAX_LOAD, Pool
from minipd.fleet.plan_search import Plan, PlanMode, Terms, split_plans
from minipd.fleet.plan_sizing import again
from minipd.fleet.plan_space import Speeds, Workload

IDEAL_LINK = "1e18"  # bytes/s
FEW_GPUS = 2
LITTLE_STALL = 2.0  # decode steps that a prompt holds writers up: below, there is little to remove
AWS_PARAMETERS, AWS_ISL, AWS_OSL, AWS_RATE = 70e9, 4000, 256, 2.0  # facts 1.7


@dataclass(frozen=True, slots=True)
class Advice:
    """Whether to split, why in one sentence, and which of AWS's conditions are not met."""

    split: bool
    reason: str
    unmet: tuple[str, ...]


def advise(plans: Mapping[PlanMode, Plan], speeds: Sequence[Speeds], terms: Terms) -> Advice:
    """From the best plan of each mode; there is at least one."""
    split = plans.get("disaggregated")
    others = [plan for mode, plan in plans.items() if mode != "disaggregated"]
    together = min(others, key=lambda plan: plan.order) if others else None
    unmet = tuple(aws_unmet(speeds[0]))
    if together is None:
        return Advice(True, "Only a split keeps both SLOs within the fleet.", unmet)
    if split is None:
        return Advice(False, _no_split(speeds, terms), unmet)
    if split.order < together.order:
        return Advice(True, _why_split(split, together), unmet)
    return Advice(False, _why_together(split, together, speeds, terms), unmet)


def _no_split(speeds: Sequence[Speeds], terms: Terms) -> str:
    fewest = min(one.parallel.devices for one in speeds)
    if not speeds[0].work.gaps:
        return "Answers of one token are never decoded, so there is no second phase to split off."
    if terms.most_gpus < 2 * fewest:
        return (
            f"A split keeps the weights twice and so needs {2 * fewest} GPUs or more; the fleet "
            f"has {terms.most_gpus}."
        )
    return f"No split keeps both SLOs on {terms.most_gpus} GPUs or fewer."


def _why_split(split: Plan, together: Plan) -> str:
    if together.usd_per_hour:
        saved, unit = 1.0 - split.usd_per_hour / together.usd_per_hour, "less money"
    else:
        saved, unit = 1.0 - split.gpus / together.gpus, "fewer"
    small = "only " if saved < 0.05 else ""
    return (
        f"A split needs {split.gpus} GPUs where the best plan without one, {together.mode}, needs "
        f"{together.gpus} ({small}{saved:.0%} {unit}): prompts no longer hold "
        f"up the answers being written, so a decode worker keeps TPOT with more of them at once."
    )


def _why_together(split: Plan, together: Plan, speeds: Sequence[Speeds], terms: Terms) -> str:
    pool, work, handoff = together.decode, together.decode.speeds.work, split.handoff
    assert handoff is not None, "a split hands off"
    if terms.most_gpus <= FEW_GPUS:
        return (
            f"With {terms.most_gpus} GPUs a split can only be one for each phase, whatever the "
            f"load needs; {together.mode} serves it on {together.gpus}."
        )
    ideal = split_plans(speeds, replace(terms, link=IDEAL_LINK))
    cheapest = min(ideal, key=lambda plan: plan.order)
    if cheapest.order < together.order:
        return (
            f"The link is too slow: a prompt's {handoff.num_bytes / 1e6:.0f} MB of KV travel "
            f"{handoff.copy_s * 1e3:.0f} ms; over an ideal link a split would need "
            f"{cheapest.gpus} GPUs."
        )
    if split.gpus <= together.gpus:
        return f"Both ways need {together.gpus} GPUs here, and {together.mode} is simpler."
    if pool.workers == 1:
        return (
            f"The rate is low: one worker of {pool.gpus} GPU(s) serves {work.rate_per_s:g} "
            f"requests/s, and a split would need a second copy of the weights ({split.gpus} GPUs "
            "in all)."
        )
    stall_s, step_s = pool.speeds.prefill_s(1), pool.speeds.decode_s(pool.batch)
    if stall_s < LITTLE_STALL * step_s:
        return (
            f"Prompts are short: reading {work.new_tokens} tokens takes {stall_s * 1e3:.0f} ms, "
            f"{stall_s / step_s:.1f} decode steps, so there is little interference to remove."
        )
    return (
        f"{together.mode.capitalize()} keeps both SLOs on {together.gpus} GPUs; two pools of whole "
        f"workers need {split.gpus}."
    )


def aws_unmet(speeds: Speeds) -> Iterator[str]:
    """AWS expects most from a split where all four of its conditions hold (facts 1.7, SageMaker
    HyperPod's page on disaggregated prefill and decode)."""
    model, work = speeds.steps.model, speeds.work
    if model.expert_layers or model.parameters < 0.95 * AWS_PARAMETERS:
        yield "a dense model of 70B or more"
    if work.isl < AWS_ISL:
        yield f"{AWS_ISL} input tokens or more"
    if work.osl < AWS_OSL:
        yield f"{AWS_OSL} output tokens or more"
    if work.rate_per_s < AWS_RATE:
        yield f"{AWS_RATE:g} requests/s or more"


def binding(plan: Plan, speeds: Sequence[Speeds]) -> tuple[str, ...]:
    """For each pool, the limit that one worker less, or a smaller worker, would break."""
    found: list[str] = []
    for pool in plan.pools:
        name = f"{pool.kind} pool" if plan.prefill else "fleet"
        found.append(f"{name}: {_limit(plan, pool, speeds)}")
    return tuple(found)


def _limit(plan: Plan, pool: Pool, speeds: Sequence[Speeds]) -> str:
    if pool.workers > 1:
        less = again(pool, pool.speeds, pool.workers - 1)
        wire = plan.handoff.load * pool.workers / (pool.workers - 1) if plan.handoff else 0.0
        if less.broken:
            return f"with {_many(less.workers, 'worker')}, {_told(less)}, so {pool.workers}"
        if pool.kind == "prefill" and wire > MAX_LOAD:
            return f"the link: a wire would be busy {wire:.0%} of the time"
        return "TPOT, with what the hand-off adds to it"
    smaller = [one for one in speeds if one.parallel.devices < pool.parallel.devices]
    if not smaller:
        return "the model's size: this is the smallest worker that holds it"
    tried = [again(pool, one, 1) for one in smaller]
    nearest = min(tried, key=lambda p: (-p.parallel.devices, len(p.broken)))
    smaller_one = _many(nearest.parallel.devices, "GPU")
    if not nearest.broken:
        return f"whole workers: a plan with one of {smaller_one} costs the same or more"
    return f"on {smaller_one}, {_told(nearest)}, so {pool.gpus}"


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _told(pool: Pool) -> str:
    """What the first limit that breaks allows, and what it would be."""
    work: Workload = pool.speeds.work
    figures = {
        "TTFT": f"TTFT would be {pool.ttft_s * 1e3:.0f} ms; at most {work.ttft_s * 1e3:g} ms is "
        "allowed",
        "TPOT": "TPOT would be too long for any batch"
        if pool.tpot_s == 0.0
        else f"TPOT would be {pool.tpot_s * 1e3:.1f} ms; at most {work.tpot_s * 1e3:g} ms is "
        "allowed",
        "KV memory": f"KV memory would hold {pool.speeds.max_sequences} sequences; "
        f"{pool.batch:.0f} run on average",
        "load": f"prompts would fill {pool.load:.0%} of the time; at most {MAX_LOAD:.0%} is allowed"
        if pool.load > 1.0 or pool.kind == "prefill"
        else "prompts and answers together would fill all of the time",
    }
    return figures[pool.broken[0]]
