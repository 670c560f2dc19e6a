"""`minipd simulate`: statistics of a trace, or a fleet that serves it in one mode or several."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, cast

from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from minipd.fleet.simulate import SimResult, simulate
from minipd.fleet.simulate_asked import Asked, source_of
from minipd.fleet.simulate_fleet import failures_of, fleet_of
from minipd.fleet.sources import Source
from minipd.measure.outputs import save_text
from minipd.measure.slo import SLO
from minipd.measure.trace_stats import TraceStats, describe, table
from minipd.pools.controller import Controller
from minipd.sched.rebalance import Rebalancer

SHOWN_EVERY = 64  # ended requests between two moves of the bar


@dataclass(slots=True)
class ModeRun:
    """One mode's result, and the seconds that simulating it took."""

    result: SimResult
    wall_s: float


def run_stats(asked: Asked, json_path: Path | None = None, console: Console | None = None) -> None:
    """Describe the requests, which are held in memory for it."""
    console = console or Console()
    source = source_of(asked)
    stats = describe(list(source.rows))
    shown = Table(title=source.name, box=box.SIMPLE_HEAD, show_header=False)
    for name, value in table(stats):
        shown.add_row(name, value)
    console.print(shown, highlight=False)
    _print_notes(console, source.notes)
    if json_path is not None:
        _write(json_path, stats_record(source, stats))


def stats_record(source: Source, stats: TraceStats) -> dict[str, Any]:
    return {"trace": source.name, "notes": source.notes, **asdict(stats)}


def run_simulate(
    asked: Asked, json_path: Path | None = None, console: Console | None = None
) -> dict[str, ModeRun]:
    """Simulate each mode over the same requests, print the figures, write what was asked for."""
    console = console or Console()
    for mode in asked.modes:  # what cannot work is refused before anything runs
        fleet_of(asked, mode).make_router()
    source = source_of(asked)
    failures_of(asked, source)
    runs: dict[str, ModeRun] = {}
    errors = Console(stderr=True)
    seen = errors.is_terminal or errors.is_jupyter
    with Progress(console=errors, transient=True, disable=not seen) as progress:
        for mode in asked.modes:
            bar = progress.add_task(mode, total=source.count)

            def show(ended: int, bar: Any = bar) -> None:
                if ended % SHOWN_EVERY == 0:
                    progress.update(bar, completed=ended)

            runs[mode] = run_mode(asked, mode, show)
    console.print(_heading(asked, source), markup=False, highlight=False)
    console.print(results_table(runs, asked.has_slo), highlight=False)
    wall_s = sum(run.wall_s for run in runs.values())
    notes = [*source.notes, *(note for run in runs.values() for note in run.result.notes)]
    _print_notes(console, [*dict.fromkeys(notes), f"Simulated in {wall_s:.1f} s."])
    if json_path is not None:
        _write(json_path, record_of(asked, source, runs))
    return runs


def run_mode(asked: Asked, mode: str, on_end: Callable[[int], None] | None = None) -> ModeRun:
    """Simulate one mode over requests of its own."""
    fleet, source = fleet_of(asked, mode), source_of(asked)
    slo = SLO(ttft_s=asked.ttft_s, tpot_s=asked.tpot_s)
    controller = None
    if asked.rebalance and asked.ttft_s is not None and asked.tpot_s is not None:
        controller = Controller(Rebalancer(asked.ttft_s, asked.tpot_s))
    failures = failures_of(asked, source)
    began = perf_counter()
    result = simulate(
        fleet, source.rows, slo=slo, failures=failures, controller=controller, on_end=on_end
    )
    if controller is not None:
        result.notes += [f"{move.worker} moved: {move.reason}." for move in controller.moves]
    return ModeRun(result, perf_counter() - began)


def _heading(asked: Asked, source: Source) -> str:
    """What is simulated, and against which limits."""
    gpus = " and ".join(dict.fromkeys((asked.prefill.gpu, asked.decode.gpu)))
    limits = [
        f"{name} {1000 * limit_s:g} ms"
        for name, limit_s in (("TTFT", asked.ttft_s), ("TPOT", asked.tpot_s))
        if limit_s is not None
    ]
    slo = " and ".join(limits) or "none given (--ttft, --tpot)"
    return f"{asked.model} on {gpus}, {source.count} requests of {source.name}. SLO: {slo}."


def results_table(runs: dict[str, ModeRun], with_slo: bool) -> Table:
    """A column for each mode; seconds of the simulated clock."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("")
    for mode in runs:
        shown.add_column(mode, justify="right")
    columns = [_figures(run.result, with_slo) for run in runs.values()]
    for name in dict.fromkeys(name for column in columns for name in column):
        shown.add_row(name, *(column.get(name, "-") for column in columns))
    return shown


def _figures(result: SimResult, with_slo: bool) -> dict[str, str]:
    summary = result.summary
    ended = f"{summary.finished} of {summary.arrived}"
    shown = {"workers, devices": f"{result.num_workers}, {result.num_devices}", "finished": ended}
    for label, name in (("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("gap", "itl_s")):
        values = [summary.percentile_ms(name, p) for p in ("p50", "p90", "p99")]
        shown[f"{label} p50 / p90 / p99, ms"] = " / ".join(
            "-" if value is None else f"{value:.4g}" for value in values
        )
    shown["requests/s, output tokens/s"] = (
        f"{summary.requests_per_s:.4g}, {summary.output_tokens_per_s:.5g}"
    )
    if with_slo:
        if summary.attainment is not None:
            shown["within the SLOs"] = f"{summary.attainment:.1%}"
        per_device = f"{summary.goodput_per_s:.4g}, {result.goodput_per_device:.4g}"
        shown["good requests/s, per device"] = per_device
    for pool, share in summary.pools.items():
        shown[f"busy: {pool}"] = f"{share:.0%}"
    if summary.preemptions:
        shown["preempted"] = str(summary.preemptions)
    return shown


def record_of(asked: Asked, source: Source, runs: dict[str, ModeRun]) -> dict[str, Any]:
    """Everything as plain values; a number that JSON does not know becomes null."""
    modes = {name: {"wall_s": run.wall_s, **run.result.to_dict()} for name, run in runs.items()}
    told = {"name": source.name, "requests": source.count, "notes": source.notes}
    return {"asked": asdict(asked), "source": told, "modes": modes}


def _print_notes(console: Console, notes: list[str]) -> None:
    for note in notes:
        console.print(f"Note: {note}", markup=False, highlight=False)


def _write(path: Path, record: dict[str, Any]) -> None:
    save_text(path, json.dumps(_plain(record), indent=2) + "\n")


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in cast("dict[object, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in cast("list[object]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
