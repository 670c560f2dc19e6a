"""What a pool of n equal workers does to TTFT and TPOT, and which limits it breaks.

Three kinds: workers that only read prompts, workers that only write, and workers that do both, with
prompts read whole (prefill first) or in pieces beside the decodes (chunked).

The number of sequences that a worker writes for follows from Little's law: rate x steps per request
x seconds per step, which depends on the number again; the smallest solution counts. It varies about
its mean like a Poisson number (M/G/infinity), so limits are held against the mean plus z standard
deviations, with z from the attainment. Standard library only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from minipd.fleet.plan_queue import pool_wait
from minipd.fleet.plan_space import MAX_BATCH, Speeds, Workload, smallest_root
from minipd.fleet.work import Parallel

Kind = Literal["prefill", "decode", "colocated", "chunked"]
Limit = Literal["TTFT", "TPOT", "KV memory", "load"]
MAX_LOAD = 0.9  # share of its time that a pool may read prompts (AIConfigurator sdk/picking.py)


@dataclass(frozen=True, slots=True)
class Pool:
    """`workers` replicas of one kind under their share of the load; seconds.

    `ttft_s` and `tpot_s` hold for the workload's attainment, `mean_*` on average. `batch` is the
    mean number of sequences that one worker writes for, `load` the share of time that it reads
    prompts. `prompts`: read together per step; `budget`: tokens of a chunked step. `broken`: the
    limits not met.
    """

    kind: Kind
    speeds: Speeds
    workers: int
    ttft_s: float = 0.0
    tpot_s: float = 0.0
    mean_ttft_s: float = 0.0
    mean_tpot_s: float = 0.0
    batch: float = 0.0
    load: float = 0.0
    prompts: int = 1
    budget: int = 0
    broken: tuple[Limit, ...] = ()

    @property
    def parallel(self) -> Parallel:
        return self.speeds.parallel

    @property
    def gpus(self) -> int:
        return self.workers * self.parallel.devices


def prefill_pool(speeds: Speeds, workers: int, prompts: int = 1) -> Pool:
    """Reads whole prompts. A pipeline takes the next ones after 1/pp of the time (eq. 2)."""
    work, parallel = speeds.work, speeds.parallel
    step_s = speeds.prefill_s(prompts)
    together = prompts * parallel.attention_replicas
    load = work.rate_per_s / workers * step_s / (together * parallel.pp)
    if load > MAX_LOAD:
        return Pool("prefill", speeds, workers, load=load, prompts=prompts, broken=("load",))
    if (parallel.pp + 1) * together * work.isl > speeds.kv_tokens:  # one batch is being sent
        return Pool("prefill", speeds, workers, prompts=prompts, broken=("KV memory",))
    wait = pool_wait(load, step_s / parallel.pp, workers)
    busy = min(1.0, work.rate_per_s / workers * step_s / parallel.pp) if together > 1 else 0.0
    rest_s = busy * step_s / parallel.pp  # until the step under way ends, at the longest
    ttft_s = step_s + wait.quantile_s(work.attainment) + work.attainment * rest_s
    return Pool(
        "prefill",
        speeds,
        workers,
        ttft_s=ttft_s,
        mean_ttft_s=step_s + wait.mean_s + rest_s / 2,
        load=load,
        prompts=prompts,
        broken=("TTFT",) if ttft_s > work.ttft_s else (),
    )


def decode_pool(speeds: Speeds, workers: int, exposed_s: float = 0.0) -> Pool:
    """Writes only. `exposed_s`: what a hand-off takes beyond its prefill, once per request."""
    work = speeds.work
    per_step = work.rate_per_s / workers * work.gaps
    batch = smallest_root(lambda b: per_step * speeds.decode_s(b), MAX_BATCH)
    if batch is None:
        return Pool("decode", speeds, workers, batch=math.inf, broken=("TPOT",))
    high = spread(batch, work)
    mean_s, high_s = speeds.decode_s(batch), speeds.decode_s(high)
    joining_s = (exposed_s + mean_s / 2) / work.gaps  # it joins when the step under way ends
    tpot_s = high_s + joining_s
    return Pool(
        "decode",
        speeds,
        workers,
        tpot_s=tpot_s,
        mean_tpot_s=mean_s + joining_s,
        batch=batch,
        broken=_broken(work, speeds, 0.0, tpot_s, high),
    )


def both_pool(speeds: Speeds, workers: int, prompts: int = 1, budget: int = 0) -> Pool:
    """Reads and writes: with a `budget` in pieces, else `prompts` whole prompts per step."""
    cycle = _Chunked(speeds, budget) if budget else _Whole(speeds, prompts)
    kind: Kind = "chunked" if budget else "colocated"
    work, rate = speeds.work, speeds.work.rate_per_s / workers
    load, batch = cycle.load(1.0, rate), None
    if load <= MAX_LOAD:
        batch = smallest_root(lambda b: rate * work.gaps * cycle.tpot_s(b, rate), MAX_BATCH)
    if batch is None or cycle.load(batch, rate) > MAX_LOAD:
        load = max(load, 1.0 if batch is None else cycle.load(batch, rate))
        return Pool(
            kind, speeds, workers, load=load, prompts=prompts, budget=budget, broken=("load",)
        )
    load, turn_s = cycle.load(batch, rate), cycle.turn_s(batch)
    wait = pool_wait(load, turn_s, workers * cycle.queues)
    step_s = speeds.decode_s(batch) if batch else 0.0
    rest_s = min(1.0, batch) * step_s  # a decode step is under way when the prompt comes
    ttft_s = turn_s + wait.quantile_s(work.attainment) + work.attainment * rest_s
    high = spread(batch, work)
    tpot_s = cycle.late_tpot_s(batch, high, rate) if batch else 0.0
    return Pool(
        kind,
        speeds,
        workers,
        ttft_s,
        tpot_s,
        mean_ttft_s=turn_s + wait.mean_s + rest_s / 2,
        mean_tpot_s=cycle.tpot_s(batch, rate) if batch else 0.0,
        batch=batch,
        load=load,
        prompts=prompts,
        budget=budget,
        broken=_broken(work, speeds, ttft_s, tpot_s, high),
    )


@dataclass(slots=True)
class _Whole:
    """Prompts are read whole, and nobody writes meanwhile: writing gets the rest of the time."""

    speeds: Speeds
    prompts: int
    queues: int = 1

    def turn_s(self, batch: float) -> float:
        return self.speeds.prefill_s(self.prompts)

    def load(self, batch: float, rate: float) -> float:
        return rate * self.turn_s(batch) / self.prompts

    def tpot_s(self, batch: float, rate: float) -> float:
        load = self.load(batch, rate)
        return self.speeds.decode_s(batch) / (1.0 - load) if load < 1.0 else math.inf

    def late_tpot_s(self, batch: float, high: float, rate: float) -> float:
        """With more prompts than usual (Poisson) read while the request is written."""
        work = self.speeds.work
        read = spread(rate * work.gaps * self.tpot_s(batch, rate), work)
        return self.speeds.decode_s(high) + read * self.turn_s(batch) / self.prompts / work.gaps


@dataclass(slots=True)
class _Chunked:
    """Prompts are read in pieces of what decodes leave of the budget.

    Each attention replica reads prompts of its own, but a step lasts as long as its slowest one.
    """

    speeds: Speeds
    budget: int

    @property
    def queues(self) -> int:
        return self.speeds.parallel.attention_replicas

    def _pieces(self, batch: float) -> float:
        """Steps per prompt; below 1 when a step reads several."""
        free = max(1.0, self.budget - self.speeds.share(batch))
        return self.speeds.work.new_tokens / free

    def turn_s(self, batch: float) -> float:
        return max(1.0, self._pieces(batch)) * self.speeds.mixed_s(batch, self.budget)

    def load(self, batch: float, rate: float) -> float:
        mixed_s = self.speeds.mixed_s(batch, self.budget)
        return rate / self.queues * self._pieces(batch) * mixed_s

    def _mixed_share(self, batch: float, rate: float) -> float:
        """Share of the steps in which at least one attention replica reads."""
        load = self.load(batch, rate)
        if load >= 1.0:
            return 1.0
        busy = 1.0 - (1.0 - load) ** self.queues
        mixed = busy / self.speeds.mixed_s(batch, self.budget)
        return mixed / (mixed + (1.0 - busy) / self.speeds.decode_s(batch))

    def _mean_s(self, batch: float, share: float) -> float:
        mixed_s, plain_s = self.speeds.mixed_s(batch, self.budget), self.speeds.decode_s(batch)
        return plain_s + share * max(0.0, mixed_s - plain_s)

    def tpot_s(self, batch: float, rate: float) -> float:
        if self.load(batch, rate) >= 1.0:
            return math.inf
        return self._mean_s(batch, self._mixed_share(batch, rate))

    def late_tpot_s(self, batch: float, high: float, rate: float) -> float:
        work, share = self.speeds.work, self._mixed_share(batch, rate)
        read = rate / self.queues * work.gaps * self.tpot_s(batch, rate)
        more = spread(read, work) / read if read else 1.0
        return self._mean_s(high, min(1.0, share * more))


def spread(mean: float, work: Workload) -> float:
    """What a Poisson number of that mean stays within for the workload's attainment."""
    return mean + work.z * math.sqrt(mean)


def _broken(
    work: Workload, speeds: Speeds, ttft_s: float, tpot_s: float, high: float
) -> tuple[Limit, ...]:
    checks: dict[Limit, bool] = {
        "TTFT": ttft_s > work.ttft_s,
        "TPOT": tpot_s > work.tpot_s,
        "KV memory": high > speeds.max_sequences,
    }
    return tuple(name for name, broken in checks.items() if broken)
