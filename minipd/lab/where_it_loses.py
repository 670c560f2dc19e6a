"""Where the split loses: five fair comparisons on paced workers, told by their timelines.

Both sides of each get the same requests, the same number of workers and the same memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from minipd.lab.goodput_sweep import Requests
from minipd.lab.paced_runs import STAND_IN, Case, all_at_once, faster
from minipd.lab.pictures import Picture, timelines_svg
from minipd.measure.metrics import run_metrics
from minipd.measure.rows import TraceRow
from minipd.measure.stats import Samples
from minipd.measure.worker_use import WorkerUse
from minipd.model.config import ModelConfig
from minipd.model.load import load
from minipd.pools.cluster import Run
from minipd.pools.links.emulated import Network
from minipd.pools.paced import Pace
from minipd.sched.step_times import interpolate

Side = Literal["colocated", "disaggregated"]
LONG_READ_S = 0.6  # reading 512 tokens takes at most so long here; slower machines: fast motion


@dataclass(frozen=True, slots=True)
class Tried:
    """A case with both of its runs."""

    case: Case
    runs: dict[str, Run]

    def requests(self, side: str) -> Requests:
        return run_metrics(self.runs[side].timeline).requests

    def picture(self) -> Picture:
        """Both runs over one time axis."""
        runs = {side: run.timeline for side, run in self.runs.items()}
        return timelines_svg(runs, f"Where the split loses: {self.case.name} (paced)", sequences=3)


def equal_rows(count: int, every_s: float, prompt: int, answer: int) -> tuple[TraceRow, ...]:
    return tuple(TraceRow(i * every_s, prompt, answer) for i in range(count))


def motion_of(pace: Pace) -> float:
    """By what the cases' times are divided, so that they take as long on every machine."""
    return max(1.0, interpolate(pace.prefill, 512) / LONG_READ_S)


def losing_cases(pace: Pace) -> dict[str, Case]:
    """Five, by a short name; lengths are fixed, times follow this machine, in fast motion."""
    pace = faster(pace, motion_of(pace))
    read_s, write_s = interpolate(pace.prefill, 256), interpolate(pace.decode, 2)
    alone_s = interpolate(pace.prefill, 160) + 16 * interpolate(pace.decode, 1)
    half_speed = 256 * _kv_bytes(load(STAND_IN).config) / (2 * read_s)
    cases = (
        Case(
            "short prompts",
            equal_rows(12, write_s / 4, 24, 48),
            "the reader is idle, and one worker writes what two could",
        ),
        Case(
            "slow link",
            equal_rows(6, 2 * read_s, 256, 16),
            "a first token soon, then a long wait for the second: the notes are on the road",
            network=Network(50e-6, half_speed),
        ),
        Case(
            "low load",
            equal_rows(4, 1.5 * alone_s, 160, 16),
            "nobody is there to be disturbed, so there is nothing to gain",
        ),
        Case(
            "wrong ratio",
            equal_rows(16, read_s / 4, 320, 8),
            "three writers wait for one reader",
            num_prefill=1,
            num_decode=3,
        ),
        Case(
            "memory held twice",
            equal_rows(12, write_s / 4, 128, 48),
            "only the writer's memory holds running answers; the others queue",
            num_blocks=52,
        ),
    )
    return {case.name: case for case in cases}


def _kv_bytes(config: ModelConfig) -> int:
    return config.kv_bytes_per_token(4)


def try_cases(pace: Pace, cases: Mapping[str, Case]) -> dict[str, Tried]:
    """Every case colocated and disaggregated, all at once, in fast motion; about ten seconds."""
    pace = faster(pace, motion_of(pace))
    sides: tuple[Side, ...] = ("colocated", "disaggregated")
    runs = iter(all_at_once([(pace, side, case) for case in cases.values() for side in sides]))
    return {name: Tried(case, {side: next(runs) for side in sides}) for name, case in cases.items()}


def median(values: Sequence[float]) -> float:
    return Samples(tuple(values)).median


def second_token_s(requests: Requests) -> float:
    """Median wait from the first token to the second."""
    return median([request.itl_s[0] for request in requests if request.itl_s])


def losses_table(tried: Mapping[str, Tried]) -> dict[str, list[object]]:
    """A row for each case and side: what readers waited, and which share of time workers worked."""
    lines = [(name, one, side) for name, one in tried.items() for side in one.runs]
    requests = [one.requests(side) for _, one, side in lines]
    return {
        "case": [name for name, _, _ in lines],
        "served": [side for _, _, side in lines],
        "first token (s)": [median([r.ttft_s or 0.0 for r in rs]) for rs in requests],
        "second token after (s)": [second_token_s(rs) for rs in requests],
        "TPOT (ms)": [1000 * median([r.tpot_s or 0.0 for r in rs]) for rs in requests],
        "whole answer (s)": [median([r.e2e_s or 0.0 for r in rs]) for rs in requests],
        "busy": [busy_text(one.runs[side]) for _, one, side in lines],
    }


def busy_text(run: Run) -> str:
    """The share of the run that each worker spent in steps."""
    summary = run_metrics(run.timeline).result()
    workers = sorted(summary.workers, key=lambda use: use.worker)
    return ", ".join(_busy(use, summary.duration_s) for use in workers)


def _busy(use: WorkerUse, window_s: float) -> str:
    return f"{use.role} {use.busy_share(window_s):.0%}"


def slower(tried: Tried) -> float:
    """How many times as long the split's median answer took as the colocated one's."""
    both = [
        median([r.e2e_s or 0.0 for r in tried.requests(s)]) for s in ("disaggregated", "colocated")
    ]
    return both[0] / both[1]
