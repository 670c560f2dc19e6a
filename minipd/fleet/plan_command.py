"""What `minipd plan` was asked for: names become a model, a device and a workload."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from minipd.fleet.calibrate import calibrate_from_bench, factors_for, read_bench
from minipd.fleet.configs import BYTES, RATES, find_model
from minipd.fleet.export import beside_table, export, their_plans
from minipd.fleet.factors import Factors
from minipd.fleet.gpus import Device, find_device
from minipd.fleet.models import Model
from minipd.fleet.plan_report import front_table, headline, plans_table, sentences, to_dict
from minipd.fleet.plan_search import Plan, Terms
from minipd.fleet.plan_space import PlanError, Workload
from minipd.fleet.plan_verify import poisson_rows, verify
from minipd.fleet.plan_words import verified_dict, verified_table, verified_words
from minipd.fleet.planner import Answer, make_plan
from minipd.measure.outputs import save_text
from minipd.measure.rows import TraceRow
from minipd.measure.slo import seconds_of
from minipd.measure.traces import read_trace

HERE = ("this machine", "this-machine", "this_machine", "here")
SHORT_S = 1e-9
MOST_USD = 1_000_000
LONG_S = 60.0  # a plain number above this was probably meant in milliseconds


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of `minipd plan`, as given."""

    model: str
    gpu: str
    isl: int
    osl: int
    ttft: str
    tpot: str
    rate: float
    prefix_hit: float = 0.0
    attainment: float = 0.9
    link: str = "auto"
    gpus: int = 4096
    price: float | None = None
    dtype: str | None = None
    bench: Path | None = None
    verify: bool = False
    trace: Path | None = None
    compare: str | None = None
    export: Path | None = None
    skip_bad_lines: bool = False


def answer(asked: Asked) -> Answer:
    """Raises `PlanError`, `ConfigError` or `DeviceError`, each with a remedy."""
    work = Workload(
        isl=asked.isl,
        osl=asked.osl,
        rate_per_s=asked.rate,
        ttft_s=duration("--ttft", asked.ttft),
        tpot_s=duration("--tpot", asked.tpot),
        prefix_hit=asked.prefix_hit,
        attainment=asked.attainment,
    )
    model = in_dtype(find_model(asked.model), asked.dtype)
    model, device, factors = _device(asked, model)
    if asked.price is not None:
        if not 0.0 <= asked.price <= MOST_USD:
            raise PlanError(f"--price is {asked.price:g}; use USD per GPU-hour, 0 to {MOST_USD}.")
        device = device.priced(asked.price)
    return make_plan(model, Terms(device, asked.link, asked.gpus), factors, work)


def duration(name: str, text: str) -> float:
    """Seconds from `0.5`, `0.5s` or `500ms`."""
    word = text.strip().lower()
    number = word.removesuffix("ms").removesuffix("s").strip()
    try:
        value = seconds_of(text)
    except ValueError:
        raise PlanError(f"{name} is {text[:40]!r}; write seconds or, like 500ms, a unit.") from None
    if not SHORT_S <= value < math.inf:
        raise PlanError(f"{name} is {text[:40]}; use a time above 0 ({SHORT_S:g} s at least).")
    if value > LONG_S and word[-1] != "s":
        raise PlanError(
            f"{name} is {text[:40]} seconds; if milliseconds are meant, write {number}ms, if not, "
            f"{number}s."
        )
    return value


def in_dtype(model: Model, dtype: str | None) -> Model:
    """The same model with its weights in another format; the KV cache keeps 16 bits at least."""
    if dtype is None:
        return model
    if dtype not in BYTES:
        raise PlanError(f"--dtype is {dtype[:40]!r}; use one of {', '.join(BYTES)}.")
    kv_bytes = 4.0 if dtype == "float32" else 2.0
    return replace(model, weight_bytes=BYTES[dtype], arithmetic=RATES[dtype], kv_bytes=kv_bytes)


def _device(asked: Asked, model: Model) -> tuple[Model, Device, Factors]:
    """From the table, or this machine from the record of a bench (weights as in that bench)."""
    if asked.gpu.strip().lower() not in HERE:
        if asked.bench is not None:
            raise PlanError("--bench measures this machine: give --gpu 'this machine' with it.")
        device = find_device(asked.gpu)
        return model, device, factors_for(device)
    if asked.bench is None:
        raise PlanError(
            "This machine must be measured first: run `minipd bench --json bench.json`, then give "
            "--bench bench.json."
        )
    record = read_bench(asked.bench)
    memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    found = calibrate_from_bench(record, memory)
    model = in_dtype(model, str(record["model"]["dtype"]))
    return model, found.device, found.factors


def run_plan(asked: Asked, json_path: Path | None = None, console: Console | None = None) -> Answer:
    """Plan, show it, and write it to `json_path` if there is one."""
    console = console or Console()
    if asked.compare is not None:
        known_planner(asked.compare)
    trace = read_trace(asked.trace, skip_bad=asked.skip_bad_lines) if asked.trace else None
    rows = trace.rows if trace else None
    for note in trace.notes if trace else ():
        console.print(f"Trace: {note}", markup=False)
    with console.status("Trying spreads, batches and ratios ..."):
        found = answer(asked)
    show(found, console)
    record = to_dict(found)
    if found.best and (asked.verify or rows):
        record["verified"] = verify_plan(found.best, asked.trace, rows, console)
    if asked.compare:
        record["compared"] = compare(found, console)
    if found.best and asked.export:
        console.print(f"Written to {asked.export}: {', '.join(export(found, asked.export))}.")
    if json_path:
        save_text(json_path, json.dumps(record, indent=2) + "\n")
    return found


def compare(found: Answer, console: Console) -> list[dict[str, Any]]:
    """AIConfigurator's answer to the same question, beside ours."""
    with console.status("AIConfigurator is searching, a minute or two ..."):
        theirs = their_plans(found)
    console.print(beside_table(found, theirs))
    return [asdict(plan) for plan in theirs]


def known_planner(other: str) -> None:
    if other.strip().lower() != "aiconfigurator":
        raise PlanError(f"--compare is {other[:40]!r}; only aiconfigurator can be compared with.")


def verify_plan(
    plan: Plan, trace: Path | None, rows: list[TraceRow] | None, console: Console
) -> dict[str, Any]:
    """Predicted beside simulated, on the `rows` of the file `trace` or on generated ones."""
    rows = rows or list(poisson_rows(plan.decode.speeds.work))
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("Simulating", total=len(rows))
        checked = verify(plan, rows, lambda ended: progress.update(task, completed=ended))
    console.print(verified_table(checked))
    span_s = rows[-1].arrival_s - rows[0].arrival_s
    console.print(verified_words(checked, span_s, trace.name if trace else None), highlight=False)
    for note in checked.result.notes:
        console.print(note, highlight=False)
    return verified_dict(checked)


def show(found: Answer, console: Console) -> None:
    console.print(headline(found), style="bold", highlight=False)
    if found.plans:
        console.print(plans_table(found))
    for sentence in sentences(found):
        console.print(sentence, highlight=False)
    if found.front:
        console.print()
        console.print(front_table(found))
