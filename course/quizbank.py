"""From an author's `quiz.yaml` to the compiled bank that learners load: checked, keys computed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from course.source import CourseError, read_mapping
from minipd.lab.bank import KINDS, bank_from
from minipd.lab.keys import KeyFormulaError, evaluate

Raw = dict[str, Any]
Headings = Callable[[str], set[str]]  # of another lesson, by its number
MIN_ANSWERS = 3
SHEET_NAMES = {"prefill_tok_s": 400.0, "decode_tok_s": 16.0}  # only to try sheet formulas out
_BASE = {"id", "kind", "text", "why", "recalls"}
FIELDS = {
    "one": _BASE | {"answers"},
    "timeline": _BASE | {"answers", "bars"},
    "many": _BASE | {"answers", "otherwise"},
    "number": _BASE
    | {"key", "sheet_key", "sheet_model", "tolerance", "unit", "wrong", "otherwise"},
    "order": _BASE | {"items", "wrong", "otherwise"},
    "match": _BASE | {"pairs", "wrong", "otherwise"},
}


class _Question:
    """One raw question while it is checked; `fail` names it in every message."""

    def __init__(self, raw: Raw, headings: set[str], values: Mapping[str, float]) -> None:
        self.raw, self.headings, self.values = raw, headings, values
        self.name = raw.get("id", "without id")

    def fail(self, what: str) -> CourseError:
        return CourseError(f"quiz.yaml, question {self.name!r}: {what}.")

    def need(self, condition: object, what: str) -> None:
        if not condition:
            raise self.fail(what)

    def wrong(self, entry: Raw, what: str) -> None:
        """A wrong answer says why, which misconception it shows and which heading refutes it."""
        for field in ("why", "misconception", "refuted_by"):
            self.need(entry.get(field), f"{what} lacks {field}")
        place = entry["refuted_by"]
        self.place(place, f"{what} points to {place!r}, which")

    def place(self, place: Any, what: str) -> None:
        """`refuted_by` names a heading: of this lesson, or of the one that the question recalls."""
        of = f" of lesson {self.raw['recalls']}" if "recalls" in self.raw else ""
        self.need(place in self.headings, f"{what} is no heading{of}")

    def number(self, formula: Any) -> float:
        try:
            return float(f"{evaluate(formula, self.values):.12g}")
        except KeyFormulaError as error:
            raise self.fail(str(error).rstrip(".")) from error


def compile_bank(
    path: Path, headings: set[str], values: Mapping[str, float], earlier: Headings | None = None
) -> str:
    """The bank as JSON text; raises `CourseError` naming the question and what it lacks.

    A question that `recalls` a lesson is refuted by that lesson's headings, which `earlier` finds.
    """
    raw = read_mapping(path)
    for field in ("lesson", "title", "questions"):
        if field not in raw:
            raise CourseError(f"{path.name}: {field} is missing.")
    if not raw["questions"] or not _are_mappings(raw["questions"]):
        raise CourseError(f"{path.name}: questions must be a list of at least one question.")
    names = [str(question.get("id")) for question in raw["questions"]]
    if len(set(names)) != len(names):
        raise CourseError(f"{path.name}: two questions share an id; ids must be unique.")
    lesson = str(raw["lesson"])
    compiled = [
        _loadable(_Question(q, _places(q, lesson, headings, earlier), values))
        for q in raw["questions"]
    ]
    bank = {"lesson": str(raw["lesson"]), "title": str(raw["title"]), "questions": compiled}
    return json.dumps(bank, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _places(raw: Raw, lesson: str, own: set[str], earlier: Headings | None) -> set[str]:
    """The headings that may refute a question's wrong answers: of the lesson that it is about."""
    if "recalls" not in raw:
        return own
    question, recalled = _Question(raw, own, {}), raw["recalls"]
    is_number = isinstance(recalled, str) and len(recalled) == 2 and recalled.isdecimal()
    question.need(is_number, 'recalls must be a lesson in quotes, like "00"')
    question.need(recalled < lesson, f"recalls names {recalled}, which is no earlier lesson")
    try:
        return earlier(recalled) if earlier else set()
    except CourseError as error:
        raise question.fail(str(error).rstrip(".")) from error


def _are_mappings(questions: object) -> bool:
    return isinstance(questions, list) and all(
        isinstance(question, dict) for question in cast("list[object]", questions)
    )


def _loadable(question: _Question) -> Raw:
    """Compiled, and loaded as learners will load it; whatever its author wrote is told in words."""
    try:
        raw = _compiled(question)
        for field in ("id", "kind", "text"):
            question.need(isinstance(raw[field], str), f"{field} must be text")
        bank_from({"lesson": "", "title": "", "questions": [raw]})
        json.dumps(raw, sort_keys=True, allow_nan=False)
    except CourseError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {str(error)[:200]}"
        raise question.fail(f"a field has the wrong form ({what})") from error
    return raw


def _compiled(question: _Question) -> Raw:
    raw = question.raw
    for field in ("id", "kind", "text"):
        question.need(raw.get(field), f"{field} is missing")
    question.need(raw["kind"] in KINDS, f"the kind must be one of {', '.join(KINDS)}")
    unknown = sorted(set(raw) - FIELDS[raw["kind"]])
    question.need(not unknown, f"a question of kind {raw['kind']} has no {', '.join(unknown)}")
    return raw | _COMPILERS[raw["kind"]](question)


def _one(question: _Question) -> Raw:
    answers = question.raw.get("answers", [])
    question.need(len(answers) >= MIN_ANSWERS, f"give at least {MIN_ANSWERS} answers")
    right = [answer for answer in answers if answer.get("correct")]
    question.need(len(right) == 1, f"exactly one answer is right, not {len(right)}")
    _check_answers(question)
    return {}


def _check_answers(question: _Question) -> None:
    for answer in question.raw["answers"]:
        what = f"the answer {answer.get('text', '')!r}"
        question.need(answer.get("text"), "an answer has no text")
        if answer.get("correct"):
            question.need(answer.get("why"), f"{what} lacks why")
        else:
            question.wrong(answer, what)


def _timeline(question: _Question) -> Raw:
    bars = question.raw.get("bars", [])
    question.need(bars, "a timeline needs bars")
    for bar in bars:
        question.need(set(bar) == {"row", "label", "start", "end"}, f"{bar} is no bar")
        question.need(0 <= bar["start"] < bar["end"], f"{bar['label']!r} must end after it starts")
    return _one(question)


def _many(question: _Question) -> Raw:
    answers = question.raw.get("answers", [])
    question.need(len(answers) >= MIN_ANSWERS, f"give at least {MIN_ANSWERS} answers")
    question.need(sum(bool(a.get("correct")) for a in answers) > 1, "two answers or more are right")
    _check_answers(question)
    _check_rest(question)
    return {}


def _check_rest(question: _Question) -> None:
    question.need(question.raw.get("why"), "why (shown when it is right) is missing")
    rest = question.raw.get("otherwise", {})
    question.need(rest.get("why"), "otherwise.why (shown for any other wrong answer) is missing")
    question.place(rest.get("refuted_by"), "otherwise.refuted_by")


def _number(question: _Question) -> Raw:
    raw, from_sheet = question.raw, "sheet_key" in question.raw
    question.need(("key" in raw) != from_sheet, "give either key or sheet_key")
    _check_rest(question)
    question.need(raw.get("wrong"), "name at least one foreseen wrong number")
    for entry in raw["wrong"]:
        question.wrong(entry, f"the wrong number {entry.get('value')!r}")
    if from_sheet:
        question.values = SHEET_NAMES
    key = question.number(raw.get("sheet_key", raw.get("key")))
    tolerance = raw.get("tolerance", 0.02)
    for entry in raw["wrong"]:
        value = question.number(entry["value"])
        far = abs(value - key) > 2 * tolerance * abs(key)
        question.need(far, f"the wrong number {entry['value']!r} is too near the key")
    if from_sheet:
        return {}
    wrong = [entry | {"value": question.number(entry["value"])} for entry in raw["wrong"]]
    return {"key": key, "wrong": wrong}


def _order(question: _Question) -> Raw:
    items = question.raw.get("items", [])
    question.need(len(items) >= MIN_ANSWERS, f"give at least {MIN_ANSWERS} items")
    _check_rest(question)
    return {"wrong": [_indexed(question, entry, items) for entry in question.raw.get("wrong", [])]}


def _indexed(question: _Question, entry: Raw, items: list[str]) -> Raw:
    question.wrong(entry, "a wrong order")
    question.need(sorted(entry["value"]) == sorted(items), "a wrong order must hold all items")
    return entry | {"value": [items.index(item) for item in entry["value"]]}


def _match(question: _Question) -> Raw:
    pairs = question.raw.get("pairs", {})
    question.need(len(pairs) >= MIN_ANSWERS, f"give at least {MIN_ANSWERS} pairs")
    _check_rest(question)
    lefts, rights = list(pairs), list(pairs.values())
    wrong: list[Raw] = []
    for entry in question.raw.get("wrong", []):
        question.wrong(entry, "a wrong pairing")
        question.need(
            set(entry["value"]) == set(lefts), "a wrong pairing must pair every left text"
        )
        wrong.append(entry | {"value": [rights.index(entry["value"][left]) for left in lefts]})
    return {"pairs": list(zip(lefts, rights, strict=True)), "wrong": wrong}


_COMPILERS = {
    "one": _one,
    "timeline": _timeline,
    "many": _many,
    "number": _number,
    "order": _order,
    "match": _match,
}
