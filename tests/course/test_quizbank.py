"""The quiz compiler: what it refuses, and that the keys agree with the engine."""

import copy
import json

import pytest
import yaml

from course import build
from course.quizbank import compile_bank
from course.source import CourseError, read_cells
from course.values import SMOLLM2, engine_values

HEADINGS = {"A heading"}
WRONG = {"why": "w", "misconception": "m", "refuted_by": "A heading"}
REST = {"why": "w", "refuted_by": "A heading"}
ONE = {
    "id": "q",
    "kind": "one",
    "text": "?",
    "answers": [
        {"text": "a", "correct": True, "why": "w"},
        {"text": "b", **WRONG},
        {"text": "c", **WRONG},
    ],
}
NUMBER = {
    "id": "n",
    "kind": "number",
    "text": "?",
    "key": "2 * size",
    "why": "w",
    "wrong": [{"value": "size", **WRONG}],
    "otherwise": REST,
}
ORDER = {"id": "o", "kind": "order", "text": "?", "items": ["x", "y", "z"], "why": "w"}
ORDER |= {"otherwise": REST, "wrong": [{"value": ["y", "x", "z"], **WRONG}]}
MATCH = {"id": "m", "kind": "match", "text": "?", "pairs": {"x": "1", "y": "2", "z": "3"}}
MATCH |= {"why": "w", "otherwise": REST}
MATCH["wrong"] = [{"value": {"x": "2", "y": "1", "z": "3"}, **WRONG}]


def compiled(tmp_path, *questions):
    file = tmp_path / "quiz.yaml"
    file.write_text(yaml.safe_dump({"lesson": "00", "title": "t", "questions": list(questions)}))
    return json.loads(compile_bank(file, HEADINGS, {"size": 21.0}))["questions"]


def test_keys_are_computed_and_texts_become_indices(tmp_path):
    number, order, match = compiled(tmp_path, NUMBER, ORDER, MATCH)
    assert number["key"] == 42.0 and number["wrong"][0]["value"] == 21.0
    assert order["wrong"][0]["value"] == [1, 0, 2]
    assert match["wrong"][0]["value"] == [1, 0, 2] and match["pairs"][0] == ["x", "1"]


def broken(question, change):
    made = copy.deepcopy(question)
    change(made)
    return made


@pytest.mark.parametrize(
    ("question", "change", "complaint"),
    [
        (ONE, lambda q: q.pop("text"), "text is missing"),
        (ONE, lambda q: q.update(kind="essay"), "kind must be one of"),
        (ONE, lambda q: q.update(extra=[]), "has no extra"),
        (ONE, lambda q: q["answers"].pop(), "at least 3 answers"),
        (ONE, lambda q: q["answers"][1].update(correct=True), "exactly one answer is right"),
        (ONE, lambda q: q["answers"][1].pop("misconception"), "lacks misconception"),
        (ONE, lambda q: q["answers"][1].update(refuted_by="Nowhere"), "'Nowhere'"),
        (NUMBER, lambda q: q.update(key="len('x')"), "may not contain"),
        (NUMBER, lambda q: q.update(key="2 * length"), "unknown name 'length'"),
        (NUMBER, lambda q: q.update(key="__import__('os').system('true')"), "may not contain"),
        (NUMBER, lambda q: q["wrong"][0].update(value=42.1), "too near the key"),
        (NUMBER, lambda q: q.update(wrong=[]), "foreseen wrong number"),
        (NUMBER, lambda q: q.update(sheet_key="prefill_tok_s"), "either key or sheet_key"),
        (ORDER, lambda q: q["wrong"][0].update(value=["x", "y"]), "must hold all items"),
        (MATCH, lambda q: q["pairs"].pop("z"), "at least 3 pairs"),
        (MATCH, lambda q: q.pop("otherwise"), "otherwise.why"),
    ],
)
def test_incomplete_questions_are_refused_by_name(tmp_path, question, change, complaint):
    with pytest.raises(CourseError, match="quiz.yaml, question") as caught:
        compiled(tmp_path, broken(question, change))
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("question", "change"),
    [
        (ONE, lambda q: q.update(answers=5)),
        (ONE, lambda q: q.update(answers=["a", "b", "c"])),
        (ONE, lambda q: q.update(answers=None)),
        (ONE, lambda q: q.update(kind=["one"])),
        (ONE, lambda q: q["answers"][1].update(refuted_by=["A heading"])),
        (ONE, lambda q: q.update(text={1: 2, "a": 3})),
        (ONE, lambda q: q.update(id=["q"])),
        (NUMBER, lambda q: q.update(key=[1])),
        (NUMBER, lambda q: q.update(key=float("inf"))),
        (NUMBER, lambda q: q.update(key=float("nan"))),
        (NUMBER, lambda q: q.update(tolerance="narrow")),
        (NUMBER, lambda q: q.update(wrong=[7])),
        (NUMBER, lambda q: q.update(otherwise="no")),
        (ORDER, lambda q: q.update(items="abc")),
        (ORDER, lambda q: q["wrong"][0].update(value=[1, "x", None])),
        (MATCH, lambda q: q.update(pairs=["x", "y", "z"])),
        (MATCH, lambda q: q["wrong"][0]["value"].update(x="9")),
        (ONE | {"kind": "timeline"}, lambda q: q.update(bars=[{"row": 1}])),
        (ONE | {"kind": "timeline"}, lambda q: q.update(bars=7)),
    ],
)
def test_odd_questions_are_refused_by_name_too(tmp_path, question, change):
    with pytest.raises(CourseError, match="quiz.yaml, question") as caught:
        compiled(tmp_path, broken(question, change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "must hold lesson"),
        ("[1, 2]", "must hold lesson"),
        ("a: [", "quiz.yaml: while parsing"),
        ("[" * 5000, "quiz.yaml: "),
        ("lesson: '00'\ntitle: t\nquestions: {}\n", "at least one question"),
        ("lesson: '00'\ntitle: t\nquestions: []\n", "at least one question"),
        ("lesson: '00'\ntitle: t\nquestions: 5\n", "at least one question"),
        ("lesson: '00'\ntitle: t\nquestions: [1, 2]\n", "at least one question"),
        ("lesson: '00'\ntitle: t\n", "questions is missing"),
    ],
)
def test_odd_files_are_refused_in_one_sentence(tmp_path, text, complaint):
    (tmp_path / "quiz.yaml").write_text(text)
    with pytest.raises(CourseError, match="quiz.yaml") as caught:
        compile_bank(tmp_path / "quiz.yaml", HEADINGS, {})
    assert complaint in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(CourseError, match="quiz.yaml"):
        compile_bank(tmp_path / "nothing" / "quiz.yaml", HEADINGS, {})


def test_two_questions_may_not_share_an_id(tmp_path):
    with pytest.raises(CourseError, match="unique"):
        compiled(tmp_path, ONE, ONE)


def test_every_lesson_has_eight_questions_and_places_exist(root):
    for folder in build.lesson_folders(root / "course"):
        bank = yaml.safe_load((folder / "quiz.yaml").read_text())
        assert len(bank["questions"]) >= 8
        assert bank["lesson"] == folder.name[:2]
        assert build.headings(read_cells(folder / "lesson.py"))


def test_figures_in_question_texts_agree_with_the_engine(root):
    text = (root / "course/lessons/00_your_machine/quiz.yaml").read_text()
    assert f"{SMOLLM2.num_parameters:,}" in text
    assert engine_values()["weight_bytes_fp32"] == 4 * SMOLLM2.num_parameters


@pytest.mark.slow
def test_the_keys_use_the_configuration_that_the_engine_loads():
    from dataclasses import replace

    from minipd.model.load import load

    loaded = load("smollm2-135m").config
    assert replace(loaded, rms_norm_eps=SMOLLM2.rms_norm_eps) == SMOLLM2
