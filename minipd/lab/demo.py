"""`minipd demo`: the project's main result in the terminal, with pictures in a folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from minipd.lab.comparison import Bars, comparison_table, save_pictures
from minipd.measure.contest import is_chat, split_cores
from minipd.measure.demo import Demo, demo_rows, measure_phases, run_contest
from minipd.measure.machine import describe_machine
from minipd.measure.real_hardware import H100X8
from minipd.measure.report import progress_bar, write_json
from minipd.measure.stalls import find_stalls
from minipd.model.load import load
from minipd.pools.links.emulated import network as named_network


def run_demo(
    model: str = "smollm2-135m",
    folder: Path = Path("minipd-demo"),
    network: str | None = None,
    json_path: Path | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Measure this machine, run the trace in every mode, print the verdict, save the pictures."""
    console = console or Console()
    wire = named_network(network) if network else None
    machine = describe_machine()
    console.print(f"[bold]1. This machine:[/bold] {machine.summary}")
    console.print("[bold]2. Reading and writing, measured apart[/bold]")
    loaded, cores, rows = load(model), split_cores(2), demo_rows()
    phases = measure_phases(loaded, cores)
    console.print(
        f"   {loaded.name} on one worker: prefill {phases.prefill_tok_s:.0f} tokens/s, decode "
        f"{phases.decode_tok_s:.1f} tokens/s (`minipd bench` measures them with care)"
    )
    factor = phases.time_factor
    console.print(
        f"[bold]3. One trace, four ways to serve it:[/bold] {len(rows)} requests, two workers, "
        f"arrival times multiplied by {factor:.2f} to suit this machine"
    )
    with progress_bar() as progress:
        bars = Bars(progress, len(rows))
        demo = run_contest(loaded, network=wire, time_factor=factor, on_event=bars)
    found = {"machine": machine.to_dict(), "phases": asdict(phases)} | demo.to_dict()
    console.print(comparison_table(demo.outcomes))
    for sentence in verdict(demo):
        console.print(sentence)
    pictures = save_pictures(
        demo.outcomes, folder, keep=is_chat, timelines=("colocated", "disaggregated")
    )
    console.print(f"Pictures: {', '.join(str(path) for path in pictures)}")
    if json_path is not None:
        write_json(json_path, found)
    return found


def verdict(demo: Demo) -> list[str]:
    """What the run showed, in sentences that hold for this run only."""
    colocated, split = demo.outcomes["colocated"], demo.outcomes["disaggregated"]
    stalls = find_stalls(colocated.run.timeline, undisturbed_s=colocated.summary.undisturbed_step_s)
    said: list[str] = []
    if stalls:
        worst = max(stalls, key=lambda s: s.longest_s)
        said.append(
            f"Colocated, the longest freeze lasted {worst.longest_s * 1e3:.0f} ms: "
            f"{worst.tokens:.0f} tokens that each frozen answer did not get. (On {H100X8.name} a "
            f"512-token prompt costs {H100X8.freeze_tokens(512):.1f} tokens, one of 8,192 "
            f"{H100X8.freeze_tokens(8192):.0f}: the laptop exaggerates.)"
        )
    ratio = demo.p99_itl_ratio()
    if ratio is not None:
        said.append(f"Split, the chats' p99 gap between tokens is {ratio:.1f} times shorter.")
    said.append(_what_it_cost(colocated.summary, split.summary))
    if demo.tokens.passed:
        said.append(
            f"The answers are the same tokens in every mode ({demo.tokens.num_sequences} compared, "
            f"{demo.tokens.near_ties} near-ties); {demo.leaked_blocks} blocks leaked."
        )
    else:
        said.append(f"[bold red]{demo.tokens.num_different} answers differ: a bug.[/bold red]")
    return [*said, demo.cores.note] if demo.cores.note else said


def _what_it_cost(colocated: Any, split: Any) -> str:
    def change(after: float | None, before: float | None) -> str:
        return f"{100 * (after / before - 1):+.0f} %" if after and before else "not measured"

    first = [s.percentile_ms("ttft_s", "p50") for s in (split, colocated)]
    share = split.handoffs.share_of_prefill
    moved = "" if share is None else f"; moving the KV took {100 * share:.1f} % of prefill time"
    return (
        f"In exchange: median time to first token {change(*first)}, output tokens per second "
        f"{change(split.output_tokens_per_s, colocated.output_tokens_per_s)}{moved}."
    )
