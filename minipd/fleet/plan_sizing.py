"""How many workers a pool needs, and the same pool in another size. Standard library only."""

from __future__ import annotations

from collections.abc import Callable

from minipd.fleet.plan_pools import Pool, both_pool, decode_pool, prefill_pool
from minipd.fleet.plan_space import Speeds


def again(pool: Pool, speeds: Speeds, workers: int) -> Pool:
    """A pool that serves in the same way with another number of workers, or another spread."""
    if pool.kind == "prefill":
        return prefill_pool(speeds, workers, pool.prompts)
    if pool.kind == "decode":
        return decode_pool(speeds, workers)
    return both_pool(speeds, workers, pool.prompts, pool.budget)


def fewest(ask: Callable[[int], Pool], most: int) -> Pool | None:
    """The pool with the fewest workers, at most `most`, that breaks no limit; more workers never
    break one that fewer keep."""
    low, high = 0, 1
    while high < most and ask(high).broken:
        low, high = high, 2 * high
    high = min(high, most)
    if high < 1:
        return None
    found = ask(high)
    if found.broken:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        pool = ask(middle)
        if pool.broken:
            low = middle
        else:
            high, found = middle, pool
    return found
