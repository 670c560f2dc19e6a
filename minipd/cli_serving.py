"""The commands that serve a trace on pools of workers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from minipd.cli_options import Dtype, FirstTokenLimit, JsonFile, Model, Network, TokenLimit
from minipd.measure.outputs import probe_file, probe_folder


def demo(
    model: Model = "smollm2-135m",
    folder: Annotated[
        Path, typer.Option("--folder", metavar="DIR", help="Where the pictures go.")
    ] = Path("minipd-demo"),
    network: Network = None,
    json_path: JsonFile = None,
) -> None:
    """See the main result: a long document freezes every answer, two pools end that.

    The same trace on the same two workers, served four ways: colocated, chunked, with long prompts
    apart, and disaggregated. A table, the verdict in words, and timelines as pictures. About 2
    minutes.
    """
    probe_file(json_path)
    probe_folder(folder)
    from minipd.lab.demo import run_demo

    run_demo(model, folder, network, json_path)


def run(
    mode: Annotated[
        list[str] | None,
        typer.Option(help="colocated, decode_first, chunked, disaggregated; repeat to compare."),
    ] = None,
    model: Model = "smollm2-135m",
    device: Annotated[
        str, typer.Option(help="cpu, cuda, cuda:1, or several in turn: cuda:0,cuda:1.")
    ] = "cpu",
    dtype: Dtype = "float32",
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="An Azure CSV, a Mooncake JSONL or a minipd trace."),
    ] = None,
    skip_bad_lines: Annotated[
        bool, typer.Option("--skip-bad-lines", help="Leave out a trace's unusable lines, counted.")
    ] = False,
    workload: Annotated[
        str, typer.Option(help="Without --trace: chat, rag, coding_agent, reasoning, api, ...")
    ] = "chat",
    requests: Annotated[int, typer.Option(min=1, help="How many requests.")] = 20,
    rate: Annotated[float, typer.Option(help="Requests per second, when generated.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the workload and its prompts.")] = 0,
    time_factor: Annotated[float, typer.Option(help="10 makes arrivals ten times rarer.")] = 1.0,
    max_prompt_tokens: Annotated[int | None, typer.Option(min=1, help="Cap, reported.")] = None,
    max_output_tokens: Annotated[int | None, typer.Option(min=1, help="Cap, reported.")] = None,
    prefill: Annotated[int, typer.Option(min=1, help="Prefill workers (x of xPyD).")] = 1,
    decode: Annotated[int, typer.Option(min=1, help="Decode workers (y of xPyD).")] = 1,
    pool: Annotated[
        Literal["processes", "threads"], typer.Option(help="How workers are started.")
    ] = "processes",
    paced: Annotated[
        bool, typer.Option("--paced", help="Replay step times measured now; for many workers.")
    ] = False,
    network: Network = None,
    router: Annotated[
        str,
        typer.Option(
            help="remote (if split) or round_robin by default; local, threshold, cost, length or "
            "prefix."
        ),
    ] = "default",
    local_tokens: Annotated[
        int, typer.Option(min=0, help="Prompts up to this stay local (threshold, length).")
    ] = 256,
    chunk_tokens: Annotated[int, typer.Option(min=1, help="A chunked step's budget.")] = 64,
    ttft: FirstTokenLimit = None,
    tpot: TokenLimit = None,
    rebalance: Annotated[
        bool, typer.Option("--rebalance", help="Let workers change pools to keep --ttft, --tpot.")
    ] = False,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Bit-equal logits in every mode; slower.")
    ] = False,
    kv_tokens: Annotated[
        int | None, typer.Option(help="KV a worker's cache holds; the whole trace if not given.")
    ] = None,
    host_kv: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Host memory for KV beyond --kv-tokens, like 512MB."),
    ] = None,
    disk_kv: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for KV that finds no room there either."),
    ] = None,
    disk_kv_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Of each worker's files; 1 GiB if not given.")
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Save timelines and plots here.")
    ] = None,
    json_path: JsonFile = None,
) -> None:
    """Serve a trace in one mode or several, and compare.

    TTFT, TPOT, gaps between tokens, throughput and stalls of each mode; --json keeps the timelines,
    and for each worker how many prompt tokens were computed, found or fetched.
    """
    probe_file(json_path)
    probe_folder(pictures)
    from minipd.lab.run import Plan, run_plan

    plan = Plan(
        modes=tuple(mode or ["disaggregated"]),
        model=model,
        device=device,
        dtype=dtype,
        trace=trace,
        skip_bad_lines=skip_bad_lines,
        workload=workload,
        num_requests=requests,
        rate_per_s=rate,
        seed=seed,
        time_factor=time_factor,
        max_prompt_tokens=max_prompt_tokens,
        max_output_tokens=max_output_tokens,
        num_prefill=prefill,
        num_decode=decode,
        pool=pool,
        paced=paced,
        network=network,
        router=router,
        local_tokens=local_tokens,
        chunk_tokens=chunk_tokens,
        ttft_s=ttft,
        tpot_s=tpot,
        rebalance=rebalance,
        deterministic=deterministic,
        kv_tokens=kv_tokens,
        host_kv=host_kv,
        disk_kv=disk_kv,
        disk_kv_size=disk_kv_size,
    )
    run_plan(plan, json_path, pictures)
