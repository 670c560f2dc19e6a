"""Gaps between tokens: how rare the long ones are, and when they came."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from minipd.lab.pictures import svg
from minipd.measure.quantiles import percentile
from minipd.measure.stalls import Gap, token_gaps
from minipd.timeline import Event

WIDTH, LEFT, RIGHT, TOP, PLOT = 1000.0, 92.0, 190.0, 74.0, 330.0
LINES = ("#b36b00", "#00543c", "#0072b2", "#9c4877", "#555555")
COLUMNS = ("run", "gaps", "p50 ms", "p90 ms", "p99 ms", "longest ms")


class _Axes:
    """A plot box; x and y run from 0 to 1 inside it, y upwards."""

    def __init__(self, canvas: svg.Canvas) -> None:
        self.canvas = canvas

    def at(self, x: float, y: float) -> tuple[float, float]:
        return LEFT + x * (WIDTH - LEFT - RIGHT), TOP + (1.0 - y) * PLOT

    def grid_x(self, x: float, label: str) -> None:
        self.canvas.line([self.at(x, 0), self.at(x, 1)], svg.GRID)
        self.canvas.text(self.at(x, 0)[0], TOP + PLOT + 19, label, 12, "middle")

    def grid_y(self, y: float, label: str, strong: bool = False) -> None:
        colour = svg.MUTED if strong else svg.GRID
        self.canvas.line([self.at(0, y), self.at(1, y)], colour, 1, "6 4" if strong else "")
        self.canvas.text(LEFT - 10, self.at(0, y)[1] + 4, label, 12, "end", bold=strong)

    def frame(self, below: str) -> None:
        corners = [self.at(0, 0), self.at(1, 0), self.at(1, 1), self.at(0, 1), self.at(0, 0)]
        self.canvas.line(corners, svg.MUTED)
        middle = (self.at(0, 0)[0] + self.at(1, 0)[0]) / 2
        self.canvas.text(middle, TOP + PLOT + 42, below, 13, "middle", svg.MUTED)


def itl_svg(
    runs: Mapping[str, Iterable[Event]],
    title: str = "How long did readers wait for the next token?",
    *,
    keep: Callable[[str], bool] | None = None,
) -> svg.Picture:
    """Tail of the gaps: for each length, the share of gaps that were longer. Both axes are logs.

    Where a line crosses 1 % stands the run's p99. `keep` chooses requests by id (the chats, say).
    """
    gaps_ms = {name: sorted(_milliseconds(events, keep)) for name, events in runs.items()}
    _require(gaps_ms)
    canvas = svg.Canvas(WIDTH)
    axes = _Axes(canvas)
    canvas.text(20, 34, title, 18, bold=True)
    x_of = _log_axis_x(axes, [gap for gaps in gaps_ms.values() for gap in gaps])
    decades = max(2, math.ceil(math.log10(max(len(gaps) for gaps in gaps_ms.values()))))
    for power in range(decades + 1):
        axes.grid_y(1 - power / decades, f"{100 * 10.0**-power:g} %", strong=power == 2)
    axes.frame("gap between two tokens, milliseconds")
    canvas.text(LEFT, TOP - 10, "share of gaps longer than this", 12, colour=svg.MUTED)
    for index, (name, gaps) in enumerate(gaps_ms.items()):
        points = [axes.at(x_of(gap), 1 + share / decades) for gap, share in _tail(gaps)]
        colour, dash = LINES[index % len(LINES)], svg.DASHES[index % len(svg.DASHES)]
        canvas.line(points, colour, 2.4, dash)
        _key(canvas, index, name, colour, dash, f"p99 {percentile(gaps, 99):,.0f} ms")
    alt = f"{title} {_words(gaps_ms)}"
    return svg.Picture(canvas.render(TOP + PLOT + 58, title, alt), alt, COLUMNS, _rows(gaps_ms))


def _tail(gaps: list[float]) -> list[tuple[float, float]]:
    """Corners of the staircase (gap, log10 of the share of gaps longer), at most one per gap."""
    n = len(gaps)
    corners: list[tuple[float, float]] = [(gaps[0], 0.0)]
    for index, gap in enumerate(gaps):
        if index + 1 < n and gaps[index + 1] - gap < gap * 0.002:
            continue  # the step would be thinner than the line
        above = math.log10((n - index - 1) / n) if index + 1 < n else -math.log10(n)
        corners += [(gap, corners[-1][1]), (gap, above)]
    return corners


def itl_over_time_svg(
    runs: Mapping[str, Iterable[Event]],
    title: str = "When did the answers stop?",
    *,
    keep: Callable[[str], bool] | None = None,
) -> svg.Picture:
    """One mark per token: when it came and how long its reader had waited (log axis)."""
    gaps = {name: _zeroed(list(events), keep) for name, events in runs.items()}
    lengths = {name: [gap.length_s * 1000 for gap in some] for name, some in gaps.items()}
    _require(lengths)
    canvas = svg.Canvas(WIDTH)
    axes = _Axes(canvas)
    canvas.text(20, 34, title, 18, bold=True)
    canvas.text(LEFT, TOP - 10, "gap before the token, milliseconds", 12, colour=svg.MUTED)
    y_of = _log_axis_y(axes, [ms for some in lengths.values() for ms in some])
    last_s = max(gap.end_s for some in gaps.values() for gap in some)
    for tick in svg.nice_ticks(0.0, last_s):
        axes.grid_x(tick / last_s, f"{tick:g}")
    axes.frame("seconds since the first arrival")
    for index, (name, some) in enumerate(gaps.items()):
        colour = LINES[index % len(LINES)]
        places = (axes.at(gap.end_s / last_s, y_of(gap.length_s * 1000)) for gap in some)
        for x, y in sorted({(2 * round(x / 2), 2 * round(y / 2)) for x, y in places}):
            _mark(canvas, index, x, y, colour)  # one mark where many would lie on each other
        _key(canvas, index, name, colour, None, f"longest {max(lengths[name]):,.0f} ms")
    alt = f"{title} {_words(lengths)}"
    return svg.Picture(canvas.render(TOP + PLOT + 58, title, alt), alt, COLUMNS, _rows(lengths))


def _mark(canvas: svg.Canvas, index: int, x: float, y: float, colour: str) -> None:
    """Another shape for every run: cross, plus, square, triangle, dash."""
    r = 3.0
    if index % 5 == 0:
        canvas.line([(x - r, y - r), (x + r, y + r)], colour, 1.3)
        canvas.line([(x - r, y + r), (x + r, y - r)], colour, 1.3)
    elif index % 5 == 1:
        canvas.line([(x - r, y), (x + r, y)], colour, 1.3)
        canvas.line([(x, y - r), (x, y + r)], colour, 1.3)
    elif index % 5 == 2:
        canvas.rect(x - 2.2, y - 2.2, 4.4, 4.4, svg.PAPER, colour)
    elif index % 5 == 3:
        canvas.line([(x - r, y + r), (x, y - r), (x + r, y + r), (x - r, y + r)], colour, 1.3)
    else:
        canvas.line([(x - r, y), (x + r, y)], colour, 1.6)


def _key(
    canvas: svg.Canvas, index: int, name: str, colour: str, dash: str | None, note: str
) -> None:
    """Legend at the right; `dash` None stands for marks instead of a line."""
    x, y = WIDTH - RIGHT + 18, TOP + 16 + 50 * index
    if dash is None:
        _mark(canvas, index, x + 15, y - 4, colour)
    else:
        canvas.line([(x, y - 4), (x + 30, y - 4)], colour, 2.4, dash)
    canvas.text(x + 38, y, svg.shorten(name, RIGHT - 62, 13), 13, bold=True)
    canvas.text(x + 38, y + 17, note, 12, colour=svg.MUTED)


def _milliseconds(events: Iterable[Event], keep: Callable[[str], bool] | None) -> list[float]:
    gaps = token_gaps(events)
    return [gap.length_s * 1000 for gap in gaps if keep is None or keep(gap.request_id)]


def _zeroed(events: list[Event], keep: Callable[[str], bool] | None) -> list[Gap]:
    """Gaps of the kept requests, on a clock that starts at the first arrival."""
    zero_s = min((event.t_s for event in events if event.kind == "arrived"), default=0.0)
    return [
        Gap(gap.request_id, gap.worker, gap.start_s - zero_s, gap.end_s - zero_s)
        for gap in token_gaps(events)
        if keep is None or keep(gap.request_id)
    ]


def _require(gaps_ms: Mapping[str, list[float]]) -> None:
    empty = [name for name, gaps in gaps_ms.items() if not gaps]
    if empty or not gaps_ms:
        raise ValueError(
            f"There are no token gaps to draw in {', '.join(empty) or 'an empty set of runs'}; "
            "give runs whose answers have at least two tokens."
        )


def _log_limits(values: list[float]) -> tuple[float, float]:
    low = math.log10(max(min(values), 0.01)) - 0.05
    high = math.log10(max(max(values), 0.02)) + 0.05
    return (low, high) if high - low > 0.5 else (low - 0.25, high + 0.25)


def _log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """1-2-5 ticks inside the limits, in powers of ten."""
    values = [f * 10.0**p for p in range(math.floor(low), math.ceil(high) + 1) for f in (1, 2, 5)]
    return [(math.log10(v), f"{v:,g}") for v in values if low <= math.log10(v) <= high]


def _log_axis_x(axes: _Axes, values: list[float]) -> Callable[[float], float]:
    low, high = _log_limits(values)
    for position, label in _log_ticks(low, high):
        axes.grid_x((position - low) / (high - low), label)
    return lambda value: (math.log10(max(value, 0.01)) - low) / (high - low)


def _log_axis_y(axes: _Axes, values: list[float]) -> Callable[[float], float]:
    low, high = _log_limits(values)
    for position, label in _log_ticks(low, high):
        axes.grid_y((position - low) / (high - low), label)
    return lambda value: (math.log10(max(value, 0.01)) - low) / (high - low)


def _rows(gaps_ms: Mapping[str, list[float]]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (name, str(len(gaps)), *(f"{percentile(gaps, p):.1f}" for p in (50, 90, 99, 100)))
        for name, gaps in gaps_ms.items()
    )


def _words(gaps_ms: Mapping[str, list[float]]) -> str:
    return " ".join(
        f"{name}: median {percentile(gaps, 50):,.0f} ms, p99 {percentile(gaps, 99):,.0f} ms, "
        f"longest {max(gaps):,.0f} ms."
        for name, gaps in gaps_ms.items()
    )
