"""The checks of all exercises, one module per lesson; they hold expected values, no solutions."""

from __future__ import annotations

from minipd.lab.checks.lesson_00 import EXERCISES as _LESSON_00
from minipd.lab.hints import Exercise

EXERCISES: dict[str, Exercise] = {exercise.id: exercise for exercise in (*_LESSON_00,)}


class UnknownExerciseError(ValueError):
    """An exercise or lesson that does not exist; the message lists those that do."""


def exercise(exercise_id: str) -> Exercise:
    """An exercise by its id, like `00.1`."""
    if exercise_id not in EXERCISES:
        known = ", ".join(EXERCISES)
        raise UnknownExerciseError(f"There is no exercise {exercise_id!r}; there are {known}.")
    return EXERCISES[exercise_id]


def lesson_exercises(lesson: str) -> list[Exercise]:
    """The exercises of one lesson, in order."""
    found = [one for one in EXERCISES.values() if one.lesson == lesson]
    if not found:
        lessons = ", ".join(sorted({one.lesson for one in EXERCISES.values()}))
        raise UnknownExerciseError(f"Lesson {lesson} has no exercises; lesson {lessons} does.")
    return found
