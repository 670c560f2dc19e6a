"""The buttons around `attention_steps`: choose a token to replace, go through the layers."""

from __future__ import annotations

from collections.abc import Sequence

from minipd.lab.attention_steps import STEPS, Change, step_html
from minipd.lab.predict import display_widget
from minipd.lab.widgets import W, button, row, status_html


class AttentionView:
    """One picture at a time: the chosen change at the chosen step; works by Tab and Space."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes = changes
        self.chosen, self.step = len(changes) - 1, 0
        choices = [
            button(
                f"Replace '{change.old_word.strip()}' by '{change.words[change.place].strip()}'",
                lambda place=change.place: self.choose(place),
            )
            for change in changes
        ]
        steps = [button("Previous step", lambda: self.go(-1))]
        steps.append(button("Next step", lambda: self.go(+1)))
        self.page = W.HTML()
        self.widget = W.VBox([row(choices), row(steps), self.page])
        self._show()

    def choose(self, place: int) -> None:
        """Replace another token; the step stays, so that two changes can be compared."""
        self.chosen = place
        self._show()

    def go(self, by: int) -> None:
        """One step on or back; at the ends nothing happens."""
        self.step = min(max(self.step + by, 0), len(STEPS) - 1)
        self._show()

    def _show(self) -> None:
        self.page.value = status_html(step_html(self.changes[self.chosen], STEPS[self.step]))


def step_through(changes: Sequence[Change]) -> None:
    """Show the widget in a notebook."""
    display_widget(AttentionView(changes).widget)
