"""The rule for figures in prose, on examples and on every text cell of the course."""

import pytest

from course import build
from course.facts import MEANING, Fact, link_citations, read_facts, uncited_figures
from course.glossary import read_glossary, words_cell
from course.source import CourseError, read_cells

FACTS = {"some-source": Fact("some-source", "It is so.", ("27", "8,192"), "a paper", "derived", "")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Decode is 3 times slower.", ["3"]),
        ("It reads 8,192 tokens in 27 steps [some-source].", []),
        ("It reads 8,192 tokens in 28 steps [some-source].", ["28"]),
        ("27 steps.\n\nThe source is elsewhere [some-source].", ["27"]),
        ("- 27 steps\n- more [some-source]", ["27"]),
        ("See lesson 04, lessons 05 and 06, and Exercise 1.2.", []),
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


def test_every_fact_is_used_and_every_text_cell_keeps_the_rule(root):
    facts = read_facts(root / "course" / "facts.yaml")
    texts = [
        cell.source
        for folder in build.lesson_folders(root / "course")
        for name in ("lesson.py", "exercises.py")
        for cell in read_cells(folder / name)
        if cell.kind == "markdown"
    ]
    assert [f for text in texts for f in uncited_figures(text, facts)] == []
    assert [name for name in facts if not any(f"[{name}]" in text for text in texts)] == []
    built = build.build_all(root)
    sources = [text for path, text in built.items() if path.parts[0] == "notebooks"]
    assert all("## Sources" in text for text in sources)


def test_the_freeze_figures_follow_from_their_medians():
    assert round(53.4 / 29.8) == 2
    assert round(845 / 31.4) == 27


def test_new_words_and_verdicts_are_explained_in_the_notebook(root):
    words = read_glossary(root / "course" / "glossary.yaml")
    new = [word for word in words if word.lesson == "00"]
    cells = words_cell(words, "00").split("\n")[2:]
    assert len(cells) == len(new) >= 15 and all(word.ko for word in new)
    assert words_cell(words, "99") == ""
    book = build.build_all(root)[next((root / "notebooks").glob("00_*")).relative_to(root)]
    for term in ("weights", "FLOP", "float32", "MFU", "MBU", "doublings", "spread"):
        assert f"**{term}**" in book
    for verdict in ("confirmed", "derived", "unsourced"):
        assert f"*{verdict}*: {MEANING[verdict]}" in book


def test_a_word_that_lacks_something_is_refused(tmp_path):
    file = tmp_path / "glossary.yaml"
    file.write_text('token: {en: x, lesson: "00"}')
    with pytest.raises(CourseError, match="ko"):
        read_glossary(file)
