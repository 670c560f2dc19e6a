"""A lesson's quiz as a file for a learning platform: GIFT for Moodle, QTI 1.2 for Canvas.

Both formats know fewer kinds of questions than our quizzes: what they cannot express becomes the
nearest kind, and the command says so.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console

from minipd.lab.bank import Bank, Choice, Explained, Question, load_bank
from minipd.lab.quiz import Feedback
from minipd.lab.svg import bars_alt
from minipd.measure.outputs import probe_file, save_bytes

Form = Literal["gift", "qti"]
ENDING = {"gift": "gift", "qti": "zip"}
HAS_SHEET_KEY = "its key is made of each learner's own measurements, so somebody has to read it"
_CITATION = re.compile(r" ?\[[a-z0-9]+(?:-[a-z0-9]+)+\]")
_MIN_CHOICES = 3


@dataclass(frozen=True, slots=True)
class Exported:
    """A quiz in another format's words; `notes` says what became another kind, and why."""

    text: str
    notes: tuple[str, ...]


def export_quiz(
    lesson: str, form: Form, out: Path | None = None, console: Console | None = None
) -> Path:
    """Write a lesson's quiz to `out` (default `quiz-NN.gift` or `.zip` here); returns the file."""
    from minipd.lab.gift import gift
    from minipd.lab.qti import qti_source, qti_zip

    console = console or Console(highlight=False, soft_wrap=True)
    bank = load_bank(lesson)
    path = out or Path(f"quiz-{bank.lesson}.{ENDING[form]}")
    probe_file(path)
    made = gift(bank) if form == "gift" else qti_source(bank)
    content = made.text.encode() if form == "gift" else qti_zip(made.text)
    save_bytes(path, content)
    console.print(f"{len(bank.questions)} questions of lesson {bank.lesson} in {path}.")
    for note in made.notes:
        console.print(note, markup=False)
    return path


def note(question: Question, became: str, why: str) -> str:
    """One sentence about a question that became another kind."""
    return f"Question {question.id} ({question.kind}) became {became}: {why}."


def told(correct: bool, explained: Explained) -> str:
    """What the learner is told after an answer, as the notebook says it."""
    return uncited(Feedback(correct, explained).text)


def uncited(text: str) -> str:
    """One line without references to the notebook's list of sources."""
    return " ".join(_CITATION.sub("", text).split())


def plain(text: str) -> str:
    """Text for places that show no HTML and no formulas."""
    return html.unescape(re.sub(r"<[^>]+>|\$", "", uncited(text)))


def whole_text(question: Question) -> str:
    """A question's text, with its timeline in words and its unit where it has them."""
    parts = [f"(From lesson {question.recalls}.)"] if question.recalls else []
    parts += [question.text, html.escape(bars_alt(question.bars)) if question.bars else ""]
    parts += [f"(Answer in {question.unit}.)"] if question.unit else []
    return uncited(" ".join(part for part in parts if part))


def orders(question: Question) -> tuple[Choice, ...]:
    """An `order` question as a choice among whole orders: the right one and others."""
    right = tuple(range(len(question.items)))
    notes = {right: Explained(question.why)}
    for wrong in question.wrong:
        notes.setdefault(tuple(wrong.value), wrong.note)
    for place in range(len(right) - 1):  # neighbours changed round, where too few were foreseen
        if len(notes) < _MIN_CHOICES:
            other = [*right]
            other[place], other[place + 1] = other[place + 1], other[place]
            notes.setdefault(tuple(other), question.otherwise)
    return tuple(
        Choice("; then ".join(question.items[i] for i in one), one == right, said)
        for one, said in notes.items()
    )


def bank_title(bank: Bank) -> str:
    """The bank's title on one line."""
    return plain(bank.title)
