"""The same quiz in a terminal: letters and numbers typed, answers remembered all the same."""

from __future__ import annotations

import re
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from minipd.lab.bank import Bank, Question, QuizError, load_bank
from minipd.lab.progress import keep_answer, quiz_record
from minipd.lab.quiz import (
    LETTERS,
    Response,
    grade,
    score_line,
    sheet_numbers,
    sheet_text,
    shuffled,
)
from minipd.lab.svg import bars_table
from minipd.lab.typed import TypedNumberError, read_number

Read = Callable[[str], str]


class _Unclear(ValueError):
    """Something typed that is no answer; the message says what would be."""


def run_quiz(lesson: str, read: Read | None = None, console: Console | None = None) -> bool:
    """Ask every question of a lesson that is not answered yet; True when all are.

    An empty line skips a question, `q` stops. `read` and `console` stand in for the keyboard and
    the screen in tests.
    """
    console = console or Console(highlight=False)
    bank = load_bank(lesson)
    read = read or console.input
    console.print(f"{bank.title}: an empty line skips a question, q stops.", markup=False)
    try:
        still = _open_questions(bank)
        for number, question in enumerate(bank.questions, 1):
            if question in still:
                console.print()
                _ask(bank.lesson, f"{number} of {len(bank.questions)}", question, read, console)
    except (EOFError, StopIteration):
        console.print()
    console.print(score_line(bank), markup=False)
    kept = quiz_record(bank.lesson)
    return all(kept.get(q.id, {}).get("correct") for q in bank.questions)


def _open_questions(bank: Bank) -> list[Question]:
    kept = quiz_record(bank.lesson)
    still = [q for q in bank.questions if not kept.get(q.id, {}).get("correct")]
    return still or list(bank.questions)


def _ask(lesson: str, place: str, question: Question, read: Read, console: Console) -> None:
    again = f" (From lesson {question.recalls}.)" if question.recalls else ""
    console.print(f"Question {place}.{again} {plain(question.text)}", markup=False)
    if own := sheet_text(question):
        console.print(own, markup=False)
    _print_options(question, console)
    while True:
        typed = read(f"{_how_to(question)}: ").strip()
        if not typed:
            return
        if typed.lower() == "q":
            raise StopIteration
        try:
            feedback = grade(
                question, _response(question, typed), sheet_numbers(question.sheet_model)
            )
        except (_Unclear, QuizError) as error:
            console.print(str(error), markup=False)
            if isinstance(error, QuizError):
                return
            continue
        keep_answer(lesson, question.id, correct=feedback.correct)
        console.print(plain(feedback.text), markup=False)
        if feedback.correct:
            return


def plain(text: str) -> str:
    """Text without HTML tags and dollar signs of formulas."""
    return re.sub(r"<[^>]+>|\$", "", text).replace("&nbsp;", " ")


def _print_options(question: Question, console: Console) -> None:
    if question.bars:
        console.print(_rich_table(bars_table(question.bars)))
    for letter, text in zip(LETTERS, _shown(question), strict=False):
        console.print(f"   {letter}. {plain(text)}", markup=False)
    for number, (left, _) in enumerate(question.pairs, 1):
        console.print(f"   {number}: {plain(left)}", markup=False)


def _rich_table(columns: dict[str, list[object]]) -> Table:
    table = Table(*columns)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*(str(value) for value in row))
    return table


def _shown(question: Question) -> list[str]:
    texts = (
        [choice.text for choice in question.choices]
        or list(question.items)
        or [right for _, right in question.pairs]
    )
    return [texts[index] for index in shuffled(question, len(texts))]


def _how_to(question: Question) -> str:
    match question.kind:
        case "one" | "timeline":
            return "Your letter"
        case "many":
            return "All letters that are right, like AC"
        case "number":
            return f"Your number{f' ({question.unit})' if question.unit else ''}"
        case "order":
            return "All letters, first one first, like BAC"
        case "match":
            return "The letters for 1, 2, 3..., like BAC"


def _response(question: Question, typed: str) -> Response:
    if question.kind == "number":
        try:
            return read_number(typed)
        except TypedNumberError as error:
            raise _Unclear(str(error)) from None
    indices = _letters(question, typed)
    match question.kind:
        case "many":
            return frozenset(indices)
        case "one" | "timeline":
            if len(indices) != 1:
                raise _Unclear("Type one letter.")
            return indices[0]
        case _:
            if sorted(indices) != sorted(range(len(_shown(question)))):
                raise _Unclear("Type each letter once.")
            return tuple(indices)


def _letters(question: Question, typed: str) -> list[int]:
    order = shuffled(question, len(_shown(question)))
    known = {LETTERS[place]: index for place, index in enumerate(order)}
    letters = re.sub(r"[\s,]", "", typed).upper()
    unknown = sorted(set(letters) - set(known))
    if unknown:
        raise _Unclear(f"Use the letters {''.join(known)}; {''.join(unknown)} is not one of them.")
    return [known[letter] for letter in letters]
