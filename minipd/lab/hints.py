"""Named checks of exercises, and the ladder of three hints that a failed one opens.

A check says what went wrong by its name; each further failure of the same check opens the next
hint: a nudge, then the concept, then nearly the code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from minipd.lab.watch import Watched, raised_text

RUNGS = ("Nudge", "Concept", "Nearly the code")
Answer = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Hints:
    """Three hints for one mistake, from vague to nearly the code."""

    nudge: str
    concept: str
    nearly_code: str

    def up_to(self, rung: int) -> Sequence[tuple[str, str]]:
        """The first `rung` hints (at least one, at most three) with their names."""
        texts = (self.nudge, self.concept, self.nearly_code)
        return list(zip(RUNGS, texts, strict=True))[: min(max(rung, 1), len(RUNGS))]


@dataclass(frozen=True, slots=True)
class Check:
    """One question asked of the learner's answer; `holds` returns False or raises if it fails."""

    name: str
    says: str
    holds: Callable[[Answer], bool]
    hints: Hints


@dataclass(frozen=True, slots=True)
class Exercise:
    """One exercise: the name it must define and the checks in the order they are asked.

    Checks for a particular mistake stand before general ones, so that the hint names the mistake.
    """

    id: str
    title: str
    defines: str
    checks: Sequence[Check]
    time_limit_s: float = 60.0

    @property
    def lesson(self) -> str:
        return self.id.split(".")[0]


class NotDoneYet(Exception):
    """The exercise still holds its stub; carries the stub's friendly sentence."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The first check that failed: what the learner's code raised, or what it returned."""

    check: Check
    raised: str = ""
    got: str = ""


def first_failure(exercise: Exercise, answer: Answer) -> Failure | None:
    """The first check that does not hold; raises `NotDoneYet` for an untouched stub."""
    for check in exercise.checks:
        watched = Watched(answer, exercise.defines)
        try:
            if not check.holds(watched):
                return Failure(check, got=watched.got)
        except NotImplementedError as error:
            raise NotDoneYet(str(error)) from error
        except (Exception, SystemExit) as error:
            # Otherwise the check itself stumbled over an unfit value: that is a failed check.
            return Failure(check, raised_text(error) if watched.broke else "", watched.got)
    return None


def failure_text(exercise: Exercise, failure: Failure, rung: int) -> str:
    """What the learner reads: which check, what happened, and the hints opened so far.

    Where the code broke off, no check was answered: the error is shown, and no hint beside it.
    """
    if failure.raised:
        return (
            f"Exercise {exercise.id}: your code stopped before it could be checked.\n"
            f"  {failure.raised}\n"
            "  Look at that line first; hints open once the function runs to its end."
        )
    lines = [f"Exercise {exercise.id}, check {failure.check.name!r}: {failure.check.says}"]
    if failure.got:
        lines.append(f"  Yours: {failure.got}.")
    lines += [f"  {name}: {text}" for name, text in failure.check.hints.up_to(rung)]
    if rung < len(RUNGS):
        lines.append("  (Run the check again after a change; the next hint opens if this stays.)")
    return "\n".join(lines)
