"""Arithmetic written in a text file, worked out without ever running that text as a program.

Quiz keys may be formulas over the engine's own numbers ("4 * smollm2_matmul_parameters"). Only the
grammar below is understood; anything else is refused by name.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping


class KeyFormulaError(ValueError):
    """A formula that is not plain arithmetic over known names; the message says which part."""


_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Pow: lambda a, b: a**b,
}
_FUNCTIONS: dict[str, Callable[..., float]] = {
    "min": min,
    "max": max,
    "round": round,
    "ceil": math.ceil,
    "sqrt": math.sqrt,
}
MAX_EXPONENT = 64


def evaluate(formula: str | float, values: Mapping[str, float]) -> float:
    """The number a formula stands for, with `values` as the only names it may use."""
    if isinstance(formula, (int, float)):
        return float(formula)
    try:
        tree = ast.parse(formula, mode="eval")
        return float(_value(tree.body, values))
    except (SyntaxError, ZeroDivisionError, OverflowError, TypeError) as error:
        raise KeyFormulaError(f"The formula {formula!r} cannot be worked out ({error}).") from error


def _value(node: ast.expr, values: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.Name(id=name) if name in values:
            return values[name]
        case ast.Name(id=name):
            known = ", ".join(sorted(values)) or "none"
            raise KeyFormulaError(f"The formula uses the unknown name {name!r}; known: {known}.")
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, values)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _combined(op, _value(left, values), _value(right, values))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*[_value(arg, values) for arg in args])
        case _:
            raise KeyFormulaError(f"A key formula may not contain {ast.unparse(node)!r}.")


def _combined(op: ast.operator, left: float, right: float) -> float:
    if isinstance(op, ast.Pow) and abs(right) > MAX_EXPONENT:
        raise KeyFormulaError(f"The power {right:g} in a key formula is over {MAX_EXPONENT}.")
    return _BINARY[type(op)](left, right)
