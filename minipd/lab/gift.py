"""A quiz in Moodle's GIFT format, which is read by Moodle's question bank and by many others.

GIFT knows choices, several choices with weights, numbers with tolerances, matching and essays; see
docs.moodle.org, "GIFT format".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal

from minipd.lab.bank import Bank, Choice, Explained, Question
from minipd.lab.export import (
    HAS_SHEET_KEY,
    Exported,
    bank_title,
    note,
    plain,
    told,
    uncited,
    whole_text,
)
from minipd.lab.quiz import shuffled

_SPECIAL = re.compile(r"([~=#{}:\\])")
_MATH = re.compile(r"\$([^$]+)\$")


def gift(bank: Bank) -> Exported:
    """All questions of a bank in GIFT, in a category of their own."""
    head = [f"// {bank_title(bank)}", f"$CATEGORY: minipd/lesson {bank.lesson}"]
    parts = [_question(bank, question) for question in bank.questions]
    notes = tuple(said for question in bank.questions if (said := _note(question)))
    return Exported("\n\n".join(["\n".join(head), *parts]) + "\n", notes)


def escaped(text: str) -> str:
    r"""Text in which no sign means anything to GIFT; formulas in MathJax's own brackets.

    A leading percent sign would be read as a weight, an arrow as the middle of a pair.
    """
    words = _MATH.sub(r"\\(\1\\)", uncited(text)).replace("->", "&rarr;")
    words = f"&#37;{words[1:]}" if words.startswith("%") else words
    return _SPECIAL.sub(r"\\\1", words)


def _question(bank: Bank, question: Question) -> str:
    answers = _ANSWERS[question.kind](question)
    is_number = question.kind == "number" and not question.sheet_key
    # Shown after every answer, right or wrong; a number's right answer has its why already.
    why = f"####{escaped(question.why)}" if question.why and not is_number else ""
    lines = "\n".join(f"  {line}" for line in [*answers, why] if line)
    opening = "{#" if is_number else "{"
    name = f"::{escaped(bank.lesson)} {escaped(question.id)}::"
    return f"{name}[html]{escaped(whole_text(question))} {opening}\n{lines}\n}}"


def _answer(mark: str, text: str, correct: bool, explained: Explained) -> str:
    return f"{mark}{escaped(text)}#{escaped(told(correct, explained))}"


def _in_shown_order(question: Question) -> list[Choice]:
    return [question.choices[index] for index in shuffled(question, len(question.choices))]


def _one(question: Question) -> Sequence[str]:
    return [
        _answer("=" if choice.correct else "~", choice.text, choice.correct, choice.note)
        for choice in _in_shown_order(question)
    ]


def _many(question: Question) -> Sequence[str]:
    """Each right answer is worth its share; a wrong one takes all of it away."""
    share = f"{100 / sum(choice.correct for choice in question.choices):.7g}"
    return [
        _answer(
            f"~%{share}%" if choice.correct else "~%-100%", choice.text, choice.correct, choice.note
        )
        for choice in _in_shown_order(question)
    ]


def _number(question: Question) -> Sequence[str]:
    if question.sheet_key:
        return []
    right = f"={_range(question, question.key)}#{escaped(told(True, Explained(question.why)))}"
    foreseen = [
        f"=%0%{_range(question, wrong.value)}#{escaped(told(False, wrong.note))}"
        for wrong in question.wrong
    ]
    return [right, *foreseen, f"~#{escaped(told(False, question.otherwise))}"]


def _range(question: Question, value: float) -> str:
    """`value:tolerance`, without exponents, which not every reader of GIFT knows."""
    margin = abs(question.tolerance * value)
    return f"{_decimal(value)}:{_decimal(margin)}"


def _decimal(value: float) -> str:
    return f"{Decimal(f'{value:.12g}'):f}"


def _order(question: Question) -> Sequence[str]:
    lines = [
        f"={escaped(item)} -> {place} of {len(question.items)}"
        for place, item in enumerate(question.items, 1)
    ]
    return [lines[index] for index in shuffled(question, len(lines))]


def _match(question: Question) -> Sequence[str]:
    """The right-hand side is a menu, which shows plain text only."""
    return [f"={escaped(left)} -> {escaped(plain(right))}" for left, right in question.pairs]


_ANSWERS: dict[str, Callable[[Question], Sequence[str]]] = {
    "one": _one,
    "timeline": _one,
    "many": _many,
    "number": _number,
    "order": _order,
    "match": _match,
}


def _note(question: Question) -> str:
    if question.sheet_key:
        return note(question, "an essay", HAS_SHEET_KEY)
    if question.kind == "order":
        return note(question, "a matching question", "GIFT cannot ask for an order")
    if question.kind == "timeline":
        return note(question, "a multiple choice", "GIFT has no pictures; the bars are in words")
    return ""
