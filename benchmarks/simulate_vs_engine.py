"""The simulator against the real engine on this machine: three modes, traces it was not fitted to.

    python benchmarks/simulate_vs_engine.py --json benchmarks/raw/simulate_vs_engine.json

1. Measures step times with one worker's share of the cores (`minipd.measure.pace`).
2. Serves a calibration trace in three modes on two workers, and takes from the timelines: how much
   longer steps of each kind take in each mode than measured alone, what a step that reads and
   writes saves, and what copying and verifying KV cost.
3. Serves other traces, simulates them with those numbers, and compares the median TTFT and TPOT,
   and the goodput (requests within SLOs set from the calibration trace, per second).

Every trace is served several times, the modes in another order each time, and the medians of those
runs count, so that a short disturbance does not. The same few steps are timed before and after each
run, and the simulated steps are as much longer as those were: that tells the simulator how fast the
machine was then, and nothing of the run. By estimate no worker is busy for more than half of the
time (with four answers in each step): close to saturation a queue makes many times as much of each
small error. Takes a quarter of an hour with the
model `mini` on a machine that does nothing else: both workers need their cores. With --paced the
workers replay the measured steps, so that only queueing, messages and hand-offs are compared, and
other programs disturb less. Exits with 1 when, in a mode, the median error of one of the three over
the traces is above 10 %. "decode x 1.30" says that such steps lasted 30 % longer than simulated:
far from 1, the machine was disturbed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fit_to_engine import (
    BLOCK,
    NO_SLO,
    Calibrated,
    Probe,
    Side,
    calibrate,
    costs_of,
    figures_of,
    ratio,
    rescaled,
    slo_of,
    trace_of,
)

from minipd.fleet.fleet import Fleet, WorkerKind
from minipd.fleet.simulate import simulate
from minipd.fleet.timers import PointTimer
from minipd.measure.contest import (
    CHUNKED,
    COLOCATED,
    DISAGGREGATED,
    Contender,
    blocks_for,
    hold,
    requests_of,
    split_cores,
)
from minipd.measure.machine import describe_machine
from minipd.measure.pace import measure_pace
from minipd.measure.report import write_json
from minipd.measure.rows import TraceRow
from minipd.measure.slo import SLO
from minipd.model.load import LoadedModel, load
from minipd.pools.cluster import Cluster
from minipd.pools.setup import Setup
from minipd.timeline import Event

BAR = 0.10
MODES = (COLOCATED, CHUNKED, DISAGGREGATED)
CALIBRATION = ("chat", 900)
TRACES = (("chat", 1), ("api", 2), ("mixed", 3))  # kind, seed
FIGURES = ("ttft_p50_s", "tpot_p50_s", "goodput_per_s")


# -- both sides of one trace -----------------------------------------------------------------------


def real(
    cluster: Cluster,
    model: LoadedModel,
    rows: list[TraceRow],
    slo: SLO,
    rounds: int,
    probe: Callable[[], float],
) -> dict[str, Side]:
    """Each mode's rounds, together."""
    requests = requests_of(rows, model.config, model.eos_ids)
    runs: dict[str, list[Side]] = {mode.name: [] for mode in MODES}
    before_s = probe()
    for n in range(rounds):
        first = n % len(MODES)
        for mode in MODES[first:] + MODES[:first]:
            events = hold(cluster, [mode], requests, keep=None)[mode.name].run.timeline
            after_s = probe()
            one = Side([events], figures_of(events, slo), (before_s + after_s) / 2)
            runs[mode.name].append(one)
            before_s = after_s
    return {name: together(sides) for name, sides in runs.items()}


def together(sides: list[Side]) -> Side:
    """Several runs of a trace in one mode as one."""
    return Side(
        [run for side in sides for run in side.runs],
        {
            name: statistics.median(side.figures[name] for side in sides)
            for name in sides[0].figures
        },
        statistics.fmean(side.probe_s for side in sides),
    )


def simulated(
    found: dict[str, Calibrated],
    setup: Setup,
    model: LoadedModel,
    rows: list[TraceRow],
    slo: SLO,
    slower: dict[str, float],
) -> dict[str, Side]:
    """Each mode on a machine so many times slower than `found` says."""
    sides: dict[str, Side] = {}
    for mode in MODES:
        factor, now = slower[mode.name], found[mode.name]
        timer = rescaled(now.timer, factor, factor, now.timer.shared_s * factor)
        sides[mode.name] = _simulated(replace(now, timer=timer), setup, model, rows, slo, mode)
    return sides


def _simulated(
    found: Calibrated,
    setup: Setup,
    model: LoadedModel,
    rows: list[TraceRow],
    slo: SLO,
    mode: Contender,
) -> Side:
    """The same fleet as `setup`: workers, limits, blocks."""
    kind = WorkerKind(found.timer, setup.num_blocks * setup.block_size)
    costs = found.costs if mode is DISAGGREGATED else replace(found.costs, message_s=0.0)
    fleet = Fleet(
        kind,
        kind,
        mode=mode.mode,
        limits=setup.limits,
        chunk_tokens=setup.chunk_tokens,
        block_size=setup.block_size,
        kv_bytes_per_token=model.config.kv_bytes_per_token(),
        num_layers=model.config.num_layers,
        costs=costs,
    )
    events: list[Event] = []
    simulate(fleet, rows, on_event=events.append)
    return Side([events], figures_of(events, slo))


# -- the comparison --------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="mini")
    parser.add_argument("--requests", type=int, default=40, help="of each trace")
    parser.add_argument("--rounds", type=int, default=3, help="times that each trace is served")
    parser.add_argument("--max-prompt-tokens", type=int, default=400)
    parser.add_argument("--paced", action="store_true", help="workers replay the measured steps")
    parser.add_argument("--json", type=Path, help="file for the raw figures")
    options = parser.parse_args()
    model, cores = load(options.model), split_cores(2)
    pace = measure_pace(model, cores)
    base = PointTimer(pace.prefill, pace.decode, pace.per_context_token_s)
    number_of, most = options.requests, options.max_prompt_tokens
    traces = {
        f"{kind}-{seed}": trace_of(kind, seed, number_of, base, most)
        for kind, seed in (CALIBRATION, *TRACES)
    }
    first, *others = traces
    everything = [
        r for rows in traces.values() for r in requests_of(rows, model.config, frozenset())
    ]
    setup = Setup(
        model=str(model.folder),
        num_blocks=blocks_for(everything, model.config, BLOCK, 2),
        block_size=BLOCK,
        cpus=() if options.paced else cores.cpus,
        threads=cores.threads,
        pace=pace if options.paced else None,
    )
    compared: dict[str, Any] = {}
    with Cluster(setup) as cluster:
        probe = (lambda: 1.0) if options.paced else Probe(model, cores)
        measured = real(cluster, model, traces[first], NO_SLO, options.rounds, probe)
        usual_s = statistics.fmean(side.probe_s for side in measured.values())

        def slower(sides: dict[str, Side]) -> dict[str, float]:
            return {name: side.probe_s / usual_s for name, side in sides.items()}

        costs = costs_of(measured)
        if options.paced:  # such a worker copies while it sleeps
            costs = replace(costs, copy_s_per_byte=0.0)
        found: dict[str, Calibrated] = {}
        for mode in MODES:
            alone = calibrate(measured[mode.name], base, costs)
            factor = 1.0 / slower(measured)[mode.name]
            timer = rescaled(alone.timer, factor, factor, alone.timer.shared_s * factor)
            found[mode.name] = replace(alone, timer=timer)
        slo = slo_of(measured)
        for name, one in found.items():
            scales = f"prefill x {one.prefill_scale:.2f}, decode x {one.decode_scale:.2f}"
            print(f"{name}: {scales}, a mixed step saves {one.timer.shared_s * 1e3:.1f} ms")
        print(f"{costs}\n{slo}", flush=True)
        for name in others:
            served = real(cluster, model, traces[name], slo, options.rounds, probe)
            made = simulated(found, setup, model, traces[name], slo, slower(served))
            compared[name] = compare(name, served, made, slo) | {"slower": slower(served)}
        notes = cluster.notes
    worst = summary_of(compared)
    if options.json:
        record = {
            "machine": describe_machine().to_dict(),
            "paced": options.paced,
            "rounds": options.rounds,
            "model": {"name": model.name, "fingerprint": model.fingerprint},
            "pace": asdict(pace),
            "calibrated": {name: asdict(one) for name, one in found.items()},
            "slo": asdict(slo),
            "notes": notes,
            "traces": compared,
            "median_errors": worst,
            "bar": BAR,
        }
        write_json(options.json, record)
    return 0 if all(error <= BAR for error in worst.values()) else 1


def compare(
    name: str, measured: dict[str, Side], made: dict[str, Side], slo: SLO
) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for mode in measured:
        a, b = measured[mode].figures, made[mode].figures
        told[mode] = {
            figure: {
                "real": a[figure],
                "simulated": b[figure],
                "error": b[figure] / a[figure] - 1.0,
            }
            for figure in FIGURES
            if a[figure]
        } | {"attainment": {"real": a["attainment"], "simulated": b["attainment"]}}
        words = ", ".join(
            f"{figure} {x['real']:.4g} / {x['simulated']:.4g} ({x['error']:+.1%})"
            for figure, x in told[mode].items()
            if "error" in x
        )
        longer = {
            kind: ratio(kind, measured[mode], made[mode]) for kind in ("prefill", "decode", "mixed")
        }
        told[mode]["steps"] = {"real_over_simulated": longer}
        told[mode]["rounds"] = [figures_of(run, slo) for run in measured[mode].runs]
        steps = ", ".join(f"{kind} x {x:.2f}" for kind, x in longer.items())
        print(f"{name} {mode}: {words}; steps: {steps}", flush=True)
    return told


def summary_of(compared: dict[str, Any]) -> dict[str, float]:
    """Per mode and figure the median over traces of the error's size."""
    worst: dict[str, float] = {}
    for mode in (contender.name for contender in MODES):
        for figure in FIGURES:
            errors = [abs(t[mode][figure]["error"]) for t in compared.values() if figure in t[mode]]
            worst[f"{mode} {figure}"] = statistics.median(errors)
            print(f"{mode} {figure}: median error {worst[f'{mode} {figure}']:.1%}")
    return worst


if __name__ == "__main__":
    sys.exit(main())
