"""The syllabus and the instructor guide list every lesson, in the lessons' own words."""

import re

import pytest

from course import build
from course.overview import (
    BEGIN,
    END,
    GUIDE,
    SYLLABUS,
    check_teaching,
    guide_index,
    read_head,
    syllabus_table,
    with_section,
)
from course.source import Cell, CourseError, read_cells

HEAD = """# Lesson 03: A title

**The question:** what holds
it back [some-source]?

**Minutes:** 45, and 15 for the quiz.

**You need:** lesson 02 | a calculator.

**Afterwards you can**

- say one thing
  in two lines;
- do another.

- even after a blank line

Run the cells from top to bottom.

- this is no aim"""


def head_of(text):
    return read_head("03_a_title", [Cell("markdown", text)])


def test_a_head_cell_becomes_a_row_and_a_link():
    head = head_of(HEAD)
    assert head.question == "what holds it back?"
    assert head.afterwards == (
        "say one thing in two lines",
        "do another",
        "even after a blank line",
    )
    assert syllabus_table([head]).split("\n")[2] == (
        "| 03 A title | What holds it back? | 45, and 15 for the quiz | Lesson 02 \\| a calculator "
        "| say one thing in two lines; do another; even after a blank line |"
    )
    link = "- [Lesson 03: A title](lessons/03_a_title/teaching.md): What holds it back?"
    assert guide_index([head]) == link


def test_the_whole_question_may_be_bold():
    assert head_of(HEAD.replace(":** what", ": what").replace("source]?", "source]?**")) == (
        head_of(HEAD)
    )


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("Lesson 03:", "Lesson 04:", "title `# Lesson 03"),
        ("**The question:**", "Question:", r"\*\*The question:\*\*"),
        ("**Minutes:**", "Minutes:", r"\*\*Minutes:\*\*"),
        ("**You need:**", "Needs:", r"\*\*You need:\*\*"),
        ("**Afterwards you can**", "Then", "Afterwards you can"),
    ],
)
def test_a_head_cell_that_lacks_a_part_is_refused_by_name(old, new, complaint):
    with pytest.raises(CourseError, match=f"03_a_title/lesson.py.*{complaint}"):
        head_of(HEAD.replace(old, new))


def test_a_lesson_that_begins_with_code_lacks_a_title():
    with pytest.raises(CourseError, match="title"):
        read_head("03_a_title", [Cell("code", "1")])


def test_only_the_part_between_the_marks_changes():
    page = f"before\n{BEGIN}\nold\n{END}\nafter"
    assert with_section(GUIDE, page, "new") == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter"
    for lost in (page.replace(BEGIN, ""), page.replace(END, "")):
        with pytest.raises(CourseError, match=r"instructor-guide\.md has lost its marks"):
            with_section(GUIDE, lost, "new")


def test_every_lesson_has_a_teaching_page_a_row_and_a_link(root):
    syllabus, guide = ((root / name).read_text() for name in (SYLLABUS, GUIDE))
    for folder in build.lesson_folders(root / "course"):
        check_teaching(folder)
        head = read_head(folder.name, read_cells(folder / "lesson.py"))
        assert syllabus_table([head]).split("\n")[2] in syllabus
        assert guide_index([head]) in guide
    links = re.findall(r"\]\((lessons/[^)]+)\)", guide)
    assert all((root / "course" / link).is_file() for link in links)


def test_a_missing_or_thin_teaching_page_is_named(tmp_path):
    with pytest.raises(CourseError, match=r"has no teaching\.md"):
        check_teaching(tmp_path)
    (tmp_path / "teaching.md").write_text("50 min, 90 min. Usual mistakes")
    with pytest.raises(CourseError, match="lacks: 180 min, What to listen for, Grading"):
        check_teaching(tmp_path)
