"""Two results of DistServe in our simulator: its first figure, and the placement of OPT-13B.

Used by simulate.py. The figure gives what each phase reaches alone on one A100 (5.6 and 10
requests/s of 512 in / 64 out, 90 % within 0.4 s and 0.04 s), and 1.6 with both on it; step times
that reach just that are searched for, and everything else is simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from minipd.fleet import distserve
from minipd.fleet.fleet import Fleet, WorkerKind
from minipd.fleet.simulate import simulate
from minipd.fleet.sources import equal_requests
from minipd.fleet.timers import PointTimer
from minipd.measure.rows import TraceRow
from minipd.measure.slo import SLO
from minipd.sched.limits import Limits

PLENTY = 1 << 30
FIGURE_SLO = SLO(ttft_s=0.4, tpot_s=0.04)
FIGURE_IN, FIGURE_OUT, FIGURE_RATES = 512, 64, (5.6, 10.0)
DECODE_BASE_S = 0.01


def figure_fleet(prefill_s: float, per_sequence_s: float, mode: str, p: int, d: int) -> Fleet:
    decode = ((0.0, DECODE_BASE_S), (1.0, DECODE_BASE_S + per_sequence_s))
    prompts = ((0.0, 0.0), (float(FIGURE_IN), prefill_s))
    kind = WorkerKind(PointTimer(prompts, decode), PLENTY)
    limits = Limits(PLENTY, 1)
    both = "colocated" if mode == "colocated" else "disaggregated"
    return Fleet(kind, kind, mode=both, num_prefill=p, num_decode=d, limits=limits)


def figure_rate(fleet: Fleet, number: int, most: float, slo: SLO = FIGURE_SLO) -> float:
    """The highest rate at which 90 % keep each limit."""

    def is_kept(rate: float) -> bool:
        result = simulate(fleet, equal_requests(number, FIGURE_IN, FIGURE_OUT, rate).rows)
        return distserve.keeps(result, slo, 0.9)

    return distserve.highest_rate(is_kept, most, most / 512)


def solve(rate_of: Callable[[float], float], rate: float, high: float) -> float:
    """The step time with which a phase alone reaches just this rate."""
    low = 0.0
    for _ in range(9):
        middle = (low + high) / 2
        low, high = (middle, high) if rate_of(middle) > rate else (low, middle)
    return (low + high) / 2


def figure1(quick: bool) -> dict[str, Any]:
    """The figure gives what each phase reaches alone on one GPU; the rest is simulated."""
    number = 400 if quick else 3000
    first, later = SLO(ttft_s=FIGURE_SLO.ttft_s), SLO(tpot_s=FIGURE_SLO.tpot_s)
    prefill_s = solve(
        lambda s: figure_rate(figure_fleet(s, 0.0, "split", 1, 8), number, 16.0, first),
        FIGURE_RATES[0],
        0.4,
    )
    per_sequence_s = solve(
        lambda s: figure_rate(figure_fleet(1e-6, s, "split", 1, 1), number, 32.0, later),
        FIGURE_RATES[1],
        0.01,
    )
    found: dict[str, Any] = {"prefill_s": prefill_s, "per_sequence_s": per_sequence_s}
    placements: dict[str, float] = {}
    for p, d in ((1, 1), (2, 1), (3, 1), (1, 2), (3, 2), (4, 2)):
        fleet = figure_fleet(prefill_s, per_sequence_s, "split", p, d)
        placements[f"{p}P{d}D"] = figure_rate(fleet, number, 8.0 * (p + d)) / (p + d)
    colocated = figure_rate(figure_fleet(prefill_s, per_sequence_s, "colocated", 0, 1), number, 8.0)
    small = {name: rate for name, rate in placements.items() if int(name[0]) + int(name[2]) <= 3}
    best = max(small, key=lambda name: small[name])
    gain = placements[best] / colocated if colocated else None
    return found | {
        "per_gpu": placements,
        "colocated": colocated,
        "best_up_to_3_gpus": best,
        "rate_2p1d": placements["2P1D"],
        "published": {"rate_2p1d": 10 / 3, "colocated": 1.6, "gain": 2.1},
        "gain_over_simulated": gain,
        "gain_over_published": placements["2P1D"] / 1.6,
    }


# -- DistServe's placement ---------------------------------------------------------------------


def placement(quick: bool) -> dict[str, Any]:
    slo, number = SLO(ttft_s=0.2, tpot_s=0.1), 300 if quick else 3000
    ranked = distserve.search(distserve.one_of_each(4), slo, num_requests=number)
    return {
        "slo": {"ttft_s": 0.2, "tpot_s": 0.1, "share": 0.9},
        "requests": number,
        "lengths": lengths(distserve.sharegpt_like(20_000, 1.0)),
        "ranked": [asdict(x) for x in ranked],
        "published": {"rate_per_gpu": 1.56, "tp_prefill": 2, "tp_decode": 1, "precision": 0.25},
    }


def lengths(rows: Iterator[TraceRow]) -> dict[str, Any]:
    drawn = list(rows)
    return {
        "prompt_deciles": distserve.PROMPT_DECILES,
        "answer_deciles": distserve.ANSWER_DECILES,
        "prompt_mean": sum(row.prompt_tokens for row in drawn) / len(drawn),
        "answer_mean": sum(row.output_tokens for row in drawn) / len(drawn),
    }
