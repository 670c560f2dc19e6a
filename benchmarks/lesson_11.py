"""The figures that lesson 11 quotes: goodput of four simulated fleets, and experts touched.

    python benchmarks/lesson_11.py --out benchmarks/raw/lesson_11.json

Simulated figures are the same on every machine. The experts that `tiny-moe` touches depend on its
seeded weights alone, up to near-ties. Nothing is timed. Takes some five minutes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from minipd import LLM
from minipd.fleet.formulas import expected_touched
from minipd.fleet.models import touched_experts
from minipd.lab import expert_dial, four_corners
from minipd.measure.machine import describe_machine
from minipd.measure.report import write_json
from minipd.measure.sheet import now
from minipd.sched.limits import Limits

TOGETHER = (1, 2, 4, 8, 16, 32)
GROUP = 16  # GPUs over which the load of the experts is looked at


def touched() -> dict[str, object]:
    llm = LLM("tiny-moe", num_kv_blocks=512, limits=Limits(max_running=64, max_batch_tokens=4096))
    rows: list[dict[str, float]] = []
    busy = torch.ones(1)
    for together in TOGETHER:
        prompts = expert_dial.random_prompts(llm.model.config.vocab_size, together)
        passes = expert_dial.decode_passes(llm, prompts)
        busy = torch.tensor(expert_dial.load_of(passes), dtype=torch.float)
        rows.append(
            {
                "answers": together,
                "measured": expert_dial.mean_touched(passes),
                "uniform": expected_touched(128, 8, together),
                "skewed": touched_experts(128, 8, together),
            }
        )
    shares = busy.view(GROUP, -1).sum(dim=1)
    same = expert_dial.random_prompts(llm.model.config.vocab_size, 1) * 8
    return {
        "model": llm.model.name,
        "fingerprint": llm.model.fingerprint,
        "rows": rows,
        "same_prompt_8_times": expert_dial.mean_touched(expert_dial.decode_passes(llm, same)),
        "busiest_expert": float(busy.max() / busy.mean()),
        "busiest_of_16_gpus": float(shares.max() / shares.mean()),
    }


def corners(even: bool) -> list[dict[str, object]]:
    found = [
        four_corners.reach(corner, four_corners.LONG_S, even)
        for corner in four_corners.CORNERS
        if corner.spread.ep > 1 or not even
    ]
    return [
        {
            "fleet": one.corner.name,
            "goodput": one.goodput,
            "ttft_p90_s": one.ttft_s,
            "tpot_p90_s": one.tpot_s,
            "answers_that_fit": one.room,
        }
        for one in found
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/raw/lesson_11.json"))
    options = parser.parse_args()
    record = {
        "date": now(),
        "machine": describe_machine().to_dict(),
        "setting": {
            "model": four_corners.MODEL,
            "gpu": four_corners.GPU,
            "gpus": four_corners.GPUS,
            "tokens": [four_corners.READ, four_corners.WRITE],
            "seconds_of_arrivals": four_corners.LONG_S,
            "rates": four_corners.RATES,
        },
        "touched": touched(),
        "goodput": corners(even=False),
        "goodput_even": corners(even=True),
    }
    write_json(options.out, record)
    for key in ("goodput", "goodput_even", "touched"):
        print(key, record[key])


if __name__ == "__main__":
    main()
