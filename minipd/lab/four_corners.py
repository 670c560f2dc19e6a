"""Lesson 11: {both phases on each worker, a split} x {tensor parallel, wide expert parallel}.

The four fleets have the same GPUs, model, requests and promise; only these two choices differ. All
is simulated: step times come from `minipd.fleet.steps`, decisions from the engine's own schedulers.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minipd.fleet.calibrate import factors_for
from minipd.fleet.configs import find_model
from minipd.fleet.fleet import Fleet, Mode, WorkerKind
from minipd.fleet.gpus import find_device
from minipd.fleet.kvpool import kv_tokens
from minipd.fleet.network import Network
from minipd.fleet.simulate import simulate
from minipd.fleet.simulate_fleet import HANDOFF_S
from minipd.fleet.sources import equal_requests
from minipd.fleet.steps import StepModel
from minipd.fleet.timers import ModelTimer
from minipd.fleet.work import Chunk, Kind, Parallel
from minipd.lab.even_timer import EvenTimer
from minipd.measure.slo import SLO
from minipd.measure.summary import RunSummary
from minipd.sched.limits import Limits

MODEL, GPU, GPUS = "DeepSeek-V3", "H200", 32
TENSOR, WIDE = Parallel(tp=8), Parallel(ep=16)
READ, WRITE = 2000, 400  # tokens of a request
PROMISE = SLO(ttft_s=2.0, tpot_s=0.05)  # 20 tokens/s for each reader
ENOUGH = 0.9
RATES = (1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 72, 80, 96)  # requests/s, all GPUs
TRIED = (4, 16, 40)  # of them, in the lesson
TRIED_S, LONG_S = 30.0, 60.0  # simulated seconds of arrivals: in the lesson, for the record
READ_AT_ONCE = 4096  # tokens that a prefill step reads for each attention replica
PIECE = 512  # tokens of a step that reads and writes at once, for each attention replica
PARTS: dict[str, tuple[Kind, ...]] = {  # of a step that reads, as the lesson names them
    "matrices (ms)": ("matrix",),
    "attention (ms)": ("attention",),
    "experts (ms)": ("experts",),
    "exchanges (ms)": ("all_reduce", "all_to_all"),
    "norms and the like (ms)": ("elementwise",),
}


@dataclass(frozen=True, slots=True)
class Corner:
    """One of the four: how phases are placed, and how a worker is spread over its GPUs."""

    serving: str
    spread: Parallel
    mode: Mode
    num_prefill: int
    num_decode: int

    @property
    def name(self) -> str:
        return f"{self.serving}, {spread_name(self.spread)}"


CORNERS = (
    Corner("colocated", TENSOR, "colocated", 0, 4),
    Corner("split", TENSOR, "disaggregated", 2, 2),
    Corner("colocated", WIDE, "colocated", 0, 2),
    Corner("split", WIDE, "disaggregated", 1, 1),
)


@dataclass(frozen=True, slots=True)
class Found:
    """What a corner reached: requests/s of all GPUs, and 90th percentiles at that rate, seconds."""

    corner: Corner
    goodput: float
    ttft_s: float
    tpot_s: float
    room: int  # answers whose keys and values fit beside the weights


def spread_name(spread: Parallel) -> str:
    return f"TP{spread.tp}" if spread.ep == 1 else f"wide EP{spread.ep}"


def fleet_of(corner: Corner, even: bool = False, room: float = 1.0) -> Fleet:
    """The corner's workers, `GPUS` in all; `even` as in `EvenTimer`, `room` times the memory that
    is left for keys and values."""
    model, device, spread = find_model(MODEL), find_device(GPU), corner.spread
    timer = ModelTimer(StepModel(model, device, factors_for(device), spread))
    tokens = round(room * kv_tokens(model, device.memory_bytes, spread))
    kind = WorkerKind(EvenTimer(timer) if even else timer, tokens, spread.devices)
    wires = device.network_bytes_per_s * spread.devices
    fleet = Fleet(
        prefill=kind,
        decode=kind,
        mode=corner.mode,
        num_prefill=corner.num_prefill,
        num_decode=corner.num_decode,
        limits=Limits(1 << 14, READ_AT_ONCE * spread.attention_replicas),
        chunk_tokens=PIECE * spread.attention_replicas,
        kv_bytes_per_token=model.kv_bytes_per_token(),
        num_layers=model.num_layers,
        network=Network(HANDOFF_S, wires) if corner.mode == "disaggregated" else Network(),
    )
    assert fleet.num_devices == GPUS, f"every corner has {GPUS} GPUs, not {fleet.num_devices}"
    return fleet


def served(fleet: Fleet, rate_per_s: float, seconds: float) -> RunSummary:
    """Equal requests at random times for so many simulated seconds."""
    count = max(60, round(rate_per_s * seconds))
    return simulate(fleet, equal_requests(count, READ, WRITE, rate_per_s).rows, slo=PROMISE).summary


def reach(corner: Corner, seconds: float, even: bool = False) -> Found:
    """The highest of `RATES` that keeps the promise: doubled until it breaks, then halved between.

    All zero where not even the lowest rate will do.
    """
    fleet = fleet_of(corner, even)
    room = corner.num_decode * fleet.decode.kv_tokens // (READ + WRITE)
    best = Found(corner, 0.0, 0.0, 0.0, room)
    good, bad, at = -1, len(RATES), RATES.index(8)
    while bad - good > 1:
        summary = served(fleet, RATES[at], seconds)
        if (summary.attainment or 0.0) < ENOUGH:
            bad = at
        else:
            good, best = at, _found(corner, RATES[at], summary, room)
        is_open = bad == len(RATES) and RATES[good] * 2 in RATES
        at = RATES.index(RATES[good] * 2) if is_open else (good + bad) // 2
    return best


def _found(corner: Corner, rate: float, summary: RunSummary, room: int) -> Found:
    ttft, tpot = (summary.percentile_ms(name, "p90") or 0.0 for name in ("ttft_s", "tpot_s"))
    return Found(corner, float(rate), ttft / 1000, tpot / 1000, room)


@dataclass(frozen=True, slots=True)
class Tried:
    """One fleet at one rate: the share of requests within the promise, and waits in seconds."""

    share: float
    ttft_p90_s: float
    tpot_p90_s: float
    gap_p99_s: float


Tries = dict[int, Tried]  # by rate


def tried(
    corner: Corner, even: bool = False, rates: Sequence[int] = TRIED, room: float = 1.0
) -> Tries:
    """What happens at each rate; none are tried after the first at which the promise is broken."""
    fleet, found = fleet_of(corner, even, room), Tries()
    for rate in rates:
        summary = served(fleet, rate, TRIED_S)
        waits = [("ttft_s", "p90"), ("tpot_s", "p90"), ("itl_s", "p99")]
        seconds = [(summary.percentile_ms(*wait) or 0.0) / 1000 for wait in waits]
        found[rate] = Tried(summary.attainment or 0.0, *seconds)
        if found[rate].share < ENOUGH:
            break
    return found


def try_all() -> dict[str, Tries]:
    """`tried` for all four by name, with a bar while it takes its quarter of a minute."""
    bar: Any = importlib.import_module("tqdm.auto").tqdm
    shown: Iterable[Corner] = bar(CORNERS, "four fleets", disable=None, leave=False)
    return {corner.name: tried(corner) for corner in shown}


def tried_table(runs: Mapping[str, Tries]) -> dict[str, list[object]]:
    """A row for each fleet, a column for each rate; a dash where an earlier rate was too much."""
    table: dict[str, list[object]] = {"fleet": list(runs)}
    for rate in TRIED:
        found = [one.get(rate) for one in runs.values()]
        table[f"{rate} requests/s"] = ["-" if one is None else f"{one.share:.0%}" for one in found]
    return table


def waits_at(runs: Mapping[str, Tries], rate: int) -> dict[str, list[object]]:
    """What readers waited for at one rate, of the fleets that were tried at it."""
    seen = {name: one[rate] for name, one in runs.items() if rate in one}
    return {
        "fleet": list(seen),
        "first token, p90 (s)": [round(one.ttft_p90_s, 2) for one in seen.values()],
        "time per token, p90 (ms)": [round(1000 * one.tpot_p90_s) for one in seen.values()],
        "gap, p99 (ms)": [round(1000 * one.gap_p99_s) for one in seen.values()],
    }


def kept(runs: Mapping[str, Tries]) -> dict[str, int]:
    """The highest rate at which each fleet kept the promise, 0 for none."""
    return {
        name: max((rate for rate, at in one.items() if at.share >= ENOUGH), default=0)
        for name, one in runs.items()
    }


def readers_table() -> dict[str, list[object]]:
    """Where the time of half of the GPUs goes when they read, a prompt's part of a full step."""
    model, device, half = find_model(MODEL), find_device(GPU), GPUS // 2
    sums = "together, ms for each prompt", "prompts a second, at most"
    table: dict[str, list[object]] = {f"{half} GPUs that read": [*PARTS, *sums]}
    for spread in (TENSOR, WIDE):
        each = READ_AT_ONCE // READ  # prompts of a step, for each attention replica
        step = StepModel(model, device, factors_for(device), spread).step([Chunk(READ, 0.0, each)])
        prompts = each * spread.attention_replicas * half / spread.devices  # of all groups
        parts = [sum(step.parts.get(kind, 0.0) for kind in kinds) for kinds in PARTS.values()]
        shown = [f"{1000 * part / prompts:.1f}" for part in (*parts, step.seconds)]
        table[f"in groups of {spread_name(spread)}"] = [*shown, f"{prompts / step.seconds:.0f}"]
    return table


def room_table() -> dict[str, list[object]]:
    """What tensor and wide expert parallelism leave for keys and values on each GPU."""
    model, device = find_model(MODEL), find_device(GPU)
    spreads = (TENSOR, WIDE)
    weights = [model.weight_bytes_on_device(s.tp, s.pp, s.ep) / 1e9 for s in spreads]
    rooms = [kv_tokens(model, device.memory_bytes, s) for s in spreads]
    return {
        "group": [spread_name(s) for s in spreads],
        "GPUs": [s.devices for s in spreads],
        "weights on each (GB)": [round(one) for one in weights],
        "tokens of context, whole group": [f"{one:,}" for one in rooms],
        "for each GPU": [f"{one // s.devices:,}" for one, s in zip(rooms, spreads)],
    }
