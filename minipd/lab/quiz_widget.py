"""The quiz in a notebook: Buttons only, since JupyterLab takes arrow keys from other choices.

Everything works by Tab, Space and Enter; feedback is a polite live region for screen readers.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any, Protocol

from minipd.lab.bank import Bank, Bar, Question, QuizError
from minipd.lab.progress import keep_answer, quiz_record
from minipd.lab.quiz import (
    LETTERS,
    Feedback,
    Response,
    ended,
    grade,
    score_line,
    sheet_numbers,
    sheet_text,
    shuffled,
)
from minipd.lab.show import figure_html
from minipd.lab.svg import bars_alt, bars_svg, bars_table
from minipd.lab.typed import TypedNumberError, read_number
from minipd.lab.widgets import W, button, heading_link, row, status_html

Submit = Callable[[Response], None]


class _View(Protocol):
    """How one kind of question takes its answer."""

    widget: Any


class ChoiceView:
    """One right answer: a list with letters and a button for each letter."""

    def __init__(self, question: Question, submit: Submit) -> None:
        order = shuffled(question, len(question.choices))
        items = "".join(f"<li>{question.choices[index].text}</li>" for index in order)
        text = W.HTMLMath(f"<ol type='A'>{items}</ol>")
        self.buttons = [
            button(f"Answer {LETTERS[place]}", lambda index=index: submit(index))
            for place, index in enumerate(order)
        ]
        self.widget = W.VBox([text, row(self.buttons)])


class ManyView:
    """Several right answers: letter buttons that say whether they are chosen, then a check."""

    def __init__(self, question: Question, submit: Submit) -> None:
        self.order = shuffled(question, len(question.choices))
        self.chosen: set[int] = set()
        items = "".join(f"<li>{question.choices[index].text}</li>" for index in self.order)
        text = W.HTMLMath(f"<ol type='A'>{items}</ol>")
        self.buttons = [button("", lambda index=index: self.toggle(index)) for index in self.order]
        done = button("Check my choice", lambda: submit(frozenset(self.chosen)))
        self.widget = W.VBox([text, row([*self.buttons, done])])
        self._label()

    def toggle(self, index: int) -> None:
        """Choose an answer, or take the choice back."""
        self.chosen ^= {index}
        self._label()

    def _label(self) -> None:
        for place, index in enumerate(self.order):
            state = "chosen" if index in self.chosen else "not chosen"
            self.buttons[place].description = f"{LETTERS[place]}: {state}"


class NumberView:
    """A number to type."""

    def __init__(self, question: Question, submit: Submit) -> None:
        self.submit = submit
        self.note = W.HTML(status_html(""))
        label = f"Your number ({question.unit})" if question.unit else "Your number"
        self.box = W.Text(
            description=label,
            placeholder="like 1250 or 1.25e3",
            style={"description_width": "auto"},
        )
        check = button("Check my number", self.read)
        self.widget = W.VBox([row([self.box, check]), self.note])

    def read(self) -> None:
        """Submit what was typed, or say kindly that it is not a number."""
        try:
            given = read_number(self.box.value)
        except TypedNumberError as error:
            self.note.value = status_html(html.escape(str(error)))
            return
        self.note.value = status_html("")
        self.submit(given)


class OrderView:
    """Items to put in order: press their buttons from first to last."""

    def __init__(self, question: Question, submit: Submit) -> None:
        self.question, self.submit = question, submit
        self.chosen: list[int] = []
        self.buttons = {
            index: button(question.items[index], lambda index=index: self.take(index))
            for index in shuffled(question, len(question.items))
        }
        self.list = W.HTML(status_html("Press the items in order, first one first."))
        again = button("Start again", self.clear)
        self.widget = W.VBox([*self.buttons.values(), self.list, again])

    def take(self, index: int) -> None:
        """Put one item next; the last one submits."""
        self.chosen.append(index)
        self.buttons[index].disabled = True
        names = [html.escape(self.question.items[i]) for i in self.chosen]
        self.list.value = status_html("Your order: " + ", then ".join(names))
        if len(self.chosen) == len(self.question.items):
            self.submit(tuple(self.chosen))

    def clear(self) -> None:
        """Forget the order chosen so far."""
        self.chosen.clear()
        for made in self.buttons.values():
            made.disabled = False
        self.list.value = status_html("Press the items in order, first one first.")


class MatchView:
    """Pairs: for each text on the left, press the letter of its partner."""

    def __init__(self, question: Question, submit: Submit) -> None:
        self.question, self.submit = question, submit
        self.chosen: dict[int, int] = {}
        self.order = shuffled(question, len(question.pairs))
        partners = "".join(f"<li>{question.pairs[index][1]}</li>" for index in self.order)
        self.rows = [self._row(left) for left in range(len(question.pairs))]
        self.widget = W.VBox([W.HTMLMath(f"<ol type='A'>{partners}</ol>"), *self.rows])

    def _row(self, left: int) -> Any:
        text = self.question.pairs[left][0]
        label = W.HTMLMath(f"{text}: no partner yet")
        buttons = [
            button(
                LETTERS[place],
                lambda right=right: self.pair(left, right),
                tooltip=f"{text} goes with {LETTERS[place]}",
            )
            for place, right in enumerate(self.order)
        ]
        return row([*buttons, label])

    def pair(self, left: int, right: int) -> None:
        """Give one left text its partner; when all have one, submit."""
        self.chosen[left] = right
        letter = LETTERS[self.order.index(right)]
        self.rows[left].children[-1].value = f"{self.question.pairs[left][0]}: {letter}"
        if len(self.chosen) == len(self.question.pairs):
            self.submit(tuple(self.chosen[i] for i in range(len(self.question.pairs))))


_VIEWS: dict[str, Callable[[Question, Submit], _View]] = {
    "one": ChoiceView,
    "timeline": ChoiceView,
    "many": ManyView,
    "number": NumberView,
    "order": OrderView,
    "match": MatchView,
}


def bars_html(bars: tuple[Bar, ...]) -> str:
    """A timeline's picture with its alternative text and its table."""
    return figure_html(bars_svg(bars), bars_alt(bars), bars_table(bars)) if bars else ""


class QuestionView:
    """One question with its answer buttons and its feedback."""

    def __init__(
        self, lesson: str, place: str, question: Question, done: Callable[[], None]
    ) -> None:
        self.lesson, self.question, self.done = lesson, question, done
        place += f" (From lesson {question.recalls}.)" if question.recalls else ""
        self.head = f"<p><b>{place}</b> {question.text}</p>{bars_html(question.bars)}"
        self.text = W.HTMLMath(self._whole_text())
        self.answer = _VIEWS[question.kind](question, self.submit)
        self.feedback = W.HTMLMath(status_html(""))
        self.widget = W.VBox([self.text, self.answer.widget, self.feedback])
        if quiz_record(lesson).get(question.id, {}).get("correct"):
            self.feedback.value = status_html("&#10003; You have answered this one rightly before.")

    def _whole_text(self) -> str:
        own = html.escape(sheet_text(self.question))
        return f"{self.head}<p>{own}</p>" if own else self.head

    def submit(self, response: Response) -> None:
        """Grade, keep and tell."""
        self.text.value = self._whole_text()  # a newer line may stand on the sheet by now
        try:
            feedback = grade(self.question, response, sheet_numbers(self.question.sheet_model))
        except QuizError as error:
            self.feedback.value = status_html(html.escape(str(error)))
            return
        keep_answer(self.lesson, self.question.id, correct=feedback.correct)
        self.feedback.value = status_html(feedback_html(feedback))
        self.done()


def feedback_html(feedback: Feedback) -> str:
    """Feedback with a sign before its words (neither needs colour) and a link to the refutation.

    A place in another lesson is named and not linked: its notebook is another page.
    """
    place, text = feedback.note.refuted_by, feedback.text
    if place and not feedback.note.lesson:
        text = text.removesuffix(ended(place)) + heading_link(place)
    return f"{'&#10003;' if feedback.correct else '&#10007;'} {text}"


class QuizView:
    """All questions of a lesson and a line that says how many are done."""

    def __init__(self, bank: Bank) -> None:
        self.bank = bank
        self.score = W.HTML(status_html(""))
        total = len(bank.questions)
        self.questions = [
            QuestionView(bank.lesson, f"Question {i} of {total}.", question, self.update)
            for i, question in enumerate(bank.questions, 1)
        ]
        self.widget = W.VBox([*(view.widget for view in self.questions), self.score])
        self.update()

    def update(self) -> None:
        """Show the score afresh."""
        self.score.value = status_html(html.escape(score_line(self.bank)))
