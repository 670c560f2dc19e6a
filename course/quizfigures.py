"""Figures in a quiz's explanations: given in the question, worked out from it, or from a source.

A question may pose any figures: they are its premises. What explains an answer may use those, the
key and the foreseen wrong numbers (rounded, or in another unit), numbers of their formulas, and
figures of facts that it cites.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, cast

from course.facts import Facts, figures_in
from minipd.lab.keys import KeyFormulaError, evaluate

Raw = dict[str, Any]
POSED = ("text", "items", "pairs", "bars", "unit")
EXPLAINING = ("why", "misconception")
SMALL = 10  # counts up to here are words in figures' clothes
UNITS = [10.0**power for power in range(-12, 13, 3)] + [0.01, 100.0]


def texts(raw: object, names: tuple[str, ...]) -> Iterator[str]:
    """Every text below one of `names`, however deep it lies."""
    if isinstance(raw, dict):
        for name, value in cast(Raw, raw).items():
            yield from _all(value) if name in names else texts(value, names)
    elif isinstance(raw, list):
        for value in cast("list[object]", raw):
            yield from texts(value, names)


def _all(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in cast("dict[object, object]", value).items():
            yield str(name)
            yield from _all(inner)
    elif isinstance(value, list):
        for inner in cast("list[object]", value):
            yield from _all(inner)
    else:
        yield str(value)


def known_numbers(raw: Raw, values: Mapping[str, float]) -> list[float]:
    """The engine's numbers, and every step of the key's and the foreseen wrong ones' formulas."""
    formulas = [raw.get("key"), raw.get("sheet_key")]
    formulas += [one.get("value") for one in raw.get("wrong", [])]
    steps = [step for formula in formulas for step in _steps(formula, values)]
    return [*values.values(), *steps]


def _steps(formula: object, values: Mapping[str, float]) -> Iterator[float]:
    """What each part of a formula comes to; nothing for parts over the learner's own sheet."""
    if not isinstance(formula, (str, int, float)):
        return  # an order or a pairing
    for node in ast.walk(ast.parse(str(formula), mode="eval")):
        if isinstance(node, ast.expr):
            with contextlib.suppress(KeyFormulaError):
                yield evaluate(ast.unparse(node), values)


def ungiven_figures(raw: Raw, facts: Facts, values: Mapping[str, float]) -> list[str]:
    """Figures in a question's explanations that nothing gives."""
    given = {figure for text in texts(raw, POSED) for figure in figures_in(text)}
    known = known_numbers(raw, values) + [number(figure) for figure in given]
    found: list[str] = []
    for text in texts(raw, EXPLAINING):
        own = figures_in(text, facts)
        found += [figure for figure in own if not _is_known(figure, known)]
    return found


def number(figure: str) -> float:
    """A figure of prose as a number: 8,192 is eight thousand and some."""
    return float(figure.replace(",", ""))


def _is_known(figure: str, known: list[float]) -> bool:
    value = number(figure)
    if value <= SMALL and value.is_integer():
        return True
    decimals = len(figure.partition(".")[2])
    half = 0.5000001 * 10.0**-decimals
    return any(abs(one * unit - value) <= half for one in known for unit in UNITS)
