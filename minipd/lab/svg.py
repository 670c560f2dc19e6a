"""Small timelines as SVG text, from the standard library alone, with their words and numbers."""

from __future__ import annotations

import html

from minipd.lab.bank import Bar

_WIDTH, _ROW, _LEFT = 640, 34, 110
# Patterns tell the phases apart without colour; the label is written on the bar as well.
_STYLE = {"prefill": ("#9ecae1", "#08306b"), "decode": ("#fdd0a2", "#7f2704")}
_OTHER = ("#eeeeee", "#222222")


def bars_svg(bars: tuple[Bar, ...]) -> str:
    """Rows of labelled bars over one time axis that starts at 0 s."""
    rows = list(dict.fromkeys(bar.row for bar in bars))
    end = max(bar.end for bar in bars)
    height = _ROW * len(rows) + 30
    scale = (_WIDTH - _LEFT - 20) / end
    parts = [_text(4, _ROW * i + 24, row) for i, row in enumerate(rows)]
    parts += [_bar(bar, rows.index(bar.row), scale) for bar in bars]
    axis = _ROW * len(rows) + 8
    parts.append(f"<path d='M{_LEFT} {axis}H{_WIDTH - 20}' stroke='black'/>")
    for tick in range(5):
        at = end * tick / 4
        parts.append(_text(_LEFT + at * scale, axis + 16, f"{at:.3g} s", "middle"))
    size = f"width='{_WIDTH}' height='{height}' viewBox='0 0 {_WIDTH} {height}'"
    style = "font-family='sans-serif' font-size='13'"
    background = "<rect width='100%' height='100%' fill='white'/>"
    start = f"<svg xmlns='http://www.w3.org/2000/svg' {size} {style}>"
    return f"{start}{background}{''.join(parts)}</svg>"


def _bar(bar: Bar, row: int, scale: float) -> str:
    fill, ink = next((v for k, v in _STYLE.items() if bar.label.startswith(k)), _OTHER)
    left, width = _LEFT + bar.start * scale, (bar.end - bar.start) * scale
    box = f"x='{left:.1f}' y='{_ROW * row + 6}' width='{width:.1f}' height='{_ROW - 8}'"
    label = _text(left + width / 2, _ROW * row + 24, bar.label, "middle")
    fits = len(bar.label) * 7 < width
    return f"<rect {box} fill='{fill}' stroke='{ink}'/>{label if fits else ''}"


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f"<text x='{x:.1f}' y='{y}' text-anchor='{anchor}'>{html.escape(text)}</text>"


def bars_alt(bars: tuple[Bar, ...]) -> str:
    """The whole timeline in one sentence per bar."""
    return "Timeline. " + " ".join(
        f"{bar.row}: {bar.label} from {bar.start:g} to {bar.end:g} s." for bar in bars
    )


def bars_table(bars: tuple[Bar, ...]) -> dict[str, list[object]]:
    """The bars as columns by heading."""
    return {
        "who": [bar.row for bar in bars],
        "doing": [bar.label for bar in bars],
        "from (s)": [bar.start for bar in bars],
        "to (s)": [bar.end for bar in bars],
    }
