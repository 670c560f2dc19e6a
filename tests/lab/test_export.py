"""Quizzes as GIFT and QTI: read back by readers of our own, every question and verdict is there."""

import html
import io
import re
import xml.etree.ElementTree as ET
import zipfile
from dataclasses import replace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from minipd.cli import app
from minipd.lab import export, qti
from minipd.lab.bank import Bank, Choice, Explained, Question, lessons_with_quiz, load_bank
from minipd.lab.gift import gift
from minipd.lab.qti import ExportError, qti_source, qti_zip

BANKS = [load_bank(lesson) for lesson in lessons_with_quiz()]
banks = pytest.mark.parametrize("bank", BANKS, ids=lambda bank: bank.lesson)
NASTY = "a~b=c#d{e}f:g\\h [x](y) *z* _u_ `v` 50% -> é"


# -- GIFT, read as Moodle reads it ------------------------------------------------------------


def hidden(text):
    """Escaped signs put out of the way, as a reader does before it looks for its marks."""
    return re.sub(r"\\([~=#{}:\\])", lambda m: f"\0{ord(m[1])};", text)


def shown(text):
    return re.sub(r"\0(\d+);", lambda m: chr(int(m[1])), text).strip()


def split_feedback(text):
    answer, _, said = text.partition("#")
    return shown(answer), shown(said)


def read_answers(body):
    """Kind and answers: (weight in percent, text, feedback) each, or pairs."""
    body, _, general = body.partition("####")
    body = body.strip()
    if not body:
        return "essay", [], shown(general)
    if body.startswith("#"):
        numbers, _, other = body[1:].partition("~")
        found = [one for one in numbers.split("=") if one.strip()]
        return "number", [read_one("=" + one) for one in found] + [split_feedback(other)], general
    marks = re.findall(r"[=~][^=~]+", body)
    if all("->" in mark for mark in marks):
        pairs = [tuple(shown(side) for side in mark[1:].split("->")) for mark in marks]
        return "match", pairs, shown(general)
    return "choice", [read_one(mark) for mark in marks], shown(general)


def read_one(mark):
    weight = re.match(r"[=~]%(-?[\d.]+)%", mark)
    share = float(weight[1]) if weight else 100.0 * (mark[0] == "=")
    return share, *split_feedback(mark[weight.end() if weight else 1 :])


def read_gift(text):
    lines = [line for line in text.split("\n") if not line.startswith(("//", "$CATEGORY"))]
    blocks = [block for block in "\n".join(lines).split("\n\n") if block.strip()]
    return dict(read_question(hidden(block)) for block in blocks)


def read_question(block):
    found = re.fullmatch(r"\s*::(.*?)::\[html\](.*?)\{(.*)\}\s*", block, re.DOTALL)
    assert found, block
    return shown(found[1]), (shown(found[2]), *read_answers(found[3]))


@banks
def test_every_question_comes_back_from_gift(bank):
    made = gift(bank)
    back = read_gift(made.text)
    assert list(back) == [f"{bank.lesson} {question.id}" for question in bank.questions]
    for question, (text, kind, answers, _) in zip(bank.questions, back.values(), strict=True):
        assert export.whole_text(question).replace("$", "") in re.sub(r"\\[()]", "", text)
        check_gift(question, kind, answers)
    assert f"$CATEGORY: minipd/lesson {bank.lesson}\n" in made.text


def check_gift(question, kind, answers):
    match question.kind:
        case "one" | "timeline":
            assert kind == "choice" and sorted(share for share, *_ in answers)[-2:] == [0, 100]
            verdicts = {plainly(text): share == 100 for share, text, _ in answers}
            assert verdicts == {plainly(c.text): c.correct for c in question.choices}
        case "many":
            assert abs(sum(share for share, *_ in answers if share > 0) - 100) < 1e-3
            assert all(share == -100 or share > 0 for share, *_ in answers)
        case "number":
            check_gift_number(question, kind, answers)
        case "order":
            places = {left: int(right.split()[0]) - 1 for left, right in answers}
            assert {plainly(item): i for i, item in enumerate(question.items)} == {
                plainly(left): place for left, place in places.items()
            }
        case "match":
            assert len(answers) == len(question.pairs) and kind == "match"


def plainly(text):
    return export.plain(re.sub(r"\\[()]", "", text).replace("&rarr;", "->"))


def check_gift_number(question, kind, answers):
    if question.sheet_key:
        assert kind == "essay"
        return
    *numbers, (star, otherwise) = answers
    assert kind == "number" and star == "" and otherwise.startswith("Not yet.")
    values = [[float(part) for part in text.split(":")] for _, text, _ in numbers]
    expected = [question.key, *(wrong.value for wrong in question.wrong)]
    for (value, margin), known in zip(values, expected, strict=True):
        assert value == pytest.approx(known, rel=1e-11)
        assert margin == pytest.approx(abs(known) * question.tolerance, rel=1e-11)
    assert [share for share, *_ in numbers] == [100, *[0] * len(question.wrong)]


def nasty_bank():
    choices = [Choice(f"{n}{NASTY}", n == 1, Explained(f"why {n} {NASTY}")) for n in range(3)]
    pairs = tuple((f"{n} {NASTY}", f"{n} & {NASTY}") for n in range(3))
    rest = Explained("look again")
    return Bank(
        "09",
        f"Title {NASTY}",
        (
            Question("one", "one", f"What? {NASTY} $x^2$", "", choices=tuple(choices)),
            Question("match", "match", "Which?", "so", pairs=pairs, otherwise=rest),
            Question("order", "order", "Order?", "so", items=("a", NASTY, "c"), otherwise=rest),
            Question("number", "number", "Tiny?", "so", key=2e-6, otherwise=rest),
        ),
    )


def test_signs_that_mean_something_to_gift_come_back_as_they_were():
    back = read_gift(gift(nasty_bank()).text)
    text, _, answers, _ = back["09 one"]
    arrow = NASTY.replace("->", "&rarr;")
    assert text == f"What? {arrow} \\(x^2\\)"
    assert (100.0, f"1{arrow}", f"Correct. why 1 {arrow}") in answers
    assert back["09 match"][2][0] == (f"0 {arrow}", f"0 & {arrow}")
    assert back["09 number"][2][0][1] == "0.000002:0.00000004"


def test_a_percent_sign_at_the_front_is_no_weight():
    choices = tuple(Choice(f"%5{n}% of it", n == 0, Explained("w")) for n in range(3))
    bank = Bank("09", "t", (Question("q", "one", "?", "", choices=choices),))
    answers = read_gift(gift(bank).text)["09 q"][2]
    assert {share for share, *_ in answers} == {0, 100}
    assert {html.unescape(text) for _, text, _ in answers} == {f"%5{n}% of it" for n in range(3)}


# -- QTI, read from the zip -------------------------------------------------------------------


def items_of(content):
    """Each item of the assessment: its kind, and the texts and values in it."""
    with zipfile.ZipFile(io.BytesIO(content)) as made:
        assert "imsmanifest.xml" in made.namelist()
        name = next(n for n in made.namelist() if re.search(r"assessment_[0-9a-f]+\.xml$", n))
        root = ET.fromstring(made.read(name).decode())
    for item in root.findall(".//{*}item"):
        fields = {f[0].text: f[1].text for f in item.findall(".//{*}qtimetadatafield")}
        yield item.get("title"), fields["question_type"], item


def qti_kinds(question):
    if question.sheet_key:
        return ["essay_question"]
    kind = {"many": "multiple_answers_question", "number": "numerical_question"}
    number = len(question.pairs) if question.kind == "match" else 1
    return [kind.get(question.kind, "multiple_choice_question")] * number


def straight(text):
    """Plain text with straight quotation marks; Markdown makes curly ones and dots of its own."""
    return export.plain(text).translate(str.maketrans("‘’“”", "''\"\"")).replace("…", "...")


@banks
def test_every_question_comes_back_from_qti(bank):
    pytest.importorskip("text2qti")
    items = list(items_of(qti_zip(qti_source(bank).text)))
    assert [kind for _, kind, _ in items] == [k for q in bank.questions for k in qti_kinds(q)]
    texts = {title: item.findall(".//{*}mattext") for title, _, item in items}
    for question in bank.questions:
        if question.kind in ("one", "many", "timeline"):
            said = straight(" ".join(e.text or "" for e in texts[question.id]))
            assert all(straight(choice.text) in said for choice in question.choices)


def right_texts(item):
    """The texts of the answers that give full marks."""
    labels = {
        label.get("ident"): "".join(e.text or "" for e in label.findall(".//{*}mattext"))
        for label in item.findall(".//{*}response_label")
    }
    paths = [c for c in item.findall(".//{*}respcondition") if c.find("{*}setvar") is not None]
    idents = [e.text for c in paths for e in c.findall(".//{*}varequal")]
    return {re.sub(r"<[^>]+>", "", html.unescape(labels[one])).strip() for one in idents}


def test_signs_that_mean_something_to_markdown_come_back_as_they_were():
    pytest.importorskip("text2qti")
    items = {title: item for title, _, item in items_of(qti_zip(qti_source(nasty_bank()).text))}
    assert right_texts(items["one"]) == {f"1{NASTY}"}
    assert right_texts(items["match 2"]) == {f"1 & {NASTY}"}
    assert right_texts(items["order"]) == {f"a; then {NASTY}; then c"}
    assert len(items["order"].findall(".//{*}response_label")) == 3


def test_numbers_keep_their_range():
    pytest.importorskip("text2qti")
    question = Question("n", "number", "?", "so", key=538.06, tolerance=0.02, unit="MB")
    bank = Bank("09", "t", (question,))
    ((_, _, item),) = items_of(qti_zip(qti_source(bank).text))
    low, high = (float(item.find(f".//{{*}}{tag}").text) for tag in ("vargte", "varlte"))
    assert (low, high) == (pytest.approx(527.2988), pytest.approx(548.8212))
    assert "(Answer in MB.)" in qti_source(bank).text


def test_what_becomes_another_kind_is_said():
    bank = nasty_bank()
    assert len(gift(bank).notes) == 1 and "matching question" in gift(bank).notes[0]
    said = " ".join(qti_source(bank).notes)
    for word in ("whole orders", "3 multiple choices", "number) became an essay"):
        assert word in said


def test_recalled_lessons_and_timelines_are_named_and_sources_left_out():
    bars = BANKS[0].questions[-2].bars
    question = Question("q", "one", "So [some-fact]?", "", bars=bars, recalls="00")
    assert export.whole_text(question).startswith("(From lesson 00.) So? Timeline. ")


# -- the command ------------------------------------------------------------------------------


def run(*words):
    return CliRunner().invoke(app, ["quiz", *words])


def test_the_command_writes_the_file_and_names_what_changed(tmp_path):
    out = tmp_path / "new" / "quiz.gift"
    made = run("00", "--export", "gift", "--out", str(out))
    assert made.exit_code == 0 and "became an essay" in made.output
    assert read_gift(out.read_text())


def test_the_default_name_says_lesson_and_format(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = export.export_quiz("0", "gift", console=Console(file=io.StringIO()))
    assert path.name == "quiz-00.gift" and path.exists()


def test_wrong_options_say_what_to_do(tmp_path):
    assert "--out needs --export" in run("00", "--out", str(tmp_path / "x")).output
    assert run("00", "--export", "word").exit_code == 2
    with pytest.raises(Exception, match="it is a folder"):
        export.export_quiz("00", "gift", tmp_path)


def test_without_text2qti_the_remedy_is_named(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(qti.importlib, "import_module", missing)
    with pytest.raises(ExportError, match="pip install text2qti"):
        qti_zip("")


def test_what_text2qti_refuses_is_told_in_one_sentence():
    pytest.importorskip("text2qti")
    with pytest.raises(ExportError, match="text2qti cannot express this quiz") as caught:
        qti_zip("Quiz title: t\n\n1. a\na) b\n")
    assert "\n" not in str(caught.value)


def test_two_foreseen_orders_need_no_other():
    question = next(q for q in BANKS[0].questions if q.kind == "order")
    wrong = replace(question.wrong[0], value=(1, 0, 2, 3))
    found = export.orders(replace(question, wrong=(question.wrong[0], wrong)))
    assert len(found) == 3 and [c.correct for c in found] == [True, False, False]
