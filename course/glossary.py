"""The course's words, from `glossary.yaml`, and the list of a lesson's new ones in its notebook."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from course.source import CourseError, read_mapping

HEADING = "Words"


@dataclass(frozen=True, slots=True)
class Word:
    """One term, explained in a phrase, with its Korean name; `lesson` is where it is first used."""

    term: str
    en: str
    ko: str
    lesson: str


def read_glossary(path: Path) -> list[Word]:
    """All words in the author's order; raises `CourseError` for an entry that lacks something."""
    try:
        return [Word(term, **entry) for term, entry in read_mapping(path).items()]
    except TypeError as error:
        raise CourseError(f"{path.name}: {error}.") from error


def words_cell(words: list[Word], lesson: str) -> str:
    """The text cell that explains a lesson's new words; empty if it has none."""
    new = [f"- **{word.term}** ({word.ko}): {word.en}." for word in words if word.lesson == lesson]
    return "\n".join([f"## {HEADING}", "", *new]) if new else ""
