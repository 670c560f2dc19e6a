"""What the simulator found of a plan: predicted beside simulated."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table

from minipd.fleet.plan_report import seconds
from minipd.fleet.plan_verify import Verified


def verified_table(checked: Verified) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="The plan, simulated")
    table.add_column("")
    for name in ("predicted", "simulated", "difference"):
        table.add_column(name, justify="right")
    for row in checked.compared:
        if row.name.startswith("within"):
            table.add_row(row.name, f"{row.predicted:.0%} or more", f"{row.simulated:.1%}", "")
        else:
            off = row.predicted / row.simulated - 1.0 if row.simulated else 0.0
            cells = (seconds(row.predicted), seconds(row.simulated), f"{off:+.0%}")
            table.add_row(row.name, *cells)
    return table


def verified_words(checked: Verified, span_s: float, trace: str | None) -> str:
    rate = f"{(checked.requests - 1) / span_s:.3g} per second" if span_s > 0.0 else "at once"
    if trace:
        requests = "1 request" if checked.requests == 1 else f"{checked.requests} requests"
        return (
            f"{requests} of {trace}, {rate}. The prediction is for equal lengths "
            "and random arrivals at the rate that was planned for."
        )
    return f"{checked.requests} equal requests at random times, {rate}."


def verified_dict(checked: Verified) -> dict[str, Any]:
    return {
        "requests": checked.requests,
        "compared": [asdict(row) for row in checked.compared],
        "simulated": checked.result.to_dict(),
    }
