"""How far the learner is: exercises and quizzes of each lesson, and what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minipd.lab.bank import lessons_with_quiz, load_bank
from minipd.lab.checks import EXERCISES
from minipd.lab.progress import Record, read_progress
from minipd.paths import course_root


@dataclass(frozen=True, slots=True)
class Standing:
    """One lesson so far: exercises passed by id, quiz questions answered rightly."""

    lesson: str
    passed: tuple[str, ...]
    exercises: tuple[str, ...]
    right: int
    questions: int

    @property
    def begun(self) -> bool:
        return bool(self.passed or self.right)

    @property
    def done(self) -> bool:
        return len(self.passed) == len(self.exercises) and self.right == self.questions

    @property
    def open_exercises(self) -> list[str]:
        return [one for one in self.exercises if one not in self.passed]


def lessons() -> list[str]:
    """Numbers of all lessons that have exercises or a quiz, in order."""
    return sorted({*lessons_with_quiz(), *(task.lesson for task in EXERCISES.values())})


def standing(lesson: str, record: Record | None = None) -> Standing:
    """How far the learner is in one lesson."""
    record = record or read_progress()
    exercises = tuple(task.id for task in EXERCISES.values() if task.lesson == lesson)
    passed = [one for one in exercises if record["exercises"].get(one, {}).get("passed")]
    answers = record["quiz"].get(lesson, {})
    questions = load_bank(lesson).questions if lesson in lessons_with_quiz() else ()
    right = sum(bool(answers.get(question.id, {}).get("correct")) for question in questions)
    return Standing(lesson, tuple(passed), exercises, right, len(questions))


def standings() -> list[Standing]:
    """Every lesson's standing, from one look at the progress file."""
    record = read_progress()
    return [standing(lesson, record) for lesson in lessons()]


def notebook_name(room: str, lesson: str) -> str:
    """A lesson's file in a room of the course, like `00_your_machine.ipynb`; empty without one."""
    root = course_root()
    found = sorted((root / room).glob(f"{lesson}_*.ipynb")) if root else []
    return found[0].name if found else ""


def next_step(lesson: str) -> tuple[str, str]:
    """What comes next after a lesson's notebook, in words, and the file's path from there.

    The path is empty where the next step is in the very notebook.
    """
    here = standing(lesson)
    if here.right < here.questions:
        return f"the quiz at the end of this lesson ({here.right} of {here.questions} so far)", ""
    if here.open_exercises:
        name = notebook_name("exercises", lesson)
        return f"exercise {here.open_exercises[0]}", f"../exercises/{name}" if name else ""
    later = [one for one in lessons() if one > lesson]
    if not later:
        return "nothing: this was the last lesson", ""
    return f"lesson {later[0]}", notebook_name("notebooks", later[0])


def overall_table(all_standings: Sequence[Standing]) -> dict[str, list[str]]:
    """A row for each lesson, as columns by heading."""
    return {
        "lesson": [one.lesson for one in all_standings],
        "exercises passed": [f"{len(s.passed)} of {len(s.exercises)}" for s in all_standings],
        "quiz answered rightly": [f"{s.right} of {s.questions}" for s in all_standings],
        "state": [_state(one) for one in all_standings],
    }


def _state(one: Standing) -> str:
    return "done" if one.done else "begun" if one.begun else "not started"
