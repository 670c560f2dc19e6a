"""Lesson 05's helpers: the board of blocks, the hunt for counterexamples, who fits."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
from hypothesis import strategies as st

from minipd import LLM
from minipd.lab import paging
from minipd.lab.block_tables import (
    BLOCK_SIZE,
    NUM_BLOCKS,
    Board,
    BoardView,
    board_html,
    board_text,
    play,
)
from minipd.lab.hunting import hunt, named_blocks, smallest_failure, two_answers

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"n": st.integers(0, 50)}


def holds_below_ten(answer, n):
    assert answer(n) < 10, "too large"


def test_a_hunt_finds_the_smallest_case_and_the_same_one_each_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = [smallest_failure(holds_below_ten, lambda n: n, SIZES) for _ in range(2)]
    assert [str(one) for one in found] == ["n=10: too large"] * 2
    assert smallest_failure(holds_below_ten, lambda n: 0, SIZES) is None
    assert list(tmp_path.iterdir()) == [], "a hunt leaves no file behind"


def test_a_hunt_tells_crashes_stubs_and_success_in_words(capsys):
    def crashing(n):
        return 1 // n

    def stub(n):
        raise NotImplementedError("waiting")

    def right(n):
        return 0

    for answer in (crashing, stub, right):
        hunt(holds_below_ten, answer, **SIZES)
    told = capsys.readouterr().out
    assert "crashing is broken" in told and "n=0: ZeroDivisionError" in told
    assert "Nothing to test yet" in told
    assert "right held in all 300 cases" in told


def test_named_blocks_and_two_answers_are_sound():
    assert list(named_blocks([1, 2, 3, 4, 5], 2).values()) == [0, 1]
    assert named_blocks([1, 2, 3, 4], 2).keys() != named_blocks([9, 9, 3, 4], 2).keys()
    books, first, second = two_answers(shared=2, own=3, written=4)
    assert first.block_ids[:2] == second.block_ids[:2]
    assert not set(first.block_ids[2:]) & set(second.block_ids)
    for block_id, count in enumerate(books.users):
        assert count == sum(block_id in s.block_ids for s in (first, second))
        assert (block_id in books.free) == (count == 0)


@pytest.fixture
def story():
    """Ann and Ben share a beginning, Cem joins, until the blocks run out."""
    board = Board()
    for name in ("Ann", "Ben", "Cem"):
        board.ask(name)
        board.step()
    return board


def test_the_board_shows_sharing_growth_preemption_and_return(story):
    assert [b.state for b in story.blocks()][:2] == ["shared by Ann and Ben"] * 2
    told = ""
    while "gives all of its blocks back" not in told:
        told = story.step()
    assert "Cem" in told and "Cem waits and owns no block." in story.tables()
    story.finish("Ann")
    assert story.blocks()[0].state == "of Ben"
    while "Cem is read again" not in told:
        told = story.step()
    answers = {s.id.split()[0]: s.output_ids for s in story.scheduler.running}
    assert len(answers["Cem"]) >= 5, "the words written before are kept"


def test_the_board_s_words_are_what_each_running_answer_has(story):
    for _ in range(60):
        story.step()
        for sequence in story.scheduler.running:
            for place in range(sequence.num_cached_tokens):
                block = story.words[sequence.block_ids[place // BLOCK_SIZE]]
                word = story._vocabulary[sequence.token_ids(place, place + 1)[0]]
                assert block[place % BLOCK_SIZE] == word
    assert not story.scheduler.has_work and story.scheduler.allocator.num_used_blocks == 0


def test_a_prompt_of_exactly_one_block_is_read_again_whole():
    told = []
    board = Board()
    for _ in range(2):
        board.ask("Cem")
        told.append(board.step())
        board.finish("Cem")
    assert all("Cem is read (4 tokens; 0 were there already)." in one for one in told)


def test_impatient_hands_get_a_sentence():
    board = Board()
    assert "ask a question first" in board.step()
    assert "no answer under way" in board.finish("Ben")
    board.ask("Ann")
    assert "here already" in board.ask("Ann")


def test_the_board_says_the_same_to_eyes_and_to_terminals(story):
    page, text = board_html(story), board_text(story)
    assert page.count("<b>block ") == NUM_BLOCKS == text.count("  block ")
    for words in ("shared by Ann and Ben", "You are a patient", *story.tables(), story.told):
        assert words in page and words in text
    assert "role='status'" in page and "aria-label='Blocks'" in page
    story.told = "<script>"
    assert "<script>" not in board_html(story)


def test_the_widget_s_buttons_have_names_and_move_the_board():
    view = BoardView(Board())
    buttons = [b for box in view.widget.children[:2] for b in box.children]
    assert all(b.description for b in buttons)
    by_name = {b.description: b for b in buttons}
    by_name["Ask Ann's"].click()
    by_name["One step"].click()
    assert "Ann is read (10 tokens" in view.page.value and "of Ann" in view.page.value


def test_play_prints_each_action(capsys):
    board = play(["Ann", "step", "end Ann"])
    told = capsys.readouterr().out
    assert told.count("\n") == 3 and "end Ann: Ann is done" in told
    assert "free, but remembered" in board_text(board)


def test_who_fits_agrees_with_a_slow_count():
    lengths = [sum(pair) for pair in paging.chat_lengths(100, 8192)]
    assert len(lengths) == 100 and max(lengths) <= 8192
    for size in (1, 16, 128, 8192):
        rounded = [-(-length // size) * size for length in lengths]
        expected = paging.how_many_fit(rounded, 32_768)
        assert paging.how_many_fit_in_blocks(lengths, 32_768, size) == expected
    assert paging.how_many_fit([4, 4, 4], 8) == 2
    assert paging.empty_share([5, 8], 4) == pytest.approx(3 / 16)


def test_a_run_with_little_memory_is_counted_and_says_the_same():
    roomy = LLM("tiny", block_size=4, num_kv_blocks=64)
    tight = LLM(roomy.model, block_size=4, num_kv_blocks=10)
    prompts = [[n, n + 1, n + 2, n + 3] for n in range(1, 5)]
    plenty, little = (paging.serve(llm, prompts, 12) for llm in (roomy, tight))
    assert (plenty.preempted, plenty.read_again, plenty.peak) == (0, 0, 4)
    assert little.preempted > 0 and little.read_again >= little.preempted
    for prompt, expected, ours in zip(prompts, plenty.answers, little.answers):
        assert paging.verdict(roomy.model, prompt, expected, ours) != "DIFFERENT"
    wrong = [(token + 1) % 100 for token in plenty.answers[0]]
    assert paging.verdict(roomy.model, prompts[0], plenty.answers[0], wrong) == "DIFFERENT"
    assert paging.first_token_s(roomy, prompts[0]) > 0
    assert paging.faster_of_two(roomy, prompts, 2).tokens_per_s > 0


def test_the_bars_have_words_and_numbers(monkeypatch):
    pages: list[str] = []
    monkeypatch.setattr(importlib.import_module("minipd.lab.show"), "display_html", pages.append)
    paging.show_fit({"reserved": 4, "blocks": 19})
    assert 'alt="Bars: users at once in the same memory. reserved: 4; blocks: 19."' in pages[0]
    assert "<table>" in pages[0]


def test_the_quoted_figures_stand_in_the_raw_file():
    from course.facts import read_facts

    raw = json.loads((ROOT / "benchmarks" / "raw" / "lesson_05.json").read_text())
    fit, forced = raw["fit"], raw["preemption_s"]
    figures = {str(fit["context"]), str(fit["longest_answer"]), str(fit["blocks"]["16"])}
    figures |= {f"{one['ratio']:.1f}" for one in raw["prefix"].values()}
    figures |= {f"{one['prompt_tokens']:,}" for one in raw["prefix"].values()}
    figures |= {str(forced["tight_preempted"]), str(forced["tight_read_again"])}
    quoted = set(read_facts(ROOT / "course" / "facts.yaml")["lesson-05-recorded"].figures)
    year, _, day = raw["date"].split("-")
    assert quoted - figures == {day, year, "16"}, "the date and the block size"


def test_the_recorded_users_follow_from_the_lengths():
    raw = json.loads((ROOT / "benchmarks" / "raw" / "lesson_05.json").read_text())
    used = [sum(pair) for pair in paging.chat_lengths(200, 8192)]
    assert paging.how_many_fit_in_blocks(used, 32_768, 16) == raw["fit"]["blocks"]["16"]
