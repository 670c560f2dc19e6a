"""A lesson's questions as read from its compiled bank (`minipd/lab/banks/NN.json`).

The course builder validates the author's YAML and computes the keys; what is read here is complete.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, cast, get_args

Kind = Literal["one", "many", "number", "order", "match", "timeline"]
KINDS: tuple[str, ...] = get_args(Kind)
Raw = dict[str, Any]


class QuizError(ValueError):
    """A quiz that does not exist or cannot be read; the message says which ones there are."""


@dataclass(frozen=True, slots=True)
class Explained:
    """Why an answer is right or wrong; wrong ones name the misconception and what refutes it.

    `refuted_by` is a heading of this lesson, or of the earlier lesson `lesson` where one is named.
    """

    why: str
    misconception: str = ""
    refuted_by: str = ""
    lesson: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer of a `one`, `many` or `timeline` question."""

    text: str
    correct: bool
    note: Explained


@dataclass(frozen=True, slots=True)
class WrongValue:
    """A foreseen wrong number, order or pairing, told apart from any other wrong answer."""

    value: Any
    note: Explained


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a timeline: `row` names who, `start` to `end` when, in seconds."""

    row: str
    label: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Question:
    """One question. Which fields are used depends on `kind`; the others stay empty.

    `number`: `key` (or `sheet_key`, a formula over the learner's own sheet, whose latest line of
    `sheet_model` is used), relative `tolerance`.
    `order`: `items` in their right order. `match`: `pairs`, each left text with its right one.
    `recalls`: the earlier lesson that the question repeats, and whose headings its notes name.
    """

    id: str
    kind: Kind
    text: str
    why: str
    choices: tuple[Choice, ...] = ()
    key: float = 0.0
    sheet_key: str = ""
    sheet_model: str = ""
    tolerance: float = 0.02
    unit: str = ""
    items: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    wrong: tuple[WrongValue, ...] = ()
    otherwise: Explained = Explained("")
    bars: tuple[Bar, ...] = ()
    recalls: str = ""


@dataclass(frozen=True, slots=True)
class Bank:
    """All questions of one lesson."""

    lesson: str
    title: str
    questions: tuple[Question, ...]


def _explained(raw: Raw, recalls: str) -> Explained:
    place = raw.get("refuted_by", "")
    return Explained(raw["why"], raw.get("misconception", ""), place, recalls if place else "")


def question_from(raw: Raw) -> Question:
    """A question from its compiled JSON form."""
    recalls = raw.get("recalls", "")
    return Question(
        id=raw["id"],
        kind=cast(Kind, raw["kind"]),
        text=raw["text"],
        why=raw.get("why", ""),
        choices=tuple(
            Choice(c["text"], c.get("correct", False), _explained(c, recalls))
            for c in raw.get("answers", [])
        ),
        key=float(raw.get("key", 0.0)),
        sheet_key=raw.get("sheet_key", ""),
        sheet_model=raw.get("sheet_model", ""),
        tolerance=float(raw.get("tolerance", 0.02)),
        unit=raw.get("unit", ""),
        items=tuple(raw.get("items", ())),
        pairs=tuple((left, right) for left, right in raw.get("pairs", ())),
        wrong=tuple(WrongValue(w["value"], _explained(w, recalls)) for w in raw.get("wrong", [])),
        otherwise=_explained(raw["otherwise"], recalls) if "otherwise" in raw else Explained(""),
        bars=tuple(Bar(**bar) for bar in raw.get("bars", ())),
        recalls=recalls,
    )


def bank_from(raw: Raw) -> Bank:
    """A bank from its compiled JSON form."""
    questions = tuple(question_from(question) for question in raw["questions"])
    return Bank(raw["lesson"], raw["title"], questions)


def lessons_with_quiz() -> list[str]:
    """Numbers of the lessons that have a quiz, in order."""
    folder = resources.files("minipd.lab") / "banks"
    return sorted(
        f.name.removesuffix(".json") for f in folder.iterdir() if f.name.endswith(".json")
    )


def lesson_number(lesson: str) -> str:
    """`0`, `00` and `00_your_machine` all mean lesson `00`; nothing means no lesson."""
    number = lesson.split("_")[0].strip()
    return number.zfill(2) if number else ""


def load_bank(lesson: str) -> Bank:
    """The quiz of a lesson; raises `QuizError` naming the lessons that have one."""
    number = lesson_number(lesson)
    if number not in lessons_with_quiz():
        raise QuizError(
            f"There is no quiz for lesson {lesson!r}; there is one for lesson "
            f"{', '.join(lessons_with_quiz())}."
        )
    file = resources.files("minipd.lab") / "banks" / f"{number}.json"
    return bank_from(json.loads(file.read_text(encoding="utf-8")))
