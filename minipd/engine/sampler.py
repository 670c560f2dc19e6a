"""From logits to token ids."""

from __future__ import annotations

import math
import random

import torch
from torch import Tensor

from minipd.request import SamplingParams


class DamagedModelError(RuntimeError):
    """The model computed no scores: its weights or its settings are damaged."""


def sample(logits: Tensor, params: list[SamplingParams], positions: list[int]) -> list[int]:
    """One token id per row of `logits` (R, V).

    `positions[i]` is the index in the sequence that row i's token will take. A row's draw depends
    on its logits, its seed and that position only, so batching never changes an answer.
    """
    best = logits.argmax(dim=-1, keepdim=True)  # (R, 1); the place of a NaN or an inf, if any
    greedy: list[int] = best[:, 0].tolist()
    # One number for all rows: a sum is finite only where every part is.
    if not math.isfinite(logits.gather(-1, best).sum(dtype=torch.float32).item()):
        raise DamagedModelError(
            "The model's scores are not numbers (NaN or infinite): its weights are damaged, or too "
            "large for this dtype; download it again, or load it with another dtype."
        )
    return [
        token if p.temperature == 0 else _draw(row, p, position)
        for token, row, p, position in zip(greedy, logits, params, positions, strict=True)
    ]


def _draw(row: Tensor, params: SamplingParams, position: int) -> int:
    """Temperature, then top-k, then top-p, then one uniform number keyed by seed and position."""
    scores = row.double().cpu()  # (V,)
    # Below the largest score, so that the smallest temperature gives -inf at worst, never inf.
    scores, ids = _shortlist((scores - scores.max()) / params.temperature, params)  # (k,) each
    cumulative = torch.softmax(scores, dim=-1).cumsum(dim=-1)  # (k,)
    if params.top_p < 1.0:  # the smallest set of tokens that reaches top_p
        kept = int(torch.searchsorted(cumulative, params.top_p).item()) + 1
        cumulative = cumulative[:kept]
    point = random.Random(f"{params.seed}:{position}").random() * cumulative[-1]
    chosen = torch.searchsorted(cumulative, point, right=True).clamp_max(len(cumulative) - 1)
    return int(ids[chosen].item())


def _shortlist(scores: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    """Scores and token ids, sorted only where an order is needed: sorting all V takes long."""
    if 0 < params.top_k < len(scores):
        return torch.topk(scores, params.top_k)  # (top_k,) each
    if params.top_p < 1.0:
        return torch.sort(scores, descending=True, stable=True)  # (V,) each
    return scores, torch.arange(len(scores))  # (V,) each
