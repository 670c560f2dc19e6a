"""Draws follow the distribution they state, and nothing else moves them."""

from __future__ import annotations

import pytest
import torch

from minipd.engine.sampler import DamagedModelError, sample
from minipd.request import SamplingParams

ROW = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -50.0])
DRAWS = 3000


def frequencies(params: SamplingParams) -> torch.Tensor:
    """Share of each token over many positions of one sequence."""
    ids = sample(ROW.expand(DRAWS, -1), [params] * DRAWS, list(range(DRAWS)))
    return torch.bincount(torch.tensor(ids), minlength=len(ROW)) / DRAWS


def slow_distribution(params: SamplingParams) -> torch.Tensor:
    """By definition: temperature, the top_k best, then the fewest of those that reach top_p."""
    weights = torch.softmax(ROW.double() / params.temperature, 0)
    order = weights.argsort(descending=True).tolist()[: params.top_k or None]
    total, kept = sum(weights[i] for i in order), []
    for token in order:
        if kept and sum(weights[i] for i in kept) >= params.top_p * total:
            break
        kept.append(token)
    out = torch.zeros(len(ROW), dtype=torch.float64)
    out[kept] = weights[kept]
    return out / out.sum()


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.5, seed=9),
        SamplingParams(temperature=3.0, top_k=2),
        SamplingParams(temperature=1.0, top_p=0.7),
        SamplingParams(temperature=2.0, top_k=4, top_p=0.8),
        SamplingParams(temperature=1.0, top_k=1),
        SamplingParams(temperature=1.0, top_p=1e-9),
        SamplingParams(temperature=1.0, top_k=10**6),
    ],
    ids=str,
)
def test_draws_follow_the_distribution(params: SamplingParams) -> None:
    expected, seen = slow_distribution(params), frequencies(params)
    assert (seen[expected == 0] == 0).all(), "a token outside top_k or top_p was drawn"
    assert (seen - expected).abs().max() < 0.03  # over 3 standard deviations of 3,000 draws


def test_greedy_takes_the_first_of_the_best() -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0], [1.0, 0.0, 0.0]])
    assert sample(logits, [SamplingParams()] * 2, [5, 6]) == [1, 0]


@pytest.mark.parametrize("temperature", [1e-320, 1e-300, 1e-9])
@pytest.mark.parametrize("scale", [1.0, -1.0, 1e30])
def test_the_smallest_temperatures_are_greedy(temperature: float, scale: float) -> None:
    row = ROW * scale
    ids = sample(row[None], [SamplingParams(temperature=temperature)], [0])
    assert ids == [int(row.argmax())]


@pytest.mark.parametrize("damage", [float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_scores_that_are_no_numbers_are_refused(damage: float, dtype: torch.dtype) -> None:
    logits = torch.stack([ROW, ROW]).to(dtype)
    sample(logits, [SamplingParams()] * 2, [0, 0])
    logits[1, 3] = damage
    for params in (SamplingParams(), SamplingParams(temperature=1.0)):
        with pytest.raises(DamagedModelError, match="weights are damaged"):
            sample(logits, [params] * 2, [0, 0])


def test_minus_infinity_is_a_score_and_large_halves_are_finite() -> None:
    row = torch.tensor([float("-inf"), 60000.0]).to(torch.float16)
    assert sample(row.expand(64, -1), [SamplingParams()] * 64, [0] * 64) == [1] * 64
    with pytest.raises(DamagedModelError):
        sample(torch.full((1, 3), float("-inf")), [SamplingParams()], [0])


def test_a_draw_is_keyed_by_seed_and_position_only() -> None:
    params = [SamplingParams(temperature=2.0, seed=s) for s in (1, 1, 2, 1)]
    rows = ROW.expand(4, -1)
    several = [sample(rows, params, [p, p, p, p + 1]) for p in range(40)]
    assert all(ids[0] == ids[1] for ids in several)
    assert any(ids[0] != ids[2] for ids in several) and any(ids[0] != ids[3] for ids in several)
    alone = [sample(ROW[None], params[:1], [p])[0] for p in range(40)]
    assert alone == [ids[0] for ids in several]
    shuffled = sample(rows.flip(0), params[::-1], [8, 7, 7, 7])
    assert shuffled[::-1] == several[7]
