"""The checks of all exercises, one module per lesson; they hold expected values, no solutions."""

from __future__ import annotations

import importlib
import pkgutil

from minipd.lab.hints import Exercise


def _all_exercises() -> dict[str, Exercise]:
    """Every exercise of the modules `lesson_NN`, in the order of the lessons."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name.startswith("lesson_"))
    lessons = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return {task.id: task for lesson in lessons for task in lesson.EXERCISES}


EXERCISES: dict[str, Exercise] = _all_exercises()


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
        raise UnknownExerciseError(f"Lesson {lesson} has no exercises; choose one of {lessons}.")
    return found
