"""What `run` and `demo` show of several ways of serving: bars, a table, pictures in a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.progress import Progress
from rich.table import Table

from minipd.lab.pictures.gaps import itl_svg
from minipd.lab.pictures.summary import summary_svg, usual_measures
from minipd.lab.pictures.timeline import timelines_svg
from minipd.measure.contest import Contender, Outcome
from minipd.timeline import TERMINAL_KINDS, Event

TITLES = {
    "colocated": "colocated",
    "decode_first": "decode first",
    "chunked": "chunked",
    "colocated_length_aware": "long apart",
    "disaggregated": "disaggregated",
}


class Bars:
    """One progress bar per contender, moved by its requests' last events."""

    def __init__(self, progress: Progress, num_requests: int) -> None:
        self._progress, self._num_requests = progress, num_requests
        self._bars: dict[str, Any] = {}

    def __call__(self, contender: Contender, event: Event) -> None:
        if contender.name not in self._bars:
            self._bars[contender.name] = self._progress.add_task(
                TITLES[contender.name], total=self._num_requests
            )
        if event.kind in TERMINAL_KINDS:
            self._progress.advance(self._bars[contender.name])


def comparison_table(outcomes: Mapping[str, Outcome]) -> Table:
    """Every figure of every contender, better or worse."""
    table = Table("", box=SIMPLE, pad_edge=False)
    for name in outcomes:
        table.add_column(TITLES[name], justify="right", no_wrap=True)
    for measure in usual_measures({n: o.summary for n, o in outcomes.items()}):
        table.add_row(measure.name, *(measure.printed(name) for name in outcomes))
    return table


def save_pictures(
    outcomes: Mapping[str, Outcome],
    folder: Path,
    *,
    keep: Callable[[str], bool] | None = None,
    timelines: tuple[str, ...] = (),
) -> list[Path]:
    """Timelines (of `timelines`, or of all), gaps and figures side by side, as SVG files.

    All runs share the first one's undisturbed step, so that a stall means the same in each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    step_s = next(iter(outcomes.values())).summary.undisturbed_step_s
    runs = {TITLES[n]: o.run.timeline for n, o in outcomes.items()}
    shown = {TITLES[n]: outcomes[n].run.timeline for n in timelines or outcomes}
    figures = usual_measures({TITLES[n]: o.summary for n, o in outcomes.items()})
    pictures = {
        "timeline": timelines_svg(shown, undisturbed_s=step_s),
        "gaps": itl_svg(runs, keep=keep),
        "summary": summary_svg(figures),
    }
    return [picture.save(folder / f"{name}.svg") for name, picture in pictures.items()]
