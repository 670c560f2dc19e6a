"""The main result, measured: a long document freezes everybody's answers; two pools end that.

The committed trace is eight chats that write while ten documents of 576 tokens arrive. It was
made for a machine that reads 512 tokens in about 1.2 s; `time_factor` stretches its arrivals
to the speed of the machine at hand, so that the prefill pool is as busy everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import as_file, files
from statistics import median
from typing import Any

from minipd.measure.contest import (
    CONTENDERS,
    Contender,
    Cores,
    Outcome,
    check_context,
    compare_tokens,
    disturbances,
    fair_pair,
    hold,
    is_chat,
    notes_of,
    requests_of,
    split_cores,
)
from minipd.measure.hardware import NoiseMeter
from minipd.measure.machine import pinned
from minipd.measure.metrics import summarise
from minipd.measure.phases import MinipdEngine, random_tokens
from minipd.measure.rows import TraceRow, reshape
from minipd.measure.same_tokens import Summary, logits_of
from minipd.measure.stopwatch import num_threads
from minipd.measure.traces import read_trace
from minipd.model.load import LoadedModel
from minipd.pools.cluster import Cluster
from minipd.pools.links.emulated import Network
from minipd.timeline import Event

DOCUMENT_TOKENS = 512
REFERENCE_PREFILL_S = 1.2  # of 512 tokens, on the machine that the trace was made for
DECODE_STEPS = 32
TRACE = "demo_trace.jsonl"


@dataclass(slots=True)
class Demo:
    """Everything the demo found; `to_dict` is its JSON."""

    model: LoadedModel
    cores: Cores
    time_factor: float
    outcomes: dict[str, Outcome]
    tokens: Summary
    notes: list[str]  # what must be said beside every figure

    @property
    def leaked_blocks(self) -> int:
        return sum(sum(o.run.leaked_blocks.values()) for o in self.outcomes.values())

    def p99_itl_ratio(self, slow: str = "colocated", fast: str = "disaggregated") -> float | None:
        """How many times longer the chats' p99 gap is in `slow` than in `fast`."""
        a, b = (self.outcomes[name].summary.percentile_ms("itl_s", "p99") for name in (slow, fast))
        return a / b if a and b else None

    def document_ttft_p50_ms(self, name: str) -> float | None:
        """The summaries count the chats' waits alone; this is the readers of documents' wait."""
        timeline = self.outcomes[name].run.timeline
        documents = summarise(timeline, keep=lambda request_id: not is_chat(request_id))
        return documents.percentile_ms("ttft_s", "p50")

    def to_dict(self) -> dict[str, Any]:
        summaries = {name: outcome.summary for name, outcome in self.outcomes.items()}
        handoffs = summaries["disaggregated"].handoffs
        return {
            "model": {"name": self.model.name, "fingerprint": self.model.fingerprint},
            "time_factor": self.time_factor,
            "cores": {"cpus": self.cores.cpus, "threads": self.cores.threads},
            "notes": self.notes,
            "tokens_identical": self.tokens.passed,
            "near_ties": self.tokens.near_ties,
            "sequences_compared": self.tokens.num_sequences,
            "leaked_blocks": self.leaked_blocks,
            "stalled_share_colocated": summaries["colocated"].stalled_share,
            "stalled_share": {n: s.stalled_share for n, s in summaries.items()},
            "p99_itl_ms": {n: s.percentile_ms("itl_s", "p99") for n, s in summaries.items()},
            "p99_itl_ratio": self.p99_itl_ratio(),
            "p99_itl_ratio_of_chunked": self.p99_itl_ratio("chunked"),
            "ttft_p50_ms": {n: s.percentile_ms("ttft_s", "p50") for n, s in summaries.items()},
            "ttft_p99_ms": {n: s.percentile_ms("ttft_s", "p99") for n, s in summaries.items()},
            "document_ttft_p50_ms": {n: self.document_ttft_p50_ms(n) for n in summaries},
            "throughput_tok_s": {n: s.output_tokens_per_s for n, s in summaries.items()},
            "duration_s": {n: s.duration_s for n, s in summaries.items()},
            "handoff_share_of_prefill": handoffs.share_of_prefill,
            "exposed_handoff_share": handoffs.exposed_share,
            "runs": {n: s.to_dict() for n, s in summaries.items()},
        }


def demo_rows() -> list[TraceRow]:
    """The committed trace."""
    with as_file(files("minipd.measure") / "data" / TRACE) as path:
        return list(read_trace(path).rows)


@dataclass(frozen=True, slots=True)
class Phases:
    """Both phases of one worker alone, tokens per second; medians of a few short runs."""

    prefill_tok_s: float
    decode_tok_s: float

    @property
    def time_factor(self) -> float:
        """Time to read a 512-token document here, over the reference machine's."""
        return DOCUMENT_TOKENS / self.prefill_tok_s / REFERENCE_PREFILL_S


def measure_phases(model: LoadedModel, cores: Cores, repetitions: int = 3) -> Phases:
    """Prefill of 512 tokens (fewer where the context ends) and decode of 32, on one worker's
    share of the cores."""
    num_tokens = min(DOCUMENT_TOKENS, model.config.max_context)
    engine = MinipdEngine(model, num_tokens, 1)
    tokens = random_tokens(model.config.vocab_size, num_tokens)
    with pinned(cores.cpus[0] if cores.cpus else None), num_threads(cores.threads):
        engine.prefill(tokens)  # a first run pays for what later ones do not
        prefill = [engine.prefill(tokens) for _ in range(repetitions)]
        decode = [engine.decode(tokens[:DECODE_STEPS]) for _ in range(repetitions)]
    decoded = min(DECODE_STEPS, num_tokens)
    return Phases(num_tokens / median(prefill), decoded / median(decode))


def run_contest(
    model: LoadedModel,
    *,
    network: Network | None = None,
    contenders: tuple[Contender, ...] = CONTENDERS,
    time_factor: float = 1.0,
    on_event: Callable[[Contender, Event], None] | None = None,
) -> Demo:
    """The demo's trace through every contender, two workers each, and the check of its tokens."""
    cores = split_cores(2)
    rows, _ = reshape(demo_rows(), time_factor=time_factor)
    requests = requests_of(rows, model.config, model.eos_ids)
    check_context(requests, model.name, model.config)
    setup = fair_pair(model, requests, cores, network)
    with Cluster(setup) as cluster:
        meter = NoiseMeter()
        outcomes = hold(cluster, contenders, requests, on_event=on_event)
        notes = [*notes_of(cluster, cores), *disturbances(meter)]
    tokens = compare_tokens(requests, outcomes, logits_of(model.decoder))
    return Demo(model, cores, time_factor, outcomes, tokens, notes)
