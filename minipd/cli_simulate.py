"""The command that simulates fleets."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from minipd.cli_options import FirstTokenLimit, JsonFile, TokenLimit, refusals
from minipd.measure.outputs import probe_file


def simulate(
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="An Azure CSV, a Mooncake JSONL or a minipd trace."),
    ] = None,
    stats: Annotated[
        bool, typer.Option("--stats", help="Only describe the requests; simulate nothing.")
    ] = False,
    mode: Annotated[
        list[str] | None,
        typer.Option(help="colocated, decode_first, chunked, disaggregated; repeat to compare."),
    ] = None,
    model: Annotated[
        str, typer.Option(help="Name, like Llama-3.1-70B, or path of a config.json.")
    ] = "Llama-3.1-8B",
    gpu: Annotated[str, typer.Option(help="Name, like H100.")] = "H100",
    tp: Annotated[int, typer.Option(min=1, max=4096, help="Devices that share each matrix.")] = 1,
    pp: Annotated[int, typer.Option(min=1, max=4096, help="Pipeline stages.")] = 1,
    ep: Annotated[int, typer.Option(min=1, max=4096, help="Devices that share the experts.")] = 1,
    decode_gpu: Annotated[str | None, typer.Option(help="Of decode workers, if another.")] = None,
    decode_tp: Annotated[int | None, typer.Option(min=1, max=4096, help="Likewise.")] = None,
    decode_pp: Annotated[int | None, typer.Option(min=1, max=4096, help="Likewise.")] = None,
    decode_ep: Annotated[int | None, typer.Option(min=1, max=4096, help="Likewise.")] = None,
    prefill: Annotated[int, typer.Option(min=0, help="Prefill workers (x of xPyD).")] = 1,
    decode: Annotated[int, typer.Option(min=0, help="Decode workers (y of xPyD).")] = 1,
    workload: Annotated[
        str, typer.Option(help="Without --trace: chat, rag, coding_agent, reasoning, api, ...")
    ] = "chat",
    isl: Annotated[int | None, typer.Option(help="All prompts alike: tokens.")] = None,
    osl: Annotated[int | None, typer.Option(help="All answers alike: tokens.")] = None,
    requests: Annotated[int, typer.Option(help="How many, when generated.")] = 1000,
    rate: Annotated[float, typer.Option(help="Requests per second, when generated.")] = 1.0,
    arrivals: Annotated[str, typer.Option(help="poisson, gamma or uniform.")] = "poisson",
    cv: Annotated[float, typer.Option(help="Burstiness of gamma arrivals; 1 is Poisson.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Of requests and random failures.")] = 0,
    skip_bad_lines: Annotated[
        bool, typer.Option("--skip-bad-lines", help="Leave out a trace's unusable lines, counted.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Only a trace's first rows.")] = None,
    time_factor: Annotated[float, typer.Option(help="10 makes arrivals ten times rarer.")] = 1.0,
    length_factor: Annotated[float, typer.Option(help="0.1 makes texts ten times shorter.")] = 1.0,
    max_prompt_tokens: Annotated[int | None, typer.Option(min=1, help="Cap, reported.")] = None,
    max_output_tokens: Annotated[int | None, typer.Option(min=1, help="Cap, reported.")] = None,
    ttft: FirstTokenLimit = None,
    tpot: TokenLimit = None,
    link: Annotated[
        str, typer.Option(help="auto, nvlink, infiniband_400, ethernet_25, ... or bytes/s.")
    ] = "auto",
    trunk: Annotated[
        float, typer.Option(help="Bytes/s of one wire that all hand-offs share.")
    ] = math.inf,
    router: Annotated[
        str,
        typer.Option(
            help="remote (if split) or round_robin by default; local, threshold, length, prefix."
        ),
    ] = "default",
    local_tokens: Annotated[
        int, typer.Option(min=0, help="Prompts up to this stay local (threshold, length).")
    ] = 1000,
    max_running: Annotated[int, typer.Option(help="Answers at once per worker.")] = 256,
    max_batch_tokens: Annotated[int, typer.Option(help="Prompt tokens per prefill step.")] = 2048,
    chunk_tokens: Annotated[int, typer.Option(min=1, help="A chunked step's budget.")] = 512,
    kv_tokens: Annotated[
        int | None, typer.Option(min=1, help="KV tokens per worker, if not by memory.")
    ] = None,
    prefix_reuse: Annotated[
        bool, typer.Option("--prefix-reuse", help="Share the KV of equal beginnings.")
    ] = False,
    fail: Annotated[
        list[str] | None,
        typer.Option(metavar="W@T[+D]", help="Worker W fails at T s, is back after D s."),
    ] = None,
    mean_failure: Annotated[
        float | None, typer.Option(help="Each worker fails after so many seconds on average.")
    ] = None,
    down: Annotated[float, typer.Option(help="Seconds until a failed worker is back.")] = 60.0,
    rebalance: Annotated[
        bool, typer.Option("--rebalance", help="Let workers change pools to keep --ttft, --tpot.")
    ] = False,
    json_path: JsonFile = None,
) -> None:
    """Simulate a fleet that serves a trace, in one mode or several.

    The engine's own schedulers and routers on a clock that jumps, with step times from the model
    of `plan`. --stats describes the requests instead: how many, how often, how long, and what share
    of the prompts a perfect prefix cache would save.
    """
    with refusals():
        probe_file(json_path)
    from minipd.fleet.simulate_asked import Asked, PoolAsked
    from minipd.fleet.simulate_command import run_simulate, run_stats
    from minipd.fleet.sources import Reshaping

    change = Reshaping(time_factor, length_factor, max_prompt_tokens, max_output_tokens, limit)
    asked = Asked(
        modes=tuple(mode or ["disaggregated"]),
        model=model,
        prefill=PoolAsked(gpu, tp, pp, ep),
        decode=PoolAsked(decode_gpu or gpu, decode_tp or tp, decode_pp or pp, decode_ep or ep),
        num_prefill=prefill,
        num_decode=decode,
        trace=trace,
        reshaping=change,
        skip_bad_lines=skip_bad_lines,
        workload=workload,
        isl=isl,
        osl=osl,
        num_requests=requests,
        rate_per_s=rate,
        arrivals=arrivals,
        cv=cv,
        seed=seed,
        ttft_s=ttft,
        tpot_s=tpot,
        link=link,
        trunk_bytes_per_s=trunk,
        router=router,
        local_tokens=local_tokens,
        max_running=max_running,
        max_batch_tokens=max_batch_tokens,
        chunk_tokens=chunk_tokens,
        kv_tokens=kv_tokens,
        prefix_reuse=prefix_reuse,
        fail=tuple(fail or ()),
        mean_failure_s=mean_failure,
        down_s=down,
        rebalance=rebalance,
    )
    with refusals():
        (run_stats if stats else run_simulate)(asked, json_path)
