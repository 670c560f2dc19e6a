"""All plans for one workload: every mode, spread, batch and number of workers that meets the SLOs.

Each pool gets as few workers as its limits allow, so what remains is to compare costs. Standard
library only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from minipd.fleet.gpus import Device, load_links
from minipd.fleet.near import nearest
from minipd.fleet.plan_pools import MAX_LOAD, Pool, both_pool, decode_pool, prefill_pool
from minipd.fleet.plan_sizing import fewest
from minipd.fleet.plan_space import (
    CHUNK_BUDGETS,
    PREFILL_BATCHES,
    PREFILL_TOKENS,
    PlanError,
    Speeds,
    Workload,
)

PlanMode = Literal["colocated", "chunked", "disaggregated"]
SIMPLEST: tuple[PlanMode, ...] = ("colocated", "chunked", "disaggregated")
HANDOFF_S = 0.38e-3  # fixed part of a hand-off, fitted to Mooncake's table (facts C6)


@dataclass(frozen=True, slots=True)
class PlanLink:
    """What KV travels by: bytes/s of one device, one way; USD per device and hour for it."""

    name: str
    bytes_per_s: float
    usd_per_device_hour: float = 0.0


@dataclass(frozen=True, slots=True)
class Handoff:
    """One request's hand-off: bytes, seconds on the wire, seconds that its prefill cannot hide
    (layers leave while later ones are computed), and the busy share of a prefill worker's wire."""

    num_bytes: float
    copy_s: float
    exposed_s: float
    load: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Workers that meet the SLOs. `decode` serves alone, both phases, unless there is `prefill`."""

    mode: PlanMode
    decode: Pool
    usd_per_hour: float
    prefill: Pool | None = None
    link: PlanLink | None = None
    handoff: Handoff | None = None

    @property
    def pools(self) -> tuple[Pool, ...]:
        return (self.prefill, self.decode) if self.prefill else (self.decode,)

    @property
    def gpus(self) -> int:
        return sum(pool.gpus for pool in self.pools)

    @property
    def ttft_s(self) -> float:
        return self.pools[0].ttft_s

    @property
    def tpot_s(self) -> float:
        return self.decode.tpot_s

    @property
    def slack(self) -> float:
        """The tighter SLO's used part; 1 is the limit."""
        work = self.decode.speeds.work
        return max(self.ttft_s / work.ttft_s, self.tpot_s / work.tpot_s)

    @property
    def order(self) -> tuple[float, int, int, float]:
        """Cheapest first; at one price the fewest GPUs, the simpler mode, then more slack."""
        simple = SIMPLEST.index(self.mode)
        return (round(self.usd_per_hour, 6), self.gpus, simple, self.slack)


@dataclass(frozen=True, slots=True)
class Terms:
    """What plans are made under: the device with its price, the link asked for, GPUs at most."""

    device: Device
    link: str = "auto"
    most_gpus: int = 4096

    def link_for(self, gpus: int) -> PlanLink:
        """`auto`: the fast link while the whole fleet shares it, else the device's network."""
        device = self.device
        if self.link == "auto":
            inside = gpus <= device.link_devices or device.link_devices <= 1
            if inside:
                return PlanLink(device.link_kind or "memory", device.link_bytes_per_s)
            return PlanLink(device.network_kind or "network", device.network_bytes_per_s)
        return named_link(self.link)

    def usd_per_hour(self, gpus: int, link: PlanLink | None = None) -> float:
        return gpus * (self.device.usd_per_hour + (link.usd_per_device_hour if link else 0.0))


def named_link(name: str) -> PlanLink:
    """A link of the table, or bytes/s as a number."""
    links = load_links()
    key = name.strip().lower().replace("-", "_")
    if key in links:
        link = links[key]
        return PlanLink(link.name, link.bytes_per_s_per_device, link.usd_per_device_hour)
    try:
        bytes_per_s = float(name)
    except ValueError:
        near = nearest(name, list(links), str.lower)
        guess = f"the nearest is {near}; known are" if near else "known are"
        raise PlanError(
            f"The link {name[:40]!r} is unknown; {guess} auto, {', '.join(links)}, or bytes/s."
        ) from None
    if not 1.0 <= bytes_per_s <= 1e18:
        raise PlanError(f"--link is {name[:40]} bytes/s; use a number above 0, from 1 to 1e18.")
    return PlanLink(f"{bytes_per_s / 1e9:g} GB/s", bytes_per_s)


def together_plans(speeds: Sequence[Speeds], terms: Terms) -> list[Plan]:
    """The cheapest plan of each spread and mode without a split."""
    found: list[Plan] = []
    for one in speeds:
        for pools in (_whole(one, terms), _pieces(one, terms)):
            best = min((p for p in pools if p), key=fewest_then_slack, default=None)
            if best:
                mode: PlanMode = "chunked" if best.budget else "colocated"
                found.append(Plan(mode, best, terms.usd_per_hour(best.gpus)))
    return found


def _most(speeds: Speeds, terms: Terms) -> int:
    return terms.most_gpus // speeds.parallel.devices


def prompt_batches(work: Workload) -> list[int]:
    return [b for b in PREFILL_BATCHES if b == 1 or b * work.new_tokens <= PREFILL_TOKENS]


def _whole(speeds: Speeds, terms: Terms) -> Iterator[Pool | None]:
    """Whole prompts on one attention replica would stop all others: only where there is one."""
    if speeds.parallel.attention_replicas == 1:
        for prompts in prompt_batches(speeds.work):
            yield fewest(partial(both_pool, speeds, prompts=prompts), _most(speeds, terms))


def budgets(work: Workload) -> list[int]:
    return [c for c in CHUNK_BUDGETS if c <= max(2048, 2 * work.new_tokens)]


def _pieces(speeds: Speeds, terms: Terms) -> Iterator[Pool | None]:
    for budget in budgets(speeds.work):
        yield fewest(partial(both_pool, speeds, budget=budget), _most(speeds, terms))


def prefill_pools(speeds: Sequence[Speeds], terms: Terms) -> list[Pool]:
    """For each spread, the fewest workers that keep TTFT."""
    found: list[Pool] = []
    for one in speeds:
        asks = [partial(prefill_pool, one, prompts=b) for b in prompt_batches(one.work)]
        pools = [pool for ask in asks if (pool := fewest(ask, _most(one, terms)))]
        found += [min(pools, key=fewest_then_slack)] if pools else []
    return found


def fewest_then_slack(pool: Pool) -> tuple[int, float]:
    work = pool.speeds.work
    return pool.workers, max(pool.ttft_s / work.ttft_s, pool.tpot_s / work.tpot_s)


def decode_pools(speeds: Sequence[Speeds], terms: Terms) -> list[Pool]:
    """For each spread, the fewest workers that keep TPOT with a hand-off that costs nothing."""
    pools = [fewest(partial(decode_pool, one), _most(one, terms)) for one in speeds]
    return [pool for pool in pools if pool]


def split_plans(speeds: Sequence[Speeds], terms: Terms) -> list[Plan]:
    """Pairs of pools in order of cost, until no later pair can be cheaper than the best found."""
    if not speeds or not speeds[0].work.gaps:
        return []
    pairs = [(p, d) for p in prefill_pools(speeds, terms) for d in decode_pools(speeds, terms)]
    pairs.sort(key=lambda pair: pair[0].gpus + pair[1].gpus)
    found: list[Plan] = []
    best = math.inf
    for prefill, decode in pairs:
        gpus = prefill.gpus + decode.gpus
        if gpus > min(terms.most_gpus, 1.25 * best):
            break
        plan = joined(prefill, decode, terms)
        if plan:
            found.append(plan)
            best = min(best, plan.gpus)
    return found


def joined(prefill: Pool, decode: Pool, terms: Terms) -> Plan | None:
    """Both pools with the hand-off between them: its unhidden part counts into TPOT, and more
    prefill workers are taken where one's wire would be too busy. None if it cannot be made."""
    link = terms.link_for(prefill.gpus + decode.gpus)
    handoff = handoff_of(prefill, decode, link)
    if handoff.load > MAX_LOAD:
        needed = math.ceil(prefill.workers * handoff.load / MAX_LOAD)
        prefill = prefill_pool(prefill.speeds, needed, prefill.prompts)
        handoff = handoff_of(prefill, decode, link)
    ask = partial(decode_pool, decode.speeds, exposed_s=handoff.exposed_s)
    pool = fewest(ask, _most(decode.speeds, terms))
    if pool is None or prefill.gpus + pool.gpus > terms.most_gpus:
        return None
    usd = terms.usd_per_hour(prefill.gpus + pool.gpus, link)
    return Plan("disaggregated", pool, usd, prefill, link, handoff)


def handoff_of(prefill: Pool, decode: Pool, link: PlanLink) -> Handoff:
    """The KV of one prompt lies on `tp * pp` devices of either side; the smaller side's links
    decide. As in `network.Wires`, layers leave while later ones are computed."""
    work, model = prefill.speeds.work, prefill.speeds.steps.model
    num_bytes = model.kv_bytes_of(work.isl)
    sides = [pool.parallel.tp * pool.parallel.pp for pool in (prefill, decode)]
    copy_s = num_bytes / (link.bytes_per_s * min(sides))
    read_s = prefill.speeds.prefill_s(prefill.prompts)
    layers = model.num_layers
    exposed_s = HANDOFF_S + max(copy_s - read_s * (1 - 1 / layers), copy_s / layers)
    per_wire = work.rate_per_s / prefill.workers / prefill.parallel.attention_replicas
    return Handoff(num_bytes, copy_s, exposed_s, per_wire * copy_s)
