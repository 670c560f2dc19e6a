"""The prediction as buttons, a number box and one line of reason."""

from __future__ import annotations

import html
from typing import Any

from minipd.lab.predict import (
    Bracket,
    PredictionError,
    keep_prediction,
    kept_prediction,
    kept_text,
)
from minipd.lab.quiz_widget import W, button, row, status_html

_WIDE: dict[str, Any] = {"description_width": "auto"}


class PredictionView:
    """Takes one prediction and keeps it; says kindly when something is missing."""

    def __init__(
        self,
        name: str,
        question: str,
        unit: str,
        brackets: list[Bracket],
        ratio: float,
        choices: list[str],
    ) -> None:
        self.name, self.unit, self.ratio = name, unit, ratio
        self.reason = W.Text(description="One reason", placeholder="because...", style=_WIDE)
        self.number = W.Text(
            description=f"or a number ({unit})", placeholder="like 120", style=_WIDE
        )
        self.status = W.HTML(status_html(kept_text(name)))
        options = [button(b.label, lambda b=b: self._bracket(b)) for b in brackets]
        options += [button(text, lambda text=text: self._keep(text)) for text in choices]
        parts = [W.HTMLMath(f"<p><b>Predict.</b> {html.escape(question)}</p>"), self.reason]
        parts.append(row(options) if brackets else W.VBox(options))
        if brackets:
            parts.append(row([self.number, button("Keep this number", self._number)]))
        self.widget = W.VBox([*parts, self.status])

    def _bracket(self, bracket: Bracket) -> None:
        self._keep(bracket.value(self.ratio), bracket.label)

    def _number(self) -> None:
        try:
            value = float(self.number.value.replace(",", "").replace("_", ""))
        except ValueError:
            self.status.value = status_html("Type a number, like 120 or 1.2e2.")
            return
        self._keep(value)

    def _keep(self, value: float | str, bracket: str = "") -> None:
        try:
            keep_prediction(self.name, value, self.unit, self.reason.value, bracket)
        except PredictionError as error:
            self.status.value = status_html(html.escape(str(error)))
            return
        late = "measured" in kept_prediction(self.name)
        note = " The measurement was already shown, so the first one stays." if late else ""
        self.status.value = status_html(f"{kept_text(self.name)}{note}")
