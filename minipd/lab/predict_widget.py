"""The prediction as buttons, a number box and one line of reason."""

from __future__ import annotations

import html
from typing import Any

from minipd.lab.predict import (
    Bracket,
    PredictionError,
    keep_prediction,
    keep_reason,
    kept_prediction,
    kept_text,
    was_revealed,
)
from minipd.lab.typed import TypedNumberError, read_number
from minipd.lab.widgets import W, button, row, status_html

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
        self.reason = W.Text(
            description="One reason",
            placeholder="because...",
            style=_WIDE,
            continuous_update=False,  # kept when Enter is pressed or the field is left
        )
        self.reason.value = kept_prediction(name).get("reason", "")
        self.reason.observe(self._reason_changed, names="value")
        self.number = W.Text(
            description=f"or a number ({unit})", placeholder="like 120", style=_WIDE
        )
        self.status = W.HTML(status_html(kept_text(name)))
        options = [button(b.label, lambda b=b: self._bracket(b)) for b in brackets]
        options += [button(text, lambda text=text: self._keep(text)) for text in choices]
        parts = [W.HTMLMath(f"<p><b>Predict.</b> {html.escape(question)}</p>")]
        parts.append(row(options) if brackets else W.VBox(options))
        if brackets:
            parts.append(row([self.number, button("Keep this number", self._number)]))
        parts.append(row([self.reason, button("Keep this reason", self._keep_reason)]))
        self.widget = W.VBox([*parts, self.status])

    def _bracket(self, bracket: Bracket) -> None:
        self._keep(bracket.value(self.ratio), bracket.label)

    def _number(self) -> None:
        try:
            value = read_number(self.number.value)
        except TypedNumberError as error:
            self.status.value = status_html(html.escape(str(error)))
            return
        self._keep(value)

    def _keep(self, value: float | str, bracket: str = "") -> None:
        try:
            keep_prediction(self.name, value, self.unit, self.reason.value, bracket)
        except PredictionError as error:
            self.status.value = status_html(html.escape(str(error)))
            return
        self._tell()

    def _reason_changed(self, _: object) -> None:
        if kept_prediction(self.name):  # before that, it is kept together with the prediction
            self._keep_reason()

    def _keep_reason(self) -> None:
        if not kept_prediction(self.name) and not was_revealed(self.name):
            self.status.value = status_html("Predict first; your reason is kept with it.")
            return
        keep_reason(self.name, self.reason.value)
        self._tell()

    def _tell(self) -> None:
        """What is kept now, and why nothing changes any more once the measurement is out."""
        note = ""
        if was_revealed(self.name):
            stays = "the first one stays" if kept_prediction(self.name) else "none is kept now"
            note = f" The measurement was already shown, so {stays}."
        self.status.value = status_html(f"{kept_text(self.name)}{note}")
