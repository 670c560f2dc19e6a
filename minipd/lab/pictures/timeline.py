"""The timeline: one lane per worker, what it ran when, whose answers froze, what KV travelled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from minipd.lab.pictures import svg
from minipd.lab.pictures.lane_words import COLUMNS, in_words, table_rows
from minipd.lab.pictures.lanes import Lanes, View, read_lanes
from minipd.measure.stalls import DEFAULT_K, Stall
from minipd.timeline import Event

WIDTH, LEFT, RIGHT = 1000.0, 118.0, 26.0
LANE, BAND, ROW, ROW_GAP = 34.0, 9.0, 15.0, 3.0


@dataclass(frozen=True, slots=True)
class _Scale:
    """Seconds to pixels."""

    view: View

    def x(self, t_s: float) -> float:
        t_s = min(max(t_s, self.view.start_s), self.view.end_s)
        share = (t_s - self.view.start_s) / (self.view.end_s - self.view.start_s)
        return LEFT + share * (WIDTH - LEFT - RIGHT)


def timeline_svg(
    events: Iterable[Event],
    title: str = "Timeline",
    *,
    start_s: float | None = None,
    end_s: float | None = None,
    sequences: int = 6,
    undisturbed_s: float | None = None,
) -> svg.Picture:
    """One run. `start_s` and `end_s` cut a window in the run's own seconds (0: first arrival).

    `sequences` answers are shown token by token, those with the longest gaps first.
    """
    return timelines_svg(
        {"": events},
        title,
        start_s=start_s,
        end_s=end_s,
        sequences=sequences,
        undisturbed_s=undisturbed_s,
    )


def timelines_svg(
    runs: Mapping[str, Iterable[Event]],
    title: str = "The same requests, served in different ways",
    *,
    start_s: float | None = None,
    end_s: float | None = None,
    sequences: int = 4,
    undisturbed_s: float | None = None,
) -> svg.Picture:
    """Several runs one above the other on one time axis, each under its name.

    The answers that the first run froze longest are shown in all of them.
    """
    panels: dict[str, Lanes] = {}
    shown: int | list[str] = sequences
    for name, events in runs.items():
        panels[name] = read_lanes(events, shown, undisturbed_s, start_s, end_s)
        shown = panels[name].sequences or sequences
    if not panels or not any(panel.workers for panel in panels.values()):
        raise ValueError("There is nothing to draw; give a timeline with steps of a worker.")
    end = max(panel.view.end_s for panel in panels.values())
    scale = _Scale(View(min(panel.view.start_s for panel in panels.values()), end))
    canvas = svg.Canvas(WIDTH)
    canvas.text(20, 32, title, 18, bold=True)
    bottom = 48.0
    for name, panel in panels.items():
        bottom = _draw_panel(canvas, panel, name, bottom, scale)
    bottom = _draw_axis(canvas, scale, bottom)
    bottom = _draw_legend(canvas, panels, bottom + 30)
    rows = tuple(row for name, panel in panels.items() for row in table_rows(name, panel))
    alt = " ".join([f"{title}.", *(in_words(name, panel) for name, panel in panels.items())])
    return svg.Picture(canvas.render(bottom, title, alt), alt, COLUMNS, rows)


def _draw_panel(canvas: svg.Canvas, panel: Lanes, name: str, top: float, scale: _Scale) -> float:
    """Draws one run below `top`; returns where it ends."""
    y = top + 8
    if name:
        canvas.text(20, y + 14, name, 14, bold=True)
        y += 22
    lane_top: dict[str, float] = {}
    for worker in panel.workers:
        frozen = any(stall.worker == worker for stall in panel.stalls + panel.waits)
        receives = any(handoff.target == worker for handoff in panel.handoffs)
        y += 8 + (23 if frozen else 0) + (18 if receives else 0)  # band and label; arrows
        lane_top[worker] = y
        _draw_lane(canvas, panel, worker, y, scale)
        y += LANE
    _draw_handoffs(canvas, panel, lane_top, scale)
    for worker in panel.workers:
        _draw_stalls(canvas, panel, worker, lane_top[worker] - BAND - 3, scale)
    y += 12
    for sequence in panel.sequences:
        _draw_sequence(canvas, panel, sequence, y, scale)
        y += ROW + ROW_GAP
    return y + 6


def _draw_lane(canvas: svg.Canvas, panel: Lanes, worker: str, y: float, scale: _Scale) -> None:
    canvas.text(LEFT - 10, y + 15, svg.shorten(worker, LEFT - 24, 12), 12, "end")
    canvas.text(LEFT - 10, y + 29, panel.roles.get(worker, ""), 11, "end", svg.MUTED)
    canvas.rect(LEFT, y, WIDTH - LEFT - RIGHT, LANE, "#f6f6f6", "none")
    for block in panel.blocks[worker]:
        x0, x1 = scale.x(block.start_s), scale.x(block.end_s)
        fill = {"prefill": svg.PREFILL, "decode": svg.DECODE, "mixed": svg.MIXED}[block.kind]
        canvas.rect(x0, y, max(0.6, x1 - x0), LANE, fill, tip=block.tip())
        label = block.label(x1 - x0)
        if label:
            canvas.text((x0 + x1) / 2, y + LANE / 2 + 4, label, 11, "middle", backed=True)


def _draw_stalls(canvas: svg.Canvas, panel: Lanes, worker: str, y: float, scale: _Scale) -> None:
    """Bands over one lane, above the arrows, the longest first."""
    taken: list[tuple[float, float]] = []
    told = [
        (stall, f"frozen {stall.longest_s * 1000:,.0f} ms = {stall.tokens:.0f} tokens")
        for stall in panel.stalls
    ]
    told += [(wait, f"{wait.longest_s * 1000:,.0f} ms: waits for notes") for wait in panel.waits]
    here = [(stall, words) for stall, words in told if stall.worker == worker]
    for stall, words in sorted(here, key=lambda one: -one[0].longest_s):
        _draw_stall(canvas, stall, words, y, scale, taken)


def _draw_stall(
    canvas: svg.Canvas,
    stall: Stall,
    words: str,
    y: float,
    scale: _Scale,
    taken: list[tuple[float, float]],
) -> None:
    """A hatched band over the lane; its label only where no longer stall's label stands."""
    x0, x1 = scale.x(stall.start_s), scale.x(stall.end_s)
    canvas.rect(x0, y, max(2.0, x1 - x0), BAND, svg.STALL)
    half = svg.text_width(words, 11) / 2 + 6
    middle = min(max((x0 + x1) / 2, LEFT + half), WIDTH - RIGHT - half)
    if all(middle + half < left or middle - half > right for left, right in taken):
        taken.append((middle - half, middle + half))
        canvas.text(middle, y - 4, words, 11, "middle", svg.STALL.edge, bold=True, backed=True)


def _draw_handoffs(
    canvas: svg.Canvas, panel: Lanes, lane_top: dict[str, float], scale: _Scale
) -> None:
    for handoff in panel.handoffs:
        y0, y1 = lane_top[handoff.source], lane_top[handoff.target]
        start, end = (y0 + LANE, y1 - 1) if y1 > y0 else (y0, y1 + LANE + 1)
        canvas.arrow(scale.x(handoff.start_s), start, scale.x(handoff.end_s), end)


def _draw_sequence(canvas: svg.Canvas, panel: Lanes, name: str, y: float, scale: _Scale) -> None:
    """One answer: a short stroke per token, hatching where it waited too long."""
    canvas.text(LEFT - 10, y + ROW - 3, svg.shorten(name, LEFT - 24, 11), 11, "end", svg.MUTED)
    middle = y + ROW / 2
    canvas.line([(LEFT, middle), (WIDTH - RIGHT, middle)], svg.GRID)
    for gap in panel.gaps:
        if gap.request_id == name and gap.length_s > panel.stalled_over_s:
            x0, x1 = scale.x(gap.start_s), scale.x(gap.end_s)
            canvas.rect(x0, y + 2, x1 - x0, ROW - 4, svg.STALL)
    for t_s in panel.token_s[name]:
        if scale.view.start_s <= t_s <= scale.view.end_s:
            canvas.line([(scale.x(t_s), y + 1), (scale.x(t_s), y + ROW - 1)], "#00476f", 1.1)


def _draw_axis(canvas: svg.Canvas, scale: _Scale, y: float) -> float:
    canvas.line([(LEFT, y), (WIDTH - RIGHT, y)], svg.MUTED)
    for tick in svg.nice_ticks(scale.view.start_s, scale.view.end_s):
        canvas.line([(scale.x(tick), y), (scale.x(tick), y + 5)], svg.MUTED)
        canvas.text(scale.x(tick), y + 19, f"{tick:g}", 12, "middle")
    canvas.text(LEFT - 24, y + 19, "seconds", 12, "end", svg.MUTED)
    return y + 22


def _draw_legend(canvas: svg.Canvas, panels: Mapping[str, Lanes], y: float) -> float:
    """Keys for what the picture really holds, from left to right."""
    kinds = {b.kind for p in panels.values() for blocks in p.blocks.values() for b in blocks}
    fills = (("prefill", svg.PREFILL), ("decode", svg.DECODE), ("mixed", svg.MIXED))
    names = {"prefill": "prefill", "decode": "decode", "mixed": "prefill chunk + decode"}
    x = LEFT
    for kind, fill in fills:
        if kind in kinds:
            canvas.rect(x, y - 11, 22, 14, fill)
            x = _legend_text(canvas, x + 28, y, names[kind])
    frozen = any(panel.stalls for panel in panels.values())
    waits = any(panel.waits for panel in panels.values())
    if frozen or waits:
        what = " or ".join(["frozen"] * frozen + ["waits for notes"] * waits)
        canvas.rect(x, y - 11, 22, 14, svg.STALL)
        x = _legend_text(canvas, x + 28, y, f"{what}: over {DEFAULT_K:g} undisturbed steps")
    if any(panel.handoffs for panel in panels.values()):
        canvas.arrow(x, y - 10, x + 20, y + 1)
        x = _legend_text(canvas, x + 28, y, "KV hand-off")
    if any(panel.sequences for panel in panels.values()):
        canvas.line([(x + 8, y - 11), (x + 8, y + 3)], "#00476f", 1.1)
        _legend_text(canvas, x + 16, y, "one token")
    return y + 20


def _legend_text(canvas: svg.Canvas, x: float, y: float, words: str) -> float:
    canvas.text(x, y, words, 12)
    return x + svg.text_width(words, 12) + 18
