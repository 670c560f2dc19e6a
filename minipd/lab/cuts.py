"""Lesson 11: what each way of cutting a model moves, waits for and leaves room for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from minipd.fleet import collectives
from minipd.fleet.configs import find_model
from minipd.fleet.gpus import find_device
from minipd.fleet.kvpool import CapacityError, kv_tokens
from minipd.fleet.queueing import OverloadError, pipeline_ttft_s, single_ttft_s, tensor_ttft_s
from minipd.fleet.work import Operation, Parallel, decode_step, step_work

CUTS = {"TP8": Parallel(tp=8), "PP4": Parallel(pp=4), "EP16": Parallel(ep=16)}
EXCHANGES = ("all_reduce", "all_to_all", "send")
CARD_GB = 141  # of an H200, decimal
SHOWN = ("Llama-3.1-8B", "Qwen3-30B-A3B", "Llama-3.1-70B", "Qwen3-235B-A22B", "DeepSeek-V3")


def models_table(names: Sequence[str] = SHOWN) -> dict[str, list[object]]:
    """Weights of well-known models, and the cards of `CARD_GB` that they fill."""
    models = [find_model(name) for name in names]
    gigabytes = [one.parameters * one.weight_bytes / 1e9 for one in models]
    return {
        "model": list(names),
        "parameters (billion)": [round(one.parameters / 1e9) for one in models],
        "used for one token": [round(one.active_parameters / 1e9) for one in models],
        "bytes of each": [f"{one.weight_bytes:g}" for one in models],
        "weights (GB)": [f"{one:,.1f}" for one in gigabytes],
        f"cards of {CARD_GB} GB for these alone": [math.ceil(one / CARD_GB) for one in gigabytes],
    }


def sent_bytes(operation: Operation, per_node: int = 8) -> float:
    """Bytes that one device sends in all of an operation's exchanges.

    Of spread experts only what leaves its machine; of stages, one sends to the next one alone.
    """
    if operation.kind == "all_reduce":
        once = collectives.all_reduce_bytes(operation.num_bytes, operation.devices)
    elif operation.kind == "all_to_all":
        once = collectives.all_to_all_bytes(
            operation.num_bytes, operation.devices, operation.copies, per_node
        )
    else:
        return operation.num_bytes
    return operation.times * once


def moved_table(name: str) -> dict[str, list[object]]:
    """What one decoded token makes each way of cutting exchange."""
    model, rows = find_model(name), list[tuple[str, str, int, float]]()
    for cut, parallel in CUTS.items():
        work = step_work(model, decode_step(1000, 1), parallel)
        found = [one for one in work if one.kind in EXCHANGES]
        number = round(sum(one.times for one in found))
        kind = found[0].kind.replace("_", "-")
        rows.append((cut, kind, number, sum(sent_bytes(one) for one in found)))
    return {
        "cut": [row[0] for row in rows],
        "exchange": [row[1] for row in rows],
        "exchanges for a token, one after the other": [row[2] for row in rows],
        "kB that a GPU sends": [f"{row[3] / 1000:,.0f}" for row in rows],
    }


def waits_table(loads: Sequence[float], speedup: float) -> dict[str, list[object]]:
    """Mean TTFT over the load of one GPU, for prompts that one GPU reads in a second: alone, cut
    in matrices (together `speedup` times as fast), cut in layers."""
    cut: dict[str, Callable[[float], float]] = {
        "one GPU": partial(single_ttft_s, execution_s=1.0),
        "2 GPUs, TP": partial(tensor_ttft_s, execution_s=1.0, speedup=speedup),
        "2 GPUs, PP": partial(pipeline_ttft_s, execution_s=1.0),
    }
    table: dict[str, list[object]] = {"load of one GPU": list(loads)}
    for name, ttft in cut.items():
        table[f"{name} (s)"] = [_or_endless(ttft, rate) for rate in loads]
    return table


def _or_endless(ttft: Callable[[float], float], rate: float) -> str:
    try:
        return f"{ttft(rate):.2f}"
    except OverloadError:
        return "endless queue"


def fit_at_once(
    name: str, gpus: int, context: int, spread: str = "TP", gpu: str = "H200", copies: int = 1
) -> int:
    """Sequences of `context` tokens that fit beside the weights on `gpus` GPUs, 0 if the weights
    do not. `spread` "TP" cuts every matrix, "EP" gives each GPU whole attention and some experts.
    `copies`: 2 splits the same GPUs into two pools of half of them, and counts the writers' half.
    """
    each = gpus // copies
    parallel = Parallel(tp=each) if spread == "TP" else Parallel(ep=each)
    try:
        return kv_tokens(find_model(name), find_device(gpu).memory_bytes, parallel) // context
    except CapacityError:
        return 0


def bound_table(
    names: Sequence[str], contexts: Sequence[int], gpus: int = 8
) -> dict[str, list[object]]:
    """Sequences that fit at once on one machine, for each model, spread and context.

    A dense model has no experts to spread, so it has no line of its own for that.
    """
    sparse = {name for name in names if find_model(name).expert_layers}
    cases = [(name, spread) for name in names for spread in ("TP", "EP")
             if spread == "TP" or name in sparse]  # fmt: skip
    table: dict[str, list[object]] = {
        "model": [f"{name}, {spread}{gpus}" for name, spread in cases]
    }
    for context in contexts:
        found = [fit_at_once(name, gpus, context, spread) for name, spread in cases]
        table[f"{context:,} tokens each"] = [f"{one:,}" if one else "-" for one in found]
    split = [fit_at_once(name, gpus, contexts[0], spread, copies=2) for name, spread in cases]
    table[f"split in {gpus // 2} + {gpus // 2}, {contexts[0]:,} tokens each"] = [
        f"{n:,}" if n else "does not fit" for n in split
    ]
    return table
