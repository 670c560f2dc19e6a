"""What a bench run measured, and the record that `minipd bench --json` writes of it.

Figures stand at the top, one number each; `samples` holds every rate that they come from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Any

from minipd.measure import counts
from minipd.measure.ceilings import Ceilings
from minipd.measure.stats import Samples, paired_ratios
from minipd.model.config import ModelConfig

PROMPT_TOKENS = 512
DECODE_STEPS = 128
BATCH_SIZES = (1, 4, 16)
RULE = (
    "pp512, tg128 and batch are means of the runs' rates, as llama-bench has them (each repetition "
    "has several runs of pp512, the engines taking turns, and one of tg128); the "
    "bench sheet gets their medians, which one disturbed run cannot move. A round's ceiling is its "
    "best sample; the run's is the median of the rounds, one before each repetition and one after "
    "the last. MFU and MBU are medians of the runs' shares of ceilings sampled beside them, "
    "for a machine's speed may change within seconds: prefill's of the mean of one sample before "
    "and one after it (of products of the size with the highest median over the run, so that the "
    "luck of a moment is no ceiling), decode's of the median of readings that took turns with its "
    "passes; decode's MFU alone takes the run's ceiling. Ratios are "
    "medians of pairs of alternating runs; decode runs of all engines and sizes take turns, a few "
    "passes at a time."
)


@dataclass(slots=True)
class RawRuns:
    """Rates in tokens/s (all sequences together), in the order in which they were measured."""

    prefill: list[float] = field(default_factory=list[float])
    decode: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    peer_prefill: list[float] = field(default_factory=list[float])
    peer_decode: list[float] = field(default_factory=list[float])
    ceilings: list[Ceilings] = field(default_factory=list[Ceilings])
    # Sampled beside each repetition: FLOP/s by size of product beside both engines' prefill, byte/s
    # beside decode.
    prefill_flops: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    peer_prefill_flops: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    decode_reads: list[float] = field(default_factory=list[float])
    # Distinct experts per layer and step, counted apart, by number of sequences; empty if dense.
    experts_read: dict[int, float] = field(default_factory=dict[int, float])


@dataclass(frozen=True, slots=True)
class Work:
    """The model's work per token: turns the runs' rates, and the ceilings sampled beside
    them, into MFU and MBU."""

    config: ModelConfig
    bytes_per_value: int
    product: str  # the size of product that sets the ceiling of prefill
    flops: float  # the run's, for the operations of decode, which no sample stands beside
    read_bytes_per_s: list[float]
    experts_read: dict[int, float]

    def prefill_mfu(self, rates: list[float], flops: list[dict[str, float]]) -> float:
        per_token = counts.prefill_flops(self.config, PROMPT_TOKENS) / PROMPT_TOKENS
        return _share(rates, per_token, [sample[self.product] for sample in flops])

    def decode_mbu(self, rates: list[float], size: int = 1) -> float:
        num_bytes = self.step_bytes(size, counts.mean_context(DECODE_STEPS)) / size
        return _share(rates, num_bytes, self.read_bytes_per_s)

    def decode_mfu(self, rates: list[float], size: int = 1) -> float:
        flops = counts.decode_flops(self.config, size, counts.mean_context(DECODE_STEPS)) / size
        return median(rates) * flops / self.flops

    def step_bytes(self, size: int, context: float) -> float:
        read = self.experts_read.get(size)
        return counts.decode_bytes(self.config, self.bytes_per_value, size, context, read)


def best_product(samples: list[dict[str, float]]) -> str:
    """The size of product that was fastest in the median of all samples."""
    return max(samples[0], key=lambda size: median(sample[size] for sample in samples))


def _share(rates: list[float], work_per_token: float, ceilings: list[float]) -> float:
    """Each repetition's tokens/s times the work of a token, over its own ceiling; the median."""
    return work_per_token * paired_ratios(rates, ceilings).median


def build_record(config: ModelConfig, bytes_per_value: int, runs: RawRuns) -> dict[str, Any]:
    """Every figure of a run, from raw rates alone."""
    flops = median(c.flops for c in runs.ceilings)
    product = best_product(runs.prefill_flops + runs.peer_prefill_flops)
    work = Work(config, bytes_per_value, product, flops, runs.decode_reads, runs.experts_read)
    return {
        "pp512": Samples(tuple(runs.prefill)).mean,
        "tg128": Samples(tuple(runs.decode[1])).mean,
        "mfu": work.prefill_mfu(runs.prefill, runs.prefill_flops),
        "mbu": work.decode_mbu(runs.decode[1]),
        "batch": {str(size): Samples(tuple(rates)).mean for size, rates in runs.decode.items()},
        "ratio": _ratios(runs),
        "peer": _peer(runs, work),
        "ceilings": {
            "flops": flops,
            "read_bytes_per_s": median(c.read_bytes_per_s for c in runs.ceilings),
            "rounds": [ceilings.to_dict() for ceilings in runs.ceilings],
            "beside": {
                "product": product,
                "pp512": runs.prefill_flops,
                "peer pp512": runs.peer_prefill_flops,
                "tg128": runs.decode_reads,
            },
        },
        "batch_use": {
            str(size): {
                "mbu": work.decode_mbu(rates, size),
                "mfu": work.decode_mfu(rates, size),
            }
            for size, rates in runs.decode.items()
        },
        "experts_read": {str(size): read for size, read in runs.experts_read.items()},
        "work": _work_counts(work),
        "samples": {
            name: Samples(tuple(rates)).to_dict() for name, rates in _named_rates(runs).items()
        },
        "rule": RULE,
    }


def spread_remarks(runs: RawRuns) -> list[str]:
    """One phrase for each quantity that scattered too much to be more than indicative."""
    named = _named_rates(runs) | {
        "the arithmetic ceiling": [c.flops for c in runs.ceilings],
        "the reading ceiling": [c.read_bytes_per_s for c in runs.ceilings],
    }
    samples = {name: Samples(tuple(values)) for name, values in named.items()}
    return [f"{name} spread by {s.spread:.0%}" for name, s in samples.items() if s.is_indicative]


def _ratios(runs: RawRuns) -> dict[str, float | None]:
    def ratio(ours: list[float], theirs: list[float]) -> float | None:
        return paired_ratios(ours, theirs).median if theirs else None

    return {
        "pp512": ratio(runs.prefill, runs.peer_prefill),
        "tg128": ratio(runs.decode[1], runs.peer_decode),
        "batch16_vs_single": ratio(runs.decode[max(runs.decode)], runs.peer_decode),
    }


def _peer(runs: RawRuns, work: Work) -> dict[str, float] | None:
    if not runs.peer_prefill:
        return None
    return {
        "pp512": Samples(tuple(runs.peer_prefill)).mean,
        "tg128": Samples(tuple(runs.peer_decode)).mean,
        "mfu": work.prefill_mfu(runs.peer_prefill, runs.peer_prefill_flops),
        "mbu": work.decode_mbu(runs.peer_decode),
    }


def _work_counts(work: Work) -> dict[str, float]:
    context = counts.mean_context(DECODE_STEPS)
    return {
        "pp512_flops": counts.prefill_flops(work.config, PROMPT_TOKENS),
        "tg128_mean_context": context,
        "tg128_bytes_per_step": work.step_bytes(1, context),
    }


def _named_rates(runs: RawRuns) -> dict[str, list[float]]:
    named = {"pp512": runs.prefill}
    named |= {f"tg128 x {size}": rates for size, rates in runs.decode.items()}
    if runs.peer_prefill:
        named |= {"peer pp512": runs.peer_prefill, "peer tg128": runs.peer_decode}
    return named
