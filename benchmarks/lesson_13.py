"""The figures that lesson 13 quotes: what comes back, the ways back, the routers, the fleet.

    python benchmarks/lesson_13.py --out benchmarks/raw/lesson_13.json

measures reading and the ways back with SmolLM2-135M on this machine; the rest is computed and
the same everywhere. Takes about a minute; nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median

import torch

from minipd import LLM, SamplingParams
from minipd.lab import kept_in_fleet as fleet
from minipd.lab.kv_places import MACHINES, mooncake_thresholds, reader_of, ways_back
from minipd.lab.paging import first_token_s
from minipd.lab.shared_beginnings import BLOCK, lru_hit_shares, synthetic_rows
from minipd.measure.machine import describe_machine
from minipd.measure.report import write_json
from minipd.measure.sheet import now
from minipd.measure.trace_stats import prefix_hits

TOKENS, ROUNDS, P = 400, 5, 16
SIZES_GB = (10, 25, 56, 100, 200, 400, 1000)


def measure(llm: LLM) -> dict[str, object]:
    """Reading again and having it copied back, in turns; and the ways back alone."""
    kv_bytes = llm.model.config.kv_bytes_per_token(4)
    tiny = LLM(llm.model, num_kv_blocks=34, host_kv_bytes=200 * P * kv_bytes)
    story = "The contract names the bridge, the lamp, the watchman and the hour of every round. "
    tokenizer = llm.model.tokenizer
    contract = tokenizer.encode(story * 30)[:TOKENS]
    question = tokenizer.encode(" Who counts the lamps on the bridge?")
    again: list[float] = []
    back: list[float] = []
    first_token_s(tiny, contract + question)  # warms up, and is evicted by what follows
    for number in range(ROUNDS):
        new = tokenizer.encode(f"Round {number}. " + story * 30)[:TOKENS]
        again.append(first_token_s(tiny, new + question))
        back.append(first_token_s(tiny, contract + question))
    ways = [
        asdict(way) | {"bytes_per_s": way.bytes_per_s} for way in ways_back(llm.model.config, 512)
    ]
    speed = TOKENS / median(again)
    return {
        "read_again_s": again,
        "copied_back_s": back,
        "times_sooner": median(again) / median(back),
        "prefill_tok_s": speed,
        "kv_bytes_per_token": kv_bytes,
        "needed_bytes_per_s": speed * kv_bytes,
        "ways": ways,
    }


def compute() -> dict[str, object]:
    """What depends on no machine: the trace, the thresholds, the fleet."""
    rows = synthetic_rows(1000)
    hits = prefix_hits(rows)
    per_token = reader_of("Llama-3.1-8B", "h100_sxm").kv_bytes
    room = [int(size * 1e9 / per_token / BLOCK) for size in SIZES_GB]
    outcomes = [fleet.serve(way, rows) for way in fleet.WAYS]
    outcomes.append(fleet.serve(fleet.FORGET, rows, num_prefill=3))
    forget, decode = outcomes[0], outcomes[4]
    return {
        "hits": {"tokens": hits.token_weighted, "requests": hits.per_request},
        "lru": dict(zip(map(str, SIZES_GB), lru_hit_shares(rows, room), strict=True)),
        "mooncake_thresholds_gb_per_s": mooncake_thresholds(),
        "needed_gb_per_s_8192": {
            f"{m} {gpu} x {tp}": reader_of(m, gpu, tp).needed_bytes_per_s(8192) / 1e9
            for m, gpu, tp in MACHINES
        },
        "fleet": [asdict(one) for one in outcomes],
        "meet_usd_per_gb": fleet.price_where_they_meet(forget, decode),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/raw/lesson_13.json"))
    options = parser.parse_args()
    llm, began = LLM("smollm2-135m"), time.perf_counter()
    llm.generate(["warm up"], SamplingParams(2))
    record = {
        "date": now(),
        "machine": describe_machine().to_dict(),
        "model": llm.model.name,
        "threads": torch.get_num_threads(),
        "measured": measure(llm),
        "computed": compute(),
        "seconds": time.perf_counter() - began,
    }
    write_json(options.out, record)
    print(record["measured"], record["computed"])


if __name__ == "__main__":
    main()
