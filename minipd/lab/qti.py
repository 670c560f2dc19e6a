"""A quiz as QTI 1.2, which Canvas imports: written in text2qti's plain format, zipped by text2qti.

text2qti knows choices, several choices, numbers and essays; its texts are Markdown with HTML. Its
zips differ from run to run: make them when they are needed, keep none.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from minipd.lab.bank import Bank, Choice, Explained, Question
from minipd.lab.export import (
    HAS_SHEET_KEY,
    Exported,
    bank_title,
    note,
    orders,
    plain,
    told,
    uncited,
    whole_text,
)
from minipd.lab.quiz import LETTERS, shuffled

SMALLEST = 1e-4  # text2qti refuses numbers that are smaller
_MARKDOWN = re.compile(r"(<[^>]*>|\$[^$]+\$)|([\\`*_\[\]{}])")


class ExportError(RuntimeError):
    """A quiz that cannot be exported here; the message says what is missing."""


def qti_zip(source: str) -> bytes:
    """The zip that Canvas imports; raises `ExportError` where text2qti is missing or refuses."""
    try:
        config: Any = importlib.import_module("text2qti.config")
        quiz: Any = importlib.import_module("text2qti.quiz")
        qti: Any = importlib.import_module("text2qti.qti")
    except ImportError as error:
        raise ExportError(
            "QTI needs the package text2qti: install it with `pip install text2qti`, or export "
            "with --export gift."
        ) from error
    try:
        made = quiz.Quiz(source, config=config.Config(), source_name="quiz")
        return bytes(qti.QTI(made).zip_bytes())
    except Exception as error:
        words = " ".join(str(error).split())[:300]
        raise ExportError(f"text2qti cannot express this quiz ({words}).") from error


def qti_source(bank: Bank) -> Exported:
    """The quiz in text2qti's format: each text on one line, so that no line begins by accident."""
    head = [f"Quiz title: {markdown(bank_title(bank))}", "Shuffle answers: true"]
    parts = [part for question in bank.questions for part in _KINDS[question.kind](question)]
    numbered = [part.replace("\n0. ", f"\n{n}. ", 1) for n, part in enumerate(parts, 1)]
    notes = tuple(said for question in bank.questions if (said := _note(question)))
    return Exported("\n\n".join(["\n".join(head), *numbered]) + "\n", notes)


def markdown(text: str) -> str:
    """Text in which no sign means anything to Markdown, outside HTML tags and formulas."""
    return _MARKDOWN.sub(lambda m: m[1] or f"\\{m[2]}", uncited(text))


def _question(title: str, text: str, lines: Sequence[str]) -> str:
    return "\n".join([f"Title: {markdown(title)}", f"0. {markdown(text)}", *lines])


def _said(mark: str, correct: bool, explained: Explained) -> list[str]:
    return [f"{mark} {markdown(told(correct, explained))}"] if explained.why else []


def _choices(question: Question) -> list[str]:
    order = shuffled(question, len(question.choices))
    choices = [question.choices[index] for index in order]
    return [line for place, choice in enumerate(choices) for line in _choice(place, choice)]


def _choice(place: int, choice: Choice) -> list[str]:
    mark = f"{'*' if choice.correct else ''}{LETTERS[place].lower()})"
    return [f"{mark} {markdown(choice.text)}", *_said("...", choice.correct, choice.note)]


def _one(question: Question) -> list[str]:
    return [_question(question.id, whole_text(question), _choices(question))]


def _many(question: Question) -> list[str]:
    lines = _verdicts(question)
    for index in shuffled(question, len(question.choices)):
        choice = question.choices[index]
        lines.append(f"[{'*' if choice.correct else ' '}] {markdown(choice.text)}")
        lines += _said("...", choice.correct, choice.note)
    return [_question(question.id, whole_text(question), lines)]


def _verdicts(question: Question) -> list[str]:
    right = _said("+", True, Explained(question.why))
    return [*right, *_said("-", False, question.otherwise)]


def _needs_a_reader(question: Question) -> bool:
    return question.kind == "number" and (
        bool(question.sheet_key) or abs(question.key) * (1 - question.tolerance) < SMALLEST
    )


def _number(question: Question) -> list[str]:
    text = whole_text(question)
    if _needs_a_reader(question):
        lines = [f"... {markdown(question.why)}", "____"]
        return [_question(question.id, text, lines)]
    margin = abs(question.key * question.tolerance)
    answer = f"= {question.key!r} +- {margin!r}"
    return [_question(question.id, text, [*_verdicts(question), answer])]


def _order(question: Question) -> list[str]:
    return _one(replace(question, choices=orders(question)))


def _match(question: Question) -> list[str]:
    """A multiple choice for each left-hand text."""
    rights = list(dict.fromkeys(right for _, right in question.pairs))
    return [
        _question(
            f"{question.id} {place}",
            f"{whole_text(question)} What goes with this: {left}",
            [*_verdicts(question), *_partners(rights, right)],
        )
        for place, (left, right) in enumerate(question.pairs, 1)
    ]


def _partners(rights: Sequence[str], right: str) -> list[str]:
    return [
        f"{'*' if one == right else ''}{letter.lower()}) {markdown(plain(one))}"
        for letter, one in zip(LETTERS, rights, strict=False)
    ]


_KINDS: dict[str, Callable[[Question], list[str]]] = {
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
    if _needs_a_reader(question):
        return note(question, "an essay", f"text2qti takes no numbers below {SMALLEST:g}")
    if question.kind == "order":
        return note(question, "a choice among whole orders", "QTI 1.2 cannot ask for an order")
    if question.kind == "match":
        became = f"{len(question.pairs)} multiple choices"
        return note(question, became, "text2qti has no pairs")
    if question.kind == "timeline":
        return note(question, "a multiple choice", "its bars are told in words")
    return ""
