"""One trace, several ways of serving it, the same workers: what a fair comparison needs.

Every contender runs on the very same processes, weights, cores and requests; only roles, scheduler
and router change between runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import psutil
import torch

from minipd.cache.store import fit_num_blocks, free_bytes
from minipd.measure import hardware
from minipd.measure.machine import can_pin, usable_cpus
from minipd.measure.metrics import summarise
from minipd.measure.prompts import iter_prompts
from minipd.measure.rows import TraceRow
from minipd.measure.same_tokens import Comparison, LogitsOf, Summary, compare
from minipd.measure.same_tokens import summarise as summarise_tokens
from minipd.measure.slo import SLO
from minipd.measure.summary import RunSummary
from minipd.model.config import ModelConfig
from minipd.model.load import LoadedModel
from minipd.pools.cluster import Cluster, Mode, Run
from minipd.pools.links.emulated import Network
from minipd.pools.setup import Setup
from minipd.request import Request, RequestError, SamplingParams
from minipd.sched.router import LengthAware, Router
from minipd.timeline import Event

PATIENCE_S = 3600.0  # after the last arrival


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
    """An equal part of the physical cores for each worker, pinned where the system can.

    A core's hyperthreads stay together: two workers on one core would slow each other down. A
    container's quota counts as cores.
    """
    cores, limit = _physical_cores(), hardware.cpu_limit()
    num_cores = max(1, min(len(cores), int(limit) if limit else len(cores)))
    each = max(1, num_cores // num_workers)
    cpus = tuple(
        tuple(sorted(cpu for j in range(each) for cpu in cores[(i * each + j) % len(cores)]))
        for i in range(num_workers)
    )
    note = ""
    if num_cores < num_workers:
        note = (
            f"{num_workers} workers share {num_cores} core(s): they slow each other down, so "
            "this run shows what happens, not how long it takes."
        )
    elif not can_pin():
        note = "This system cannot pin processes to cores, so timings spread more than they need."
    return Cores(cpus if can_pin() else (), each, note)


def _physical_cores() -> list[tuple[int, ...]]:
    """The logical cores that this process may use, those of one physical core in one group."""
    usable = usable_cpus()
    sibling_of = {cpu: group[0] for group in hardware.smt_siblings() for cpu in group}
    groups: dict[int, list[int]] = {}
    for cpu in usable:
        groups.setdefault(sibling_of.get(cpu, cpu), []).append(cpu)
    if not sibling_of:  # not Linux, or no hyperthreads; elsewhere siblings have adjacent numbers
        per_core = max(1, len(usable) // (psutil.cpu_count(logical=False) or len(usable)))
        return [tuple(usable[i : i + per_core]) for i in range(0, len(usable), per_core)]
    return [tuple(group) for group in groups.values()]


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


def check_context(requests: Iterable[Request], name: str, config: ModelConfig) -> None:
    """Refuse, before any worker starts, what the model cannot hold; raises `RequestError`."""
    longest = max((r.max_total_tokens for r in requests), default=0)
    if longest > config.max_context:
        raise RequestError(
            f"The longest request needs {longest} tokens and {name} has a context of "
            f"{config.max_context}; cap prompts and outputs, or choose another model."
        )


def blocks_for(
    requests: Iterable[Request],
    config: ModelConfig,
    block_size: int,
    num_workers: int,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> int:
    """Blocks per worker: the whole trace at once if memory allows, a fifth more for growth.

    Every worker also holds weights of its own. Raises `CacheTooSmallError`.
    """
    tokens = sum(-(-r.max_total_tokens // block_size) * block_size for r in requests)
    share = free_bytes(device) // num_workers - config.num_parameters * dtype.itemsize
    return fit_num_blocks(config, block_size, dtype, share, max(1024, tokens * 6 // 5))


def fair_pair(
    model: LoadedModel, requests: Iterable[Request], cores: Cores, network: Network | None = None
) -> Setup:
    """Two equal workers with the cores of `split_cores(2)` and room for the whole trace in each."""
    alike = Setup(model=str(model.folder), cpus=cores.cpus, threads=cores.threads, network=network)
    room = blocks_for(requests, model.config, alike.block_size, alike.num_workers)
    return replace(alike, num_blocks=room)


def notes_of(cluster: Cluster, cores: Cores) -> list[str]:
    """What must be said beside every figure of this cluster, one sentence each, none twice.

    `cores.note`, where there is one, says in full what the setup's own caveats hint at.
    """
    if not cores.note or cluster.setup.pace is not None:
        return [f"{note[0].upper()}{note[1:].rstrip('.')}." for note in cluster.notes]
    others = [note for note in cluster.notes if note not in cluster.setup.caveats]
    return [cores.note, *(f"{note[0].upper()}{note[1:].rstrip('.')}." for note in others)]


def disturbances(meter: hardware.NoiseMeter) -> list[str]:
    """A sentence where other programs or the host took part in what was measured, else nothing."""
    remark = meter.read().remark
    if remark is None:
        return []
    return [f"Indicative only: {remark}. Close other programs and run it again for firm figures."]


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
    """Run every contender in turn. All use the first one's undisturbed step to define a stall.

    A run may take an hour beyond its last arrival.
    """
    last_s = max((r.arrival_s for r in requests), default=0.0)
    outcomes: dict[str, Outcome] = {}
    undisturbed_s: float | None = None
    for contender in contenders:
        cluster.reconfigure(contender.mode, contender.router() if contender.router else None)
        cluster.on_event = (lambda event, c=contender: on_event(c, event)) if on_event else None
        run = cluster.run(requests, timeout_s=last_s + PATIENCE_S)
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
