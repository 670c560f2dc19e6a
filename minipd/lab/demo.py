"""`minipd demo`: the project's main result in the terminal, with pictures in a folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from minipd.lab.pictures.gaps import itl_svg
from minipd.lab.pictures.summary import summary_svg, usual_measures
from minipd.lab.pictures.timeline import timelines_svg
from minipd.measure.contest import Contender, is_chat, split_cores
from minipd.measure.demo import Demo, demo_rows, measure_phases, run_contest
from minipd.measure.machine import describe_machine
from minipd.measure.real_hardware import H100X8
from minipd.measure.report import progress_bar, write_json
from minipd.measure.stalls import find_stalls
from minipd.model.load import load
from minipd.pools.links.emulated import network as named_network
from minipd.timeline import TERMINAL_KINDS, Event

TITLES = {
    "colocated": "colocated, prefill first",
    "chunked": "colocated, chunked prefill",
    "colocated_length_aware": "colocated, documents on one worker",
    "disaggregated": "disaggregated",
}


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
        watch = _Watch(progress, len(rows))
        demo = run_contest(loaded, network=wire, time_factor=factor, on_event=watch)
    found = {"machine": machine.to_dict(), "phases": asdict(phases)} | demo.to_dict()
    _print_verdict(console, demo)
    pictures = save_pictures(demo, folder)
    console.print(f"Pictures: {', '.join(str(path) for path in pictures)}")
    if json_path is not None:
        write_json(json_path, found)
    return found


class _Watch:
    """One progress bar per contender, moved by its requests' last events."""

    def __init__(self, progress: Progress, num_requests: int) -> None:
        self._progress, self._num_requests = progress, num_requests
        self._bars: dict[str, Any] = {}

    def __call__(self, contender: Contender, event: Event) -> None:
        if contender.name not in self._bars:
            self._bars[contender.name] = self._progress.add_task(
                TITLES[contender.name], total=self._num_requests
            )
        if event.kind in TERMINAL_KINDS:
            self._progress.advance(self._bars[contender.name])


def _print_verdict(console: Console, demo: Demo) -> None:
    console.print(verdict_table(demo))
    for sentence in verdict(demo):
        console.print(sentence)


def verdict_table(demo: Demo) -> Table:
    """Every figure of every contender, better or worse."""
    table = Table("", *(TITLES[name] for name in demo.outcomes))
    for measure in usual_measures({n: o.summary for n, o in demo.outcomes.items()}):
        table.add_row(measure.name, *(measure.printed(name) for name in demo.outcomes))
    return table


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


def save_pictures(demo: Demo, folder: Path) -> list[Path]:
    """Timelines, gaps and figures side by side, as SVG files with their alternative text."""
    folder.mkdir(parents=True, exist_ok=True)
    step_s = demo.outcomes["colocated"].summary.undisturbed_step_s
    runs = {TITLES[n]: o.run.timeline for n, o in demo.outcomes.items()}
    summaries = {TITLES[n]: o.summary for n, o in demo.outcomes.items()}
    two = {TITLES[n]: demo.outcomes[n].run.timeline for n in ("colocated", "disaggregated")}
    pictures = {
        "timeline": timelines_svg(two, undisturbed_s=step_s),
        "gaps": itl_svg(runs, keep=is_chat),
        "summary": summary_svg(usual_measures(summaries)),
    }
    return [picture.save(folder / f"{name}.svg") for name, picture in pictures.items()]
