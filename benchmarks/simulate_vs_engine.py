"""The simulator against the real engine on this machine: three modes, traces it was not fitted to.

    python benchmarks/simulate_vs_engine.py --json benchmarks/raw/simulate_vs_engine.json

1. Measures step times with one worker's share of the cores (`minipd.measure.pace`).
2. Serves a calibration trace in three modes on two workers. It sets the SLOs and the rate of all
   traces: by its steps no worker is busy for more than half of the time (with four answers in each
   step), for close to saturation a queue makes many times as much of each small error.
3. Serves the calibration trace and three others in turn, several rounds of all of them, the modes
   in another order each time: so all meet the same machine, whose speed drifts.
4. Takes from the calibration trace's timelines how much longer steps that read and steps that write
   take in each mode than measured alone, and what copying and verifying KV cost; simulates the
   other traces with those numbers, and compares the medians over the rounds of the median TTFT, the
   median TPOT and the goodput (requests within the SLOs, per second).

Takes about 25 minutes with the model `mini` on a machine that does nothing else: both workers need
their cores. With --paced the workers replay the measured steps, so that only queueing, messages and
hand-offs are compared, and other programs disturb less. Exits with 1 when, in a mode, the median
error of one of the three over the traces is above 10 %. "decode x 1.30" says that such steps lasted
30 % longer than simulated.
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
    LOAD,
    Calibrated,
    Side,
    at_load,
    calibrate,
    costs_of,
    figures_of,
    medians_of,
    ratio,
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
from minipd.measure.report import progress_bar, write_json
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


def serve_in_turn(
    cluster: Cluster,
    model: LoadedModel,
    traces: dict[str, list[TraceRow]],
    rounds: int,
    progress: Callable[[str], None],
) -> dict[str, dict[str, Side]]:
    """Each trace in each mode, once a round; by trace and mode."""
    requests = {
        name: requests_of(rows, model.config, model.eos_ids) for name, rows in traces.items()
    }
    sides = {name: {mode.name: Side() for mode in MODES} for name in traces}
    for n in range(rounds):
        first = n % len(MODES)
        for name in traces:
            for mode in MODES[first:] + MODES[:first]:
                progress(f"{name}, {mode.name}, round {n + 1} of {rounds}")
                outcome = hold(cluster, [mode], requests[name], keep=None)[mode.name]
                sides[name][mode.name].runs.append(outcome.run.timeline)
    return sides


def simulated(
    found: Calibrated, setup: Setup, model: LoadedModel, rows: list[TraceRow], mode: Contender
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
    return Side([events])


# -- the comparison --------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="mini")
    parser.add_argument("--requests", type=int, default=40, help="of each trace")
    parser.add_argument("--rounds", type=int, default=5, help="times that each trace is served")
    parser.add_argument("--max-prompt-tokens", type=int, default=400)
    parser.add_argument("--paced", action="store_true", help="workers replay the measured steps")
    parser.add_argument("--json", type=Path, help="file for the raw figures")
    options = parser.parse_args()
    model, cores = load(options.model), split_cores(2)
    pace = measure_pace(model, cores)
    base = PointTimer(pace.prefill, pace.decode, pace.per_context_token_s)
    number_of, most = options.requests, options.max_prompt_tokens
    traces = {
        f"{kind}-{seed}": trace_of(kind, seed, number_of, most)
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
    with Cluster(setup) as cluster, progress_bar() as bar:
        task = bar.add_task("", total=(1 + options.rounds * len(traces)) * len(MODES))

        def progress(words: str) -> None:
            bar.update(task, description=words)
            bar.advance(task)

        pilot_rows = {first: at_load(traces[first], [base])}
        pilot = serve_in_turn(cluster, model, pilot_rows, 1, progress)[first]
        slo, found = slo_of(pilot), calibrated(pilot, base, options.paced)
        timers = [one.timer for one in found.values()]
        traces = {name: at_load(rows, timers) for name, rows in traces.items()}
        served = serve_in_turn(cluster, model, traces, options.rounds, progress)
        notes = cluster.notes
    found = calibrated(served[first], base, options.paced)
    for name, one in found.items():
        print(f"{name}: prefill x {one.prefill_scale:.2f}, decode x {one.decode_scale:.2f}")
    print(f"{found[DISAGGREGATED.name].costs}\n{slo}", flush=True)
    compared: dict[str, Any] = {}
    for name in others:
        made = {
            mode.name: simulated(found[mode.name], setup, model, traces[name], mode)
            for mode in MODES
        }
        compared[name] = compare(name, served[name], made, slo)
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
            "load": LOAD,
            "notes": notes,
            "traces": compared,
            "median_errors": worst,
            "bar": BAR,
        }
        write_json(options.json, record)
    return 0 if all(error <= BAR for error in worst.values()) else 1


def calibrated(sides: dict[str, Side], base: PointTimer, paced: bool) -> dict[str, Calibrated]:
    """Every mode by its own runs of the calibration trace."""
    costs = costs_of(sides)
    if paced:  # such a worker copies while it sleeps
        costs = replace(costs, copy_s_per_byte=0.0)
    return {name: calibrate(side, base, costs) for name, side in sides.items()}


def compare(
    name: str, measured: dict[str, Side], made: dict[str, Side], slo: SLO
) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for mode in measured:
        a, b = medians_of(measured[mode], slo), medians_of(made[mode], slo)
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
