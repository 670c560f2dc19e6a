"""A learner's function, watched: what it was given, what it returned, where it broke."""

from __future__ import annotations

import linecache
import math
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

LONGEST = 160  # characters of a value that are shown
SMALL = 16  # numbers of a tensor, or its rows, that are shown
LONGEST_ERROR = 500  # of what an error says
_OURS = Path(__file__).resolve().parents[1]


def cut(text: str, longest: int = LONGEST) -> str:
    """A text, or its beginning where it is long."""
    return text if len(text) <= longest else text[: longest - 3] + "..."


def short(value: object) -> str:
    """A value as Python writes it, cut where it is long; never raises, whatever the value is."""
    try:
        words = f"{value:.6g}" if isinstance(value, float) else repr(value)
        if (shape := _shape_of(value)) is not None:
            words = _tensor_in_words(value, shape)
        if isinstance(value, tuple):
            words = _tuple_in_words(value)  # pyright: ignore[reportUnknownArgumentType]
        if words.startswith("<") and " object at 0x" in words:  # says nothing but an address
            words = f"<{type(value).__name__}>"
    except Exception as error:
        words = f"<a {type(value).__name__} that cannot be shown: {type(error).__name__}>"
    return cut(words)


def _tuple_in_words(value: tuple[object, ...]) -> str:
    parts = [short(part) for part in value[:LONGEST]]
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _shape_of(value: Any) -> tuple[int, ...] | None:
    """A tensor's or an array's shape; None for anything else."""
    is_array = hasattr(value, "tolist") and hasattr(value, "shape") and len(value.shape) > 0
    return tuple(int(size) for size in value.shape) if is_array else None


def _tensor_in_words(value: Any, shape: tuple[int, ...]) -> str:
    """A small table's numbers; of a larger one the shape and the number each row begins with."""
    if len(shape) <= 2 and math.prod(shape) <= SMALL:
        return str([_rounded(row) for row in value.tolist()])
    if not math.prod(shape):
        return f"<shape {shape}, empty>"
    starts = ", ".join(f"{float(row.flatten()[0]):.4g}" for row in value[:SMALL])
    more = ", ..." if len(value) > SMALL else ""
    return f"<shape {shape}, rows beginning with {starts}{more}>"


def _rounded(row: Any) -> Any:
    return [_rounded(x) for x in row] if isinstance(row, list) else round(float(row), 4)  # pyright: ignore[reportUnknownVariableType]


class Watched:
    """Calls the function and remembers the last call, so that a failure can show it."""

    def __init__(self, answer: Callable[..., Any], name: str = "") -> None:
        self._answer = answer
        self.name = name or getattr(answer, "__name__", "your function")
        self.got = ""
        self.broke = False  # the learner's own code raised, or could not be called like this

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = [short(arg) for arg in args]
        given += [f"{name}={short(value)}" for name, value in kwargs.items()]
        call = f"{self.name}({', '.join(given)})"
        self.got = ""
        try:
            made = self._answer(*args, **kwargs)
        except (Exception, SystemExit):
            self.broke = True
            raise
        self.got = f"{call} returned {short(made)}"
        return made


def raised_text(error: BaseException) -> str:
    """The error and, if it came from the learner's own code, the line that it came from."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_ours(f.filename)]
    words = f"{type(error).__name__}: {_said(error)}"
    if not frames:
        return words
    frame = frames[-1]
    place = f"{frame.filename}, " if frame.filename.startswith("<cell") else ""
    line = cut((frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip())
    return f"{words} ({place}line {frame.lineno}{f': {line}' if line else ''})"


def _said(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "exit() would end the notebook; take that out"
    try:
        return cut(str(error), LONGEST_ERROR)
    except Exception:
        return "(its message cannot be shown)"


def _is_ours(filename: str) -> bool:
    return not filename.startswith("<") and _OURS in Path(filename).parents
