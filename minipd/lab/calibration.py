"""How far off predictions are: one by its log-ratio, many by the calibration line.

Half and twice the truth are equally far off. A single guess says little; the line over many, in all
lessons so far, says how far to trust the next one.
"""

from __future__ import annotations

import math
import statistics
from typing import TypeGuard, cast

from minipd.lab.progress import Record, read_progress
from minipd.lab.show import display_html


def log_ratio(predicted: float, measured: float) -> float:
    """How many doublings the prediction was off: -1 is half the truth, +1 twice it."""
    return math.log2(predicted / measured)


def in_words(ratio: float) -> str:
    """A log-ratio as a sentence that blames nobody."""
    factor = 2 ** abs(ratio)
    if factor < 1.1:
        return "within 10 % of the measurement"
    side = "above" if ratio > 0 else "below"
    return f"a factor of {factor:.2g} {side} the measurement"


def log_ratios() -> dict[str, float]:
    """All scores so far by name, of predictions of numbers that have been measured."""
    kept = cast(dict[str, Record], read_progress()["predictions"])
    pairs = {name: (one.get("value"), one.get("measured")) for name, one in kept.items()}
    return {
        name: log_ratio(float(value), float(measured))
        for name, (value, measured) in pairs.items()
        if is_positive(value) and is_positive(measured)
    }


def is_positive(value: object) -> TypeGuard[float]:
    """Whether it is a number that a logarithm can take."""
    return isinstance(value, (int, float)) and value > 0 and math.isfinite(value)


def guesses() -> list[bool]:
    """Of predictions in words that were answered: whether each was right."""
    kept = cast(list[Record], list(read_progress()["predictions"].values()))
    answered = [one for one in kept if isinstance(one.get("value"), str) and "measured" in one]
    return [one["value"] == one["measured"] for one in answered]


def calibration_line() -> str:
    """How good the learner's predictions are over all lessons so far, in a sentence or two."""
    right = guesses()
    words = f" Guesses in words: {sum(right)} of {len(right)} right." if right else ""
    return f"{_numbers_line()}{words}"


def _numbers_line() -> str:
    scores = log_ratios()
    ratios = list(scores.values())
    if not ratios:
        return "Calibration: no prediction has been measured yet."
    typical = 2 ** statistics.median(abs(ratio) for ratio in ratios)
    high, low = sum(ratio > 0 for ratio in ratios), sum(ratio < 0 for ratio in ratios)
    exact = len(ratios) - high - low
    hits = f", {exact} exactly right" if exact else ""
    noun = "prediction" if len(ratios) == 1 else "predictions"
    lessons = sorted({name.split(".")[0] for name in scores})
    where = f" in {'lessons' if len(lessons) > 1 else 'lesson'} {', '.join(lessons)}"
    return (
        f"Calibration over {len(ratios)} {noun}{where}: typically a factor of {typical:.2g} off; "
        f"{high} too high, {low} too low{hits}."
    )


def calibration() -> None:
    """Show the calibration line."""
    display_html(f"<p>{calibration_line()}</p>")
