"""Pictures and tables that a screen reader can read too.

JupyterLab drops the alternative text of plain PNG outputs, so figures are shown as HTML: an
`<img alt>` with the numbers in a table below it.
"""

from __future__ import annotations

import base64
import html
import importlib
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minipd.lab.pictures import Picture

Table = Mapping[str, Sequence[object]]
# Both themes of JupyterLab stay readable: no colours of our own, borders by opacity.
_CELL = "padding:2px 10px;text-align:left;border-bottom:1px solid currentColor"


class ShowError(ValueError):
    """A figure or table that not everyone could read; the message says what is missing."""


def four_digits(value: float) -> str:
    """A measured number without digits that mean nothing: 2.973, and 17,920, not 1.792e+04."""
    words = f"{value:,.4g}"
    return f"{float(words):,.0f}" if "e+" in words and abs(value) < 1e15 else words


def _text(value: object) -> str:
    return four_digits(value) if isinstance(value, float) else str(value)


def html_table(table: Table, caption: str = "") -> str:
    """Columns by heading as an HTML table; the first column heads its rows. Equal lengths only."""
    lengths = {len(column) for column in table.values()}
    if len(lengths) != 1:
        raise ShowError(f"Every column needs as many rows as the others, not {sorted(lengths)}.")
    head = "".join(f"<th scope='col' style='{_CELL}'>{html.escape(name)}</th>" for name in table)
    rows = "".join(f"<tr>{_row(row)}</tr>" for row in zip(*table.values(), strict=True))
    title = f"<caption style='text-align:left'>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _row(values: Sequence[object]) -> str:
    first, *others = (html.escape(_text(value)) for value in values)
    cells = "".join(f"<td style='{_CELL}'>{value}</td>" for value in others)
    return f"<th scope='row' style='{_CELL}'>{first}</th>{cells}"


def figure_html(figure: Any, alt: str, table: Table | None = None) -> str:
    """A matplotlib figure (or SVG text) as `<img alt>` plus its numbers; closes the figure."""
    if not alt.strip():
        raise ShowError('show(fig, alt="...") needs a sentence that says what the picture shows.')
    svg = figure.encode() if isinstance(figure, str) else _svg_of(figure)
    source = "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
    image = f"<img alt=\"{html.escape(alt)}\" src='{source}' style='max-width:100%'>"
    if table is None:
        return image
    summary = "<summary>The same numbers as a table</summary>"
    return f"{image}<details>{summary}{html_table(table)}</details>"


def _svg_of(figure: Any) -> bytes:
    plt: Any = importlib.import_module("matplotlib.pyplot")
    file = io.BytesIO()
    # A fixed salt and no date: the same numbers give the same bytes.
    with plt.rc_context({"svg.hashsalt": "minipd"}):
        figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    return file.getvalue()


def show(figure: Any, *, alt: str, table: Table | None = None) -> None:
    """Display a figure with its alternative text and, if given, its numbers as a table."""
    display_html(figure_html(figure, alt, table))


def show_picture(picture: Picture) -> None:
    """Display a drawn timeline: its SVG carries title and description, its numbers fold below."""
    numbers = f"<details><summary>The numbers</summary>{picture.table_html()}</details>"
    display_html(f"<figure>{picture.svg}{numbers}</figure>")


def show_table(table: Table, caption: str = "") -> None:
    """Display columns by heading as a table. One that is wider than its place scrolls within a
    region of its own, which the keyboard reaches too."""
    label = html.escape(caption or f"Table: {', '.join(table)}")
    region = f"role='region' aria-label=\"{label}\" tabindex='0' style='overflow-x:auto'"
    display_html(f"<div {region}>{html_table(table, caption)}</div>")


def display_html(text: str) -> None:
    """Send HTML to the notebook, with nothing else that a front end could prefer."""
    display: Any = importlib.import_module("IPython.display")
    display.display(display.HTML(text))
