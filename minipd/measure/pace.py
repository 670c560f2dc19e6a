"""Measures this machine's step times, for workers that replay them (`minipd.pools.paced`)."""

from __future__ import annotations

from statistics import median

from minipd.engine.batch import Chunk
from minipd.engine.executor import Executor
from minipd.measure.contest import Cores
from minipd.measure.machine import pinned
from minipd.measure.stopwatch import num_threads, seconds
from minipd.model.load import LoadedModel
from minipd.pools.paced import Pace
from minipd.request import SamplingParams

PROMPT_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512)
BATCH_SIZES = (1, 2, 4, 8, 16)
SHORT, LONG = 32, 512  # tokens of context behind a decode
BLOCK_SIZE = 16


def measure_pace(model: LoadedModel, cores: Cores, repetitions: int = 3) -> Pace:
    """Medians of a few steps of each kind, on one worker's share of the cores; about 15 s here."""
    longest = min(LONG, model.config.max_context - 1)
    short = min(SHORT, longest // 2)
    blocks_each = longest // BLOCK_SIZE + 1
    executor = Executor(model, blocks_each * max(BATCH_SIZES), BLOCK_SIZE)

    def step_s(chunks: list[Chunk]) -> float:
        def run() -> None:
            executor.forward(chunks)

        run()
        return median(seconds(run, executor.device) for _ in range(repetitions))

    prompts = sorted({min(n, longest) for n in PROMPT_TOKENS})
    with pinned(cores.cpus[0] if cores.cpus else None), num_threads(cores.threads):
        prefill = [(n, step_s([_chunk(0, n, 0, blocks_each)])) for n in prompts]
        decode = {(b, s): step_s(_decodes(b, s, blocks_each)) for b in BATCH_SIZES
                  for s in (short, longest)}  # fmt: skip
    return _fit(prefill, decode, short, longest)


def _fit(
    prefill: list[tuple[int, float]],
    decode: dict[tuple[int, int], float],
    short: int,
    long: int,
) -> Pace:
    """What a token of context adds: the median over all batch sizes; then the rest by batch."""
    sizes = sorted({b for b, _ in decode})
    slopes = [(decode[b, long] - decode[b, short]) / (b * (long - short)) for b in sizes]
    slope = max(0.0, median(slopes))
    base = tuple((float(b), max(0.0, decode[b, short] - b * short * slope)) for b in sizes)
    return Pace(tuple((float(n), s) for n, s in prefill), base, slope)


def _chunk(sequence: int, count: int, start: int, blocks_each: int) -> Chunk:
    blocks = list(range(sequence * blocks_each, (sequence + 1) * blocks_each))
    return Chunk(f"pace-{sequence}", [1] * count, start, blocks, SamplingParams())


def _decodes(num_sequences: int, context: int, blocks_each: int) -> list[Chunk]:
    return [_chunk(i, 1, context, blocks_each) for i in range(num_sequences)]
