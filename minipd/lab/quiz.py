"""Grading of quiz answers, the same for the notebook's buttons and for the terminal."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from minipd.lab.bank import Bank, Explained, Question, QuizError, lesson_number, load_bank
from minipd.lab.keys import KeyFormulaError, evaluate
from minipd.lab.progress import quiz_record

if TYPE_CHECKING:
    from minipd.measure.sheet import SheetLine

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
            parts.append(f"The mistaken idea behind your answer: {self.note.misconception}")
        if self.note.refuted_by:
            where = f" in lesson {self.note.lesson}" if self.note.lesson else ""
            parts.append(f"Look again{where} at: {ended(self.note.refuted_by)}")
        return " ".join(part for part in parts if part)


def ended(sentence: str) -> str:
    """A full stop at the end, unless some mark stands there already."""
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."


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
    """Wrong picks are explained first, one at a time; then only the number of missing ones."""
    for index in sorted(chosen):
        if not question.choices[index].correct:
            return Feedback(False, question.choices[index].note)
    right = {index for index, choice in enumerate(question.choices) if choice.correct}
    missing = len(right - chosen)
    if not missing:
        return Feedback(True, Explained(question.why))
    more = "1 more answer is right." if missing == 1 else f"{missing} more answers are right."
    rest = question.otherwise
    return Feedback(False, replace(rest, why=f"{more} {rest.why}".strip()))


def number_key(question: Question, sheet: Mapping[str, float]) -> float:
    """The right number; from the learner's sheet where the question asks for their machine's."""
    if not question.sheet_key:
        return question.key
    try:
        return evaluate(question.sheet_key, sheet)
    except KeyFormulaError as error:
        model = f" for {question.sheet_model}" if question.sheet_model else ""
        raise QuizError(
            f"This question uses your own numbers: add a line{model} to your bench sheet first, "
            "with the lesson's last cells or `minipd bench`."
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


def sheet_line(model: str = "") -> SheetLine | None:
    """The latest full line of the learner's bench sheet, of this model if one is named."""
    from minipd.measure import sheet

    for line in reversed(sheet.read().lines):
        if line.prefill_tok_s and line.decode_tok_s and model in ("", line.model):
            return line
    return None


def sheet_numbers(model: str = "") -> dict[str, float]:
    """That line's rates as names for formulas; empty without one."""
    line = sheet_line(model)
    if line is None or not line.prefill_tok_s or not line.decode_tok_s:
        return {}
    return {"prefill_tok_s": line.prefill_tok_s, "decode_tok_s": line.decode_tok_s}


def sheet_text(question: Question) -> str:
    """The line that a question's key is made of, in words; empty where no line is used."""
    line = sheet_line(question.sheet_model) if question.sheet_key else None
    if line is None:
        return ""
    return (
        f"The line used, of {line.date[:16].replace('T', ' ')}: {line.model}, {line.dtype}, prefill"
        f" {line.prefill_tok_s:.1f} tokens/s, decode {line.decode_tok_s:.2f} tokens/s."
    )


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
