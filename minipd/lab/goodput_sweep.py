"""Goodput of three ways of serving: many request rates, equal workers, step times of this machine.

The sweep runs on a clock that jumps (`minipd.fleet`): coordinator, routers and schedulers are the
engine's own, and a step takes what it took on this machine. So an hour of serving takes seconds,
and the same arguments give the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from minipd.fleet.fleet import Fleet, Mode, WorkerKind
from minipd.fleet.simulate import Simulation
from minipd.fleet.timers import PointTimer
from minipd.lab.model_choice import lesson_model
from minipd.measure.contest import split_cores
from minipd.measure.metrics import run_metrics
from minipd.measure.pace import measure_pace
from minipd.measure.requests import RequestMetrics
from minipd.measure.rows import TraceRow
from minipd.measure.slo import SLO, highest_good_rate
from minipd.measure.workloads import Lengths
from minipd.model.load import LoadedModel, load
from minipd.pools.paced import Pace
from minipd.sched.limits import Limits
from minipd.sched.step_times import interpolate
from minipd.timeline import Event

MODES: tuple[Mode, ...] = ("colocated", "chunked", "disaggregated")
UNSPLIT = MODES[:2]  # what a single worker can do
PROMPT, ANSWER = Lengths(160, 0.6, 16, 512), Lengths(16, 0.5, 8, 96)  # tokens; ours
LIMITS, CHUNK_TOKENS = Limits(max_running=16, max_batch_tokens=2048), 64
SHARES = (0.12, 0.16, 0.2, 0.26, 0.33, 0.42, 0.53, 0.66, 0.8, 1.0)  # of the capacity
TARGET = 0.9  # share of requests that must be good
SEEDS = (1, 2)
PLENTY = 1 << 20  # tokens of KV: memory is not the subject of the sweep
Requests = list[RequestMetrics]


def table_of_steps(model: LoadedModel) -> Pace:
    """Step times of one of two workers on this machine; 10 to 20 s for the lesson's model."""
    return measure_pace(model, split_cores(2), repetitions=2)


def traffic(
    rate_per_s: float, count: int, seed: int, prompt: Lengths = PROMPT, answer: Lengths = ANSWER
) -> list[TraceRow]:
    """Requests at random moments; the same seed has the same lengths and order at every rate."""
    rng, now, rows = Random(f"goodput {seed}"), 0.0, list[TraceRow]()
    for _ in range(count):
        now += rng.expovariate(1.0) / rate_per_s
        rows.append(TraceRow(now, prompt.draw(rng), answer.draw(rng)))
    return rows


def timeline_of(
    pace: Pace,
    mode: Mode,
    rows: Sequence[TraceRow],
    num_prefill: int = 1,
    num_decode: int = 1,
    kv_tokens: int = PLENTY,
) -> list[Event]:
    """Serve the rows on a clock that jumps; the events are those of the engine's own parts."""
    timer = PointTimer(pace.prefill, pace.decode, pace.per_context_token_s)
    kind, events = WorkerKind(timer, kv_tokens), list[Event]()
    fleet = Fleet(
        kind,
        kind,
        mode=mode,
        num_prefill=num_prefill,
        num_decode=num_decode,
        limits=LIMITS,
        chunk_tokens=CHUNK_TOKENS,
    )
    Simulation(fleet, on_event=events.append).run(rows)
    return events


def serve(pace: Pace, mode: Mode, rows: Sequence[TraceRow], workers: int = 2) -> Requests:
    """One record for each request, after two workers, or a single one, have served them all."""
    return run_metrics(timeline_of(pace, mode, rows, 1, workers - 1)).requests


@dataclass(frozen=True, slots=True)
class Swept:
    """All records by (mode, rate, seed); rates in requests/s for all workers together."""

    requests: dict[tuple[str, float, int], Requests]
    rates: tuple[float, ...]

    def attainment(self, mode: str, rate: float, slo: SLO, seeds: Sequence[int] = SEEDS) -> float:
        """Share of the requests that met the objective."""
        found = [slo.met_by(r) for seed in seeds for r in self.requests[mode, rate, seed]]
        return sum(found) / len(found)

    def goodput(self, mode: str, slo: SLO, seeds: Sequence[int] = SEEDS) -> float:
        """Highest rate (requests/s) up to which every rate met the target; 0 if none did."""
        looks = [(rate, self.attainment(mode, rate, slo, seeds)) for rate in self.rates]
        return highest_good_rate(looks, TARGET) or 0.0


def capacity(pace: Pace) -> float:
    """Requests per second that two workers could just manage, if four answers shared each step."""
    read_s = interpolate(pace.prefill, PROMPT.median)
    write_s = ANSWER.median * interpolate(pace.decode, 4) / 4
    return 2 / (read_s + write_s)


def sweep(pace: Pace, count: int = 80, workers: int = 2) -> Swept:
    """Three modes at every rate with two seeds; about ten seconds.

    A single worker gets half of each rate, and cannot be split.
    """
    rates = tuple(_nice(share * capacity(pace)) * workers / 2 for share in SHARES)
    found: dict[tuple[str, float, int], Requests] = {}
    modes = MODES if workers > 1 else UNSPLIT
    for mode in modes:
        for rate in rates:
            for seed in SEEDS:
                rows = traffic(rate, count, seed)
                found[mode, rate, seed] = serve(pace, mode, rows, workers)
        print(f"{mode}: {len(rates) * len(SEEDS) * count:,} requests served", flush=True)
    return Swept(found, rates)


# -- who wins ---------------------------------------------------------------------------------


def three_objectives(pace: Pace) -> dict[str, SLO]:
    """Three readers' limits, in multiples of this machine's own times so that they fit any machine.

    Written down before the sweep, from the shapes that lesson 06 saw: a start within three readings
    of a usual prompt; no wait much beyond a step that reads a piece; no wait much beyond a step
    that only writes.
    """
    read_s = interpolate(pace.prefill, PROMPT.median)
    write_s = interpolate(pace.decode, 8)
    piece_s = interpolate(pace.prefill, CHUNK_TOKENS) + write_s
    full_s = interpolate(pace.decode, LIMITS.max_running)
    even_s = max(1.4 * write_s, 1.2 * full_s, 2.2 * interpolate(pace.decode, 4))
    return {
        "quick start": SLO(ttft_s=_nice(2.8 * read_s), itl_p99_s=_nice(6 * read_s)),
        "no long freeze": SLO(ttft_s=_nice(4 * read_s), itl_p99_s=_nice(1.3 * piece_s)),
        "even flow": SLO(ttft_s=_nice(8 * read_s), itl_p99_s=_nice(even_s)),
    }


def _nice(seconds: float) -> float:
    return float(f"{seconds:.2g}")


def objectives_table(objectives: Mapping[str, SLO]) -> dict[str, list[object]]:
    return {
        "reader": list(objectives),
        "first token within (s)": [slo.ttft_s for slo in objectives.values()],
        "99 % of own gaps within (s)": [slo.itl_p99_s for slo in objectives.values()],
    }


def winner(goodputs: Mapping[str, float]) -> str:
    """The best mode; "nobody" where none served anyone, "a tie" within 5 % (less is noise)."""
    best, second = sorted(goodputs.values(), reverse=True)[:2]
    if best == 0.0:
        return "nobody"
    if second >= 0.95 * best:
        return "a tie"
    return max(goodputs, key=lambda mode: goodputs[mode])


def goodputs(swept: Swept, slo: SLO, seeds: Sequence[int] = SEEDS) -> dict[str, float]:
    return {mode: swept.goodput(mode, slo, seeds) for mode in MODES}


def winners_table(swept: Swept, objectives: Mapping[str, SLO]) -> dict[str, list[object]]:
    """Goodput per worker under each objective, who won, and whether both seeds agree."""
    table: dict[str, list[object]] = {"reader": list(objectives)}
    found = [goodputs(swept, slo) for slo in objectives.values()]
    for mode in MODES:
        table[f"{mode} (requests/s per worker)"] = [one[mode] / 2 for one in found]
    table["winner"] = [winner(one) for one in found]
    table["each seed alone"] = [
        " / ".join(winner(goodputs(swept, slo, [seed])) for seed in SEEDS)
        for slo in objectives.values()
    ]
    return table


def one_or_two_table(
    two: Swept, single: Swept, objectives: Mapping[str, SLO]
) -> dict[str, list[object]]:
    """Goodput per worker of one worker and of two, and who wins with one and with two."""
    alone = [{mode: single.goodput(mode, slo) for mode in UNSPLIT} for slo in objectives.values()]
    both = [goodputs(two, slo) for slo in objectives.values()]
    table: dict[str, list[object]] = {"reader": list(objectives)}
    for mode in UNSPLIT:
        table[f"one: {mode}"] = [one[mode] for one in alone]
        table[f"two: {mode}"] = [one[mode] / 2 for one in both]
    table["best with one"] = [winner(one) for one in alone]
    table["best with two"] = [winner(one) for one in both]
    return table


# Requests/s per worker of a recorded run, by reader and mode; a test compares them with the file.
RECORDED_FILE = "benchmarks/raw/lesson_09.json"
RECORDED: dict[str, dict[str, float]] = {
    "quick start": {"colocated": 1.0, "chunked": 0.0, "disaggregated": 0.3},
    "no long freeze": {"colocated": 0.24, "chunked": 0.65, "disaggregated": 0.5},
    "even flow": {"colocated": 0.18, "chunked": 0.24, "disaggregated": 0.8},
}


def beside_recorded(swept: Swept, objectives: Mapping[str, SLO]) -> dict[str, list[object]]:
    """Goodput per worker here and in the recorded run, a row for each reader and mode."""
    cells = [(reader, slo, mode) for reader, slo in objectives.items() for mode in MODES]
    return {
        "reader": [reader for reader, _, _ in cells],
        "mode": [mode for _, _, mode in cells],
        "here": [swept.goodput(mode, slo) / 2 for _, slo, mode in cells],
        "recorded": [RECORDED[reader][mode] for reader, _, mode in cells],
    }


def try_goodput(answer: Callable[..., float]) -> None:
    """The last step of the exercises: the learner's function on this machine's own records."""
    pace = table_of_steps(load(lesson_model()[0]))
    slo = three_objectives(pace)["quick start"]
    runs = {
        rate: [
            {"ttft_s": r.ttft_s, "gaps_s": list(r.itl_s)}
            for r in serve(pace, "colocated", traffic(rate, 80, SEEDS[0]))
        ]
        for rate in (share * capacity(pace) for share in SHARES[1:9:2])
    }
    for workers in (2, 1):
        try:
            found = answer(runs, slo.ttft_s, slo.itl_p99_s, workers)
        except NotImplementedError:
            print("Solve Exercise 2 first; then run this cell again.")
            return
        print(f"divided by {workers}: {found:.2f} good requests per second and worker")
