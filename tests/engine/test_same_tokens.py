"""The near-tie rule itself, on scores made by hand."""

from __future__ import annotations

import pytest
import torch

from minipd.measure.same_tokens import (
    Comparison,
    LogitsOf,
    compare,
    logits_of,
    summarise,
    teacher_forced_logits,
)
from minipd.model.load import LoadedModel

PROMPT = [5, 6]


def scores(margin: float, moved: float = 0.0) -> LogitsOf:
    """Token 1 is best, 2 second by `margin`, 0 far below; `moved` is added to the last row."""

    def logits(token_ids: list[int], rows: range) -> torch.Tensor:
        table = torch.tensor([[0.0, 9.0, 9.0 - margin]], dtype=torch.float64)
        table = table.repeat(len(token_ids), 1)
        table[-2] += moved  # the last row that predicts a token
        return table[rows.start : rows.stop]

    return logits


def judge(ours: list[int], margin: float, moved: float = 0.0) -> Comparison:
    return compare(PROMPT, [1, 1, 1, 1], ours, scores(margin), scores(margin, moved))


@pytest.mark.parametrize(
    ("ours", "margin", "moved", "kind"),
    [
        ([1, 1, 1, 1], 0.0, 9.0, "equal"),
        ([1, 2, 0, 0], 4e-4, 0.0, "near_tie"),
        ([1, 2, 0, 0], 4e-4, 9e-4, "near_tie"),
        ([1, 2, 0, 0], 6e-4, 0.0, "different"),  # no tie
        ([1, 0, 1, 1], 4e-4, 0.0, "different"),  # not the second choice
        ([1, 2, 0, 0], 4e-4, 2e-3, "different"),  # the models drift apart later
        ([1, 1], 4e-4, 0.0, "different"),  # ended early
        ([1, 1, 1, 1, 1], 4e-4, 0.0, "different"),  # went on
        ([], 4e-4, 0.0, "different"),
    ],
)
def test_the_rule(ours: list[int], margin: float, moved: float, kind: str) -> None:
    assert judge(ours, margin, moved).kind == kind


def test_the_place_and_the_margin_are_told() -> None:
    found = judge([1, 1, 2], 3e-4, 5e-4)
    assert found.position == 2
    assert found.margin == pytest.approx(3e-4)
    assert found.max_logit_difference == pytest.approx(5e-4)
    assert judge([1, 1, 1, 1], 0.1) == Comparison("equal")


def test_equal_answers_are_measured_on_request() -> None:
    ids = [1, 1, 1]
    found = compare(PROMPT, ids, ids, scores(1), scores(1, 0.5), measure_equal=True)
    assert found.kind == "equal" and found.max_logit_difference == pytest.approx(0.5)


def test_a_share_of_near_ties_is_allowed_and_no_difference() -> None:
    equal, tie = Comparison("equal"), Comparison("near_tie", 0, 1e-4, 2e-4)
    assert summarise([equal] * 99 + [tie]).passed
    assert not summarise([equal] * 98 + [tie]).passed
    assert not summarise([equal] * 999 + [Comparison("different", 0, 1.0, 1.0)]).passed
    summary = summarise([equal, tie, tie])
    assert (summary.near_ties, summary.num_different, summary.num_sequences) == (2, 0, 3)
    assert summary.max_logit_difference == 2e-4
    assert summarise([]).passed


def test_teacher_forced_rows_are_the_rows_asked_for(tiny: LoadedModel) -> None:
    text = list(range(4, 40))
    whole = teacher_forced_logits(tiny.decoder, text, range(len(text)))
    part = logits_of(tiny.decoder)(text, range(7, 20))
    assert whole.shape == (36, tiny.config.vocab_size)
    torch.testing.assert_close(part, whole[7:20], atol=1e-5, rtol=0)
    shorter = teacher_forced_logits(tiny.decoder, text[:8], range(7, 8))
    torch.testing.assert_close(shorter, whole[7:8], atol=1e-4, rtol=0)
