"""NVIDIA's AIConfigurator, if it is installed: its plan beside ours, and its deployment files.

It is run as a program, by its documented command line (version 0.12, ai-dynamo/aiconfigurator,
docs/cli_user_guide.md and generator/main.py), and reads and writes files only; so it may live in an
environment of its own: put its folder of programs on PATH.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from minipd.fleet.plan_pools import Pool
from minipd.fleet.plan_report import named, seconds
from minipd.fleet.plan_search import Plan
from minipd.fleet.plan_space import PlanError
from minipd.fleet.planner import Answer

PROGRAM, BACKEND, PATIENCE_S = "aiconfigurator", "vllm", 600.0
GENERATOR = "aiconfigurator.generator.main"
THEIR_OWNER = {"meta-llama/Llama-3.1-": "meta-llama/Meta-Llama-3.1-"}  # names that it ships with
MAX_WORDS = 300  # of its complaints


@dataclass(frozen=True, slots=True)
class Theirs:
    """The plan it ranks first in one mode: `agg` or `disagg`; its TTFT knows no queue."""

    mode: str
    gpus: int
    ttft_s: float
    tpot_s: float
    tokens_per_s_per_gpu: float
    how: str


def program() -> Path:
    found = shutil.which(PROGRAM)
    if found is None:
        raise PlanError(
            "AIConfigurator is not installed; run `pip install aiconfigurator==0.12.0` (Linux "
            "x86-64), here or in an environment whose programs are on PATH."
        )
    return Path(found)


def their_plans(answer: Answer) -> list[Theirs]:
    """Its answer to the same question: the fewest GPUs for the rate, within both SLOs."""
    work = answer.work
    with tempfile.TemporaryDirectory() as folder:
        run(
            [
                str(program()),
                *("cli", "default", "--model-path", their_name(answer.model.name)),
                *("--system", answer.terms.device.key, "--backend", BACKEND),
                *("--isl", str(work.isl), "--osl", str(work.osl)),
                *("--prefix", str(work.cached_tokens)),
                *("--ttft", f"{work.ttft_s * 1e3:g}", "--tpot", f"{work.tpot_s * 1e3:g}"),
                *("--target-request-rate", f"{work.rate_per_s:g}"),
                *("--top-n", "1", "--no-color", "--save-dir", folder),
            ]
        )
        found = [
            theirs(path.parent.name, row)
            for path in sorted(Path(folder).rglob("best_config_topn.csv"))
            for row in list(csv.DictReader(path.read_text("utf-8").splitlines()))[:1]
        ]
    if not found:
        raise PlanError(
            "AIConfigurator found no plan within these SLOs; loosen them or leave out --compare."
        )
    return found


def their_name(name: str) -> str:
    """A model by the hub id under which it knows the config without a download."""
    for ours, other in THEIR_OWNER.items():
        if name.startswith(ours):
            return name.replace(ours, other, 1)
    return name


def theirs(mode: str, row: Mapping[str, str]) -> Theirs:
    """One row of its `best_config_topn.csv`."""
    try:
        copies = int(row.get("replicas_needed") or 1)
        if mode == "disagg":
            prefill, decode = (int(row[f"({side})workers"]) * copies for side in "pd")
            how = f"{prefill} x {row['(p)parallel']}, {decode} x {row['(d)parallel']}"
        else:
            how = f"{copies} x {row['parallel']}"
        return Theirs(
            mode=mode,
            gpus=int(row.get("total_gpus_needed") or row["num_total_gpus"]),
            ttft_s=float(row["ttft"]) / 1e3,
            tpot_s=float(row["tpot"]) / 1e3,
            tokens_per_s_per_gpu=float(row["tokens/s/gpu"]),
            how=how,
        )
    except (KeyError, ValueError) as error:
        raise PlanError(
            f"This AIConfigurator writes another kind of table ({error}); use version 0.12."
        ) from None


def beside_table(answer: Answer, others: list[Theirs]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="Beside AIConfigurator")
    for name in ("by", "plan"):
        table.add_column(name, overflow="fold")
    for name in ("GPUs", "TTFT", "TPOT"):
        table.add_column(name, justify="right", no_wrap=True)
    for plan in answer.plans:
        times = (seconds(plan.ttft_s), seconds(plan.tpot_s))
        table.add_row("minipd", named(plan), str(plan.gpus), *times)
    for other in others:
        times = (seconds(other.ttft_s), seconds(other.tpot_s))
        table.add_row("AIConfigurator", f"{other.mode}: {other.how}", str(other.gpus), *times)
    table.caption = "minipd: TTFT and TPOT with queueing, for the attainment; it: without queueing"
    return table


def export(answer: Answer, folder: Path) -> list[str]:
    """Hand the chosen plan to its generator; returns the names of the files it wrote."""
    plan = answer.best
    assert plan is not None, "only a plan can be exported"
    python = program().resolve().parent / "python"
    folder.mkdir(parents=True, exist_ok=True)
    request = folder / "minipd_plan.json"  # JSON is YAML too, which the generator reads
    request.write_text(json.dumps(generator_input(answer, plan), indent=2) + "\n", "utf-8")
    command = [str(python), "-m", GENERATOR, "render-artifacts", "--backend", BACKEND]
    run([*command, "--config", str(request), "--output", str(folder)])
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def generator_input(answer: Answer, plan: Plan) -> dict[str, Any]:
    """The plan in the generator's words."""
    name, work = answer.model.name, answer.work
    roles = {"prefill": plan.prefill, "decode": plan.decode} if plan.prefill else {}
    workers = {role: dict(_worker(pool)) for role, pool in roles.items() if pool}
    workers = workers or {"agg": dict(_worker(plan.decode))}
    counts = {f"{role}_workers": pool.workers for role, pool in roles.items() if pool}
    counts = counts or {"agg_workers": plan.decode.workers}
    counts |= {f"{role}_gpus_per_worker": int(w["gpus_per_worker"]) for role, w in workers.items()}
    return {
        "ServiceConfig": {
            "model_path": name,
            "served_model_path": name,
            "served_model_name": name,
            "model_name": name,
        },
        "DynConfig": {"mode": "disagg" if plan.prefill else "agg"},
        "WorkerConfig": counts,
        "Workers": workers,
        "SlaConfig": {
            "isl": work.isl,
            "osl": work.osl,
            "ttft": work.ttft_s * 1e3,
            "tpot": work.tpot_s * 1e3,
        },
        "NodeConfig": {
            "num_gpus_per_node": answer.terms.device.link_devices,
            "system_name": answer.terms.device.key,
        },
        "ModelConfig": {"is_moe": answer.model.expert_layers > 0, "prefix": work.cached_tokens},
    }


def _worker(pool: Pool) -> Iterator[tuple[str, int]]:
    """How one worker is spread, and the sequences that it may hold at once."""
    parallel = pool.parallel
    yield "tensor_parallel_size", parallel.tp
    yield "pipeline_parallel_size", parallel.pp
    yield "data_parallel_size", parallel.attention_replicas
    yield "moe_expert_parallel_size", parallel.ep
    yield "moe_tensor_parallel_size", 1 if parallel.ep > 1 else parallel.tp
    yield "gpus_per_worker", parallel.devices
    if pool.kind == "prefill":  # each stage of a pipeline has prompts of its own, one set is sent
        yield "max_batch_size", pool.prompts * (parallel.pp + 1)
    else:
        yield "max_batch_size", max(1, pool.speeds.max_sequences // parallel.attention_replicas)
    if pool.budget:
        yield "max_num_tokens", pool.budget


def run(command: list[str]) -> None:
    """Run it and say in one sentence what went wrong."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlanError(f"AIConfigurator could not be run ({error}); try it by itself.") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["no words"]
        raise PlanError(f"AIConfigurator failed ({last[0][:MAX_WORDS]}); try it by itself.")
