"""`minipd demo`: the project's main result in the terminal, with pictures in a folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from minipd.lab.comparison import (
    Bars,
    busy,
    comparison_table,
    complaints,
    save_pictures,
    timelines,
)
from minipd.lab.verdict import verdict
from minipd.measure.contest import Cores, is_chat, split_cores
from minipd.measure.demo import Demo, Phases, demo_rows, measure_phases, run_contest
from minipd.measure.machine import describe_machine
from minipd.measure.outputs import probe_file, probe_folder
from minipd.measure.report import progress_bar, write_json
from minipd.model.load import LoadedModel, load
from minipd.pools.links.emulated import Network
from minipd.pools.links.emulated import network as named_network


def run_demo(
    model: str = "smollm2-135m",
    folder: Path = Path("minipd-demo"),
    network: str | None = None,
    json_path: Path | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Measure this machine, run the trace in every mode, print the verdict, save the pictures.

    Returns what `json_path` receives: every figure, and the timelines behind them.
    """
    console = console or Console()
    wire = None if network is None else named_network(network)
    probe_file(json_path)
    probe_folder(folder)
    machine = describe_machine()
    console.print(f"[bold]1. This machine:[/bold] {escape(machine.summary)}")
    console.print("[bold]2. Reading and writing, measured apart[/bold]")
    with busy(f"loading {model}"):
        loaded, cores = load(model), split_cores(2)
    phases = _measure(console, loaded, cores)
    demo = _serve(console, loaded, wire, phases)
    _report(console, demo)
    found = {"machine": machine.to_dict(), "phases": asdict(phases)} | demo.to_dict()
    found |= {"network": network, "timelines": timelines(demo.outcomes)}
    if json_path is not None:
        write_json(json_path, found)
    pictures = save_pictures(
        demo.outcomes, folder, keep=is_chat, in_timeline=("colocated", "disaggregated")
    )
    console.print(f"Pictures: {', '.join(map(str, pictures))}", markup=False)
    return found


def _measure(console: Console, model: LoadedModel, cores: Cores) -> Phases:
    with busy("measuring both phases"):
        phases = measure_phases(model, cores)
    console.print(
        f"   {model.name} on one worker: prefill {phases.prefill_tok_s:.0f} tokens/s, decode "
        f"{phases.decode_tok_s:.1f} tokens/s (`minipd bench` measures them with care)",
        markup=False,
    )
    return phases


def _serve(console: Console, model: LoadedModel, wire: Network | None, phases: Phases) -> Demo:
    factor, num_requests = phases.time_factor, len(demo_rows())
    console.print(
        f"[bold]3. One trace, four ways to serve it:[/bold] {num_requests} requests, two workers, "
        f"arrival times multiplied by {factor:.3g} to suit this machine"
    )
    with progress_bar() as progress:
        bars = Bars(progress, num_requests)
        return run_contest(model, network=wire, time_factor=factor, on_event=bars)


def _report(console: Console, demo: Demo) -> None:
    """The table, what weakens it beside it, the verdict, and what went wrong if anything did."""
    console.print(comparison_table(demo.outcomes))
    console.print(
        "Gaps, first tokens and time per token are the chats'; tokens per second count everybody.",
        markup=False,
    )
    for note in demo.notes:
        console.print(f"Note: {note}", markup=False)
    for sentence in verdict(demo):
        console.print(sentence, markup=False)
    for complaint in complaints(demo.outcomes):
        console.print(complaint, style="bold red", markup=False)
