"""What a KV cache saves: the same answer written by the engine with its cache, and without it.

    python benchmarks/lesson_02.py --pin 0

writes the samples to benchmarks/raw/lesson_02.json: for prompts of several lengths, seconds of each
of 16 tokens both ways, on one core in float32. Without a cache every token is a prefill of the
whole text; both ways run the engine's own passes. The speed-up is that of each token's shortest
time: other programs can only make a pass longer. Lesson 02 quotes the record, and a test compares.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from minipd.measure.hardware import NoiseMeter
from minipd.measure.machine import describe_machine, parse_cpus, pinned
from minipd.measure.phases import MinipdEngine, random_tokens
from minipd.measure.report import write_json
from minipd.measure.sheet import now
from minipd.measure.stopwatch import num_threads
from minipd.model.load import LoadedModel, load

RAW = Path(__file__).parent / "raw"
LENGTHS = (64, 256, 512)
ANSWER = 16  # tokens


class CachedEngine(MinipdEngine):
    """Also times single steps behind a prompt that stands in the cache."""

    def steps_after(self, prompt: int, token_ids: list[int]) -> list[float]:
        """Seconds of each one-token pass, the first of them at position `prompt`."""
        return [
            self._timed([[self._chunk(0, [token], prompt + i)]])
            for i, token in enumerate(token_ids)
        ]


def without_cache(engine: CachedEngine, token_ids: list[int], prompt: int) -> list[float]:
    """Seconds of each token of the answer: each time, everything before it is read again."""
    return [engine.prefill(token_ids[: prompt + i]) for i in range(ANSWER)]


def with_cache(engine: CachedEngine, token_ids: list[int], prompt: int) -> list[float]:
    """The same tokens: prefill yields the first one, each further one takes a step."""
    reading = engine.prefill(token_ids[:prompt])
    return [reading, *engine.steps_after(prompt, token_ids[prompt : prompt + ANSWER - 1])]


def measure(model: LoadedModel, prompt: int, repetitions: int) -> dict[str, Any]:
    """Samples of both ways in turn, so that a slow drift of the clock meets both."""
    token_ids = random_tokens(model.config.vocab_size, prompt + ANSWER)
    engine = CachedEngine(model, prompt + ANSWER, 1)
    engine.prefill(token_ids)  # warm-up
    samples: dict[str, list[list[float]]] = {"without": [], "with": []}
    for _ in range(repetitions):
        samples["without"].append(without_cache(engine, token_ids, prompt))
        samples["with"].append(with_cache(engine, token_ids, prompt))
    return {"speedup": shortest(samples["without"]) / shortest(samples["with"]), "samples": samples}


def shortest(repetitions: list[list[float]]) -> float:
    """Seconds of an answer whose every token took the shortest time seen for it."""
    return sum(min(times) for times in zip(*repetitions, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--pin", default="0", help="the core to use (default 0)")
    parser.add_argument("--repetitions", type=int, default=6)
    parser.add_argument("--out", type=Path, default=RAW / "lesson_02.json")
    options = parser.parse_args()
    with pinned(parse_cpus(options.pin)) as weaker, num_threads(1):
        model, meter = load(options.model), NoiseMeter()
        results = {str(n): measure(model, n, options.repetitions) for n in LENGTHS}
    record: dict[str, Any] = {
        "date": now(),
        "machine": describe_machine().to_dict(),
        "model": {"name": model.name, "fingerprint": model.fingerprint, "dtype": "float32"},
        "threads": 1,
        "answer_tokens": ANSWER,
        "kv_bytes_per_token": model.config.kv_bytes_per_token(4),
        "lengths": results,
        "noise": [text for text in (weaker, meter.read().remark) if text],
    }
    write_json(options.out, record)
    for length, result in results.items():
        print(f"prompt of {length:>5} tokens: {result['speedup']:.1f} times faster with a cache")
    print("; ".join(record["noise"]) or "nothing disturbed it")


if __name__ == "__main__":
    main()
