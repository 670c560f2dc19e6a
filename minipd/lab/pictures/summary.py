"""Runs side by side: one row of bars per figure, the numbers printed beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from minipd.lab.pictures import svg
from minipd.measure.summary import RunSummary

WIDTH, LEFT, RIGHT, BAR, BAR_GAP = 1000.0, 250.0, 190.0, 20.0, 5.0


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of every run; None where a run has none. `better` says which end is good."""

    name: str
    unit: str
    values: Mapping[str, float | None]
    better: Literal["lower", "higher"] = "lower"
    digits: int = 0

    def printed(self, run: str) -> str:
        value = self.values.get(run)
        return "none" if value is None else f"{value:,.{self.digits}f} {self.unit}".rstrip()


def summary_svg(
    measures: Sequence[Measure], title: str = "The runs side by side", note: str = ""
) -> svg.Picture:
    """Each measure has its own scale from 0; the best run of each is marked in words."""
    runs = list(dict.fromkeys(run for measure in measures for run in measure.values))
    if not runs:
        raise ValueError("There is nothing to compare; give at least one measure of one run.")
    canvas = svg.Canvas(WIDTH)
    canvas.text(20, 34, title, 18, bold=True)
    y = 46.0
    if note:
        canvas.text(20, y + 10, note, 12, colour=svg.MUTED)
        y += 20
    y = _legend(canvas, runs, y + 22)
    for measure in measures:
        y = _draw_measure(canvas, measure, runs, y)
    rows = tuple((m.name, *(m.printed(run) for run in runs)) for m in measures)
    alt = f"{title}. " + " ".join(_words(measure, runs) for measure in measures)
    return svg.Picture(canvas.render(y + 8, title, alt), alt, ("figure", *runs), rows)


def _legend(canvas: svg.Canvas, runs: Sequence[str], y: float) -> float:
    x = 20.0
    for index, run in enumerate(runs):
        canvas.rect(x, y - 11, 22, 14, svg.SERIES[index % len(svg.SERIES)])
        canvas.text(x + 28, y, run, 12)
        x += 28 + svg.text_width(run, 12) + 22
    return y + 22


def _draw_measure(canvas: svg.Canvas, measure: Measure, runs: Sequence[str], top: float) -> float:
    present = [v for v in (measure.values.get(run) for run in runs) if v is not None]
    largest = max([*present, 0.0])
    height = len(runs) * (BAR + BAR_GAP)
    canvas.line([(20, top - 7), (WIDTH - 20, top - 7)], svg.GRID)
    middle = top + height / 2
    canvas.text(20, middle - 3, measure.name, 13, bold=True)
    canvas.text(20, middle + 14, f"{measure.better} is better", 11, colour=svg.MUTED)
    canvas.line([(LEFT, top - 2), (LEFT, top + height)], svg.MUTED)
    best = _best(measure, runs)
    for index, run in enumerate(runs):
        y = top + index * (BAR + BAR_GAP)
        value = measure.values.get(run) or 0.0
        width = (WIDTH - LEFT - RIGHT) * value / largest if largest else 0.0
        canvas.rect(LEFT, y, max(width, 1.0), BAR, svg.SERIES[index % len(svg.SERIES)])
        words = measure.printed(run) + (" (best)" if run in best else "")
        canvas.text(LEFT + width + 8, y + BAR - 5, words, 12, bold=run in best)
    return top + height + 16


def _best(measure: Measure, runs: Sequence[str]) -> set[str]:
    """The best run and those that print alike; none if all do or only one has a value."""
    values = {run: v for run in runs if (v := measure.values.get(run)) is not None}
    if len({measure.printed(run) for run in values}) < 2:
        return set()
    pick = min if measure.better == "lower" else max
    winner = measure.printed(pick(values, key=lambda run: values[run]))
    return {run for run in values if measure.printed(run) == winner}


def _words(measure: Measure, runs: Sequence[str]) -> str:
    numbers = ", ".join(f"{run} {measure.printed(run)}" for run in runs)
    return f"{measure.name} ({measure.better} is better): {numbers}."


def usual_measures(summaries: Mapping[str, RunSummary]) -> list[Measure]:
    """The figures a comparison should show: gaps, first tokens, throughput, stalled share."""

    def latency(label: str, name: str, percentile: str) -> Measure:
        values = {run: s.percentile_ms(name, percentile) for run, s in summaries.items()}
        return Measure(label, "ms", values)

    return [
        latency("Gap between tokens, p99", "itl_s", "p99"),
        latency("Gap between tokens, p50", "itl_s", "p50"),
        latency("Time to first token, p50", "ttft_s", "p50"),
        latency("Time to first token, p99", "ttft_s", "p99"),
        Measure(
            "Output tokens per second",
            "tok/s",
            {run: summary.output_tokens_per_s for run, summary in summaries.items()},
            "higher",
            1,
        ),
        Measure(
            "Stalled share of gaps",
            "%",
            {run: 100 * summary.stalled_share for run, summary in summaries.items()},
            digits=1,
        ),
    ]
