"""Traces for the real engine, and from its timelines to what a simulator must be told of it.

Used by simulate_vs_engine.py. Both sides of a run, real and simulated, are timelines: what steps of
each kind last is compared on them.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from minipd.fleet.timers import PointTimer, Read
from minipd.fleet.under_way import Costs
from minipd.measure.metrics import run_metrics
from minipd.measure.ordering import count, number
from minipd.measure.rows import TraceRow
from minipd.measure.slo import SLO
from minipd.measure.workloads import generate
from minipd.timeline import Event

BLOCK = 16
NO_SLO = SLO()
LOAD = 0.5  # of the busiest worker in any mode, four answers in a step; near 1 errors multiply


@dataclass(frozen=True, slots=True)
class Calibrated:
    """All that the simulator is told of this machine, for one mode."""

    timer: PointTimer
    costs: Costs
    prefill_scale: float = 1.0
    decode_scale: float = 1.0


@dataclass(slots=True)
class Side:
    """One mode of one trace, real or simulated: the events of each run."""

    runs: list[list[Event]] = field(default_factory=list[list[Event]])

    @property
    def events(self) -> list[Event]:
        return [event for run in self.runs for event in run]


def trace_of(kind: str, seed: int, number_of: int, most: int) -> list[TraceRow]:
    """Short prompts and answers; `at_load` says how far apart they arrive."""
    return [
        TraceRow(
            row.arrival_s,
            max(8, min(row.prompt_tokens // 4, most)),
            max(4, min(row.output_tokens // 4, 48)),
            row.kind,
        )
        for row in generate(kind, number_of, 1.0, seed)
    ]


def at_load(rows: Sequence[TraceRow], timers: Sequence[PointTimer]) -> list[TraceRow]:
    """The same requests, at a rate that by each timer's estimate keeps no worker busier than
    `LOAD`."""

    def busiest_s(timer: PointTimer) -> float:  # a pool of one, or two that do both
        read_s = sum(timer.seconds([Read(row.prompt_tokens, 0)], 0, 0) for row in rows)
        write_s = sum(
            row.output_tokens * timer.decode_line(4, 4 * row.prompt_tokens).first_s / 4
            for row in rows
        )
        return max(read_s, write_s, (read_s + write_s) / 2)

    span_s = max(map(busiest_s, timers)) / LOAD
    stretch = span_s / (rows[-1].arrival_s - rows[0].arrival_s)
    return [replace(row, arrival_s=row.arrival_s * stretch) for row in rows]


def figures_of(events: Sequence[Event], slo: SLO) -> dict[str, float]:
    """Medians over requests, and good requests per second of the run."""
    summary = run_metrics(events, slo).result()
    found = {"goodput_per_s": summary.goodput_per_s, "attainment": summary.attainment or 0.0}
    for name in ("ttft", "tpot"):
        latency = summary.latency[f"{name}_s"]
        found[f"{name}_p50_s"] = latency.p50 if latency else 0.0
    return found


def medians_of(side: Side, slo: SLO) -> dict[str, float]:
    """Each figure's median over the runs."""
    found = [figures_of(run, slo) for run in side.runs]
    return {name: statistics.median(one[name] for one in found) for name in found[0]}


def steps_of(side: Side, kind: str) -> list[tuple[float, int]]:
    """Seconds and prompt tokens of every step of a kind: prefill, decode or mixed."""
    found: list[tuple[float, int]] = []
    for event in (e for e in side.events if e.kind == "step"):
        tokens, sequences = count(event, "prefill_tokens"), count(event, "decode_seqs")
        this = "decode" if not tokens else "mixed" if sequences else "prefill"
        if this == kind:
            found.append((event.t_s - number(event, "start_s"), tokens))
    return found


def ratio(kind: str, a: Side, b: Side) -> float:
    """How much longer steps of a kind take in `a` than in `b`: per prompt token, or per step."""
    rates: list[float] = []
    for side in (a, b):
        steps = steps_of(side, kind)
        units = sum(tokens for _, tokens in steps) if kind == "prefill" else len(steps)
        if not units:
            return 1.0
        rates.append(sum(seconds for seconds, _ in steps) / units)
    return rates[0] / rates[1]


def scaled(
    points: tuple[tuple[float, float], ...], factor: float
) -> tuple[tuple[float, float], ...]:
    return tuple((x, y * factor) for x, y in points)


def costs_of(sides: dict[str, Side]) -> Costs:
    """What the split's timeline tells of copying, checking, waiting between steps and messages."""
    split = sides["disaggregated"]
    events = split.events
    sent = [e for e in events if e.kind == "handoff_finished"]
    kept = [e for e in events if e.kind == "committed"]
    num_bytes = max(1, sum(count(e, "bytes") for e in sent))
    hops: list[float] = []
    for run in split.runs:
        arrived = {e.request_id: e.t_s for e in run if e.kind == "arrived"}
        hops += [e.t_s - arrived[e.request_id] for e in run if e.kind == "reserved"]
    return Costs(
        step_s=_between_steps(sides),
        message_s=max(0.0, min(hops, default=0.0)),  # that of an idle worker
        copy_s_per_byte=sum(number(e, "copy_s") for e in sent) / num_bytes,
        verify_s_per_byte=sum(number(e, "verify_s") for e in kept) / num_bytes,
    )


def _between_steps(sides: dict[str, Side]) -> float:
    """From the end of a step to the next one's start, of a worker that has something to do."""
    gaps: list[float] = []
    for run in (run for side in sides.values() for run in side.runs):
        ends: dict[str, float] = {}
        for event in (e for e in run if e.kind == "step"):
            gap_s = number(event, "start_s") - ends.get(event.worker, -1.0)
            gaps += [gap_s] if 0.0 <= gap_s < 0.005 else []
            ends[event.worker] = event.t_s
    return statistics.median(gaps) if gaps else 0.0


@dataclass(frozen=True, slots=True)
class Done:
    """A real step: what it read, how many sequences decoded with how much context, how long."""

    reads: list[Read]
    sequences: int
    context: int
    seconds: float

    @property
    def kind(self) -> str:
        return "decode" if not self.reads else "mixed" if self.sequences else "prefill"


def steps_done(run: Sequence[Event]) -> list[Done]:
    """Every step of a run, told apart by how far each of its requests had been read before."""
    prompts = {e.request_id: count(e, "prompt_tokens") for e in run if e.kind == "arrived"}
    read: dict[str, int] = dict.fromkeys(prompts, 0)
    written: dict[str, int] = dict.fromkeys(prompts, 0)
    found: list[Done] = []
    for event in sorted((e for e in run if e.kind == "step"), key=lambda e: e.t_s):
        left, reads, context = count(event, "prefill_tokens"), list[Read](), 0
        names = event.data["requests"]
        assert isinstance(names, list), "a step names its requests"
        for name in names:
            new = min(left, prompts[name] - read[name])
            if new:
                reads.append(Read(new, read[name]))
                read[name], left = read[name] + new, left - new
            else:
                context += prompts[name] + written[name]
            written[name] += read[name] == prompts[name]
        seconds = event.t_s - number(event, "start_s")
        found.append(Done(reads, count(event, "decode_seqs"), context, seconds))
    return found


def calibrate(measured: Side, base: PointTimer, costs: Costs) -> Calibrated:
    """Scale the steps until those that the calibration trace was served with last as long as they
    did, in one mode: beside other workers a step takes longer, and a prefill worker copies KV
    during its steps. Steps that read and write follow from the two."""
    done = [step for run in measured.runs for step in steps_done(run)]

    def longer(kind: str) -> float:
        steps = [step for step in done if step.kind == kind]
        told = sum(base.seconds(s.reads, s.sequences, s.context) for s in steps)
        return sum(step.seconds for step in steps) / told if told else 1.0

    prefill, decode = longer("prefill"), longer("decode")
    timer = PointTimer(
        scaled(base.prefill, prefill),
        scaled(base.decode, decode),
        base.per_context_token_s * decode,
    )
    return Calibrated(timer, costs, prefill, decode)


def slo_of(measured: dict[str, Side]) -> SLO:
    """Limits that a loaded run misses now and then: twice the calibration's median TTFT, and half
    as much again as its median TPOT, both of the mode in the middle."""
    found = [medians_of(side, NO_SLO) for side in measured.values()]
    ttft_s = statistics.median(x["ttft_p50_s"] for x in found)
    tpot_s = statistics.median(x["tpot_p50_s"] for x in found)
    return SLO(ttft_s=2.0 * ttft_s, tpot_s=1.5 * tpot_s)
