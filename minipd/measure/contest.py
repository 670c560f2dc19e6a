"""One trace, several ways of serving it, the same workers: what a fair comparison needs.

Every contender runs on the very same processes, weights, cores and requests; only roles, scheduler
and router change between runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from minipd.cache.store import fit_num_blocks, free_bytes
from minipd.measure.machine import can_pin, usable_cpus
from minipd.measure.metrics import summarise
from minipd.measure.prompts import iter_prompts
from minipd.measure.rows import TraceRow
from minipd.measure.same_tokens import Comparison, LogitsOf, Summary, compare
from minipd.measure.same_tokens import summarise as summarise_tokens
from minipd.measure.slo import SLO
from minipd.measure.summary import RunSummary
from minipd.model.config import ModelConfig
from minipd.pools.cluster import Cluster, Mode, Run
from minipd.request import Request, SamplingParams
from minipd.sched.router import LengthAware, Router
from minipd.timeline import Event


@dataclass(frozen=True, slots=True)
class Contender:
    """A way of serving: a mode, and a router where it is not the mode's own."""

    name: str
    mode: Mode
    router: Callable[[], Router] | None = None


COLOCATED = Contender("colocated", "colocated")
CHUNKED = Contender("chunked", "chunked")
LENGTH_AWARE = Contender("colocated_length_aware", "colocated", LengthAware)
DISAGGREGATED = Contender("disaggregated", "disaggregated")
CONTENDERS = (COLOCATED, CHUNKED, LENGTH_AWARE, DISAGGREGATED)


@dataclass(frozen=True, slots=True)
class Cores:
    """Which cores each worker gets, and what the sharing weakens (empty: nothing)."""

    cpus: tuple[tuple[int, ...], ...]
    threads: int
    note: str = ""


def split_cores(num_workers: int) -> Cores:
    """An equal part of the usable cores for each worker, pinned where the system can."""
    usable = usable_cpus()
    each = max(1, len(usable) // num_workers)
    cpus = tuple(
        tuple(usable[(i * each + j) % len(usable)] for j in range(each)) for i in range(num_workers)
    )
    note = ""
    if len(usable) < num_workers:
        note = (
            f"{num_workers} workers share {len(usable)} core(s): they slow each other down, so "
            "this run shows what happens, not how long it takes."
        )
    elif not can_pin():
        note = "This system cannot pin processes to cores, so timings spread more than they need."
    return Cores(cpus if can_pin() else (), each, note)


def requests_of(
    rows: Iterable[TraceRow], config: ModelConfig, eos_ids: frozenset[int], seed: int = 0
) -> list[Request]:
    """Requests with random prompts, greedy, as long as their rows say; ids are `KIND-NNN`."""
    rows = list(rows)
    prompts = iter_prompts(rows, config.vocab_size, seed, eos_ids)
    return [
        Request(
            f"{row.kind or 'request'}-{index:03d}",
            tuple(prompt),
            SamplingParams(max_tokens=row.output_tokens, ignore_eos=True),
            row.arrival_s,
        )
        for index, (row, prompt) in enumerate(zip(rows, prompts, strict=True))
    ]


def blocks_for(
    requests: Iterable[Request], config: ModelConfig, block_size: int, num_workers: int
) -> int:
    """Blocks per worker: the whole trace at once if memory allows, a fifth more for growth."""
    tokens = sum(-(-r.max_total_tokens // block_size) * block_size for r in requests)
    import torch

    share = free_bytes("cpu") // num_workers
    return fit_num_blocks(config, block_size, torch.float32, share, max(1024, tokens * 6 // 5))


@dataclass(slots=True)
class Outcome:
    """What one contender did: the timeline, its tokens, its leaks, and the numbers of the chats."""

    contender: Contender
    run: Run
    summary: RunSummary


def is_chat(request_id: str) -> bool:
    """Documents are what disturbs; the readers whose wait counts are all the others."""
    return not request_id.startswith("document")


def hold(
    cluster: Cluster,
    contenders: Iterable[Contender],
    requests: list[Request],
    *,
    slo: SLO | None = None,
    keep: Callable[[str], bool] | None = is_chat,
    on_event: Callable[[Contender, Event], None] | None = None,
) -> dict[str, Outcome]:
    """Run every contender in turn. All use the first one's undisturbed step to define a stall."""
    outcomes: dict[str, Outcome] = {}
    undisturbed_s: float | None = None
    for contender in contenders:
        cluster.reconfigure(contender.mode, contender.router() if contender.router else None)
        cluster.on_event = (lambda event, c=contender: on_event(c, event)) if on_event else None
        run = cluster.run(requests)
        summary = summarise(run.timeline, slo, keep, undisturbed_s=undisturbed_s)
        undisturbed_s = undisturbed_s or summary.undisturbed_step_s
        outcomes[contender.name] = Outcome(contender, run, summary)
    cluster.on_event = None
    return outcomes


def compare_tokens(
    requests: Iterable[Request], outcomes: dict[str, Outcome], logits: LogitsOf
) -> Summary:
    """Every contender's greedy tokens against the first one's, by the rule of `same_tokens`."""
    first, *others = outcomes.values()
    found: list[Comparison] = []
    for request in requests:
        reference = first.run.outputs.get(request.id, [])
        for other in others:
            tokens = other.run.outputs.get(request.id, [])
            found.append(compare(request.prompt_ids, reference, tokens, logits, logits))
    return summarise_tokens(found)
