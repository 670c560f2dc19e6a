"""Lessons in a real JupyterLab: run all, use them by keyboard, no serious accessibility fault."""

import json
import re

import pytest

from course.build import ROOT
from minipd.lab.bank import load_bank
from minipd.lab.progress import progress_path
from minipd.lab.quiz import shuffled
from tests.course import lab_server

MISSING = lab_server.missing()
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.serial,  # the lesson starts workers on cores of their own
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]
RUN_LIMIT_MS = 900_000  # of a machine that is busy with other things, too


def is_known(fault):
    """The handle of the ipywidgets slider has no name; everything else counts."""
    rule, html = fault
    return rule == "aria-input-field-name" and "noUi-handle" in html


def quiz_cell(page, lesson):
    return page.locator(".jp-CodeCell", has_text=f'quiz("{lesson}")').last


def run_lesson(page, url, name):
    """Open a lesson, run all of it, and see that it ran: no error, pictures with words."""
    from playwright.sync_api import expect

    lab_server.open_notebook(page, url, f"notebooks/{name}.ipynb")
    page.evaluate(lab_server.RUN_ALL)
    first_button = quiz_cell(page, name[:2]).get_by_role("button").first
    expect(first_button).to_be_visible(timeout=RUN_LIMIT_MS)
    assert page.locator(".jp-OutputArea-output[data-mime-type*='error']").count() == 0
    images = page.locator(".jp-OutputArea img")
    assert all(image.get_attribute("alt") for image in images.all())
    return images.count()


def press_answer(page, lesson, question, index, key):
    """Focus the button of one answer and press a key, as a keyboard user does."""
    place = shuffled(question, len(question.choices)).index(index)
    box = quiz_cell(page, lesson).get_by_text(re.compile(re.escape(question.text[:40]))).first
    row = box.locator("xpath=ancestor::*[contains(@class,'widget-vbox')][1]")
    button = row.get_by_role("button", name=f"Answer {'ABCDEF'[place]}")
    button.focus()
    page.keyboard.press(key)
    return row.locator("[role=status]").last


def test_lesson_00_from_opening_to_an_answered_quiz(tmp_path):
    from playwright.sync_api import expect

    lab_server.copy_course(ROOT, tmp_path / "my-course")
    question = load_bank("00").questions[0]
    with (
        lab_server.lab(tmp_path / "my-course", tmp_path / "home") as url,
        lab_server.browser_page() as page,
    ):
        assert run_lesson(page, url, "00_your_machine") >= 3

        status = press_answer(page, "00", question, 1, "Enter")
        expect(status).to_contain_text("Not yet.")
        status.get_by_role("link").click()
        heading = page.locator("h2", has_text=question.choices[1].note.refuted_by)
        expect(heading).to_be_in_viewport()
        status = press_answer(page, "00", question, 0, "Space")
        expect(status).to_contain_text("Correct.")
        kept = json.loads(progress_path().read_text())["quiz"]["00"][question.id]
        assert kept == {"tries": 2, "correct": True, "first_try": False}

        open_guess = page.get_by_role("button", name="The companies sell at a loss")
        open_guess.focus()
        page.keyboard.press("Space")
        expect(page.get_by_text("Kept: The companies sell at a loss").first).to_be_visible()
        shown_already = page.get_by_role("button", name="100 to 300 GFLOP/s")
        shown_already.focus()
        page.keyboard.press("Space")
        expect(page.get_by_text("so none is kept now").first).to_be_visible()

        assert serious_faults(page) == []
        page.screenshot(path=tmp_path / "quiz.png")


def serious_faults(page):
    """What axe-core finds in all outputs, apart from what is known."""
    faults, num_passed = lab_server.axe_faults(page, ".jp-Notebook .jp-OutputArea")
    assert num_passed >= 5, "axe looked at nothing"
    return [fault for fault in faults if not is_known(fault)]


def test_lesson_02_with_its_calculator_and_its_quiz(tmp_path):
    from playwright.sync_api import expect

    lab_server.copy_course(ROOT, tmp_path / "my-course")
    question = load_bank("02").questions[0]
    right = [choice.correct for choice in question.choices].index(True)
    with (
        lab_server.lab(tmp_path / "my-course", tmp_path / "home") as url,
        lab_server.browser_page() as page,
    ):
        assert run_lesson(page, url, "02_the_kv_cache") >= 2

        calculator = page.locator(".jp-OutputArea-output .widget-vbox", has_text="Tokens per user")
        told = calculator.locator("[role=status]")
        expect(told).to_contain_text("10 users with 4,096 tokens each")
        slider = calculator.locator(".widget-slider", has_text="Tokens per user")
        slider.get_by_role("slider").focus()
        for _ in range(8):
            page.keyboard.press("ArrowRight")
        expect(told).to_contain_text("5 users with 8,192 tokens each")
        expect(calculator.locator("img")).to_have_attribute("alt", re.compile("weights 67%"))
        calculator.get_by_label("Model", exact=True).select_option("Llama-2-7B")
        expect(told).to_contain_text("made for at most 4,096 tokens")
        told.scroll_into_view_if_needed()
        page.screenshot(path=tmp_path / "calculator.png")

        status = press_answer(page, "02", question, (right + 1) % len(question.choices), "Enter")
        expect(status).to_contain_text("Not yet.")
        status = press_answer(page, "02", question, right, "Space")
        expect(status).to_contain_text("Correct.")
        kept = json.loads(progress_path().read_text())["quiz"]["02"][question.id]
        assert kept == {"tries": 2, "correct": True, "first_try": False}

        assert serious_faults(page) == []
        status.scroll_into_view_if_needed()
        page.screenshot(path=tmp_path / "quiz.png")
