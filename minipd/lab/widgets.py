"""Small parts that quiz and predictions share: buttons, rows, spoken status lines, links."""

from __future__ import annotations

import html
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from minipd.lab.quiz import ended

W: Any = importlib.import_module("ipywidgets")


def status_html(text: str) -> str:
    """Text that a screen reader speaks as soon as it changes."""
    return f"<div role='status' aria-live='polite'>{text}</div>"


def button(label: str, on_click: Callable[[], None], tooltip: str = "") -> Any:
    """A button as wide as its label, which is never cut off."""
    layout = W.Layout(width="auto", flex="0 0 auto")
    made = W.Button(description=label, tooltip=tooltip, layout=layout)

    def clicked(_: object) -> None:
        on_click()

    made.on_click(clicked)
    return made


def row(widgets: Sequence[Any]) -> Any:
    """Widgets side by side, in a second line where the window is narrow."""
    return W.HBox(widgets, layout=W.Layout(flex_flow="row wrap"))


def heading_link(heading: str) -> str:
    """A link to a heading of the same notebook, also where ids are renamed as JupyterLab does."""
    anchor = html.escape(heading.replace(" ", "-"), quote=True)
    find = "document.querySelector('[id=&quot;'+a+'&quot;],[data-jupyter-id=&quot;'+a+'&quot;]')"
    jump = f"var a=decodeURIComponent(this.hash.slice(1)),h={find};if(h){{h.scrollIntoView();}}"
    title = html.escape(ended(heading))
    return f'<a href="#{anchor}" onclick="{jump}return false;">{title}</a>'
