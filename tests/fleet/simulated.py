"""A small simulated fleet and a trace that strains it, for the simulator's tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from minipd.fleet.fleet import Fleet, Mode, WorkerKind
from minipd.fleet.network import Network
from minipd.fleet.timers import PointTimer
from minipd.measure.rows import TraceRow
from minipd.measure.workloads import generate
from minipd.sched.limits import Limits

TIMER = PointTimer(((0, 0.003), (1000, 0.2)), ((1, 0.0307), (16, 0.0411)), 1.3e-6)
PLENTY = 1 << 30
MODES: list[Mode] = ["colocated", "decode_first", "chunked", "disaggregated"]


def fleet(mode: Mode = "disaggregated", kv_tokens: int = 40_000, **changes: Any) -> Fleet:
    kind = WorkerKind(TIMER, kv_tokens)
    made = Fleet(
        kind,
        kind,
        mode=mode,
        num_prefill=2,
        num_decode=2,
        limits=Limits(16, 600),
        chunk_tokens=64,
        kv_bytes_per_token=1e5,
        num_layers=4,
        network=Network(1.0137e-3, 1.0219e8, 1.51e8),
    )
    return replace(made, **changes)


def rows(number: int = 120, rate: float = 4.0) -> list[TraceRow]:
    made = generate("multi_turn", number, rate, seed=3)
    return [
        replace(
            row,
            prompt_tokens=min(row.prompt_tokens, 900),
            output_tokens=min(row.output_tokens, 100),
            segments=row.segments if row.prompt_tokens <= 900 else (),
        )
        for row in made
    ]
