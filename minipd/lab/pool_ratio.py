"""Lesson 10: how many workers read and how many write, by rule, by queue and by running it.

Runs here are *paced*: workers with real schedulers, messages and KV bytes that wait for as long as
a step took on this machine instead of computing it, so that four of them fit on two cores.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from minipd.fleet.queueing import OverloadError, replicated_ttft_s
from minipd.measure.metrics import summarise
from minipd.measure.slo import SLO
from minipd.measure.sweep import Point, Result, Sweep, grid
from minipd.model.load import LoadedModel
from minipd.pools.cluster import Cluster
from minipd.pools.paced import Pace
from minipd.pools.setup import Setup
from minipd.request import Request, SamplingParams
from minipd.sched.limits import Limits
from minipd.sched.step_times import interpolate

READ_TOKENS = 256  # of the prompt that is made to take `READ_S`
READ_S = 0.08
MOST_TOGETHER = 16  # answers that one decode worker writes at once
SHARES = (0.5, 0.7, 0.9, 1.1)  # of each split's promise by rate matching, which may be too low
ENOUGH = 0.9


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of request: tokens to read and tokens to write."""

    name: str
    read: int
    write: int


CHAT = Kind("chat", 64, 48)
DOCUMENT = Kind("document", 384, 8)
MIX = Kind("a bit of both", 256, 24)


def scaled(pace: Pace, reading: float, writing: float) -> Pace:
    """The same worker, its prefill `reading` times as long and its decode `writing` times."""
    return Pace(
        tuple((tokens, seconds * reading) for tokens, seconds in pace.prefill),
        tuple((together, seconds * writing) for together, seconds in pace.decode),
        pace.per_context_token_s * writing,
    )


def lesson_pace(pace: Pace) -> tuple[Pace, float]:
    """The measured pace, with time stretched so that the lesson lasts as long on any machine."""
    factor = READ_S / interpolate(pace.prefill, READ_TOKENS)
    return scaled(pace, factor, factor), factor


# -- by rule: rate matching ------------------------------------------------------------------------


def step_s(pace: Pace, kind: Kind, together: int) -> float:
    """One decode step of `together` answers that are half written."""
    context = together * (kind.read + kind.write / 2)
    return interpolate(pace.decode, together) + context * pace.per_context_token_s


def most_within(pace: Pace, kind: Kind, tpot_s: float) -> int:
    """How many answers one decode worker can write at once and keep to the TPOT limit; 0: none."""
    sizes = range(1, MOST_TOGETHER + 1)
    return max((n for n in sizes if step_s(pace, kind, n) <= tpot_s), default=0)


def worker_rates(pace: Pace, kind: Kind, tpot_s: float) -> tuple[float, float]:
    """Requests/s that one prefill worker reads, and that one decode worker writes.

    The first token comes from prefill, so a decode worker owes one token less.
    """
    reads = 1.0 / interpolate(pace.prefill, kind.read)
    together = most_within(pace, kind, tpot_s)
    if not together:
        return reads, 0.0
    return reads, together / (step_s(pace, kind, together) * (kind.write - 1))


def matched_rate(pace: Pace, kind: Kind, tpot_s: float, split: tuple[int, int]) -> float:
    """What a split can serve at most: the slower of its two pools, requests/s."""
    reads, writes = worker_rates(pace, kind, tpot_s)
    return min(split[0] * reads, split[1] * writes)


def splits(num_workers: int) -> list[tuple[int, int]]:
    return [(p, num_workers - p) for p in range(1, num_workers)]


def best(rates: Mapping[tuple[int, int], float]) -> tuple[int, int]:
    return max(rates, key=lambda split: rates[split])


# -- by queue --------------------------------------------------------------------------------------


def queued_rate(pace: Pace, kind: Kind, slo: SLO, split: tuple[int, int]) -> float:
    """The highest rate at which the mean TTFT of M/D/1 queues (one for each prefill worker) keeps
    the limit and the decode pool keeps up; requests/s, to a hundredth of what the split can do."""
    assert slo.ttft_s is not None and slo.tpot_s is not None, "a split is sized by two limits"
    most = matched_rate(pace, kind, slo.tpot_s, split)
    execution_s = interpolate(pace.prefill, kind.read)
    for percent in range(100, 0, -1):
        rate = most * percent / 100
        try:
            if replicated_ttft_s(rate, execution_s, split[0]) <= slo.ttft_s:
                return rate
        except OverloadError:
            continue
    return 0.0


# -- by running it ---------------------------------------------------------------------------------


def requests_at(
    kinds: Sequence[tuple[Kind, float]], rate_per_s: float, vocab_size: int, seed: int
) -> list[Request]:
    """Poisson arrivals; each (kind, seconds) follows the one before."""
    draw, now_s, until_s = Random(f"lesson 10 {seed}"), 0.0, 0.0
    found: list[Request] = []
    for kind, seconds in kinds:
        until_s += seconds
        while (now_s := now_s + draw.expovariate(rate_per_s)) < until_s:
            prompt = tuple(draw.choices(range(vocab_size), k=kind.read))
            sampling = SamplingParams(max_tokens=kind.write, ignore_eos=True)
            found.append(Request(f"{kind.name}-{len(found):03d}", prompt, sampling, now_s))
        now_s = until_s
    return found


def paced_cluster(model: LoadedModel, pace: Pace, split: tuple[int, int]) -> Cluster:
    """Threads of this process; start it with `with`."""
    setup = Setup(
        model=str(model.folder),
        num_prefill=split[0],
        num_decode=split[1],
        pool="threads",
        num_blocks=2048,
        limits=Limits(max_running=MOST_TOGETHER),
        prefix_reuse=False,
        pace=pace,
    )
    return Cluster(setup)


class RatioSweep:
    """Every split at every rate and seed, each point kept in a file as soon as it is measured."""

    def __init__(self, model: LoadedModel, pace: Pace, slo: SLO, folder: Path = Path()) -> None:
        self.model, self.pace, self.slo = model, pace, slo
        mark = hashlib.blake2b(repr((pace, slo)).encode(), digest_size=4).hexdigest()
        self.path = folder / f"ratio-sweep-{mark}.jsonl"

    def run(self, num_workers: int, kind: Kind, seeds: int, seconds: float) -> list[Point]:
        """Points with `split`, `rate`, `seed` and `attainment`, each split at `SHARES` of its own
        promise, for `seconds` of arrivals."""
        assert self.slo.tpot_s is not None, "a split is sized by two limits"
        points: list[Point] = []
        for split in splits(num_workers):
            promise = matched_rate(self.pace, kind, self.slo.tpot_s, split)
            rates = [round(share * promise, 2) for share in SHARES]
            points += grid(split=[_name(split)], rate=rates, seed=range(seeds))
        with paced_cluster(self.model, self.pace, splits(num_workers)[0]) as cluster:

            def measure(point: Point) -> Result:
                return self._attainment(cluster, point, kind, seconds)

            about = {"kind": kind.name, "seconds": seconds, "model": self.model.fingerprint}
            done = Sweep(self.path, measure, about).run(points, "splits and rates")
        return [one.point | one.result for one in done]

    def _attainment(self, cluster: Cluster, point: Point, kind: Kind, seconds: float) -> Result:
        p, d = _split(str(point["split"]))
        cluster.reconfigure("disaggregated", num_prefill=p, num_decode=d)
        rate, seed = float(str(point["rate"])), int(str(point["seed"]))
        asked = requests_at([(kind, seconds)], rate, self.model.config.vocab_size, seed)
        summary = summarise(cluster.run(asked).timeline, self.slo, None)
        return {"attainment": summary.attainment or 0.0, "requests": len(asked)}


def _name(split: tuple[int, int]) -> str:
    return f"{split[0]}P{split[1]}D"


def _split(name: str) -> tuple[int, int]:
    p, d = name.rstrip("D").split("P")
    return int(p), int(d)


def swept_rates(points: Iterable[Point], seed: int | None = None) -> dict[tuple[int, int], float]:
    """Each split's goodput: the highest rate at which enough answers are good, in requests/s.

    Between two rates of the sweep, the line through their attainments is followed.
    """
    seen: dict[tuple[int, int], dict[float, list[float]]] = {}
    for point in points:
        if seed is None or point["seed"] == seed:
            at = seen.setdefault(_split(str(point["split"])), {})
            at.setdefault(float(str(point["rate"])), []).append(float(str(point["attainment"])))
    means = {s: [(r, sum(a) / len(a)) for r, a in sorted(at.items())] for s, at in seen.items()}
    return {split: _crossing(looks) for split, looks in means.items()}


def rate_text(rate: float, split: tuple[int, int], points: Iterable[Point]) -> str:
    """A split's goodput as a table shows it; where no rate was good, below the lowest one tried."""
    if rate:
        return f"{rate:.1f}"
    tried = [float(str(point["rate"])) for point in points if point["split"] == _name(split)]
    return f"< {min(tried):.1f}"


def _crossing(looks: list[tuple[float, float]]) -> float:
    good = 0.0
    for (rate, share), before in zip(looks, [None, *looks]):
        if share >= ENOUGH:
            good = rate
        elif before is None or before[1] < ENOUGH:
            return good
        else:
            return before[0] + (rate - before[0]) * (before[1] - ENOUGH) / (before[1] - share)
    return good
