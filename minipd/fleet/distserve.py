"""DistServe's own simulator as a check: its published step times, and its search for a placement.

Step times are polynomials fitted by its authors to an A100 with 80 GB (LLMServe/DistServe,
simdistserve/estimators, Apache-2.0; facts 2.1): a prefill step takes a + b sum(l) + c sum(l^2)
milliseconds over its prompts of l tokens, a decode step a + b sum(context) + c sequences.

Lengths are not ShareGPT's texts but drawn from deciles of them: those of the first 219 of 450
requests in simdistserve/benchmarks/alignment/data-ground-truth/opt-13b-sharegpt-workload/
distserve-450-4.5.exp, prompts and answers apart (there, long prompts have shorter answers).
Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from minipd.fleet.fleet import Fleet, WorkerKind
from minipd.fleet.network import Network
from minipd.fleet.simulate import SimResult, simulate
from minipd.fleet.timers import Line, Read
from minipd.measure.rows import TraceRow
from minipd.measure.slo import SLO
from minipd.sched.limits import Limits

PROMPT_DECILES = (9, 93, 275, 388, 552, 740, 865, 1060, 1336, 1517, 2003)
ANSWER_DECILES = (2, 8, 13, 20, 34, 66, 155, 238, 342, 483, 923)
LARGE_BATCH = 95  # sequences from which the second decode polynomial holds
KV_BYTES_PER_TOKEN, LAYERS = 819_200, 40  # of OPT-13B (facts C1)
NVLINK_BYTES_PER_S = 300e9


class Polynomials(NamedTuple):
    """Milliseconds; `kv_tokens` is what its profile says fits on such a worker."""

    prefill: tuple[float, float, float]
    decode: tuple[float, float, float]
    decode_large: tuple[float, float, float]
    kv_tokens: int


# OPT-13B by tensor parallelism (profiler-a100-80g.distserve.json, max_num_tokens.csv).
OPT_13B: dict[int, Polynomials] = {
    1: Polynomials(
        (18.1025, 0.101912, 7.1223e-6),
        (19.9347, 6.2694e-4, 0.038507),
        (7.1662, 5.7980e-4, 0.158311),
        66_144,
    ),
    2: Polynomials(
        (14.7430, 0.0685772, 2.4496e-6),
        (13.2948, 3.4109e-4, 0.0629639),
        (10.6387, 3.1183e-4, 0.0856291),
        163_008,
    ),
    4: Polynomials(
        (12.0623, 0.0380814, 5.226e-7),
        (10.2562, 1.8787e-4, 0.0326927),
        (10.4835, 1.7121e-4, 0.0456665),
        356_736,
    ),
}


@dataclass(frozen=True, slots=True)
class PolynomialTimer:
    """A timer for the simulator; prompts are read whole."""

    p: Polynomials
    pipelined: int = 1

    def seconds(self, reads: Sequence[Read], sequences: int, context: int) -> float:
        total_s = self.decode_line(sequences, context).first_s if sequences else 0.0
        if reads:
            a, b, c = self.p.prefill
            lengths = [read.new for read in reads]
            total_s += 1e-3 * (a + b * sum(lengths) + c * sum(n * n for n in lengths))
        return total_s

    def decode_line(self, sequences: int, context: int) -> Line:
        a, b, c = self.p.decode if sequences < LARGE_BATCH else self.p.decode_large
        first_s = 1e-3 * (a + b * (context + sequences) + c * sequences)
        return Line(first_s, 1e-3 * b * sequences, 1 << 30)


def sharegpt_like(num_requests: int, rate_per_s: float, seed: int = 0) -> Iterator[TraceRow]:
    """Poisson arrivals; at another rate the same lengths come at other times."""
    rng, now_s = Random(f"minipd sharegpt {seed}"), 0.0
    for _ in range(num_requests):
        now_s += rng.expovariate(1.0) / rate_per_s
        yield TraceRow(now_s, _draw(PROMPT_DECILES, rng), _draw(ANSWER_DECILES, rng))


def _draw(deciles: Sequence[int], rng: Random) -> int:
    """A length whose deciles are these, straight lines between them."""
    rank = rng.random() * (len(deciles) - 1)
    low = int(rank)
    return max(1, round(deciles[low] + (deciles[low + 1] - deciles[low]) * (rank - low)))


@dataclass(frozen=True, slots=True)
class Placement:
    """Prefill and decode workers, each of so many GPUs; `rate_per_gpu` keeps the SLOs."""

    num_prefill: int
    tp_prefill: int
    num_decode: int
    tp_decode: int
    rate_per_gpu: float = 0.0

    @property
    def gpus(self) -> int:
        return self.num_prefill * self.tp_prefill + self.num_decode * self.tp_decode


def fleet_of(placement: Placement) -> Fleet:
    prefill, decode = OPT_13B[placement.tp_prefill], OPT_13B[placement.tp_decode]
    return Fleet(
        WorkerKind(PolynomialTimer(prefill), prefill.kv_tokens, placement.tp_prefill),
        WorkerKind(PolynomialTimer(decode), decode.kv_tokens, placement.tp_decode),
        num_prefill=placement.num_prefill,
        num_decode=placement.num_decode,
        limits=Limits(max_running=1 << 20, max_batch_tokens=1),  # a prompt at a time
        kv_bytes_per_token=KV_BYTES_PER_TOKEN,
        num_layers=LAYERS,
        network=Network(bytes_per_s=NVLINK_BYTES_PER_S),
    )


def keeps(result: SimResult, slo: SLO, share: float) -> bool:
    """DistServe's rule: `share` of all requests within each limit, counted apart."""
    assert share == 0.9, "the summary holds the 90th percentile"
    late = result.summary.latency
    limits = {"ttft_s": slo.ttft_s, "tpot_s": slo.tpot_s}
    found = {name: late[name] for name in limits}
    return all(
        limit is None or (seen := found[name]) is None or seen.p90 <= limit
        for name, limit in limits.items()
    )


def highest_rate(is_kept: Callable[[float], bool], most: float, precision: float) -> float:
    """By halving: the highest rate up to `most` that is kept, if lower ones are kept as well."""
    low, high = 0.0, most
    while high - low > precision:
        middle = (low + high) / 2
        low, high = (middle, high) if is_kept(middle) else (low, middle)
    return low


def search(
    placements: Sequence[Placement],
    slo: SLO,
    *,
    num_requests: int = 2000,
    most: float = 5.0,
    precision: float = 0.02,
    seed: int = 0,
) -> list[Placement]:
    """Each placement with its goodput per GPU, the best one first."""
    found: list[Placement] = []
    for x in placements:

        def is_kept(rate_per_gpu: float, x: Placement = x) -> bool:
            rows = sharegpt_like(num_requests, rate_per_gpu * x.gpus, seed)
            return keeps(simulate(fleet_of(x), rows, slo=slo), slo, 0.9)

        rate = highest_rate(is_kept, most, precision)
        found.append(Placement(x.num_prefill, x.tp_prefill, x.num_decode, x.tp_decode, rate))
    return sorted(found, key=lambda x: -x.rate_per_gpu)


def one_of_each(most_gpus: int = 4) -> list[Placement]:
    """One worker per phase, every spread of OPT-13B that fits on `most_gpus`."""
    pairs = [
        Placement(1, tp_prefill, 1, tp_decode) for tp_prefill in OPT_13B for tp_decode in OPT_13B
    ]
    return [pair for pair in pairs if pair.gpus <= most_gpus]
