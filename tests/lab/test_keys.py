"""Key formulas: plain arithmetic and nothing else."""

import pytest

from minipd.lab.keys import KeyFormulaError, evaluate


@pytest.mark.parametrize(
    ("formula", "value"),
    [("2 * (a + 1)", 8), ("a ** 2 / -9", -1), ("max(a, 5) // 2", 2), (7, 7), ("round(a / 2)", 2)],
)
def test_arithmetic(formula, value):
    assert evaluate(formula, {"a": 3.0}) == value


@pytest.mark.parametrize(
    "formula",
    [
        "__import__('os')",
        "a.__class__",
        "[1][0]",
        "(lambda: 1)()",
        "open('x')",
        "'x' * 3",
        "True",
        "b",
        "9 ** 9 ** 9",
        "1 / 0",
        "1 +",
        "max(a, key=a)",
        "10.0 ** 60 ** 2",
    ],
)
def test_anything_else_is_refused_with_one_sentence(formula):
    with pytest.raises(KeyFormulaError, match="formula"):
        evaluate(formula, {"a": 3.0})
