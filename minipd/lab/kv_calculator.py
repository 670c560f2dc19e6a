"""The KV size calculator: a model, a box and a context in, the number of users out."""

from __future__ import annotations

import html
from typing import Any

from minipd.lab.kv_sizes import MODELS, Sizing, size_box
from minipd.lab.show import figure_html, html_table
from minipd.lab.widgets import W, status_html

_WIDTH, _LEFT, _BAR = 720, 10, 46
# Told apart by pattern and by the words below the bar; colours only help.
_FILLS = {"weights": "#9ecae1", "reserve": "url(#dots)", "notes": "url(#lines)", "missing": "white"}
_PATTERNS = (
    "<defs><pattern id='lines' width='7' height='7' patternUnits='userSpaceOnUse' "
    "patternTransform='rotate(45)'><rect width='7' height='7' fill='#fdd0a2'/>"
    "<path d='M0 0v7' stroke='#7f2704' stroke-width='1.4'/></pattern>"
    "<pattern id='dots' width='7' height='7' patternUnits='userSpaceOnUse'>"
    "<rect width='7' height='7' fill='#e5e5e5'/><circle cx='3' cy='3' r='1.2' fill='black'/>"
    "</pattern></defs>"
)


def parts(size: Sizing) -> dict[str, int]:
    """The box from left to right, in bytes; `missing` is what weights and reserve lack."""
    missing = max(0, size.weights + size.reserve - size.memory)
    return {
        "weights": size.weights,
        "reserve": size.reserve,
        "notes": size.room,
        "missing": missing,
    }


def box_svg(size: Sizing) -> str:
    """The memory of the box as one bar, with a key below it and a line at its end."""
    shown = {name: value for name, value in parts(size).items() if value and name != "missing"}
    scale = (_WIDTH - 2 * _LEFT) / max(size.memory, sum(shown.values()))
    drawn, x = [_PATTERNS, "<rect width='100%' height='100%' fill='white'/>"], float(_LEFT)
    for place, (name, value) in enumerate(shown.items()):
        width, y = value * scale, _BAR + 26 + 22 * place
        fill = f"fill='{_FILLS[name]}' stroke='black'"
        drawn.append(f"<rect x='{x:.1f}' y='8' width='{width:.1f}' height='{_BAR - 10}' {fill}/>")
        drawn.append(f"<rect x='{_LEFT}' y='{y - 12}' width='24' height='15' {fill}/>")
        drawn.append(f"<text x='{_LEFT + 32}' y='{y}'>{name}: {value / 1e9:,.1f} GB</text>")
        x += width
    end = _LEFT + size.memory * scale
    drawn.append(f"<path d='M{end:.1f} 2v{_BAR}' stroke='black' stroke-width='3'/>")
    height = _BAR + 26 + 22 * len(shown)
    head = f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='{height}' "
    view = f"viewBox='0 0 {_WIDTH} {height}' font-family='sans-serif' font-size='14'>"
    return f"{head}{view}{''.join(drawn)}</svg>"


def box_html(size: Sizing) -> str:
    """The result: the sum in one spoken sentence, the picture, and its numbers as a table."""
    split = {name: value for name, value in parts(size).items() if value}
    table = {"part": list(split), "GB": [f"{value / 1e9:,.2f}" for value in split.values()]}
    share = {name: value / size.memory for name, value in split.items()}
    words = ", ".join(f"{name} {part:.0%}" for name, part in share.items())
    picture = figure_html(box_svg(size), f"Bar: the memory of the box. {words}.")
    told = status_html(f"<b>{html.escape(size.sentence)}</b>")
    numbers = html_table(table, f"{size.kv_per_token:,} bytes of keys and values per token")
    return f"{told}{picture}<details><summary>The numbers</summary>{numbers}</details>"


class Calculator:
    """Three controls and their result, worked out again whenever one of them has moved."""

    def __init__(self, model: str, memory_gb: int, context: int) -> None:
        wide: Any = {"description_width": "11em"}
        layout = W.Layout(width="min(100%, 46em)")
        common: Any = {"style": wide, "layout": layout}
        self.model = W.Dropdown(options=list(MODELS), value=model, description="Model", **common)
        sliding: Any = common | {"continuous_update": False, "readout_format": ","}
        self.memory = W.IntSlider(memory_gb, 4, 640, 4, description="Memory (GB)", **sliding)
        self.context = W.IntSlider(
            context, 512, 32_768, 512, description="Tokens per user", **sliding
        )
        self.result = W.HTML()
        controls = [self.model, self.memory, self.context]
        for control in controls:
            control.observe(self._update, names="value")
        self.widget = W.VBox([*controls, self.result])
        self._update()

    @property
    def sizing(self) -> Sizing:
        return size_box(self.model.value, self.memory.value, self.context.value)

    def _update(self, _: object = None) -> None:
        self.result.value = box_html(self.sizing)


def kv_calculator(model: str = "Llama-3-8B", memory_gb: int = 24, context: int = 4096) -> object:
    """The calculator as a notebook widget; the last line of a cell."""
    return Calculator(model, memory_gb, context).widget
