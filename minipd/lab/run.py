"""`minipd run`: a trace or a generated workload through one way of serving, or several."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from minipd.lab.comparison import Bars, busy, comparison_table, complaints, save_pictures, timelines
from minipd.lab.plan import KV_BLOCK, MODES, Plan, RunError, check_plan, trace_of
from minipd.measure.contest import (
    Contender,
    Cores,
    Outcome,
    blocks_for,
    check_context,
    hold,
    notes_of,
    requests_of,
    split_cores,
)
from minipd.measure.demo import measure_phases
from minipd.measure.machine import describe_machine
from minipd.measure.ordering import number, text
from minipd.measure.outputs import probe_file, probe_folder
from minipd.measure.pace import measure_pace
from minipd.measure.report import progress_bar, write_json
from minipd.measure.rows import Trace
from minipd.model.load import LoadedModel, load
from minipd.pools.cluster import Cluster
from minipd.pools.controller import Controller
from minipd.pools.paced import Pace
from minipd.pools.setup import Setup
from minipd.request import Request
from minipd.sched.prefix_router import PrefixAware
from minipd.sched.rebalance import Rebalancer
from minipd.sched.router import (
    AlwaysRemote,
    CostBased,
    LengthAware,
    NeverRemote,
    RoundRobin,
    Router,
    Threshold,
)

__all__ = ["Plan", "RunError", "run_plan"]
BLOCK_SIZE = KV_BLOCK


@dataclass(slots=True)
class Served:
    """What came of a plan: every mode's outcome, and what must be said beside the figures."""

    outcomes: dict[str, Outcome]
    notes: list[str]
    cores: Cores
    pace: Pace | None


def run_plan(
    plan: Plan,
    json_path: Path | None = None,
    pictures: Path | None = None,
    console: Console | None = None,
) -> dict[str, Outcome]:
    """Serve the same requests in each mode, print the figures, write what was asked for.

    What cannot work is refused before the model is loaded, and files are tried first too.
    """
    console = console or Console()
    check_plan(plan)
    probe_file(json_path)
    probe_folder(pictures)
    probe_folder(plan.disk_kv)
    trace = trace_of(plan)
    with busy(f"loading {plan.model}"):
        model = load(plan.model, plan.devices[0], plan.dtype)
    for note in trace.notes:
        console.print(f"Trace: {note}", markup=False)
    served = _serve(plan, model, trace)
    with_slo = (plan.ttft_s, plan.tpot_s) != (None, None)
    console.print(comparison_table(served.outcomes, with_slo=with_slo))
    for note in served.notes:
        console.print(f"Note: {note}", markup=False)
    for complaint in complaints(served.outcomes):
        console.print(complaint, style="bold red", markup=False)
    if json_path is not None:
        write_json(json_path, _record(plan, model, trace, served))
    if pictures is not None:
        saved = save_pictures(served.outcomes, pictures)
        console.print(f"Pictures: {', '.join(map(str, saved))}", markup=False)
    return served.outcomes


def _serve(plan: Plan, model: LoadedModel, trace: Trace) -> Served:
    cores = split_cores(plan.num_workers)
    requests = requests_of(trace.rows, model.config, model.eos_ids, plan.seed)
    check_context(requests, model.name, model.config)
    pace = _pace(plan, model, cores)
    router = _router(plan, model, cores)
    setup = _setup(plan, model, cores, requests, pace)
    contenders = [Contender(m, m, router) for m in MODES if m in plan.modes]
    with progress_bar() as progress:
        starting = progress.add_task(f"starting {plan.num_workers} workers", total=None)
        with Cluster(setup) as cluster:
            progress.remove_task(starting)
            cluster.controller = _controller(plan)
            bars = Bars(progress, len(requests))
            outcomes = hold(cluster, contenders, requests, slo=plan.slo, keep=None, on_event=bars)
            notes = [*notes_of(cluster, cores), *_moves(outcomes), *deaths(outcomes)]
    return Served(outcomes, notes, cores, pace)


def _controller(plan: Plan) -> Controller | None:
    if not plan.rebalance or plan.ttft_s is None or plan.tpot_s is None:
        return None
    return Controller(Rebalancer(plan.ttft_s, plan.tpot_s))


def _moves(outcomes: dict[str, Outcome]) -> list[str]:
    """Every change of a role: when it was done, how long it took, and why it was made."""
    told: list[str] = []
    why: dict[str, str] = {}
    for event in (e for outcome in outcomes.values() for e in outcome.run.timeline):
        if event.kind == "worker_draining":
            why[event.worker] = text(event, "reason")
        elif event.kind == "worker_resumed":
            told.append(
                f"{event.worker} has joined the {text(event, 'role')} pool at {event.t_s:.1f} s, "
                f"after {number(event, 'paused_s'):.2f} s without new work ({why[event.worker]})."
            )
    return told


def deaths(outcomes: dict[str, Outcome]) -> list[str]:
    """Every worker that was lost: answers survive that, but the figures hold the wait for it."""
    return [
        f"{event.worker} was lost at {event.t_s:.1f} s of {mode} ({text(event, 'reason')}); its "
        "requests were begun anew elsewhere, so measure again before you compare figures."
        for mode, outcome in outcomes.items()
        for event in outcome.run.timeline
        if event.kind == "worker_died"
    ]


def _pace(plan: Plan, model: LoadedModel, cores: Cores) -> Pace | None:
    if not plan.paced:
        return None
    with busy("measuring step times"):
        return measure_pace(model, cores)


def _setup(
    plan: Plan, model: LoadedModel, cores: Cores, requests: list[Request], pace: Pace | None
) -> Setup:
    """Paced workers sleep through their steps, and threads share all cores: neither is pinned."""
    is_pinned = plan.pool == "processes" and not plan.paced
    weights = model.decoder.head
    sharing = -(-plan.num_workers // len(plan.devices))  # at most so many workers on one device
    return Setup(
        model=str(model.folder),
        mode=next(mode for mode in MODES if mode in plan.modes),
        num_prefill=plan.num_prefill,
        num_decode=plan.num_decode,
        pool="processes" if plan.pool == "processes" else "threads",
        devices=plan.devices,
        dtype=plan.dtype,
        num_blocks=min(
            (plan.kv_tokens or sys.maxsize) // BLOCK_SIZE,
            *(
                blocks_for(requests, model.config, BLOCK_SIZE, sharing, device, weights.dtype)
                for device in plan.devices
            ),
        ),
        block_size=BLOCK_SIZE,
        chunk_tokens=plan.chunk_tokens,
        cpus=cores.cpus if is_pinned else (),
        threads=cores.threads,
        network=plan.wire,
        deterministic=plan.deterministic,
        pace=pace,
        tiers=plan.tiers,
    )


def _router(plan: Plan, model: LoadedModel, cores: Cores) -> Callable[[], Router] | None:
    """A maker of fresh routers; None for the mode's own. Costs use speeds measured now."""
    simple: dict[str, Callable[[], Router]] = {
        "remote": AlwaysRemote,
        "local": NeverRemote,
        "round_robin": RoundRobin,
        "threshold": lambda: Threshold(plan.local_tokens),
        "length": lambda: LengthAware(plan.local_tokens + 1),  # it counts from where long begins
        "prefix": lambda: PrefixAware(BLOCK_SIZE),
    }
    if plan.router != "cost":
        return simple.get(plan.router)
    with busy("measuring the prefill speed"):
        speed = measure_phases(model, cores).prefill_tok_s
    kv_bytes = model.config.kv_bytes_per_token(model.decoder.head.dtype.itemsize)
    if plan.wire is None:  # a copy in memory, hidden behind the prefill
        return lambda: CostBased(speed, kv_bytes)
    wire, exposed = plan.wire, 1 / model.config.num_layers
    return lambda: CostBased(speed, kv_bytes, wire.latency_s, wire.bytes_per_s, exposed)


def _record(plan: Plan, model: LoadedModel, trace: Trace, served: Served) -> dict[str, Any]:
    """Everything, timelines included: each figure can be computed again from them."""
    asked = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(plan).items()}
    outcomes = served.outcomes
    return {
        "plan": asked,
        "model": {"name": model.name, "fingerprint": model.fingerprint},
        "machine": describe_machine().to_dict(),
        "cores": {"cpus": served.cores.cpus, "threads": served.cores.threads},
        "pace": None if served.pace is None else asdict(served.pace),
        "notes": served.notes,
        "trace": {"source": trace.source, "rows": len(trace.rows), "notes": trace.notes},
        "modes": {name: outcome.summary.to_dict() for name, outcome in outcomes.items()},
        "leaked_blocks": {name: outcome.run.leaked_blocks for name, outcome in outcomes.items()},
        "timelines": timelines(outcomes),
    }
