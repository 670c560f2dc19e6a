"""What a plan costs per million tokens, and what other ways of billing it would have said.

Every GPU of the fleet is paid for, busy or not. How the bill is shared between input and output
tokens is a choice; here each phase pays for the time it takes. Published prices often bill less:
LMSYS' $0.20 per million output tokens bills the 72 decode GPUs of 96 (facts 1.3). Standard library
only.
"""

from __future__ import annotations

from dataclasses import dataclass

from minipd.fleet.formulas import usd_per_million
from minipd.fleet.plan_search import Plan


@dataclass(frozen=True, slots=True)
class Costs:
    """USD. `input_usd` and `output_usd` per million tokens add up to the whole bill;
    `all_on_output_usd` charges everything to output tokens, `decode_only_usd` bills nothing but the
    decode pool (None where there is no such pool)."""

    per_hour_usd: float
    input_usd: float
    output_usd: float
    all_on_output_usd: float
    decode_only_usd: float | None


def costs_of(plan: Plan) -> Costs:
    """Input tokens count as they come, cached ones included."""
    work = plan.decode.speeds.work
    share = prefill_share(plan)
    per_gpu = plan.usd_per_hour / plan.gpus
    output_per_s, input_per_s = work.rate_per_s * work.osl, work.rate_per_s * work.isl
    return Costs(
        per_hour_usd=plan.usd_per_hour,
        input_usd=usd_per_million(plan.gpus * share, per_gpu, input_per_s),
        output_usd=usd_per_million(plan.gpus * (1.0 - share), per_gpu, output_per_s),
        all_on_output_usd=usd_per_million(plan.gpus, per_gpu, output_per_s),
        decode_only_usd=usd_per_million(plan.decode.gpus, per_gpu, output_per_s)
        if plan.prefill
        else None,
    )


def prefill_share(plan: Plan) -> float:
    """The part of the bill that reading prompts pays: its pool's GPUs, or its part of the time that
    workers of both phases are busy (a decode step's time is shared by its sequences)."""
    if plan.prefill:
        return plan.prefill.gpus / plan.gpus
    pool, work = plan.decode, plan.decode.speeds.work
    if not work.gaps:
        return 1.0
    writing_s = pool.speeds.decode_s(pool.batch) / max(1.0, pool.batch)
    writing = work.rate_per_s / pool.workers * work.gaps * writing_s
    return pool.load / (pool.load + writing)
