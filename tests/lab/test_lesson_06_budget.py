"""What lesson 06 calls: the plan of a budget with its dial, and reading in pieces."""

import importlib

import pytest

from minipd.lab import budget_dial, reading_in_pieces
from minipd.lab.budget_dial import StepBar, pass_time, plan_steps
from minipd.lab.reading_in_pieces import Pieces
from minipd.measure.contest import Cores
from minipd.measure.demo import Phases
from minipd.model.load import load
from minipd.sched.colocated import Chunked

PASSES = {1: 0.05, 64: 0.1, 512: 1.0}
UNPINNED = Cores((), 1)


@pytest.fixture(scope="module")
def model():
    return load("tiny")


@pytest.fixture
def shown(monkeypatch):
    pages = []
    monkeypatch.setattr(importlib.import_module("minipd.lab.show"), "display_html", pages.append)
    return pages


def rows_of(table):
    return list(zip(*table.values(), strict=True))


# -- the dial ----------------------------------------------------------------------------------


def test_time_of_a_pass_is_linear_between_measured_sizes():
    assert pass_time(PASSES, 1) == 0.05
    assert pass_time(PASSES, 288) == pytest.approx(0.55)
    assert pass_time(PASSES, 960) == pytest.approx(1.9)  # along the last slope


def test_a_plan_reads_everything_and_keeps_to_its_budget():
    for budget, pieces in ((64, 9), (512, 2), (16, 37), (2, 512), (1, 512)):
        plan = plan_steps(PASSES, budget, 512, writers=2)
        assert plan.num_pieces == pieces
        assert sum(step.read_tokens for step in plan.steps) == 512
        assert all(step.read_tokens + 2 <= max(budget, 3) for step in plan.steps)


def test_a_plan_cuts_a_document_as_the_engine_s_scheduler_does(model):
    from minipd import LLM, SamplingParams
    from minipd.sched.limits import Limits

    llm = LLM(model, policy=Chunked, limits=Limits(max_batch_tokens=20))
    for n in range(2):
        llm.submit([5 + n] * 4, SamplingParams(max_tokens=30, ignore_eos=True))
    llm.step()
    llm.submit(list(range(10, 110)), SamplingParams(max_tokens=2, ignore_eos=True))
    while llm.scheduler.has_work:
        llm.step()
    read = [e.data["prefill_tokens"] for e in llm.timeline if e.kind == "step"][1:]
    planned = plan_steps(PASSES, 20, 100, writers=2)
    assert [n for n in read if n] == [s.read_tokens for s in planned.steps if s.read_tokens]


def test_a_plan_knows_the_longest_wait_and_the_first_token():
    plan = plan_steps({1: 0.1, 1001: 10.1}, budget=102, document_tokens=300, writers=2)
    assert plan.undisturbed_s == pytest.approx(0.11)
    assert plan.longest_s == pytest.approx(0.1 + 101 * 0.01)
    assert plan.ttft_s == pytest.approx(3 * plan.longest_s)
    assert plan.longest_tokens == pytest.approx(1.11 / 0.11)
    assert rows_of(budget_dial.plan_table([plan]))[0][:2] == (102, 3)


def test_passes_are_measured_for_every_size(model):
    passes = budget_dial.measure_passes(model, UNPINNED, (1, 16), rounds=1)
    assert list(passes) == [1, 16] and min(passes.values()) > 0
    assert budget_dial.reading_speed(model, UNPINNED, 16) > 0


def test_steps_have_words_and_numbers(shown, monkeypatch):
    monkeypatch.setattr(budget_dial, "show", importlib.import_module("minipd.lab.show").show)
    steps = [StepBar(0, 1, 0, 2), StepBar(1, 4, 30, 2), StepBar(4, 6, 9, 0)]
    budget_dial.show_steps(steps)
    assert "3 steps, one bar each. 2 of them read, 39 tokens in all" in shown[0]
    assert "takes 3000 ms, reads 30 tokens and writes for 2" in shown[0]
    assert "answers written" in shown[0] and "<img alt=" in shown[0]


def test_moving_the_dial_changes_picture_and_words():
    dial = budget_dial.make_dial(PASSES)
    controls, words, picture = dial.children
    budget, writers = controls.children
    before = picture.value
    budget.value, writers.value = 16, 4
    assert "Budget 16: the document is read in 43 pieces" in words.value
    assert "aria-live='polite'" in words.value and picture.value != before
    assert '<img alt="Budget 16' in picture.value
    assert budget.tooltip and writers.tooltip


# -- reading in pieces -------------------------------------------------------------------------


def test_notes_fetched_again_by_counting():
    assert reading_in_pieces.reread_tokens(8, 2) == 0 + 2 + 4 + 6
    assert reading_in_pieces.reread_tokens(512, 512) == 0
    four_times = reading_in_pieces.reread_tokens(8192, 64) / reading_in_pieces.reread_tokens(
        2048, 64
    )
    assert four_times == pytest.approx(16, rel=0.05)


def test_weights_are_fetched_once_for_every_pass_but_the_first(model):
    config = model.config
    layers = sum(weight.numel() for layer in model.decoder.layers for weight in layer.parameters())
    again = reading_in_pieces.reread_bytes(config, 64, 16)
    assert again["weights"] == pytest.approx(3 * 4 * layers, rel=0.01)
    assert again["notes"] == 96 * config.kv_bytes_per_token(4)


def test_pieces_are_measured_beside_the_whole(model):
    found = reading_in_pieces.measure_pieces(model, {32: (8, 16), 64: (16,)}, rounds=2)
    assert [(p.prompt_tokens, p.piece_tokens) for p in found] == [(32, 8), (32, 16), (64, 16)]
    for piece in found:
        assert piece.seconds >= piece.first_s and piece.whole_s >= 0
    rows = rows_of(reading_in_pieces.pieces_table(found, model.config))
    assert [row[:2] for row in rows] == [(32, 8), (32, 16), (64, 16)]


def test_the_share_of_fetching_is_its_time_over_a_whole_reading(model):
    piece = Pieces(64, 16, 1.2, 1.0, 0.3, 0.3)
    again = reading_in_pieces.reread_bytes(model.config, 64, 16)
    table = reading_in_pieces.fetching_table([piece], model.config, again["notes"] * 4)
    assert table["notes, at most"] == ["25.0%"] and table["surplus, measured"] == ["+20%"]


def test_the_verdict_follows_the_measurement():
    def said(short, long):
        made = [Pieces(512, 64, 1 + short, 1.0, 0, 0), Pieces(2048, 64, 4 * (1 + long), 4.0, 0, 0)]
        return reading_in_pieces.verdicts(made)[0]

    assert "grows with the length and exceeds a quarter" in said(0.1, 0.4)
    assert "grows with the length and stays within a quarter" in said(0.05, 0.2)
    assert "hardly grows and stays within a quarter" in said(0.1, 0.08)
    assert reading_in_pieces.verdicts([Pieces(512, 64, 1.1, 1.0, 0, 0)]) == []


def test_the_last_step_asks_the_learner_s_function(monkeypatch, capsys, shown):
    monkeypatch.setattr(
        reading_in_pieces, "show_table", importlib.import_module("minipd.lab.show").show_table
    )
    monkeypatch.setattr(reading_in_pieces, "load", lambda name: None)
    monkeypatch.setattr(reading_in_pieces, "measure_phases", lambda *_, **__: Phases(500.0, 20.0))

    def stub(*_):
        raise NotImplementedError

    reading_in_pieces.document_price(stub)
    assert "solve Exercise 1" in capsys.readouterr().out and not shown
    reading_in_pieces.document_price(lambda p, c, read, write, n: (p - c) / read * write / n)
    assert "<td" in shown[0] and "40" in shown[0] and "20" in shown[0]
