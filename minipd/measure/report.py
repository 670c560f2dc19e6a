"""What a command shows and leaves behind: progress, tables drawn from its record, the JSON file."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console, Group
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from minipd.measure.outputs import replace_text


class ReportError(RuntimeError):
    """A result file that cannot be written; the message names it."""


def progress_bar() -> Progress:
    """A bar on stderr, drawn only where someone can see it, gone when done."""
    console = Console(stderr=True)
    seen = console.is_terminal or console.is_jupyter
    return Progress(console=console, transient=True, disable=not seen)


def write_json(path: Path, content: dict[str, Any]) -> None:
    try:
        replace_text(path, json.dumps(content, indent=2) + "\n")
    except OSError as error:
        raise ReportError(f"Cannot write {path} ({error}); choose another file.") from error


def bench_table(record: dict[str, Any]) -> Group:
    """The figures of one `minipd bench`, its ratios when it compared, and its remarks."""
    return Group(_rates_table(record), Text("\n".join(_bench_notes(record))))


def ceilings_table(ceilings: list[dict[str, Any]]) -> Group:
    """One row per device, dtype and thread count; starred rows have a remark below."""
    table = Table(title="The two ceilings of this machine")
    table.add_column("device, dtype, threads", overflow="fold")
    for name in ("GFLOP/s", "spread", "GB/s", "spread", "FLOP/byte"):
        table.add_column(name, justify="right", no_wrap=True)
    remarks: list[str] = []
    for entry in ceilings:
        case = f"{entry['device']}, {entry['dtype']}, {entry['threads']}"
        remark = entry.get("error") or entry["indicative_reason"]
        if remark:
            remarks.append(f"* {case}: {'' if 'error' in entry else 'indicative, '}{remark}")
        table.add_row(f"{case} *" if remark else case, *_ceiling_cells(entry))
    return Group(table, Text("\n".join(remarks)))


def _ceiling_cells(entry: dict[str, Any]) -> tuple[str, ...]:
    if "error" in entry:
        return ("-",) * 5
    ridge = f"{entry['ridge_flops_per_byte']:.1f}"
    return *_best(entry["products"]), *_best(entry["reads"]), ridge


def _best(ways: dict[str, dict[str, Any]]) -> tuple[str, str]:
    stats = max(ways.values(), key=lambda way: way["best"])
    return f"{stats['best'] / 1e9:.1f}", f"{stats['spread']:.0%}"


def _rates_table(record: dict[str, Any]) -> Table:
    model = record["model"]
    threads = f"{record['threads']} thread{'s' if record['threads'] > 1 else ''}"
    title = f"{model['name']}, {model['dtype']}, {record['device']}, {threads}"
    table = Table(title=title)
    table.add_column("test")
    for name in ("tokens/s", "± sd", "MFU", "MBU"):
        table.add_column(name, justify="right")
    table.add_row("pp512 (prefill)", *_rate(record, "pp512"), percent(record["mfu"]), "")
    for size, use in record["batch_use"].items():
        name = "tg128 (decode)" if size == "1" else f"tg128, {size} sequences"
        rate = _rate(record, f"tg128 x {size}")
        table.add_row(name, *rate, percent(use["mfu"]), percent(use["mbu"]))
    if record["peer"]:
        peer, name = record["peer"], record["vs"]
        rates = _rate(record, "peer pp512"), _rate(record, "peer tg128")
        table.add_row(f"pp512, {name}", *rates[0], percent(peer["mfu"]), "", style="dim")
        table.add_row(f"tg128, {name}", *rates[1], "", percent(peer["mbu"]), style="dim")
    return table


def percent(share: float) -> str:
    """A share as whole percent; one that is there but would round to nothing reads `<1%`."""
    return "<1%" if 0.0 < share < 0.005 else f"{share:.0%}"


def _rate(record: dict[str, Any], name: str) -> tuple[str, str]:
    stats = record["samples"][name]
    return f"{stats['mean']:.2f}", f"{stats['sd']:.2f}" if len(stats["samples"]) > 1 else "-"


def _beside(ceilings: dict[str, Any]) -> str:
    """Medians of what the phases' shares were taken of."""
    found = ceilings["beside"]
    flops = median(sample[found["product"]] for sample in found["pp512"])
    return f"here {flops / 1e9:.1f} GFLOP/s, {median(found['tg128']) / 1e9:.1f} GB/s"


def _bench_notes(record: dict[str, Any]) -> list[str]:
    ceilings = record["ceilings"]
    notes = [
        f"Ceilings in this run: {ceilings['flops'] / 1e9:.1f} GFLOP/s, "
        f"{ceilings['read_bytes_per_s'] / 1e9:.1f} GB/s. Decode starts from an empty cache; its "
        f"mean context is {record['work']['tg128_mean_context']:g} tokens."
    ]
    notes.append(
        "tokens/s and sd are the mean and the standard deviation of the runs' rates, as "
        "llama.cpp's llama-bench reports them; the bench sheet, MFU and MBU use the median, which "
        "one disturbed run cannot move. MFU and MBU are shares of ceilings sampled beside the runs "
        f"({_beside(ceilings)})."
    )
    if record["peer"]:
        ratio = record["ratio"]
        notes.append(
            f"Against {record['vs']} (median of pairs): prefill {ratio['pp512']:.2f} x, decode "
            f"{ratio['tg128']:.2f} x; our 16 sequences against its one: "
            f"{ratio['batch16_vs_single']:.2f} x."
        )
    if record["remarks"]:
        notes.append("Indicative only: " + "; ".join(record["remarks"]))
    return notes
