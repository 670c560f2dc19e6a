"""What lesson 04 measures: steps shared by more and more sequences, and what holds them back."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from minipd.lab.model_choice import lesson_model
from minipd.lab.predict import kept_prediction
from minipd.lab.show import Table, show_table
from minipd.measure.ceilings import Ceilings
from minipd.measure.phases import MinipdEngine, random_tokens
from minipd.measure.real_hardware import RealHardware
from minipd.measure.stats import Samples
from minipd.model.config import ModelConfig
from minipd.model.load import LoadedModel, load

SIZES = (1, 2, 4, 8, 16, 32, 64)
STEPS, ROUNDS = 5, 3
# The lesson's twelve requests: what each begins with, and how many tokens it wants.
TEXTS = {
    "A": "The capital of France is",
    "B": "Once upon a time",
    "C": "Water boils at",
    "D": "My favourite animal is",
    "E": "In the year 1900",
    "F": "The recipe needs",
    "G": "A triangle has",
    "H": "A long text",
    "I": "He opened the door and",
    "J": "Two plus two is",
    "K": "The river flows",
    "L": "Music is",
}
WANTED = dict(zip(TEXTS, (24, 4, 8, 6, 5, 24, 7, 10, 6, 4, 24, 12)))
LONG_TEXT = " ".join(f"Rule {n}: the tenant waters plant {n} every morning." for n in range(1, 60))
# Medians of `tg128` on one core, read from the file of raw samples; a test compares the two.
RECORDED_ON = "recorded on an Intel Xeon, 1 core, 2026-11-29"
RECORDED_FILE = "benchmarks/raw/phases-2026-11-29-c.json"
RECORDED: Mapping[int, float] = {1: 20.3, 4: 45.2, 16: 107.7}  # sequences: tokens/s of them all


@dataclass(frozen=True, slots=True)
class Point:
    """Decode with so many sequences in each step; `rates` are tokens/s of all of them together."""

    sequences: int
    rates: Samples

    @property
    def throughput(self) -> float:
        """Tokens per second that the machine hands out."""
        return self.rates.median

    @property
    def tpot_s(self) -> float:
        """Seconds that each reader waits for a token: the length of a step."""
        return self.sequences / self.throughput

    @property
    def per_reader(self) -> float:
        """Tokens per second that one reader gets."""
        return self.throughput / self.sequences


def measure_points(
    model: LoadedModel, sizes: Sequence[int] = SIZES, steps: int = STEPS, rounds: int = ROUNDS
) -> list[Point]:
    """Decode steps from an empty cache, all sizes in turn: a busy moment hits them alike."""
    tokens = random_tokens(model.config.vocab_size, steps)
    engine = MinipdEngine(model, steps, max(sizes))
    rates: dict[int, list[float]] = {size: [] for size in sizes}
    for size in sizes:
        engine.decode(tokens[:2], size)  # warm-up
    for _ in range(rounds):
        for size in sizes:
            rates[size].append(steps * size / engine.decode(tokens, size))
    return [Point(size, Samples(tuple(found))) for size, found in rates.items()]


def points_table(points: Sequence[Point]) -> Table:
    """The numbers of a sweep as columns."""
    return {
        "sequences": [point.sequences for point in points],
        "step = wait for a token (ms)": [1000 * point.tpot_s for point in points],
        "machine (tokens/s)": [point.throughput for point in points],
        "each reader (tokens/s)": [point.per_reader for point in points],
        "spread": [f"{point.rates.spread:.0%}" for point in points],
    }


# -- the formula of exercise 00.2 ------------------------------------------------------------


def formula_step_s(
    config: ModelConfig, sequences: int, ceilings: Ceilings, width: int = 4
) -> float:
    """Seconds of a step if weights were all, read at one ceiling while computed at the other."""
    reading = config.num_parameters * width / ceilings.read_bytes_per_s
    computing = 2 * config.num_parameters * sequences / ceilings.flops
    return max(reading, computing)


def formula_corner(ceilings: Ceilings, width: int = 4) -> float:
    """Sequences at which that formula passes from memory to arithmetic; `width` bytes a weight."""
    return ceilings.ridge_flops_per_byte * width / 2


def measured_corner(points: Sequence[Point]) -> float:
    """Where two straight lines cross: so much per sequence as alone, and the best rate seen."""
    return max(point.throughput for point in points) / points[0].per_reader


def doubled_at(points: Sequence[Point]) -> int | None:
    """The first measured number of sequences whose step takes twice as long as that of one."""
    alone = points[0].tpot_s
    return next((p.sequences for p in points if p.tpot_s >= 2 * alone), None)


def formula_table(points: Sequence[Point], config: ModelConfig, ceilings: Ceilings) -> Table:
    """Each measured step beside the formula's."""
    expected = [formula_step_s(config, point.sequences, ceilings) for point in points]
    return {
        "sequences": [point.sequences for point in points],
        "formula (ms)": [1000 * seconds for seconds in expected],
        "measured (ms)": [1000 * point.tpot_s for point in points],
        "measured / formula": [p.tpot_s / seconds for p, seconds in zip(points, expected)],
    }


def crossing_table(points: Sequence[Point], ceilings: Ceilings, prediction: str) -> Table:
    """What was predicted in lesson 00, what the formula says today, and what was measured."""
    kept = kept_prediction(prediction)
    said = kept.get("bracket") or kept.get("value", "no prediction was made")
    doubled = doubled_at(points)
    return {
        "from how many sequences on": [
            "you predicted (lesson 00)",
            "the formula: both ceilings take equally long",
            "measured: the two straight lines cross",
            "measured: a step has doubled",
        ],
        "sequences": [
            said,
            f"{formula_corner(ceilings):.0f}",
            f"{measured_corner(points):.0f}",
            doubled or f"not up to {points[-1].sequences}",
        ],
    }


# -- why the formula is not exact --------------------------------------------------------------


@torch.inference_mode()
def product_seconds(model: LoadedModel, rows: int, repeats: int = 3) -> float:
    """Median seconds of all matrix products of one step with `rows` rows, and of nothing else."""
    decoder, samples = model.decoder, list[float]()
    matrices = [layer.get_parameter(n) for layer in decoder.layers for n in _MATRICES]
    inputs = {m.shape[0]: torch.randn(rows, m.shape[0], dtype=m.dtype) for m in matrices}
    for _ in range(repeats + 1):
        start = time.perf_counter()
        for matrix in matrices:
            torch.mm(inputs[matrix.shape[0]], matrix)  # (rows, out)
        decoder.logits(inputs[model.config.hidden_size])  # (rows, V)
        samples.append(time.perf_counter() - start)
    return statistics.median(samples[1:])


_MATRICES = ("qkv", "o", "gate_up", "down")


def products_table(model: LoadedModel, points: Sequence[Point], ceilings: Ceilings) -> Table:
    """The matrix products alone: their time, their speed, and how much of a step they are."""
    seconds = [product_seconds(model, point.sequences) for point in points]
    work = 2 * model.config.num_matmul_parameters
    speeds = [work * p.sequences / s for p, s in zip(points, seconds)]
    return {
        "rows": [point.sequences for point in points],
        "products alone (ms)": [1000 * s for s in seconds],
        "whole step (ms)": [1000 * point.tpot_s for point in points],
        "GFLOP/s in the products": [speed / 1e9 for speed in speeds],
        "share of the ceiling": [f"{speed / ceilings.flops:.0%}" for speed in speeds],
    }


# -- beside other machines -----------------------------------------------------------------------


def compared_table(points: Sequence[Point], other: RealHardware) -> Table:
    """What sharing costs the reader and gains the machine: here, recorded, in a data centre."""
    mine = {point.sequences: point.tpot_s for point in points}
    theirs = {size: ms / 1000 for size, ms in other.decode_batch.items()}
    recorded = {size: size / rate for size, rate in RECORDED.items()}
    rows = [("here", mine), (RECORDED_ON, recorded), (other.name, theirs)]
    found = [(name, size, s / t[1], size * t[1] / s) for name, t in rows for size, s in t.items()]
    shown = [row for row in found if row[1] in (8, 16, 64)]
    names = ("machine", "sequences", "a reader waits (times)", "the machine writes (times)")
    return {name: [row[i] for row in shown] for i, name in enumerate(names)}


# -- the exercises' last step ----------------------------------------------------------------------

MostSequences = Callable[[dict[int, float], float], tuple[int, float] | None]


def choose_slots(most_sequences: MostSequences) -> None:
    """Measure a few steps here and ask the learner's function; one sentence if it is not done."""
    try:
        most_sequences({1: 1.0}, 1.0)
    except NotImplementedError:
        print("This cell needs your most_sequences: solve Exercise 3, then run it again.")
        return
    points = measure_points(load(lesson_model()[0]), (1, 2, 4, 8, 16), steps=4)
    step_s = {point.sequences: point.tpot_s for point in points}
    show_table({"sequences": list(step_s), "step (ms)": [1000 * s for s in step_s.values()]})
    for patience in (2, 3):
        found = most_sequences(step_s, patience * step_s[1])
        told = "none fit" if found is None else f"{found[0]} slots, {found[1]:.1f} tokens/s"
        print(f"A wait of up to {patience} times that of one reader alone: {told}.")
