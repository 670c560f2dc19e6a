"""A plan in words, as tables for people, and as plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table

from minipd.fleet.calibrate import factors_for
from minipd.fleet.costs import Costs, costs_of
from minipd.fleet.factors import committed
from minipd.fleet.pareto import spread_name
from minipd.fleet.plan_pools import Pool
from minipd.fleet.plan_search import Plan
from minipd.fleet.plan_space import Workload
from minipd.fleet.planner import Answer, Nearest


def headline(answer: Answer) -> str:
    work = answer.work
    cached = f" ({work.prefix_hit:.0%} cached)" if work.prefix_hit else ""
    return (
        f"{answer.model.name} on {answer.terms.device.name}: {work.isl} tokens in{cached}, "
        f"{work.osl} out, {work.rate_per_s:g} requests/s; TTFT <= {seconds(work.ttft_s)}, TPOT <= "
        f"{seconds(work.tpot_s)} for {work.attainment:.0%} of the requests"
    )


def seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1.0 else f"{value * 1e3:.3g} ms"


def named(plan: Plan) -> str:
    """`disaggregated 4P1D: prefill 4 x TP1 PP2, decode 1 x TP4`."""
    if plan.prefill:
        ratio = f"{plan.prefill.workers}P{plan.decode.workers}D"
        return f"{ratio}: prefill {_workers(plan.prefill)}, decode {_workers(plan.decode)}"
    return f"{plan.mode} {_workers(plan.decode)}"


def _workers(pool: Pool) -> str:
    budget = f" (steps of {pool.budget} tokens)" if pool.budget else ""
    together = f" ({pool.prompts} prompts per step)" if pool.prompts > 1 else ""
    return f"{pool.workers} x {spread_name(pool)}{budget}{together}"


def plans_table(answer: Answer) -> Table:
    """The cheapest plan, the runner-up and the best of the other modes."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("plan", min_width=26, overflow="fold")
    for name in ("GPUs", "TTFT", "TPOT", "$/h", "$/M in", "$/M out"):
        table.add_column(name, justify="right", no_wrap=True)
    shown: list[Plan] = []
    rows = [("cheapest", answer.best), ("runner-up", answer.runner_up)]
    rows += [(f"best {plan.mode}", plan) for plan in answer.plans]
    for label, plan in rows:
        if plan is not None and plan not in shown:
            shown.append(plan)
            table.add_row(f"[bold]{label}[/]\n{named(plan)}", *_cells(plan))
    return table


def _cells(plan: Plan) -> list[str]:
    costs = costs_of(plan)
    return [
        str(plan.gpus),
        seconds(plan.ttft_s),
        seconds(plan.tpot_s),
        f"{costs.per_hour_usd:.2f}",
        f"{costs.input_usd:.3f}",
        f"{costs.output_usd:.3f}",
    ]


def front_table(answer: Answer) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        title="Pareto front: output tokens/s at full load, all GPUs counted",
        title_justify="left",
    )
    table.add_column("per user", justify="right")
    table.add_column("per GPU", justify="right")
    table.add_column("mode")
    table.add_column("how", overflow="fold")
    for point in answer.front:
        table.add_row(f"{point.per_user:.0f}", f"{point.per_gpu:.0f}", point.mode, point.how)
    return table


def sentences(answer: Answer) -> Iterator[str]:
    """What the tables do not say."""
    best, advice = answer.best, answer.advice
    if best is None or advice is None:
        yield answer.why_not
        yield from map(_near, answer.nearest)
    else:
        yield f"Split? {'Yes' if advice.split else 'No'}. {advice.reason}"
        unmet = "; ".join(advice.unmet)
        if unmet:
            yield f"AWS expects most from a split under conditions not met here: {unmet}."
        for limit in answer.binding:
            yield f"What decides the size of the {limit}."
        yield from _cost_words(costs_of(best))
        if best.handoff and best.link:
            yield _handoff_words(best)
    yield from assumptions(answer)


def _near(near: Nearest) -> str:
    work: Workload = near.work
    if near.changed == "rate":
        return (
            f"Nearest: {work.rate_per_s:.3g} requests/s with {named(near.plan)}, "
            f"{near.plan.gpus} GPUs."
        )
    return (
        f"Nearest, with another {near.changed}: TTFT {seconds(work.ttft_s)}, TPOT "
        f"{seconds(work.tpot_s)} with {named(near.plan)}, {near.plan.gpus} GPUs, "
        f"${near.plan.usd_per_hour:.2f}/h."
    )


def _cost_words(costs: Costs) -> Iterator[str]:
    if costs.per_hour_usd == 0.0:
        yield "No price is known for this device; give one with --price."
        return
    yield (
        f"Cost: ${costs.input_usd:.3f} per million input and ${costs.output_usd:.3f} per million "
        f"output tokens, all GPUs billed, each phase for its time; all charged to output: "
        f"${costs.all_on_output_usd:.3f}."
    )
    if costs.decode_only_usd is not None:
        hidden = 1.0 - costs.decode_only_usd / costs.all_on_output_usd
        yield (
            f"Billing only the decode GPUs would say ${costs.decode_only_usd:.3f} per million "
            f"output tokens and leave {hidden:.0%} of the bill unpaid."
        )


def _handoff_words(plan: Plan) -> str:
    handoff, link = plan.handoff, plan.link
    assert handoff and link, "only a split hands off"
    return (
        f"Hand-off: {handoff.num_bytes / 1e6:.0f} MB per request over {link.name}, "
        f"{seconds(handoff.copy_s)} on the wire, {seconds(handoff.exposed_s)} not hidden by the "
        f"prefill; a wire is busy {handoff.load:.0%} of the time."
    )


def assumptions(answer: Answer) -> Iterator[str]:
    device = answer.terms.device
    if device.usd_per_hour:
        yield f"Price: ${device.usd_per_hour:g} per GPU-hour ({device.price_source})."
    if device.key not in committed() and device.status != "measured":
        yield (
            f"Step times of {device.name} are not fitted to measurements: expect errors of some "
            "7 % at the median and 15 % at the 90th percentile."
        )
    if device.status in ("announced", "withdrawn"):
        yield f"{device.name} is {device.status}: {device.notes}"


def to_dict(answer: Answer) -> dict[str, Any]:
    """Seconds, USD and tokens; plans in full."""
    return {
        "model": answer.model.name,
        "gpu": answer.terms.device.key,
        "workload": asdict(answer.work),
        "feasible": answer.best is not None,
        "why_not": answer.why_not or None,
        "best": plan_dict(answer.best),
        "runner_up": plan_dict(answer.runner_up),
        "best_of_each_mode": {plan.mode: plan_dict(plan) for plan in answer.plans},
        "binding": list(answer.binding),
        "advice": asdict(answer.advice) if answer.advice else None,
        "pareto": [asdict(point) for point in answer.front],
        "nearest": [
            {"changed": n.changed, "workload": asdict(n.work), "plan": plan_dict(n.plan)}
            for n in answer.nearest
        ],
        "factors": asdict(factors_for(answer.terms.device)),
        "notes": list(assumptions(answer)),
    }


def plan_dict(plan: Plan | None) -> dict[str, Any] | None:
    if plan is None:
        return None
    return {
        "mode": plan.mode,
        "name": named(plan),
        "gpus": plan.gpus,
        "ttft_s": plan.ttft_s,
        "tpot_s": plan.tpot_s,
        "costs": asdict(costs_of(plan)),
        "pools": [pool_dict(pool) for pool in plan.pools],
        "link": asdict(plan.link) if plan.link else None,
        "handoff": asdict(plan.handoff) if plan.handoff else None,
    }


def pool_dict(pool: Pool) -> dict[str, Any]:
    names = ("kind", "workers", "gpus", "batch", "load", "prompts", "budget")
    times = ("ttft_s", "tpot_s", "mean_ttft_s", "mean_tpot_s")
    return {name: getattr(pool, name) for name in names + times} | asdict(pool.parallel)
