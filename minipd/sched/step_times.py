"""How long a step takes by measured points: one rule for paced workers and for simulated ones."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence

Points = Sequence[tuple[float, float]]


def check_points(name: str, points: Points) -> None:
    """Raises `ValueError` unless they are two or more, further and further on, and no negative
    time among them."""
    forward = all(a[0] < b[0] for a, b in zip(points, points[1:], strict=False))
    sound = all(math.isfinite(x) and math.isfinite(y) and y >= 0.0 for x, y in points)
    if len(points) < 2 or not forward or not sound:
        raise ValueError(f"Step times need two or more rising {name} points, got {points}.")


def interpolate(points: Points, x: float) -> float:
    """The line through the two points nearest to `x`; beyond the ends it goes on straight."""
    at = min(max(bisect_left(points, (x, 0.0)), 1), len(points) - 1)
    (x0, y0), (x1, y1) = points[at - 1], points[at]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def step_seconds(
    prefill: Points,
    decode: Points,
    per_context_token_s: float,
    pieces: Iterable[tuple[int, int]],
    sequences: int,
    context: int,
) -> float:
    """A step that reads `pieces` of prompts, each (new tokens, tokens before them), and decodes
    `sequences` with `context` tokens behind them, their newest included.

    `prefill` is (prompt tokens, seconds) of a prompt alone, `decode` (sequences, seconds) without
    context. Either line, drawn on to nothing at all, ends at the price of a pass: the weights are
    fetched and every kernel is started, however few rows there are. One step pays it once. Beyond
    the price, a piece takes the difference of its two ends, and decodes what they take together.
    A piece of one token runs as a decode does, and so may cost less than the lines say of a prompt.
    """
    read_price_s, write_price_s = (max(0.0, interpolate(line, 0.0)) for line in (prefill, decode))
    read_s = write_s = price_s = 0.0
    for new, start in pieces:
        if new > 1:
            before_s = max(read_price_s, interpolate(prefill, start)) if start else read_price_s
            read_s += max(0.0, interpolate(prefill, start + new) - before_s)
            price_s = read_price_s
        elif new == 1:
            sequences, context = sequences + 1, context + start + 1
    if sequences:
        write_s = max(0.0, interpolate(decode, sequences) - write_price_s)
        write_s += context * per_context_token_s
        price_s = max(price_s, write_price_s)
    return price_s + read_s + write_s
