"""`minipd run`: a trace or a generated workload through one way of serving, or several."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from minipd.lab.comparison import Bars, comparison_table, save_pictures
from minipd.measure.contest import (
    Contender,
    Cores,
    Outcome,
    blocks_for,
    hold,
    requests_of,
    split_cores,
)
from minipd.measure.demo import measure_phases
from minipd.measure.invariants import check_timeline
from minipd.measure.machine import describe_machine
from minipd.measure.pace import measure_pace
from minipd.measure.report import progress_bar, write_json
from minipd.measure.rows import Trace
from minipd.measure.slo import SLO
from minipd.measure.traces import read_trace, reshape_trace
from minipd.measure.workloads import generate
from minipd.model.load import LoadedModel, load
from minipd.pools.cluster import Cluster
from minipd.pools.links.emulated import network as named_network
from minipd.pools.setup import Mode, Setup
from minipd.request import RequestError
from minipd.sched.base import Limits
from minipd.sched.router import (
    AlwaysRemote,
    CostBased,
    LengthAware,
    NeverRemote,
    RoundRobin,
    Router,
    Threshold,
)

MODES: tuple[Mode, ...] = ("colocated", "decode_first", "chunked", "disaggregated")
ROUTERS = ("default", "remote", "local", "threshold", "cost", "round_robin", "length")


class RunError(ValueError):
    """A run that cannot be made as asked; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What `minipd run` was asked for."""

    modes: tuple[str, ...] = ("disaggregated",)
    model: str = "smollm2-135m"
    device: str = "cpu"
    dtype: str = "float32"
    trace: Path | None = None
    workload: str = "chat"
    num_requests: int = 20
    rate_per_s: float = 1.0
    seed: int = 0
    time_factor: float = 1.0
    max_prompt_tokens: int | None = None
    max_output_tokens: int | None = None
    num_prefill: int = 1
    num_decode: int = 1
    pool: str = "processes"
    paced: bool = False
    network: str | None = None
    router: str = "default"
    local_tokens: int = 256
    chunk_tokens: int = 64
    ttft_s: float | None = None
    tpot_s: float | None = None
    deterministic: bool = False


def run_plan(
    plan: Plan,
    json_path: Path | None = None,
    pictures: Path | None = None,
    console: Console | None = None,
) -> dict[str, Outcome]:
    """Serve the same requests in each mode, print the figures, write what was asked for."""
    console = console or Console()
    _check(plan)
    model = load(plan.model, plan.device, plan.dtype)
    trace = _trace(plan)
    for note in trace.notes:
        console.print(f"Trace: {note}")
    outcomes = _serve(plan, model, trace, console)
    console.print(comparison_table(outcomes))
    _complain(console, outcomes)
    if json_path is not None:
        write_json(json_path, _record(plan, model, trace, outcomes))
    if pictures is not None:
        console.print(f"Pictures: {', '.join(map(str, save_pictures(outcomes, pictures)))}")
    return outcomes


def _check(plan: Plan) -> None:
    unknown = [mode for mode in plan.modes if mode not in MODES]
    if unknown or not plan.modes:
        raise RunError(f"There is no mode {', '.join(unknown)!r}; choose from {', '.join(MODES)}.")
    if plan.router not in ROUTERS:
        raise RunError(f"There is no router {plan.router!r}; choose from {', '.join(ROUTERS)}.")
    if plan.num_prefill < 1 or plan.num_decode < 1:
        raise RunError("A run needs at least one prefill and one decode worker.")


def _trace(plan: Plan) -> Trace:
    if plan.trace is not None:
        read = read_trace(plan.trace)
    else:
        rows = generate(plan.workload, plan.num_requests, plan.rate_per_s, plan.seed)
        read = Trace(rows, f"generated: {plan.workload}", "minipd", [])
    return reshape_trace(
        read,
        time_factor=plan.time_factor,
        max_prompt_tokens=plan.max_prompt_tokens,
        max_output_tokens=plan.max_output_tokens,
        limit=plan.num_requests if plan.trace is not None else None,
    )


def _serve(plan: Plan, model: LoadedModel, trace: Trace, console: Console) -> dict[str, Outcome]:
    num_workers = plan.num_prefill + plan.num_decode
    cores = split_cores(num_workers)
    requests = requests_of(trace.rows, model.config, model.eos_ids, plan.seed)
    longest = max((r.max_total_tokens for r in requests), default=0)
    if longest > model.config.max_context:
        raise RequestError(
            f"The longest request needs {longest} tokens and {model.name} has a context of "
            f"{model.config.max_context}; cap it with --max-prompt-tokens."
        )
    setup = Setup(
        model=str(model.folder),
        mode=next(mode for mode in MODES if mode in plan.modes),
        num_prefill=plan.num_prefill,
        num_decode=plan.num_decode,
        pool="processes" if plan.pool == "processes" else "threads",
        devices=(plan.device,),
        dtype=plan.dtype,
        num_blocks=blocks_for(requests, model.config, 16, num_workers),
        limits=Limits(),
        chunk_tokens=plan.chunk_tokens,
        cpus=() if plan.paced or plan.pool != "processes" else cores.cpus,
        threads=cores.threads,
        network=named_network(plan.network) if plan.network else None,
        deterministic=plan.deterministic,
        pace=measure_pace(model, cores) if plan.paced else None,
    )
    if plan.paced:
        console.print("[bold]Paced:[/bold] step times are replayed from a measurement made now.")
    elif cores.note:
        console.print(cores.note)
    router = _router(plan, model, cores)
    contenders = [Contender(m, m, router) for m in MODES if m in plan.modes]
    slo = SLO(ttft_s=plan.ttft_s, tpot_s=plan.tpot_s)
    with progress_bar() as progress, Cluster(setup) as cluster:
        bars = Bars(progress, len(requests))
        return hold(cluster, contenders, requests, slo=slo, keep=None, on_event=bars)


def _router(plan: Plan, model: LoadedModel, cores: Cores) -> Callable[[], Router] | None:
    """A maker of fresh routers; None for the mode's own. Costs use speeds measured now."""
    if plan.router == "default":
        return None
    config, weights = model.config, model.decoder.head
    speed = measure_phases(model, cores).prefill_tok_s if plan.router == "cost" else 0.0

    def make() -> Router:
        if plan.router == "cost":
            kv_bytes = config.kv_bytes_per_token(weights.dtype.itemsize)
            if plan.network is None:  # a copy in memory, hidden behind the prefill
                return CostBased(speed, kv_bytes)
            wire = named_network(plan.network)
            exposed = 1 / config.num_layers
            return CostBased(speed, kv_bytes, wire.latency_s, wire.bytes_per_s, exposed)
        if plan.router == "threshold":
            return Threshold(plan.local_tokens)
        if plan.router == "length":
            return LengthAware(plan.local_tokens)
        simple = {"remote": AlwaysRemote, "local": NeverRemote, "round_robin": RoundRobin}
        return simple[plan.router]()

    return make


def _complain(console: Console, outcomes: dict[str, Outcome]) -> None:
    """What must never be: leaks, broken rules, failures. Said loudly where it is."""
    for name, outcome in outcomes.items():
        leaked = sum(outcome.run.leaked_blocks.values())
        violations = check_timeline(outcome.run.timeline)
        if leaked:
            console.print(f"[bold red]{name}: {leaked} blocks leaked.[/bold red]")
        for violation in violations[:5]:
            console.print(f"[bold red]{name}: {violation.message}[/bold red]")
        if outcome.summary.failed:
            console.print(f"{name}: {outcome.summary.failed} requests failed; see the timeline.")


def _record(
    plan: Plan, model: LoadedModel, trace: Trace, outcomes: dict[str, Outcome]
) -> dict[str, Any]:
    asked = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(plan).items()}
    return {
        "plan": asked,
        "model": {"name": model.name, "fingerprint": model.fingerprint},
        "machine": describe_machine().to_dict(),
        "trace": {"source": trace.source, "rows": len(trace.rows), "notes": trace.notes},
        "modes": {name: outcome.summary.to_dict() for name, outcome in outcomes.items()},
        "leaked_blocks": {name: outcome.run.leaked_blocks for name, outcome in outcomes.items()},
        "timelines": {
            name: [json.loads(event.to_json()) for event in outcome.run.timeline]
            for name, outcome in outcomes.items()
        },
    }
