"""The Pareto front: tokens/s per GPU against tokens/s per user, with and without a split.

Taken at full load in a large fleet, where pools can be matched without rounding: a prefill worker
that can read p requests/s on g_p GPUs and a decode worker that can write d on g_d give
`1 / (g_p / p + g_d / d)` requests/s per GPU, all GPUs counted. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from minipd.fleet.plan_pools import Pool, both_pool, decode_pool, prefill_pool
from minipd.fleet.plan_search import PlanMode, Terms, budgets, prompt_batches
from minipd.fleet.plan_space import Speeds

POINTS = 8
WIDTH = 16.0  # the slowest TPOT looked at is so many times the fastest


@dataclass(frozen=True, slots=True)
class Point:
    """Output tokens/s per user (1 / TPOT) and per GPU, and how they are reached."""

    per_user: float
    per_gpu: float
    mode: PlanMode
    how: str


def front(points: Sequence[Point]) -> list[Point]:
    """Points that no other beats in one figure without losing in the other; fastest user first."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (-p.per_user, -p.per_gpu)):
        if not kept or point.per_gpu > kept[-1].per_gpu:
            kept.append(point)
    return kept


def sweep(speeds: Sequence[Speeds], terms: Terms) -> list[Point]:
    """For TPOT limits from just above the fastest step on, the best of each mode within TTFT."""
    work = speeds[0].work
    if not work.gaps:
        return []
    shown = [one for one in speeds if one.parallel.devices <= terms.most_gpus]
    prefill = best_prefill(shown)
    fastest_s = min(one.decode_s(1) for one in shown)
    limits = [1.15 * fastest_s * WIDTH ** (i / (POINTS - 1)) for i in range(POINTS)]
    best: dict[tuple[float, PlanMode], Point] = {}
    for one in shown:
        for point in _line(one, limits, prefill):
            key = (point.per_user, point.mode)
            if key not in best or best[key].per_gpu < point.per_gpu:
                best[key] = point
    return list(best.values())


def _line(
    speeds: Speeds, limits: Sequence[float], prefill: tuple[float, Pool] | None
) -> Iterator[Point]:
    """What one spread reaches at each TPOT limit, in each way of serving."""
    work = speeds.work
    for mode, ask in _ways(speeds):
        if mode == "disaggregated" and prefill is None:
            continue
        rate = 0.0
        for tpot_s in limits:  # rising, and so is the rate
            one = speeds.under(replace(work, tpot_s=tpot_s))
            found = highest_rate(one, ask, rate)
            if found is None:
                continue
            rate, pool = found
            per_gpu = rate / one.parallel.devices
            if mode == "disaggregated" and prefill:
                per_gpu = 1.0 / (1.0 / prefill[0] + 1.0 / per_gpu)
            yield Point(1.0 / tpot_s, per_gpu * work.osl, mode, how(pool, prefill))


def _ways(speeds: Speeds) -> Iterator[tuple[PlanMode, Callable[[Speeds], Pool]]]:
    work = speeds.work
    yield "disaggregated", lambda s: decode_pool(s, 1)
    for budget in budgets(work)[::2]:
        yield "chunked", lambda s, c=budget: both_pool(s, 1, budget=c)
    if speeds.parallel.attention_replicas == 1:
        yield "colocated", lambda s: both_pool(s, 1, prompts=prompt_batches(work)[-1])


def best_prefill(speeds: Sequence[Speeds]) -> tuple[float, Pool] | None:
    """The prefill worker that reads most requests/s per GPU within TTFT."""
    found: list[tuple[float, Pool]] = []
    for one in speeds:
        for prompts in prompt_batches(one.work):
            best = highest_rate(one, lambda s, b=prompts: prefill_pool(s, 1, b))
            found += [(best[0] / one.parallel.devices, best[1])] if best else []
    return max(found, key=lambda f: f[0], default=None)


def highest_rate(
    speeds: Speeds, ask: Callable[[Speeds], Pool], known: float = 0.0
) -> tuple[float, Pool] | None:
    """The highest requests/s at which one worker keeps its limits, to 3 %; None if there is none.
    It is at least `known`, where that is above 0."""

    def at(rate: float) -> Pool:
        return ask(speeds.under(replace(speeds.work, rate_per_s=rate)))

    low, high = 0.0, known or 1e-3
    best: Pool | None = None
    while high < 1e6:
        pool = at(high)
        if pool.broken:
            break
        low, high, best = high, (1.5 if known else 4.0) * high, pool
    while best and high - low > 0.03 * high:
        middle = (low + high) / 2
        pool = at(middle)
        if pool.broken:
            high = middle
        else:
            low, best = middle, pool
    return (low, best) if best else None


def how(pool: Pool, prefill: tuple[float, Pool] | None = None) -> str:
    """A pool in a few words, like `TP4, 96 sequences`."""
    words = [spread_name(pool), f"{pool.batch:.0f} sequences"]
    if pool.budget:
        words.append(f"steps of {pool.budget} tokens")
    if pool.kind == "decode" and prefill:
        words.append(f"prompts on {spread_name(prefill[1])}")
    return ", ".join(words)


def spread_name(pool: Pool) -> str:
    p = pool.parallel
    parts = [f"TP{p.tp}", f"PP{p.pp}" if p.pp > 1 else "", f"EP{p.ep}" if p.ep > 1 else ""]
    return " ".join(part for part in parts if part)
