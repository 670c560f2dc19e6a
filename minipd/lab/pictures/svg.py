"""A small drawing board that writes SVG, from the standard library alone (runs in a browser too).

No meaning by colour alone: every fill has a pattern and every picture an alternative text.
"""

from __future__ import annotations

import hashlib
import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

INK, MUTED, GRID, PAPER = "#222222", "#555555", "#dddddd", "#ffffff"
FONT = "system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif"
CHAR_WIDTH = 0.56  # of the font size, on average, on the wide side


@dataclass(frozen=True, slots=True)
class Fill:
    """Colours from the Okabe-Ito palette (safe for colour-blind readers) with a pattern each."""

    colour: str
    pattern: str = ""  # "", "stripes", "dots", "crosses"
    pattern_colour: str = INK
    edge: str = INK


# Light, striped and dotted fills also differ in grey print.
PREFILL = Fill("#e69f00", "stripes", "#7a5200", "#7a5200")
DECODE = Fill("#cfe8f7", "", INK, "#3a87b5")
MIXED = Fill("#7fcbb3", "dots", "#00543c", "#00543c")
STALL = Fill("#ffffff", "crosses", "#b03a00", "#b03a00")
SERIES = (
    Fill("#e69f00", "stripes", "#7a5200", "#7a5200"),
    Fill("#7fcbb3", "dots", "#00543c", "#00543c"),
    Fill("#0072b2", "", INK, "#00476f"),
    Fill("#f3d3e4", "crosses", "#9c4877", "#9c4877"),
    Fill("#dddddd", "", INK, "#555555"),
)
DASHES = ("", "7 4", "2 3", "9 3 2 3", "1 4")

_PATTERNS = {
    "stripes": (7, '<path d="M-2,2 l4,-4 M0,7 l7,-7 M5,9 l4,-4" stroke="{c}" stroke-width="1.3"/>'),
    "dots": (6, '<circle cx="3" cy="3" r="1.1" fill="{c}"/>'),
    "crosses": (6, '<path d="M0,0 l6,6 M0,6 l6,-6" stroke="{c}" stroke-width="0.9"/>'),
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A finished drawing: SVG text, what it shows in words, and its numbers as a table."""

    svg: str
    alt: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def save(self, path: str | Path) -> Path:
        """Write the SVG file; folders that are missing are made."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.svg.encode("utf-8"))
        return path

    def table_html(self) -> str:
        head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the drawing, and its numbers behind a fold."""
        numbers = f"<details><summary>The numbers</summary>{self.table_html()}</details>"
        return f"<figure>{self.svg}{numbers}</figure>"


class Canvas:
    """Collects shapes in drawing order; sizes are in pixels, y grows downwards."""

    def __init__(self, width: float) -> None:
        self.width = width
        self._shapes: list[str] = []
        self._fills: dict[str, Fill] = {}

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: Fill | str,
        edge: str | None = None,
        tip: str = "",
    ) -> None:
        """A rectangle; `tip` is shown when pointed at."""
        colour, pattern = (fill, None) if isinstance(fill, str) else (fill.colour, fill)
        line = edge if edge is not None else (pattern.edge if pattern else "none")
        box = f'x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"'
        inside = f"<title>{html.escape(tip)}</title>" if tip else ""
        self._shapes.append(f'<rect {box} fill="{colour}" stroke="{line}">{inside}</rect>')
        if pattern and pattern.pattern:
            name = f"{pattern.pattern}-{pattern.pattern_colour.lstrip('#')}"
            self._fills[name] = pattern
            self._shapes.append(f'<rect {box} fill="url(#@{name})" pointer-events="none"/>')

    def line(
        self,
        points: Sequence[tuple[float, float]],
        colour: str = INK,
        width: float = 1.0,
        dash: str = "",
    ) -> None:
        route = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self._shapes.append(
            f'<polyline points="{route}" fill="none" stroke="{colour}" '
            f'stroke-width="{_n(width)}" stroke-linejoin="round"{dashes}/>'
        )

    def arrow(self, x0: float, y0: float, x1: float, y1: float, colour: str = INK) -> None:
        """A line that ends in a filled head."""
        angle, size = math.atan2(y1 - y0, x1 - x0), 7.0
        left, right = angle + math.pi * 0.86, angle - math.pi * 0.86
        tips = [(x1 + size * math.cos(a), y1 + size * math.sin(a)) for a in (left, right)]
        self.line([(x0, y0), (x1, y1)], colour, 1.4)
        head = " ".join(f"{_n(x)},{_n(y)}" for x, y in ((x1, y1), *tips))
        self._shapes.append(f'<polygon points="{head}" fill="{colour}"/>')

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: float = 12,
        anchor: str = "start",
        colour: str = INK,
        bold: bool = False,
        backed: bool = False,
    ) -> None:
        """Words with their baseline at y; `backed` puts paper behind them."""
        if backed:
            width = text_width(words, size) + 6
            left = x - 3 - {"start": 0.0, "middle": width / 2 - 3, "end": width - 6}[anchor]
            self.rect(left, y - size, width, size * 1.32, PAPER, "none")
        weight = ' font-weight="600"' if bold else ""
        self._shapes.append(
            f'<text x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}" text-anchor="{anchor}" '
            f'fill="{colour}"{weight}>{html.escape(words)}</text>'
        )

    def render(self, height: float, title: str, alt: str) -> str:
        """The SVG document; ids carry a fingerprint, so that several fit into one page."""
        body = "\n".join(self._shapes)
        mark = "p" + hashlib.sha256((title + alt + body).encode()).hexdigest()[:8]
        defs = "".join(_pattern(f"{mark}-{name}", fill) for name, fill in self._fills.items())
        body = body.replace("url(#@", f"url(#{mark}-")
        size = f'viewBox="0 0 {_n(self.width)} {_n(height)}" width="{_n(self.width)}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} height="{_n(height)}" role="img" '
            f'aria-labelledby="{mark}-t {mark}-d" font-family="{FONT}" '
            'style="max-width:100%;height:auto">\n'
            f'<title id="{mark}-t">{html.escape(title)}</title>\n'
            f'<desc id="{mark}-d">{html.escape(alt)}</desc>\n'
            f"<defs>{defs}</defs>\n"
            f'<rect width="100%" height="100%" fill="{PAPER}"/>\n{body}\n</svg>\n'
        )


def _pattern(name: str, fill: Fill) -> str:
    size, shape = _PATTERNS[fill.pattern]
    return (
        f'<pattern id="{name}" width="{size}" height="{size}" patternUnits="userSpaceOnUse">'
        f"{shape.format(c=fill.pattern_colour)}</pattern>"
    )


def _n(value: float) -> str:
    """A short number: at most two decimals, so that files stay small and stable."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


def text_width(words: str, size: float) -> float:
    """Pixels that the words will take, estimated."""
    return len(words) * size * CHAR_WIDTH


def shorten(words: str, width: float, size: float) -> str:
    """The words, cut with an ellipsis so that they fit into `width` pixels."""
    room = int(width / (size * CHAR_WIDTH))
    return words if len(words) <= room else words[: max(1, room - 1)] + "…"


def nice_ticks(low: float, high: float, about: int = 8) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) within `[low, high]`."""
    if high <= low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [step * n for n in range(first, math.floor(high / step + 1e-9) + 1)]
