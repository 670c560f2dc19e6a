"""Grading of quiz answers, the same for the notebook's buttons and for the terminal."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from minipd.lab.bank import Bank, Explained, Question, QuizError, lesson_number, load_bank
from minipd.lab.keys import KeyFormulaError, evaluate
from minipd.lab.progress import quiz_record

# one, timeline: index of the choice; many: set of indices; number: the number;
# order: item indices in the chosen order; match: for each left text, index of the right text.
LETTERS = "ABCDEFGHIJ"
Response = int | frozenset[int] | float | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Feedback:
    """What the learner is told after an answer."""

    correct: bool
    note: Explained

    @property
    def text(self) -> str:
        """Plain sentences; the verdict comes first, in words and not by colour."""
        parts = ["Correct." if self.correct else "Not yet.", self.note.why]
        if self.note.misconception:
            parts.append(f"The idea behind it: {self.note.misconception}")
        if self.note.refuted_by:
            parts.append(f"Look again at: {self.note.refuted_by}.")
        return " ".join(part for part in parts if part)


def grade(
    question: Question, response: Response, sheet: Mapping[str, float] | None = None
) -> Feedback:
    """Judge a response; `sheet` holds the learner's own numbers for keys that depend on them."""
    match question.kind:
        case "one" | "timeline":
            choice = question.choices[cast(int, response)]
            return Feedback(choice.correct, choice.note)
        case "many":
            return _grade_many(question, cast(frozenset[int], response))
        case "number":
            return _grade_number(question, float(cast(float, response)), sheet or {})
        case "order":
            chosen = cast(tuple[int, ...], response)
            return _grade_exact(question, chosen, tuple(range(len(question.items))))
        case "match":
            chosen = cast(tuple[int, ...], response)
            return _grade_exact(question, chosen, tuple(range(len(question.pairs))))


def _grade_many(question: Question, chosen: frozenset[int]) -> Feedback:
    for index, choice in enumerate(question.choices):
        if choice.correct != (index in chosen):
            note = choice.note
            if choice.correct:  # a right answer left out has no misconception of its own
                note = Explained(f"One more answer is right. {question.otherwise.why}".strip())
            return Feedback(False, note)
    return Feedback(True, Explained(question.why))


def number_key(question: Question, sheet: Mapping[str, float]) -> float:
    """The right number; from the learner's sheet where the question asks for their machine's."""
    if not question.sheet_key:
        return question.key
    try:
        return evaluate(question.sheet_key, sheet)
    except KeyFormulaError as error:
        raise QuizError(
            "This question uses your own numbers: add a line to your bench sheet first, with the "
            "lesson's last cells or `minipd bench`."
        ) from error


def _grade_number(question: Question, given: float, sheet: Mapping[str, float]) -> Feedback:
    key = number_key(question, sheet)
    if _close(given, key, question.tolerance):
        return Feedback(True, Explained(question.why))
    for wrong in question.wrong:
        value = evaluate(wrong.value, sheet)
        if _close(given, value, question.tolerance):
            return Feedback(False, wrong.note)
    return Feedback(False, question.otherwise)


def _close(given: float, key: float, tolerance: float) -> bool:
    return abs(given - key) <= tolerance * abs(key)


def _grade_exact(question: Question, chosen: tuple[int, ...], right: tuple[int, ...]) -> Feedback:
    if chosen == right:
        return Feedback(True, Explained(question.why))
    for wrong in question.wrong:
        if tuple(wrong.value) == chosen:
            return Feedback(False, wrong.note)
    return Feedback(False, question.otherwise)


def shuffled(question: Question, count: int) -> list[int]:
    """Indices in the order shown: seeded by the question, so that a class sees the same letters.

    Items to put in order never start out in their right order.
    """
    order = list(range(count))
    generator = random.Random(question.id)
    generator.shuffle(order)
    if question.kind == "order" and order == sorted(order):
        order = order[1:] + order[:1]
    return order


def sheet_numbers() -> dict[str, float]:
    """The latest line of the learner's bench sheet as names for formulas; empty without one."""
    from minipd.measure import sheet

    lines = sheet.read().lines
    for line in reversed(lines):
        if line.prefill_tok_s and line.decode_tok_s:
            return {"prefill_tok_s": line.prefill_tok_s, "decode_tok_s": line.decode_tok_s}
    return {}


def score_line(bank: Bank) -> str:
    """How far the learner is with a quiz, in one sentence."""
    kept = quiz_record(bank.lesson)
    done = [kept[q.id] for q in bank.questions if kept.get(q.id, {}).get("correct")]
    first = sum(bool(record.get("first_try")) for record in done)
    return (
        f"Quiz {bank.lesson}: {len(done)} of {len(bank.questions)} answered rightly, "
        f"{first} of them at the first try."
    )


def quiz(lesson: str) -> object:
    """The quiz of a lesson as a notebook widget; the last line of a cell."""
    from minipd.lab.quiz_widget import QuizView

    return QuizView(load_bank(lesson_number(lesson))).widget
