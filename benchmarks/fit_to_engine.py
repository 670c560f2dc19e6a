"""Traces for the real engine, and from its timelines to what a simulator must be told of it.

Used by simulate_vs_engine.py. Both sides of a run, real and simulated, are timelines: what steps of
each kind last is compared on them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from minipd.engine.batch import Chunk
from minipd.engine.executor import Executor
from minipd.fleet.timers import Points, PointTimer, Read
from minipd.fleet.under_way import Costs
from minipd.measure.contest import Cores
from minipd.measure.machine import pinned
from minipd.measure.metrics import run_metrics
from minipd.measure.ordering import count, number
from minipd.measure.rows import TraceRow
from minipd.measure.slo import SLO
from minipd.measure.stopwatch import num_threads
from minipd.measure.workloads import generate
from minipd.model.load import LoadedModel
from minipd.request import SamplingParams
from minipd.timeline import Event

BLOCK = 16
PROBE_TOKENS = 128
PROBE_BLOCKS = PROBE_TOKENS // BLOCK + 1
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
    """One mode of one trace, real or simulated: its runs' events, and their figures. `probe_s` is
    how long the same few steps took just before and after each real run, alone: the machine's speed
    at that time. Figures are medians over the runs, `probe_s` is their mean."""

    runs: list[list[Event]]
    figures: dict[str, float]
    probe_s: float = 1.0

    @property
    def events(self) -> list[Event]:
        return [event for run in self.runs for event in run]


class Probe:
    """Times the same few steps each time, on every worker's cores in turn."""

    def __init__(self, model: LoadedModel, cores: Cores) -> None:
        self.cores, self.executor = cores, Executor(model, 4 * PROBE_BLOCKS, BLOCK)

    def __call__(self) -> float:
        cpus = self.cores.cpus or (None,)
        return statistics.fmean(self._seconds(one) for one in cpus)

    def _seconds(self, cpus: tuple[int, ...] | None) -> float:
        prompt = self._chunk(0, PROBE_TOKENS, 0)
        written = [self._chunk(n, 1, PROBE_TOKENS) for n in range(4)]
        with pinned(cpus), num_threads(self.cores.threads):
            began = time.monotonic()
            for _ in range(3):
                self.executor.forward([prompt])
                for _ in range(8):
                    self.executor.forward(written)
        return time.monotonic() - began

    def _chunk(self, sequence: int, count: int, start: int) -> Chunk:
        blocks = list(range(sequence * PROBE_BLOCKS, (sequence + 1) * PROBE_BLOCKS))
        return Chunk(f"probe-{sequence}", [1] * count, start, blocks, SamplingParams())


def trace_of(kind: str, seed: int, number_of: int, timer: PointTimer, most: int) -> list[TraceRow]:
    """Short prompts and answers, at a rate that by estimate keeps no worker busier than `LOAD`."""
    made = generate(kind, number_of, 1.0, seed)
    rows = [
        TraceRow(
            row.arrival_s,
            max(8, min(row.prompt_tokens // 4, most)),
            max(4, min(row.output_tokens // 4, 48)),
            row.kind,
        )
        for row in made
    ]
    read_s = sum(timer.seconds([Read(row.prompt_tokens, 0)], 0, 0) for row in rows)
    write_s = sum(
        row.output_tokens * timer.decode_line(4, 4 * row.prompt_tokens).first_s / 4 for row in rows
    )
    busiest_s = max(read_s, write_s, (read_s + write_s) / 2)  # a pool of one, or two that do both
    span_s = busiest_s / LOAD
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


def scaled(points: Points, factor: float) -> Points:
    return tuple((x, y * factor) for x, y in points)


def rescaled(timer: PointTimer, prefill: float, decode: float, shared_s: float) -> PointTimer:
    return PointTimer(
        scaled(timer.prefill, prefill),
        scaled(timer.decode, decode),
        timer.per_context_token_s * decode,
        shared_s,
    )


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
    did, in one mode: a piece of a prompt costs more than its share of a whole one, and a prefill
    worker copies KV during its steps. A step that does both then saves or costs `shared_s`."""
    done = [step for run in measured.runs for step in steps_done(run)]

    def longer(kind: str) -> float:
        steps = [step for step in done if step.kind == kind]
        told = sum(base.seconds(s.reads, s.sequences, s.context) for s in steps)
        return sum(step.seconds for step in steps) / told if told else 1.0

    prefill, decode = longer("prefill"), longer("decode")
    timer = rescaled(base, prefill, decode, 0.0)
    both = [step for step in done if step.kind == "mixed"]
    spare_s = [timer.seconds(s.reads, s.sequences, s.context) - s.seconds for s in both]
    shared_s = statistics.fmean(spare_s) if spare_s else 0.0
    return Calibrated(replace(timer, shared_s=shared_s), costs, prefill, decode)


def slo_of(measured: dict[str, Side]) -> SLO:
    """Limits that a loaded run misses now and then: twice the calibration's median TTFT, and half
    as much again as its median TPOT, both of the mode in the middle."""
    found = [side.figures for side in measured.values()]
    ttft_s = statistics.median(x["ttft_p50_s"] for x in found)
    tpot_s = statistics.median(x["tpot_p50_s"] for x in found)
    return SLO(ttft_s=2.0 * ttft_s, tpot_s=1.5 * tpot_s)
