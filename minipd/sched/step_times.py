"""How long a step takes by measured points: one rule for paced workers and for simulated ones."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

Points = Sequence[tuple[float, float]]


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
    A piece of one token runs as a decode does.
    """
    read_price_s, write_price_s = (max(0.0, interpolate(line, 0.0)) for line in (prefill, decode))
    read_s = write_s = price_s = 0.0
    for new, start in pieces:
        if new > 1:
            before_s = interpolate(prefill, start) if start else read_price_s
            read_s += interpolate(prefill, start + new) - before_s
            price_s = read_price_s
        else:
            sequences, context = sequences + new, context + start + new
    if sequences:
        write_s = interpolate(decode, sequences) - write_price_s + context * per_context_token_s
        price_s = max(price_s, write_price_s)
    return max(0.0, price_s + read_s + write_s)
