"""The figures that lesson 03 shows beside the learner's own: one pinned core, float32.

    python benchmarks/lesson_03.py --pin 0

writes ceilings, passes of several sizes and the 8-bit passes to benchmarks/raw/lesson_03.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from rich.progress import track

from minipd.lab.eight_bit import eight_bit, same_choices, time_passes
from minipd.lab.roofline import Point, Roof, corner_tokens, decode_work, prefill_work
from minipd.measure.ceilings import measure_ceilings
from minipd.measure.machine import describe_machine, parse_cpus, pinned
from minipd.measure.phases import MinipdEngine, random_tokens
from minipd.measure.report import write_json
from minipd.measure.sheet import now
from minipd.measure.stopwatch import num_threads
from minipd.model.builtin import TEXT_FILE
from minipd.model.load import LoadedModel, load

RAW = Path(__file__).parent / "raw" / "lesson_03.json"
SIZES, STEPS, BITS_ROWS = (1, 8, 64, 512), 16, (1, 16, 512)
PLACES = 600  # tokens of prose and code at which the next token is asked for
BYTES, CONTEXT = 4, (STEPS + 1) / 2


def measure_points(model: LoadedModel, repetitions: int) -> dict[str, list[float]]:
    """Seconds of each pass (a step of decode for `decode`), taking turns, warm-up left out."""
    engine = MinipdEngine(model, max(SIZES), 1)
    tokens = random_tokens(model.config.vocab_size, max(SIZES))
    jobs: dict[str, Callable[[], float]] = {
        str(size): partial(engine.prefill, tokens[:size]) for size in SIZES
    }
    jobs["decode"] = lambda: engine.decode(tokens[:STEPS]) / STEPS
    runs: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in track(range(repetitions + 1), "passes"):
        for name, job in jobs.items():
            runs[name].append(job())
    return {name: samples[1:] for name, samples in runs.items()}


def figures(model: LoadedModel, roof: Roof, runs: dict[str, list[float]]) -> dict[str, Any]:
    """What the lesson quotes, from the raw seconds alone."""
    config = model.config
    points = {
        str(size): Point(prefill_work(config, size, BYTES), median(runs[str(size)]))
        for size in SIZES
    }
    points["decode"] = Point(decode_work(config, 1, CONTEXT, BYTES), median(runs["decode"]))
    return {
        "corner_flops_per_byte": roof.ridge,
        "corner_tokens": corner_tokens(roof, BYTES),
        "passes": {
            name: {
                "ms": 1000 * point.seconds,
                "flops_per_byte": point.work.intensity,
                "gflops": point.flops / 1e9,
                "mfu": point.mfu(roof),
                "mbu": point.mbu(roof),
            }
            for name, point in points.items()
        },
    }


def eight_bits(model: LoadedModel, repetitions: int) -> dict[str, Any]:
    """The optional box: times of passes, and at how many places another token is chosen."""
    kinds = {"float32": model}
    kinds |= {"weights": eight_bit(model, "weights"), "both": eight_bit(model, "both")}
    tokens = random_tokens(model.config.vocab_size, max(BITS_ROWS))
    took = time_passes(kinds, tokens, BITS_ROWS, repetitions)
    text = model.tokenizer.encode(TEXT_FILE.read_text(encoding="utf-8"))[:PLACES]
    return {
        "ms": {kind: {str(r): 1000 * s for r, s in sizes.items()} for kind, sizes in took.items()},
        "places": len(text),
        "other_token": {
            kind: 1 - same_choices(model, kinds[kind], [text]) for kind in ("weights", "both")
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--pin", default="0", help="the core to use (default 0)")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RAW)
    options = parser.parse_args()
    model = load(options.model)
    with pinned(parse_cpus(options.pin)), num_threads(1):
        before = measure_ceilings()
        runs = measure_points(model, options.repetitions)
        after = measure_ceilings()
        bits = eight_bits(model, options.repetitions)
    roof = Roof(
        "recorded",
        median([before.flops, after.flops]),
        median([before.read_bytes_per_s, after.read_bytes_per_s]),
    )
    record = {
        "date": now(),
        "machine": describe_machine().to_dict(),
        "model": {"name": model.name, "fingerprint": model.fingerprint, "dtype": "float32"},
        "threads": 1,
        "pin": options.pin,
        "ceilings": {
            "flops": roof.flops,
            "read_bytes_per_s": roof.bytes_per_s,
            "rounds": [before.to_dict(), after.to_dict()],
        },
        "figures": figures(model, roof, runs),
        "eight_bit": bits,
        "samples_s": runs,
        "rule": "Medians of the samples; a ceiling is the median of the best before and after.",
    }
    write_json(options.out, record)
    print(record["figures"])
    print(bits)


if __name__ == "__main__":
    main()
