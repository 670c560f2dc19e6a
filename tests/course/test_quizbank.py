"""The quiz compiler: what it refuses, and that the keys agree with the engine."""

import ast
import copy
import json

import pytest
import yaml

from course import build
from course.quizbank import compile_bank
from course.source import CourseError, read_cells
from course.values import SMOLLM2, engine_values
from minipd.lab.bank import bank_from, lessons_with_quiz, load_bank
from minipd.lab.keys import evaluate
from minipd.lab.quiz import grade

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
        ("", "must hold names"),
        ("[1, 2]", "must hold names"),
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


def recalling(tmp_path, recalls, lesson="02", earlier=None):
    question = copy.deepcopy(ONE) | {"recalls": recalls}
    for answer in question["answers"][1:]:
        answer["refuted_by"] = "An older heading"
    file = tmp_path / "quiz.yaml"
    file.write_text(yaml.safe_dump({"lesson": lesson, "title": "t", "questions": [question]}))
    found = earlier or {"01": {"An older heading"}, "00": set()}.__getitem__
    return compile_bank(file, HEADINGS, {}, found)


def test_a_question_that_recalls_a_lesson_is_refuted_by_that_lesson_s_headings(tmp_path):
    bank = bank_from(json.loads(recalling(tmp_path, "01")))
    question = bank.questions[0]
    assert question.recalls == "01"
    assert [choice.note.lesson for choice in question.choices] == ["", "01", "01"]
    told = grade(question, 1).text
    assert told.endswith("Look again in lesson 01 at: An older heading.")


@pytest.mark.parametrize(
    ("recalls", "complaint"),
    [
        ("00", "points to 'An older heading', which is no heading of lesson 00"),
        ("02", "no earlier lesson"),
        ("03", "no earlier lesson"),
        (1, "a lesson in quotes"),
        ("1", "a lesson in quotes"),
        (["01"], "a lesson in quotes"),
    ],
)
def test_what_cannot_be_recalled_is_refused_by_name(tmp_path, recalls, complaint):
    with pytest.raises(CourseError, match="quiz.yaml, question 'q'") as caught:
        recalling(tmp_path, recalls)
    assert complaint in str(caught.value)


def test_a_lesson_that_does_not_exist_yet_is_named(tmp_path):
    def earlier(number):
        return build.headings_of_lesson(tmp_path, number)

    with pytest.raises(CourseError, match=r"question 'q': lesson 01 has no lesson\.py yet"):
        recalling(tmp_path, "01", earlier=earlier)
    (tmp_path / "01_old").mkdir()
    (tmp_path / "01_old" / "lesson.py").write_text("# %% [markdown]\n# ## An older heading\n")
    assert "An older heading" in recalling(tmp_path, "01", earlier=earlier)


def test_two_questions_may_not_share_an_id(tmp_path):
    with pytest.raises(CourseError, match="unique"):
        compiled(tmp_path, ONE, ONE)


def test_every_lesson_has_eight_questions_and_places_exist(root):
    for folder in build.lesson_folders(root / "course"):
        bank = yaml.safe_load((folder / "quiz.yaml").read_text())
        assert len(bank["questions"]) >= 8
        assert bank["lesson"] == folder.name[:2]
        assert build.headings(read_cells(folder / "lesson.py"))


def test_every_lesson_but_the_first_recalls_two_questions(root):
    for folder in build.lesson_folders(root / "course")[1:]:
        raw = yaml.safe_load((folder / "quiz.yaml").read_text())["questions"]
        assert sum("recalls" in question for question in raw) >= 2, folder.name


@pytest.mark.parametrize("lesson", lessons_with_quiz())
def test_every_key_is_a_formula_and_comes_out_as_in_the_committed_bank(root, lesson):
    """Worked out anew from the author's file, without the compiler."""
    (folder,) = (root / "course" / "lessons").glob(f"{lesson}_*")
    raw = yaml.safe_load((folder / "quiz.yaml").read_text())["questions"]
    bank = {question.id: question for question in load_bank(lesson).questions}
    assert list(bank) == [question["id"] for question in raw]
    for question in (q for q in raw if q["kind"] == "number"):
        formula = str(question.get("key", question.get("sheet_key")))
        assert any(isinstance(node, ast.BinOp) for node in ast.walk(ast.parse(formula))), formula
        if "key" in question:
            key = evaluate(formula, engine_values())
            assert bank[question["id"]].key == pytest.approx(key, rel=1e-11)
        assert [str(w["value"]) for w in question["wrong"]] == list(
            dict.fromkeys(str(w["value"]) for w in question["wrong"])
        )


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
