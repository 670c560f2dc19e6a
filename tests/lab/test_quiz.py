"""Grading, remembering, and the two faces of the quiz: buttons and terminal."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from minipd.lab.bank import QuizError, lessons_with_quiz, load_bank, question_from
from minipd.lab.progress import quiz_record
from minipd.lab.quiz import grade, score_line, shuffled
from minipd.lab.quiz_terminal import run_quiz
from minipd.lab.quiz_widget import QuizView
from minipd.measure import sheet

NOTE = {"why": "because", "misconception": "wrong idea", "refuted_by": "Two ceilings"}
REST = {"why": "look again", "refuted_by": "Two ceilings"}
BANK = load_bank("00")
BY_ID = {question.id: question for question in BANK.questions}
OWN = {"prefill_tok_s": 256.0, "decode_tok_s": 10.0}


def right_response(question):
    match question.kind:
        case "one" | "timeline":
            return [choice.correct for choice in question.choices].index(True)
        case "many":
            return frozenset(i for i, choice in enumerate(question.choices) if choice.correct)
        case "number":
            return 20.0 if question.sheet_key else question.key
        case "order":
            return tuple(range(len(question.items)))
        case "match":
            return tuple(range(len(question.pairs)))


@pytest.mark.parametrize("question", BANK.questions, ids=lambda q: q.id)
def test_right_answers_are_right_and_every_foreseen_wrong_one_is_explained(question):
    feedback = grade(question, right_response(question), OWN)
    assert feedback.correct and feedback.text.startswith("Correct. ")
    for index, choice in enumerate(question.choices):
        if not choice.correct:
            chosen = frozenset({index}) if question.kind == "many" else index
            told = grade(question, chosen, OWN)
            assert not told.correct and told.note.why
    for wrong in question.wrong:
        given = tuple(wrong.value) if question.kind in ("order", "match") else None
        if question.kind == "number" and not question.sheet_key:
            given = wrong.value
        if given is not None:
            told = grade(question, given, OWN)
            assert not told.correct and wrong.note.misconception in told.text


def test_lesson_00_uses_every_kind_of_question():
    kinds = {question.kind for question in BANK.questions}
    assert kinds == {"one", "many", "number", "order", "match", "timeline"}
    assert len(BANK.questions) >= 8


def test_a_choice_is_graded_wherever_it_is_shown():
    question = BY_ID["which-phase"]
    order = shuffled(question, len(question.choices))
    assert sorted(order) == [0, 1, 2] and order == shuffled(question, 3)


def test_items_to_order_never_start_in_order():
    for name in "abcdefghijklmnop":
        question = replace(BY_ID["steps"], id=name)
        assert shuffled(question, 4) != [0, 1, 2, 3]


def test_many_needs_all_and_only_the_right_ones():
    question = BY_ID["good-measurement"]
    assert not grade(question, frozenset({0, 1})).correct
    assert "1 more answer is right" in grade(question, frozenset({0, 1})).text
    assert "2 more answers are right" in grade(question, frozenset({0})).text
    told = grade(question, frozenset({0, 3})).text
    assert question.choices[3].note.why in told and "more answer" not in told
    assert not grade(question, frozenset({0, 1, 2, 3})).correct


def test_numbers_have_a_tolerance():
    question = question_from(
        {"id": "n", "kind": "number", "text": "?", "key": 100, "tolerance": 0.05, "why": "w"}
        | {"wrong": [{"value": 50, **NOTE}], "otherwise": REST}
    )
    assert grade(question, 104.9).correct and not grade(question, 105.2).correct
    assert "wrong idea" in grade(question, 51).text
    assert "look again" in grade(question, 7).text


def test_a_key_from_the_sheet_needs_a_line_there():
    question = BY_ID["freeze-on-my-machine"]
    assert grade(question, 20.0, OWN).correct
    with pytest.raises(QuizError, match="bench sheet"):
        grade(question, 20.0, {})


def test_an_unknown_lesson_names_those_that_exist():
    with pytest.raises(QuizError, match="there is one for lesson 00"):
        load_bank("77")
    assert load_bank("0").lesson == "00" and "00" in lessons_with_quiz()


# -- buttons ----------------------------------------------------------------------------------


def view(name):
    made = QuizView(replace(BANK, questions=(BY_ID[name],)))
    return made, made.questions[0]


def press(buttons, description):
    next(b for b in buttons if b.description == description).click()


def test_buttons_grade_remember_and_speak_politely():
    quiz, question = view("which-phase")
    order = shuffled(question.question, 3)
    letters = {index: "ABC"[place] for place, index in enumerate(order)}
    press(question.answer.buttons, f"Answer {letters[1]}")
    assert "Not yet." in question.feedback.value and "refuted" not in question.feedback.value
    assert "role='status'" in question.feedback.value
    assert "aria-live='polite'" in question.feedback.value
    press(question.answer.buttons, f"Answer {letters[0]}")
    assert "Correct." in question.feedback.value and "1 of 1" in quiz.score.value
    kept = quiz_record("00")["which-phase"]
    assert kept == {"tries": 2, "correct": True, "first_try": False}
    again, _ = view("which-phase")
    assert "rightly before" in again.questions[0].feedback.value


def test_many_buttons_say_what_is_chosen():
    _, question = view("good-measurement")
    first = question.answer.buttons[0]
    assert first.description == "A: not chosen"
    first.click()
    assert first.description == "A: chosen"


def test_number_box_takes_a_number_and_refuses_words():
    _, question = view("bytes-per-step")
    question.answer.box.value = "about 500"
    question.answer.read()
    assert "Type a number" in question.answer.note.value and not quiz_record("00")
    question.answer.box.value = "538.06"
    question.answer.read()
    assert "Correct." in question.feedback.value


def test_without_a_sheet_the_widget_says_what_to_do():
    _, question = view("freeze-on-my-machine")
    question.answer.box.value = "20"
    question.answer.read()
    assert "bench sheet" in question.feedback.value and not quiz_record("00")
    rates = {"prefill_tok_s": 256.0, "decode_tok_s": 10.0}
    sheet.append(sheet.SheetLine("m", "smollm2-135m", "float32", 1, **rates))
    question.answer.read()
    assert "Correct." in question.feedback.value


def test_the_line_used_is_the_last_one_of_the_lesson_s_model():
    for model, rate in (("smollm2-135m", 10.0), ("tiny", 99.0)):
        rates = {"prefill_tok_s": 256.0, "decode_tok_s": rate}
        sheet.append(sheet.SheetLine("m", model, "float32", 1, **rates))
    _, question = view("freeze-on-my-machine")
    assert "smollm2-135m" in question.text.value and "decode 10.00" in question.text.value
    question.answer.box.value = "20"
    question.answer.read()
    assert "Correct." in question.feedback.value


def test_a_comma_for_a_point_is_not_read_as_thousands():
    _, question = view("bytes-per-step")
    question.answer.box.value = "538,1"
    question.answer.read()
    assert "like 538.1" in question.answer.note.value and not quiz_record("00")


def test_places_to_look_at_are_links_with_one_mark_at_the_end():
    for name, index, end in (("which-phase", 1, "sentences."), ("good-measurement", 3, "we?")):
        _, question = view(name)
        many = BY_ID[name].kind == "many"
        question.submit(frozenset({index}) if many else index)
        place = BY_ID[name].choices[index].note.refuted_by
        said = question.feedback.value
        assert f'<a href="#{place.replace(" ", "-")}"' in said
        assert f"{end}</a>" in said and said.count("Look again at:") == 1
        assert grade(BY_ID[name], frozenset({index}) if many else index).text.endswith(end)


def test_a_place_in_an_earlier_lesson_is_named_and_not_linked():
    recalling = replace(BY_ID["which-phase"], recalls="00")
    notes = [replace(c, note=replace(c.note, lesson="00")) for c in recalling.choices]
    made = QuizView(replace(BANK, questions=(replace(recalling, choices=tuple(notes)),)))
    question = made.questions[0]
    assert "(From lesson 00.)" in question.text.value
    question.submit(1)
    assert "Look again in lesson 00 at: Two phases in two sentences." in question.feedback.value
    assert "<a " not in question.feedback.value


def test_many_names_the_lesson_too():
    question = BY_ID["good-measurement"]
    rest = replace(question.otherwise, lesson="00")
    told = grade(replace(question, otherwise=rest), frozenset({0}))
    assert "2 more answers are right" in told.text and "Look again in lesson 00 at:" in told.text


def test_order_by_pressing_items_and_starting_again():
    _, question = view("steps")
    question.answer.take(1)
    assert question.answer.buttons[1].disabled
    question.answer.clear()
    for index in range(4):
        question.answer.buttons[index].click()
    assert "Correct." in question.feedback.value


def test_match_by_giving_each_a_partner():
    _, question = view("match-words")
    for left in (0, 1, 2):
        question.answer.pair(left, left)
    assert "Correct." in question.feedback.value


def test_a_timeline_is_drawn_with_words_and_numbers():
    _, question = view("read-this-timeline")
    assert 'alt="Timeline.' in question.text.value and "<table>" in question.text.value


# -- terminal ---------------------------------------------------------------------------------


def ask(*typed):
    lines, out = iter(typed), io.StringIO()

    def read(_):
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    done = run_quiz("00", read, Console(file=out, width=100))
    return done, out.getvalue()


def letter(name, index):
    question = BY_ID[name]
    count = len(question.choices) or len(question.items) or len(question.pairs)
    return "ABCDEFGHIJ"[shuffled(question, count).index(index)]


def test_a_whole_quiz_in_the_terminal():
    rates = {"prefill_tok_s": 256.0, "decode_tok_s": 10.0}
    sheet.append(sheet.SheetLine("m", "smollm2-135m", "float32", 1, **rates))
    typed = []
    for question in BANK.questions:
        response = right_response(question)
        if question.kind == "number":
            typed.append(str(response))
        else:
            indices = [response] if isinstance(response, int) else response
            typed.append("".join(letter(question.id, index) for index in indices))
    done, said = ask(*typed)
    assert "The line used" in said and "prefill 256.0 tokens/s" in said
    assert done and "11 of 11 answered rightly, 11 of them at the first try" in said
    assert said.count("Correct.") == len(BANK.questions)


def test_terminal_says_what_to_type_skips_and_stops():
    wrong, right = letter("which-phase", 1), letter("which-phase", 0)
    done, said = ask("", "z", "AB", "q")
    assert not done
    assert "is not one of them" in said and "Type one letter" in said
    done, said = ask(wrong, right, "q")
    assert "Not yet." in said and "1 of 11" in said
    assert "Question 1 of 11" in said and "Question 2 of 11" in said
    assert "reads your question" not in ask("q")[1]


def test_a_resumed_quiz_keeps_its_numbers():
    ask(letter("which-phase", 0), "q")
    said = ask("q")[1]
    assert "Question 2 of 11" in said and "Question 1 of" not in said


def test_answers_in_the_terminal_show_in_the_notebook():
    ask(letter("which-phase", 0), "q")
    assert score_line(BANK).startswith("Quiz 00: 1 of 11")
