"""The rule for figures in prose, on examples and on every text cell of the course."""

import re

import pytest

from course import build
from course.facts import MEANING, Fact, cited, link_citations, read_facts, uncited_figures
from course.glossary import read_glossary, words_cell
from course.quizfigures import ungiven_figures
from course.source import CourseError, read_cells, read_mapping
from course.values import engine_values

FACTS = {"some-source": Fact("some-source", "It is so.", ("27", "8,192"), "a paper", "derived", "")}

lessons = pytest.mark.parametrize(
    "folder", build.lesson_folders(build.ROOT / "course"), ids=lambda folder: folder.name
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Decode is 3 times slower.", ["3"]),
        ("It reads 8,192 tokens in 27 steps [some-source].", []),
        ("It reads 8,192 tokens in 28 steps [some-source].", ["28"]),
        ("27 steps.\n\nThe source is elsewhere [some-source].", ["27"]),
        ("- 27 steps\n- more [some-source]", ["27"]),
        ("See lesson 04, lessons 05 and 06, and Exercise 1.2.", []),
        ("See lesson\n04, lessons 05\nand\n06, and Exercise\n1.2.", []),
        ("`pp512 = 400` and an H100 run SmolLM2-135M; $x = 2$.", []),
        ("1. First\n2. Second", []),
        ("**Minutes:** 45, and 30 more.", []),
        ("It costs 1.5 GB.", ["1.5"]),
        ("[a link](https://example.org/2024/07)", []),
        ("```\nx = 3\n```", []),
        ("A rise of 498%.", ["498"]),
    ],
)
def test_figures_need_a_source_in_their_paragraph(text, expected):
    assert uncited_figures(text, FACTS) == expected


def test_an_unknown_citation_is_refused():
    with pytest.raises(CourseError, match="no-such-fact"):
        uncited_figures("Seen [no-such-fact].", FACTS)


def test_citations_become_links_to_the_sources():
    linked = link_citations("Seen [some-source] and [a link](x).", FACTS)
    assert linked == "Seen [\\[some-source\\]](#Sources) and [a link](x)."


def test_a_fact_without_its_source_is_refused(tmp_path):
    file = tmp_path / "facts.yaml"
    file.write_text("my-fact: {claim: x, figures: [], verdict: derived, derivation: ''}")
    with pytest.raises(CourseError, match="source is missing"):
        read_facts(file)


@pytest.fixture(scope="module")
def facts():
    return read_facts(build.ROOT / "course" / "facts.yaml")


@lessons
def test_every_figure_in_prose_has_its_source_or_a_cell(folder, facts):
    for name in ("lesson.py", "exercises.py"):
        texts = [cell.source for cell in read_cells(folder / name) if cell.kind == "markdown"]
        assert [f for text in texts for f in uncited_figures(text, facts)] == [], name
        assert all(cited(text, facts) is not None for text in texts)
    book = (build.ROOT / "notebooks" / f"{folder.name}.ipynb").read_text()
    assert "## Sources" in book


@lessons
def test_every_figure_in_a_quiz_is_posed_worked_out_or_cited(folder, facts):
    raw = read_mapping(folder / "quiz.yaml")
    values = engine_values()
    found = {q["id"]: ungiven_figures(q, facts, values) for q in raw["questions"]}
    assert {name: figures for name, figures in found.items() if figures} == {}


def test_every_fact_is_used(facts):
    folders = build.lesson_folders(build.ROOT / "course")
    names = ("lesson.py", "exercises.py", "quiz.yaml")
    texts = "\n".join((folder / name).read_text() for folder in folders for name in names)
    assert [name for name in facts if f"[{name}]" not in texts] == []


QUESTION = {
    "text": "It reads 20 GB/s, 134,515,008 weights.",
    "key": "(20e9 - 4e9) / size",
    "why": "w",
    "wrong": [{"value": "20e9 / 2", "why": "w"}],
}


@pytest.mark.parametrize(
    ("why", "ungiven"),
    [
        ("Reads 20, or 134.5 million, in 2 steps.", []),
        ("That leaves 16 GB, half of them 10.", []),
        ("It takes 3.2 s, not 3.1.", ["3.1"]),
        ("A rise of 498 %.", ["498"]),
        ("A rise of 27 [some-source].", []),
        ("`x = 77` and $y = 78$", []),
        ("Size is 5,000,000,000.", []),
    ],
)
def test_figures_that_a_question_gives_or_needs(why, ungiven):
    question = QUESTION | {"otherwise": {"why": why, "refuted_by": "Part 99"}}
    assert ungiven_figures(question, FACTS, {"size": 5e9}) == ungiven


def test_the_freeze_figures_follow_from_their_medians():
    assert round(53.4 / 29.8) == 2
    assert round(845 / 31.4) == 27


def test_new_words_and_verdicts_are_explained_in_the_notebook(root):
    words = read_glossary(root / "course" / "glossary.yaml")
    new = [word for word in words if word.lesson == "00"]
    cells = words_cell(words, "00").split("\n")[2:]
    assert len(cells) == len(new) >= 15 and all(word.ko for word in new)
    assert words_cell(words, "99") == ""
    book = build.build_all(root, "00")[next((root / "notebooks").glob("00_*")).relative_to(root)]
    for term in ("weights", "FLOP", "float32", "MFU", "MBU", "doublings", "spread"):
        assert f"**{term}**" in book
    for verdict in ("confirmed", "derived", "unsourced"):
        assert f"*{verdict}*: {MEANING[verdict]}" in book


def test_each_word_is_explained_in_both_languages_and_used_in_its_lesson():
    sources = {f.name[:2]: lesson_words(f) for f in build.lesson_folders(build.ROOT / "course")}
    for word in read_glossary(build.ROOT / "course" / "glossary.yaml"):
        assert word.en.strip() and re.search("[가-힣]", word.ko), word
        assert word.lesson in sources, f"{word.term}: there is no lesson {word.lesson}"
        parts = re.split(r" and |, ", word.term)
        used = [part for part in parts if simple(part) in sources[word.lesson]]
        assert used == parts, f"{word.term} is not used in lesson {word.lesson}"


def lesson_words(folder):
    """What a lesson says, with what the lab says in every lesson about predictions."""
    names = ("lesson.py", "exercises.py", "quiz.yaml")
    lab = (build.ROOT / "minipd" / "lab" / "predict.py").read_text()
    return simple(" ".join([*((folder / name).read_text() for name in names), lab]))


def simple(text):
    """Words alone: no capitals, marks or line ends, so that a phrase is found across lines."""
    return " ".join(re.sub(r"[^\w/%]+", " ", text.lower()).split())


def test_a_word_that_lacks_something_is_refused(tmp_path):
    file = tmp_path / "glossary.yaml"
    file.write_text('token: {en: x, lesson: "00"}')
    with pytest.raises(CourseError, match="ko"):
        read_glossary(file)
