"""From benchmarks/raw/simulate.json to the rows of the table in docs/fleet.md.

Used by simulate.py, which writes them there, and by a test that holds the page against the raw
figures.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

HEAD = "| check | known | simulated |"


def doc_rows(raw: dict[str, Any]) -> list[str]:
    """A row per finding of the parts that there are: check, what is known, what was simulated."""
    found = [row for name, tell in TOLD.items() if name in raw for row in tell(raw[name])]
    return [f"| {check} | {known} | {seen} |" for check, known, seen in found]


def table_of(page: list[str]) -> slice:
    """The rows of the table among the page's lines."""
    first = page.index(HEAD) + 2
    last = next((n for n in range(first, len(page)) if not page[n].startswith("|")), len(page))
    return slice(first, last)


def rewrite(path: Path, raw: dict[str, Any]) -> None:
    """Put the rows into the page, in place of those that are there."""
    page = path.read_text("utf-8").splitlines()
    page[table_of(page)] = doc_rows(raw)
    path.write_text("\n".join(page) + "\n", "utf-8")


Cells = tuple[str, str, str]


def _speed(part: dict[str, Any]) -> list[Cells]:
    runs, workers = part["runs"], part["workers"]
    told = [
        (
            f"{run['requests']:,} requests of {part['prompt_tokens']} in, {part['output_tokens']} "
            f"out, {workers} workers, {run['fleet']}: seconds of one core",
            "under 60",
            f"{run['cpu_s']:.0f}",
        )
        for run in runs
        if run["requests"] == 100_000
    ]
    alike = {run["requests"]: run for run in runs if run["fleet"] == runs[0]["fleet"]}
    counts = ", ".join(f"{number:,}" for number in alike)
    peaks = ", ".join(f"{run['peak_bytes'] / 1e6:.0f}" for run in alike.values())
    same = runs[0]["fingerprint"] == runs[1]["fingerprint"]
    told.append((f"peak memory of the process with {counts} requests, MB", "the same", peaks))
    told.append(("the same run again", "the same figures", "the same" if same else "others"))
    return told


QUEUES = {
    "single": "one worker",
    "pipeline": "two pipeline stages",
    "tensor": "two-way tensor parallelism, 1.7 times as fast",
}


def _md1(part: dict[str, Any]) -> list[Cells]:
    told: list[Cells] = []
    for name, words in QUEUES.items():
        points = part[name]
        loads = ", ".join(points)
        known = ", ".join(f"{point['formula_s']:.4f}" for point in points.values())
        seen = ", ".join(f"{point['mean_ttft_s']:.4f}" for point in points.values())
        worst = max(abs(point["error"]) for point in points.values())
        told.append(
            (f"M/D/1, {words}, load {loads}: mean TTFT", known, f"{seen} (within {worst:.2%})")
        )
    exact = part["worst_error_against_lindley"]
    told.append(
        ("the same arrivals, Lindley's recursion: error", "0", f"{exact:.0e}" if exact else "0")
    )
    return told


def _figure1(part: dict[str, Any]) -> list[Cells]:
    known, rate = part["published"], part["rate_2p1d"]
    return [
        (
            "DistServe, figure 1: best of 1 to 3 GPUs, requests/s per GPU",
            f"2P1D, {known['rate_2p1d']:.2f}",
            f"{part['best_up_to_3_gpus']}, {rate:.2f}",
        ),
        (
            "the same, gain over both phases on one GPU as published (1.6)",
            f"{known['gain']}",
            f"{part['gain_over_published']:.2f}",
        ),
        (
            "the same, both phases on one GPU, requests/s",
            f"{known['colocated']}",
            f"{part['colocated']:.2f}",
        ),
    ]


def _placement(part: dict[str, Any]) -> list[Cells]:
    known, best = part["published"], part["ranked"][0]
    return [
        (
            "DistServe, OPT-13B, best placement on 4 GPUs: requests/s per GPU",
            f"TP{known['tp_prefill']} and TP{known['tp_decode']}, {known['rate_per_gpu']}",
            f"TP{best['tp_prefill']} and TP{best['tp_decode']}, {best['rate_per_gpu']:.2f}",
        )
    ]


TOLD: dict[str, Callable[[dict[str, Any]], list[Cells]]] = {
    "speed": _speed,
    "md1": _md1,
    "figure1": _figure1,
    "placement": _placement,
}
