"""Lesson 07's helpers: the board of a hand-off, spoiled parcels, both ways of serving, the diff."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from minipd.lab import two_pools
from minipd.lab.handoff_board import (
    ACTIONS,
    ARRIVED,
    EMPTY,
    LOST,
    HandOff,
    HandOffView,
    board_html,
    board_table,
    board_text,
    play,
)
from minipd.lab.parcels import FAULTS, arrival, digests_of, judge_all
from minipd.measure.rows import TraceRow
from minipd.model.load import load
from minipd.timeline import Event

ROOT = Path(__file__).resolve().parents[2]
RIGHT = ["reserve", *["layer"] * 4, "manifest"]


@pytest.fixture(scope="module")
def tiny():
    return load("tiny")


def after(tiny, actions):
    handoff = HandOff(tiny)
    for action in actions:
        handoff.act(action)
    return handoff


# -- the board --------------------------------------------------------------------------------


def test_only_a_verified_hand_off_may_be_decoded(tiny):
    for count in range(len(RIGHT)):
        handoff = after(tiny, RIGHT[:count])
        assert "Not yet" in handoff.act("decode") and not handoff.is_committed
    assert "gave token" in after(tiny, RIGHT).act("decode")


def test_a_manifest_is_refused_until_every_layer_has_arrived(tiny):
    for count in range(1, 5):
        told = after(tiny, RIGHT[:count]).act("manifest")
        assert f"Refused: the keys of layer {count - 1} do not match their digest" in told


@pytest.mark.parametrize("lost", range(4))
def test_a_lost_block_is_noticed_in_whatever_layer(tiny, lost):
    layers = ["lose" if n == lost else "layer" for n in range(4)]
    handoff = after(tiny, ["reserve", *layers])
    assert f"keys of layer {lost} do not match" in handoff.act("manifest")
    assert [row[-1] for row in handoff.arrived].count(LOST) == 1


def test_the_board_decodes_what_an_unsplit_engine_would(tiny):
    from minipd import LLM, SamplingParams

    handoff = after(tiny, RIGHT)
    told = [handoff.act("decode") for _ in range(8)]
    tokens = [int(one.split()[-1].rstrip(".")) for one in told if "gave token" in one]
    params = SamplingParams(8, ignore_eos=True)
    expected = LLM(tiny, num_kv_blocks=16).generate([list(handoff.request.prompt_ids)], params)
    assert [handoff.first_token, *tokens] == expected[0].token_ids
    assert told[-1] == "The answer is complete."


def test_impatient_hands_get_a_sentence(tiny):
    handoff = HandOff(tiny)
    assert "Where to?" in handoff.act("layer")
    assert "nothing to verify" in handoff.act("manifest")
    handoff.act("reserve")
    assert "already" in handoff.act("reserve")
    for _ in range(4):
        handoff.act("layer")
    assert "All layers are written" in handoff.act("lose")
    assert "committed" in handoff.act("manifest")
    assert "already" in handoff.act("manifest")
    with pytest.raises(ValueError, match="no action 'fly'"):
        handoff.act("fly")


def test_the_board_says_the_same_to_eyes_and_to_terminals(tiny):
    handoff = after(tiny, ["reserve", "layer", "lose"])
    page, text = board_html(handoff), board_text(handoff)
    columns = list(board_table(handoff).values())[1:]
    cells = [cell for column in columns for cell in column]
    for word, count in ((ARRIVED, 5), (LOST, 1), (EMPTY, 6)):
        assert cells.count(word) == count == page.count(f">{word}<")
        assert word in text
    assert "role='status'" in page and handoff.told in page
    handoff.told = "<script>"
    assert "<script>" not in board_html(handoff)


def test_the_widget_s_buttons_have_names_and_move_the_board(tiny):
    view = HandOffView(HandOff(tiny))
    buttons = {b.description: b for b in view.widget.children[0].children}
    assert list(buttons) == list(ACTIONS.values())
    buttons["Reserve"].click()
    buttons["Write next layer"].click()
    assert ARRIVED in view.page.value and "Layer 0 is written" in view.page.value
    buttons["Start again"].click()
    assert ARRIVED not in view.page.value


def test_play_prints_each_action(capsys):
    assert play(RIGHT).is_committed
    assert capsys.readouterr().out.count("\n") == len(RIGHT)


# -- parcels ----------------------------------------------------------------------------------


def test_each_fault_is_one_that_can_be_seen():
    whole = arrival()
    assert digests_of(whole.store, whole.reserved) == whole.parcel.digests
    for fault in FAULTS[1:]:
        spoiled = arrival(fault)
        found = digests_of(spoiled.store, spoiled.reserved)
        said = (spoiled.parcel.num_layers, spoiled.parcel.block_ids, spoiled.parcel.num_tokens)
        told = (whole.parcel.num_layers, whole.parcel.block_ids, whole.parcel.num_tokens)
        assert found != spoiled.parcel.digests or said != told, fault
    with pytest.raises(ValueError, match="no fault"):
        arrival("rain")


def test_parcels_are_the_same_each_time_and_share_nothing():
    one, other = arrival(), arrival()
    assert one.parcel == other.parcel and torch.equal(one.store.buffer, other.store.buffer)
    one.store.buffer.zero_()
    assert other.store.buffer.any()


def test_judge_all_shows_every_verdict_and_an_untouched_stub():
    told = judge_all(lambda parcel, reserved, num_tokens, store: "")
    assert set(told["your check says"]) == {"accepted"}

    def stub(parcel, reserved, num_tokens, store):
        raise NotImplementedError

    assert set(judge_all(stub)["your check says"]) == {"(nothing yet)"}

    def stops(parcel, reserved, num_tokens, store):
        return str(parcel.digests[0])

    assert judge_all(stops)["your check says"].count("(stopped: IndexError)") == 1


# -- both ways of serving ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(tiny):
    rows = [TraceRow(0.01 * n, 24, 30, "chat") for n in range(2)]
    rows += [TraceRow(0.05, 200, 2, "document"), TraceRow(0.06, 16, 2, "question")]
    return two_pools.serve_both(tiny, rows)


@pytest.mark.slow
def test_the_same_tokens_together_and_apart(served):
    assert served.tokens.num_sequences == 4 and served.tokens.num_different == 0
    for outcome in served.outcomes.values():
        assert not any(outcome.run.leaked_blocks.values())
    assert not [e for e in served.together.run.timeline if e.kind == "committed"]
    assert len([e for e in served.apart.run.timeline if e.kind == "committed"]) == 4


@pytest.mark.slow
def test_both_workers_are_looked_at_and_ended(served):
    assert list(served.workers) == ["worker-0", "worker-1"]
    for memory in served.workers.values():
        assert 0 < memory.private <= memory.rss and memory.uss <= memory.rss
    assert two_pools.memory_of_workers() == {}
    assert abs(served.copies) * served.weight_bytes < 200e6, "hardly more than empty programs"


@pytest.mark.slow
def test_tables_and_picture_have_words_for_both_runs(served):
    both = [two_pools.TOGETHER, two_pools.APART]
    assert list(served.waits_table()["run"]) == both == list(served.first_tokens_table()["run"])
    assert list(served.first_tokens_table())[1:] == ["document 1 (s)", "question 1 (s)"]
    assert all(name in served.timelines().alt for name in both)
    assert list(served.memory_table()["process"]) == ["worker-0", "worker-1"]


def test_memory_of_this_process():
    memory = two_pools.memory_of(os.getpid())
    assert 10e6 < memory.private <= memory.rss


def test_waits_are_counted_by_kind_from_arrival_to_first_token():
    def event(t_s, kind, name, **data):
        return Event(t_s, kind, "worker-0", name, data)

    events = [
        event(0.0, "arrived", "chat-000"),
        event(1.0, "token", "chat-000", index=0),
        event(1.0, "arrived", "document-001"),
        event(1.5, "arrived", "question-002"),
        event(2.0, "arrived", "document-003"),
        event(3.0, "token", "chat-000", index=1),
        event(3.5, "token", "document-001", index=0),
        event(4.0, "token", "document-001", index=1),
        event(4.5, "token", "question-002", index=0),
        event(6.0, "token", "document-003", index=0),
    ]
    expected = {"document 1": 2.5, "question 1": 3.0, "document 2": 4.0}
    assert two_pools.first_token_waits(events) == expected
    assert two_pools.longest_wait(events).length_s == 2.0


def one_worker(waiting):
    running = []
    return running, waiting


def two_workers(waiting):
    running = [1]
    return running, waiting


def test_the_diff_names_what_went_and_what_came():
    lines = two_pools.diff_of(one_worker, two_workers).split("\n")
    assert "-    running = []" in lines and "+    running = [1]" in lines
    assert "     return running, waiting" in lines


def test_the_quoted_figures_stand_in_the_raw_file():
    from course.facts import read_facts

    raw = json.loads((ROOT / "benchmarks" / "raw" / "demo.json").read_text())
    gaps, waits = raw["p99_itl_ms"], raw["document_ttft_p50_ms"]
    figures = {f"{gaps[name]:,.0f}" for name in ("colocated", "disaggregated")}
    figures |= {f"{waits[name] / 1000:.1f}" for name in ("colocated", "disaggregated")}
    figures.add(f"{100 * raw['handoff_share_of_prefill']:.1f}")
    quoted = set(read_facts(ROOT / "course" / "facts.yaml")["two-pools-recorded"].figures)
    assert quoted - figures == {"576", "29", "2026"}, "the documents' length and the date"
