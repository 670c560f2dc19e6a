"""The recorded figures of lesson 05: who fits, what sharing saves, what preemption costs.

    python benchmarks/lesson_05.py --out benchmarks/raw/lesson_05.json

Fresh and shared prompts take turns, so that a busy moment hits both alike; so do the runs with
different memory. All samples are kept, with the machine's load before and after.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import psutil
import torch

from minipd import LLM
from minipd.lab import paging
from minipd.measure.machine import describe_machine
from minipd.model.load import LoadedModel, load
from minipd.sched.limits import Limits

MEMORY, CONTEXT, LONGEST_ANSWER = 32_768, 8_192, 1_000  # tokens, as in the lesson
PREFIX_RULES = (10, 20, 40, 80)
COUNTRIES = "France Japan Egypt Peru Norway Kenya Canada Spain India Chile Cuba Iran Nepal Ghana"
WRITTEN = 16  # tokens of each answer


def fit() -> dict[str, Any]:
    """Users at once, by the way in which memory is given out."""
    lengths = paging.chat_lengths(200, CONTEXT)
    totals = [sum(pair) for pair in lengths]
    sizes = (8192, 2048, 512, 128, 64, 16, 1)
    blocks = {str(n): paging.how_many_fit_in_blocks(totals, MEMORY, n) for n in sizes}
    most = [prompt + LONGEST_ANSWER for prompt, _ in lengths]
    return {
        "context": paging.how_many_fit([CONTEXT] * len(totals), MEMORY),
        "longest_answer": paging.how_many_fit(most, MEMORY),
        "blocks": blocks,
        "empty_share": {str(n): paging.empty_share(totals, n) for n in sizes},
    }


def prefix(llm: LLM, rules: int, pairs: int) -> dict[str, Any]:
    """TTFT, seconds, of prompts with a new beginning and with one that was read before."""
    handbook = " ".join(f"Rule {n}: visitors never touch machine {n}." for n in range(1, rules + 1))
    paging.first_token_s(llm, llm.chat_ids(handbook))
    samples: dict[str, Any] = {"fresh": [], "shared": []}
    for n in range(pairs):
        fresh = llm.chat_ids(f"Copy {rules}-{n}. {handbook} May I touch it?")
        shared = llm.chat_ids(f"{handbook} May I touch machine {n}?")
        samples["fresh"].append(paging.first_token_s(llm, fresh))
        samples["shared"].append(paging.first_token_s(llm, shared))
        samples["prompt_tokens"] = len(shared)
    cached = [e.data["cached_tokens"] for e in llm.timeline if e.kind == "prefill_started"]
    ratios = [a / b for a, b in zip(samples["fresh"], samples["shared"])]
    return samples | {"cached_tokens": cached[-1], "ratio": statistics.median(ratios)}


def slots(model: LoadedModel, repetitions: int) -> dict[str, list[float]]:
    """Tokens/s of the same questions, with room for 4 and for all of them at once."""
    rates: dict[str, list[float]] = {"4": [], "14": []}
    for _ in range(repetitions):
        for limit, samples in rates.items():
            llm = LLM(model, num_kv_blocks=32, limits=Limits(max_running=int(limit)))
            prompts = [llm.token_ids(f"The capital of {c} is") for c in COUNTRIES.split()]
            samples.append(paging.serve(llm, prompts, WRITTEN).tokens_per_s)
    return rates


def preemption(model: LoadedModel, repetitions: int) -> dict[str, Any]:
    """Seconds of 6 answers with plenty of memory and with too little, and what had to be redone."""
    runs: dict[str, Any] = {"roomy": [], "tight": []}
    for _ in range(repetitions):
        for name, blocks in (("roomy", 64), ("tight", 16)):
            llm = LLM(model, block_size=8, num_kv_blocks=blocks)
            prompts = [llm.token_ids(f"The capital of {c} is") for c in COUNTRIES.split()[:6]]
            served = paging.serve(llm, prompts, 24)
            runs[name].append(served.seconds)
            runs[f"{name}_preempted"], runs[f"{name}_read_again"] = (
                served.preempted,
                served.read_again,
            )
    return runs


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    load_before = psutil.getloadavg()
    model = load(options.model)
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": describe_machine().to_dict(),
        "threads": torch.get_num_threads(),
        "model": {"name": model.name, "fingerprint": model.fingerprint},
        "fit": fit(),
        "prefix": {str(n): prefix(LLM(model), n, options.repetitions) for n in PREFIX_RULES},
        "slots_tokens_per_s": slots(model, options.repetitions),
        "preemption_s": preemption(model, options.repetitions),
        "load": {"before": load_before, "after": psutil.getloadavg()},
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"Written to {options.out}.")


if __name__ == "__main__":
    main()
