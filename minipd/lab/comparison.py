"""What `run` and `demo` show of several ways of serving: bars, a table, pictures in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.box import SIMPLE
from rich.progress import Progress, TaskID
from rich.table import Table

from minipd.lab.pictures.gaps import itl_svg
from minipd.lab.pictures.summary import Measure, summary_svg, usual_measures
from minipd.lab.pictures.timeline import timelines_svg
from minipd.measure.contest import Contender, Outcome
from minipd.measure.invariants import check_timeline
from minipd.measure.outputs import OutputError
from minipd.measure.report import progress_bar
from minipd.measure.stalls import token_gaps
from minipd.measure.summary import RunSummary
from minipd.timeline import TERMINAL_KINDS, Event

TITLES = {
    "colocated": "colocated",
    "decode_first": "decode first",
    "chunked": "chunked",
    "colocated_length_aware": "long apart",
    "disaggregated": "disaggregated",
}
MAX_VIOLATIONS = 5  # named one by one


class Bars:
    """One progress bar per contender, moved by its requests' last events."""

    def __init__(self, progress: Progress, num_requests: int) -> None:
        self._progress, self._num_requests = progress, num_requests
        self._bars: dict[str, TaskID] = {}

    def __call__(self, contender: Contender, event: Event) -> None:
        if contender.name not in self._bars:
            self._bars[contender.name] = self._progress.add_task(
                title(contender.name), total=self._num_requests
            )
        if event.kind in TERMINAL_KINDS:
            self._progress.advance(self._bars[contender.name])


@contextmanager
def busy(doing: str) -> Generator[None]:
    """A moving bar while something of unknown length runs, where someone can see it."""
    with progress_bar() as progress:
        progress.add_task(doing, total=None)
        yield


def title(name: str) -> str:
    """A contender's name as people read it."""
    return TITLES.get(name, name.replace("_", " "))


def comparison_table(outcomes: Mapping[str, Outcome], *, with_slo: bool = False) -> Table:
    """Every figure of every contender, better or worse; `with_slo` adds what met the limits."""
    table = Table("", box=SIMPLE, pad_edge=False)
    for name in outcomes:
        table.add_column(title(name), justify="right", no_wrap=True)
    for measure in _measures(outcomes, with_slo):
        table.add_row(measure.name, *(measure.printed(name) for name in outcomes))
    return table


def _measures(outcomes: Mapping[str, Outcome], with_slo: bool) -> list[Measure]:
    summaries = {name: outcome.summary for name, outcome in outcomes.items()}
    tpot = {name: s.percentile_ms("tpot_s", "p50") for name, s in summaries.items()}
    found = [*usual_measures(summaries), Measure("Time per output token, p50", "ms", tpot)]
    if with_slo:
        met = {
            n: None if s.attainment is None else 100 * s.attainment for n, s in summaries.items()
        }
        good = {name: s.goodput_per_s for name, s in summaries.items()}
        found.append(Measure("Requests within the limits", "%", met, "higher", 1))
        found.append(Measure("Goodput, requests per second", "", good, "higher", 2))
    spared = {name: _spared_percent(summary) for name, summary in summaries.items()}
    if any(spared.values()):
        found.append(
            Measure("Prompt tokens found or fetched, not computed", "%", spared, "higher", 1)
        )
    finished = {name: float(summary.finished) for name, summary in summaries.items()}
    arrived = max(summary.arrived for summary in summaries.values())
    return [*found, Measure(f"Requests finished, of {arrived}", "", finished, "higher")]


def _spared_percent(summary: RunSummary) -> float | None:
    """Of all prompt tokens those that no worker had to compute. What a decode worker holds already
    spares a transfer, not that."""
    found = sum(worker.cached_tokens - worker.reserved_tokens for worker in summary.workers)
    total = found + sum(worker.prefill_tokens for worker in summary.workers)
    return 100.0 * found / total if total else None


def complaints(outcomes: Mapping[str, Outcome]) -> list[str]:
    """What must never be: leaks, broken rules, failed requests; one sentence each."""
    told: list[str] = []
    for name, outcome in outcomes.items():
        leaked = sum(outcome.run.leaked_blocks.values())
        violations = check_timeline(outcome.run.timeline)
        if leaked:
            told.append(f"{title(name)}: {leaked} blocks leaked; that is a fault of minipd.")
        told += [f"{title(name)}: {v.message}" for v in violations[:MAX_VIOLATIONS]]
        if more := len(violations[MAX_VIOLATIONS:]):
            told.append(f"{title(name)}: {more} more rules of the timeline are broken.")
        if outcome.summary.failed:
            failed = outcome.summary.failed
            told.append(f"{title(name)}: {failed} requests failed; the timeline says why.")
    return told


def timelines(outcomes: Mapping[str, Outcome]) -> dict[str, list[object]]:
    """Every event of every run, as in a timeline file: the raw samples behind all figures."""
    return {
        name: [json.loads(event.to_json()) for event in outcome.run.timeline]
        for name, outcome in outcomes.items()
    }


def _has_gaps(timeline: list[Event], keep: Callable[[str], bool] | None) -> bool:
    return any(keep is None or keep(gap.request_id) for gap in token_gaps(timeline))


def save_pictures(
    outcomes: Mapping[str, Outcome],
    folder: Path,
    *,
    keep: Callable[[str], bool] | None = None,
    in_timeline: tuple[str, ...] = (),
) -> list[Path]:
    """Timelines (of `in_timeline`, or of all), gaps and figures side by side, as SVG files.

    All runs share the first one's undisturbed step, so that a stall means the same in each. Where
    no answer had two tokens there are no gaps to draw. Raises `OutputError`.
    """
    step_s = next(iter(outcomes.values())).summary.undisturbed_step_s
    runs = {title(n): o.run.timeline for n, o in outcomes.items()}
    shown = {title(n): outcomes[n].run.timeline for n in in_timeline or outcomes}
    pictures = {"timeline": timelines_svg(shown, undisturbed_s=step_s)}
    if with_gaps := {n: run for n, run in runs.items() if _has_gaps(run, keep)}:
        pictures["gaps"] = itl_svg(with_gaps, keep=keep)
    summaries = {title(n): o.summary for n, o in outcomes.items()}
    pictures["summary"] = summary_svg(usual_measures(summaries))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [picture.save(folder / f"{name}.svg") for name, picture in pictures.items()]
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(
            f"Cannot write into {folder} ({reason}); choose another folder."
        ) from error
