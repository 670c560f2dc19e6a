"""Small timelines as SVG text, from the standard library alone, with their words and numbers."""

from __future__ import annotations

import html

from minipd.lab.bank import Bar

_WIDTH, _ROW, _LEFT = 640, 34, 110
# Prefill is hatched and decode is plain, so that no colour is needed; every bar is labelled, inside
# where the words fit and with a number and a legend line below where they do not.
_STYLE = {"prefill": ("url(#hatch)", "#7f2704"), "decode": ("#cfe8f7", "#08306b")}
_OTHER = ("#eeeeee", "#222222")
_HATCH = (
    "<defs><pattern id='hatch' width='7' height='7' patternUnits='userSpaceOnUse'>"
    "<rect width='7' height='7' fill='#fdd0a2'/>"
    "<path d='M-2,2l4,-4M0,7l7,-7M5,9l4,-4' stroke='#7f2704' stroke-width='1.2'/></pattern></defs>"
)


def bars_svg(bars: tuple[Bar, ...]) -> str:
    """Rows of labelled bars over one time axis that starts at 0 s."""
    rows = list(dict.fromkeys(bar.row for bar in bars))
    end = max(bar.end for bar in bars)
    short = [bar for bar in bars if not _fits(bar, (_WIDTH - _LEFT - 20) / end)]
    height = _ROW * len(rows) + 30 + 18 * len(short)
    scale = (_WIDTH - _LEFT - 20) / end
    parts = [_text(4, _ROW * i + 24, row) for i, row in enumerate(rows)]
    for bar in bars:
        mark = f"{short.index(bar) + 1}" if bar in short else bar.label
        parts.append(_bar(bar, rows.index(bar.row), scale, mark))
    axis = _ROW * len(rows) + 8
    parts.append(f"<path d='M{_LEFT} {axis}H{_WIDTH - 20}' stroke='black'/>")
    for tick in range(5):
        at = end * tick / 4
        parts.append(_text(_LEFT + at * scale, axis + 16, f"{at:.3g} s", "middle"))
    for i, bar in enumerate(short):
        parts.append(_text(_LEFT, axis + 38 + 18 * i, f"{i + 1}: {bar.label} ({bar.row})"))
    size = f"width='{_WIDTH}' height='{height}' viewBox='0 0 {_WIDTH} {height}'"
    style = "font-family='sans-serif' font-size='13'"
    background = "<rect width='100%' height='100%' fill='white'/>"
    start = f"<svg xmlns='http://www.w3.org/2000/svg' {size} {style}>"
    return f"{start}{_HATCH}{background}{''.join(parts)}</svg>"


def _fits(bar: Bar, scale: float) -> bool:
    return len(bar.label) * 7 + 8 < (bar.end - bar.start) * scale


def _bar(bar: Bar, row: int, scale: float, words: str) -> str:
    fill, ink = next((v for k, v in _STYLE.items() if bar.label.startswith(k)), _OTHER)
    left, width = _LEFT + bar.start * scale, (bar.end - bar.start) * scale
    box = f"x='{left:.1f}' y='{_ROW * row + 6}' width='{width:.1f}' height='{_ROW - 8}'"
    middle, half = left + width / 2, len(words) * 3.6 + 3
    paper = f"<path d='M{middle - half:.1f} {_ROW * row + 11}h{2 * half:.1f}v17h{-2 * half:.1f}z'"
    paper += " fill='white' fill-opacity='0.85'/>"  # words on hatching need a ground of their own
    label = _text(middle, _ROW * row + 24, words, "middle")
    return f"<rect {box} fill='{fill}' stroke='{ink}'/>{paper}{label}"


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
