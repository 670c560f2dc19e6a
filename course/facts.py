"""Figures in prose: each is cited from `facts.yaml`, or the text may not hold it.

A paragraph cites with `[fact-id]`; the builder links it to a list of sources at the notebook's end.
Figures that a cell prints stand in no text cell at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course.source import Cell, CourseError, read_mapping

VERDICTS = ("confirmed", "derived", "disputed", "unsourced")
MEANING = {
    "confirmed": "it stands in the source",
    "derived": "we computed it from the source's own numbers",
    "disputed": "sources contradict each other",
    "unsourced": "nobody has shown it; repeated to be examined, not to be believed",
}
_CITATION = re.compile(r"\[([a-z][a-z0-9]*(?:-[a-z0-9]+)+)\](?!\()")
# What is no figure: code, formulas, link targets, names with digits, places in the course, plans.
_NO_FIGURE = re.compile(
    r"```.*?```|`[^`]*`|\$[^$]*\$|\]\([^)]*\)|<[^>]*>"
    r"|\b(?:8|16|32|64)-bit\b|\b[Ll]essons?\s+\d\d(?:(?:,\s+|\s+and\s+|\s+to\s+|–)\d\d)*"
    r"|\b[Ee]xercises?\s+\d+(?:\.\d+)?"
    r"|^\s*\d+\. |\b(?=\w*[A-Za-z])[\w]+(?:[-.][\w]+)*",
    re.DOTALL | re.MULTILINE,
)
_FIGURE = re.compile(r"\d[\d,.]*\d|\d")
PLAN = re.compile(r"^(?:\*\*Minutes|\| *\d* *min)")


@dataclass(frozen=True, slots=True)
class Fact:
    """One entry of `facts.yaml`; `figures` are the numbers that prose may take from it."""

    id: str
    claim: str
    figures: tuple[str, ...]
    source: str
    verdict: str
    derivation: str


Facts = dict[str, Fact]


def read_facts(path: Path) -> Facts:
    """All facts by id; raises `CourseError` naming an entry that lacks something."""
    return {name: _fact(name, entry) for name, entry in read_mapping(path).items()}


def _fact(name: str, entry: Any) -> Fact:
    if not isinstance(entry, dict):
        raise CourseError(f"facts.yaml, {name}: the entry must hold claim, figures and source.")
    missing = [k for k in ("claim", "figures", "source", "verdict", "derivation") if k not in entry]
    if missing:
        raise CourseError(f"facts.yaml, {name}: {', '.join(missing)} is missing.")
    if entry["verdict"] not in VERDICTS:
        raise CourseError(f"facts.yaml, {name}: the verdict must be one of {', '.join(VERDICTS)}.")
    if not _CITATION.fullmatch(f"[{name}]"):
        raise CourseError(f"facts.yaml, {name}: write ids in small letters with a hyphen.")
    figures = tuple(str(figure) for figure in entry["figures"])
    return Fact(
        name, entry["claim"], figures, entry["source"], entry["verdict"], entry["derivation"]
    )


def cited(text: str, facts: Facts) -> list[str]:
    """Ids cited in a text, in order; raises `CourseError` for one that does not exist."""
    found = _CITATION.findall(text)
    for name in found:
        if name not in facts:
            raise CourseError(f"The text cites [{name}], which facts.yaml does not have.")
    return list(dict.fromkeys(found))


def link_citations(text: str, facts: Facts) -> str:
    """Citations as links to the notebook's list of sources."""
    cited(text, facts)
    return _CITATION.sub(lambda m: f"[\\[{m[1]}\\]](#Sources)", text)


def sources_cell(cells: list[Cell], facts: Facts) -> str:
    """The list of sources of everything that the text cells cite; empty if nothing is."""
    text = "\n".join(cell.source for cell in cells if cell.kind == "markdown")
    names = cited(text, facts)
    if not names:
        return ""
    shown = dict.fromkeys(facts[name].verdict for name in names)
    key = "; ".join(f"*{verdict}*: {MEANING[verdict]}" for verdict in shown)
    return "\n".join(
        ["## Sources", "", f"{key}.", "", *(_source_line(facts[name]) for name in names)]
    )


def _source_line(fact: Fact) -> str:
    how = f" How: {fact.derivation}." if fact.derivation else ""
    return f"- **{fact.id}** ({fact.verdict}): {fact.claim} Source: {fact.source}.{how}"


def uncited_figures(text: str, facts: Facts) -> list[str]:
    """Figures in a text cell that no fact cited in the same paragraph holds."""
    return [figure for block in _blocks(text) for figure in _uncited(block, facts)]


def _blocks(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text):
        yield from re.split(r"\n(?=[-*|] ?|\d+\. )", paragraph)


def _uncited(block: str, facts: Facts) -> list[str]:
    if PLAN.match(block):
        return []
    return figures_in(block, facts)


def figures_in(text: str, facts: Facts | None = None) -> list[str]:
    """The figures in a text, but for those of the facts that it cites."""
    names = cited(text, facts) if facts else []
    allowed = {figure for name in names for figure in (facts or {})[name].figures}
    bare = _NO_FIGURE.sub(" ", _CITATION.sub(" ", text))
    return [figure for figure in _FIGURE.findall(bare) if figure not in allowed]
