"""The dial of lesson 04: how many sequences share a step, and who gains and who waits."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from minipd.lab.batching import Point, points_table
from minipd.lab.show import figure_html, show


def show_points(points: Sequence[Point]) -> None:
    """Two curves over the number of sequences: what the machine writes, what a reader waits."""
    fig = points_figure(points)
    first, last = points[0], points[-1]
    alt = (
        f"Two curves. From {first.sequences} to {last.sequences} sequences the machine's rate goes "
        f"from {first.throughput:.0f} to {last.throughput:.0f} tokens per second, and the wait for "
        f"a token from {1000 * first.tpot_s:.0f} to {1000 * last.tpot_s:.0f} milliseconds."
    )
    show(fig, alt=alt, table=points_table(points))


def points_figure(
    points: Sequence[Point], chosen: int | None = None, limit_s: float | None = None
) -> Any:
    """The two curves as a matplotlib figure; `chosen` is ringed, the limit a dashed line."""
    plt: Any = importlib.import_module("matplotlib.pyplot")
    fig, (left, right) = plt.subplots(1, 2, figsize=(8, 2.9))
    sizes = [point.sequences for point in points]
    left.plot(sizes, [point.throughput for point in points], "o-", color="black")
    right.plot(sizes, [1000 * point.tpot_s for point in points], "s-", color="black")
    left.set(ylabel="machine, tokens/s", title="what the machine writes")
    right.set(ylabel="ms for a token (TPOT)", title="what each reader waits")
    for axis in (left, right):
        axis.set(xlabel="sequences in each step", xscale="log", ylim=(0, None))
        axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.minorticks_off()
    for point in points:
        if point.sequences == chosen:
            ring = {"markersize": 15, "fillstyle": "none", "markeredgewidth": 2, "color": "black"}
            left.plot([chosen], [point.throughput], "o", **ring)
            right.plot([chosen], [1000 * point.tpot_s], "o", **ring)
    if limit_s is not None:
        right.axhline(1000 * limit_s, linestyle="--", color="0.3")
        right.text(sizes[0], 1000 * limit_s, "limit", va="bottom")
    fig.tight_layout()
    return fig


def dial_text(points: Sequence[Point], sequences: int, limit_ms: float) -> str:
    """What a choice means for the machine, for one reader and for the limit, in three sentences."""
    by_size = {point.sequences: point for point in points}
    if sequences not in by_size:
        known = ", ".join(str(size) for size in by_size)
        return f"{sequences} sequences were not measured; choose one of {known}."
    point, alone = by_size[sequences], points[0]
    gain = point.throughput / alone.throughput
    wait = 1000 * point.tpot_s
    kept = "within" if wait <= limit_ms else "over"
    times = f"{gain:.1f} times as much as with {alone.sequences}"
    return (
        f"{sequences} in each step: the machine writes {point.throughput:.1f} tokens/s, {times}. "
        f"Each reader gets {point.per_reader:.1f} tokens/s, one every {wait:.0f} ms, "
        f"{kept} the limit of {limit_ms:.0f} ms."
    )


def dial_html(points: Sequence[Point], sequences: int, limit_ms: float) -> str:
    """The two curves with the choice ringed, and the limit as a dashed line."""
    figure = points_figure(points, chosen=sequences, limit_s=limit_ms / 1000)
    return figure_html(figure, dial_text(points, sequences, limit_ms))


def make_dial(points: Sequence[Point]) -> Any:
    """Two sliders, the picture, and the same in words, spoken when it changes."""
    from minipd.lab.widgets import W, row, status_html

    longest = round(1000 * points[-1].tpot_s)
    style = {"description_width": "initial"}
    chosen = W.SelectionSlider(
        options=[point.sequences for point in points],
        description="Sequences in each step",
        style=style,
        tooltip="How many sequences share each step",
    )
    limit = W.IntSlider(
        value=round(2000 * points[0].tpot_s),
        min=max(1, round(500 * points[0].tpot_s)),
        max=max(2, longest),
        description="Limit for a token (ms)",
        style=style,
        tooltip="The longest wait for a token that a reader should have, in milliseconds",
    )
    picture, words = W.HTML(), W.HTML()

    def draw(_: object = None) -> None:
        picture.value = dial_html(points, chosen.value, limit.value)
        words.value = status_html(dial_text(points, chosen.value, limit.value))

    chosen.observe(draw, names="value")
    limit.observe(draw, names="value")
    draw()
    return W.VBox([row([chosen, limit]), words, picture])


def show_dial(points: Sequence[Point]) -> None:
    """Show the dial; `dial_text` says the same without widgets."""
    from minipd.lab.predict import display_widget

    display_widget(make_dial(points))
