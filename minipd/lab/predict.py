"""Predict, run, explain: a guess is kept before the measurement and shown beside it afterwards.

The gap is scored by its log-ratio: a prediction of half and one of twice the truth are equally far
off (`minipd.lab.calibration`).
"""

from __future__ import annotations

import html
import importlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from minipd.lab.calibration import in_words, is_positive, log_ratio
from minipd.lab.progress import Record, changed_progress, entry, read_progress
from minipd.lab.show import display_html, four_digits, html_table


class PredictionError(ValueError):
    """A prediction that cannot be kept; the message says what to write instead."""


@dataclass(frozen=True, slots=True)
class Bracket:
    """A range of answers from `low` to `high` (0 and infinity leave an end open)."""

    low: float
    high: float
    unit: str

    @property
    def label(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        if self.low <= 0:
            return f"under {self.high:g}{unit}"
        if math.isinf(self.high):
            return f"over {self.low:g}{unit}"
        return f"{self.low:g} to {self.high:g}{unit}"

    def value(self, typical_ratio: float) -> float:
        """The number a bracket stands for: its geometric middle; open ends go one half-step on."""
        low = self.low or self.high / typical_ratio
        high = low * typical_ratio if math.isinf(self.high) else self.high
        return math.sqrt(low * high)


def make_brackets(edges: Sequence[float], unit: str) -> list[Bracket]:
    """Edges 10, 30 give: under 10, 10 to 30, over 30. At least two, growing, above zero."""
    if len(edges) < 2 or edges[0] <= 0 or sorted(set(edges)) != list(edges):
        raise PredictionError("brackets needs at least two growing edges above zero: [10, 30].")
    bounds = [0.0, *edges, math.inf]
    return [Bracket(low, high, unit) for low, high in zip(bounds, bounds[1:], strict=False)]


def typical_ratio(edges: Sequence[float]) -> float:
    """The mean factor from one edge to the next."""
    return (edges[-1] / edges[0]) ** (1 / (len(edges) - 1))


def keep_prediction(
    name: str, value: float | str, unit: str = "", reason: str = "", bracket: str = ""
) -> Record:
    """Keep a prediction; once its measurement was shown, nothing changes (no hindsight)."""
    if isinstance(value, float) and not (math.isfinite(value) and value > 0):
        raise PredictionError(f"Predict a number above zero, not {value:g}.")
    with changed_progress() as record:
        kept = entry(record, "predictions", name)
        if "measured" not in kept:  # shown already: what was kept, or nothing, stays
            kept.clear()
            kept.update(value=value, unit=unit, reason=reason.strip(), bracket=bracket)
            kept["when"] = time.strftime("%Y-%m-%d %H:%M")
    return dict(kept)


def keep_reason(name: str, reason: str) -> Record:
    """Add a reason to a kept prediction, or change it, until its measurement was shown."""
    with changed_progress() as record:
        kept = cast(Record, record["predictions"].get(name, {}))
        if "value" in kept and "measured" not in kept:
            kept["reason"] = reason.strip()
    return dict(kept)


def kept_prediction(name: str) -> Record:
    """What was predicted under a name; empty if nothing was."""
    kept = cast(Record, read_progress()["predictions"].get(name, {}))
    return kept if "value" in kept else {}


def was_revealed(name: str) -> bool:
    """Whether its measurement was shown: from then on a prediction would be hindsight."""
    return "measured" in read_progress()["predictions"].get(name, {})


def forget_prediction(name: str) -> None:
    """Start one prediction afresh, for example on another machine."""
    with changed_progress() as record:
        record["predictions"].pop(name, None)


def predict(
    name: str,
    question: str,
    unit: str = "",
    *,
    brackets: Sequence[float] | None = None,
    choices: Sequence[str] | None = None,
    answer: float | str | None = None,
    reason: str = "",
) -> None:
    """Ask for a prediction, by buttons, a number or both, with one line of reason.

    `brackets` are the edges between ranges; `choices` are texts where no number is asked for.
    Without widgets, write it into the call: `predict(..., answer=120, reason="...")`.
    """
    if (brackets is None) == (choices is None):
        raise PredictionError("predict needs either brackets=[...] or choices=[...].")
    if answer is not None:
        value = answer if isinstance(answer, str) else float(answer)
        keep_prediction(name, value, unit, reason)
        display_html(f"<p>{html.escape(question)}</p><p>{kept_text(name)}</p>")
        return
    from minipd.lab.predict_widget import PredictionView

    made = make_brackets(brackets, unit) if brackets else []
    ratio = typical_ratio(brackets) if brackets else 1.0
    view = PredictionView(name, question, unit, made, ratio, list(choices or []))
    display_widget(view.widget)


def display_widget(widget: Any) -> None:
    """Show a widget from inside a function."""
    display: Any = importlib.import_module("IPython.display")
    display.display(widget)


def kept_text(name: str) -> str:
    """One HTML-safe sentence about what is kept under a name."""
    kept = kept_prediction(name)
    if not kept:
        return "No prediction kept yet."
    value = kept.get("bracket") or _with_unit(kept["value"], kept["unit"])
    because = f" because: {html.escape(kept['reason'])}" if kept["reason"] else ""
    return f"Kept: {html.escape(str(value))}{because}."


def _with_unit(value: object, unit: str) -> str:
    text = four_digits(value) if isinstance(value, (int, float)) else str(value)
    return f"{text} {unit}".strip()


def reveal(
    name: str, measured: float | str, unit: str = "", why_not: Mapping[str, str] | None = None
) -> None:
    """Show what was measured (or what happened) beside the prediction, and keep both.

    `why_not` has one sentence for each wrong choice: shown for the one that was guessed, for all
    where nothing was predicted. Either way the measurement is out: no prediction is kept later.
    """
    kept = kept_prediction(name)
    with changed_progress() as record:
        entry(record, "predictions", name).setdefault("measured", measured)
    happened = "what happened" if isinstance(measured, str) else "measured"
    rows = {"what": [happened], "value": [_with_unit(measured, unit)]}
    if kept:
        rows["what"].insert(0, "predicted")
        rows["value"].insert(0, kept["bracket"] or _with_unit(kept["value"], kept["unit"]))
    verdict = _compared(kept, measured) if kept else "No prediction was made for this one."
    told = f"<p>{html.escape(verdict)}{_because(kept)}</p>"
    display_html(html_table(rows) + told + _refuted(kept, why_not or {}))


def _because(kept: Record) -> str:
    if not kept.get("reason"):
        return ""
    reason = html.escape(kept["reason"])
    return f" Your reason was: &ldquo;{reason}&rdquo; Does it still hold?"


def _refuted(kept: Record, why_not: Mapping[str, str]) -> str:
    wrong = {kept["value"]: why_not.get(kept["value"], "")} if kept else why_not
    items = [f"<li>{html.escape(f'{a}: {b}')}</li>" for a, b in wrong.items() if b]
    return f"<ul>{''.join(items)}</ul>" if items else ""


def _compared(kept: Record, measured: float | str) -> str:
    value = kept["value"]
    if isinstance(value, str) or isinstance(measured, str):
        same = str(value) == str(measured)
        return "Your guess was right." if same else "Your guess was another one."
    if not is_positive(measured):
        return "What was measured is not above zero, so no factor says how far off a guess was."
    ratio = log_ratio(float(value), measured)
    return (
        f"Your prediction was {in_words(ratio)} ({ratio:+.2f} doublings: 0 is a hit, +1 twice the "
        "measurement, -1 half of it)."
    )
