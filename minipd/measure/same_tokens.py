"""What "the same tokens" means when sums in floating point depend on the shape of a batch.

Greedy answers are the same up to a near-tie: where they first differ, the reference liked its two
best tokens almost equally (margin under 5e-4), we took its second choice, and from there on both
models score one and the same text within 1e-3. Anything else is a bug.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from minipd.model.decoder import Decoder

NEAR_TIE_MARGIN = 5e-4  # logits
MAX_LOGIT_DIFFERENCE = 1e-3
MAX_NEAR_TIE_SHARE = 0.01  # of sequences

# (token_ids, rows) -> logits (R, V): row i is the score of token i + 1 after tokens 0 .. i.
LogitsOf = Callable[[list[int], range], Tensor]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two greedy answers to one prompt. `position` counts output tokens from 0.

    `margin` is the reference's best score less its second best at `position`; both it and
    `position` are None when the answers are equal, `max_logit_difference` when not measured.
    """

    kind: Literal["equal", "near_tie", "different"]
    position: int | None = None
    margin: float | None = None
    max_logit_difference: float | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """The verdict over many sequences; `passed` is the rule that every comparison must meet."""

    num_sequences: int
    near_ties: int
    num_different: int
    max_logit_difference: float

    @property
    def passed(self) -> bool:
        return not self.num_different and self.near_ties <= MAX_NEAR_TIE_SHARE * self.num_sequences


@torch.inference_mode()
def teacher_forced_logits(decoder: Decoder, token_ids: list[int], rows: range) -> Tensor:
    """Our decoder's logits (R, V) at `rows` of one text, computed in one go without any cache."""
    ids = torch.tensor(token_ids, device=decoder.head.device)  # (T,)
    hidden = decoder(ids, torch.arange(len(ids), device=ids.device), _causal)  # (T, E)
    return decoder.logits(hidden[rows.start : rows.stop : rows.step])  # (R, V)


def logits_of(decoder: Decoder) -> LogitsOf:
    """`teacher_forced_logits` of one decoder, in the form that `compare` takes."""
    return lambda token_ids, rows: teacher_forced_logits(decoder, token_ids, rows)


def compare(
    prompt_ids: Items[int],
    reference_ids: Items[int],
    our_ids: Items[int],
    reference_logits: LogitsOf,
    our_logits: LogitsOf,
    *,
    measure_equal: bool = False,
) -> Comparison:
    """Judge one pair of greedy answers; scores are asked for only where they decide.

    Equal answers need no scores: `measure_equal` takes them all the same. Both models read the
    prompt and the reference's answer, whichever tokens ours chose.
    """
    first = _first_difference(reference_ids, our_ids)
    if first is None and not measure_equal:
        return Comparison("equal")
    text = [*prompt_ids, *reference_ids]
    rows = range(len(prompt_ids) - 1 + (first or 0), len(text) - 1)
    if len(rows) == 0:  # the reference stopped here, and we went on
        return Comparison("different", first)
    expected = reference_logits(text, rows).double().cpu()  # (R, V)
    difference = float((our_logits(text, rows).double().cpu() - expected).abs().max().item())
    if first is None:
        return Comparison("equal", max_logit_difference=difference)
    best, second = expected[0].topk(2).values.tolist()
    margin = best - second
    rivals = first < len(our_ids) and float(expected[0, our_ids[first]].item()) >= second
    ties = rivals and margin < NEAR_TIE_MARGIN and difference <= MAX_LOGIT_DIFFERENCE
    return Comparison("near_tie" if ties else "different", first, margin, difference)


def summarise(comparisons: Iterable[Comparison]) -> Summary:
    """Count near-ties and real differences over all sequences of a run."""
    found = list(comparisons)
    kinds = [c.kind for c in found]
    moved = [c.max_logit_difference for c in found if c.max_logit_difference is not None]
    return Summary(
        len(found), kinds.count("near_tie"), kinds.count("different"), max(moved, default=0.0)
    )


def _first_difference(a: Items[int], b: Items[int]) -> int | None:
    """Index of the first token in which two answers differ; one that ends earlier differs there."""
    shorter = min(len(a), len(b))
    first = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    return None if first == len(a) == len(b) else first


def _causal(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Every row sees itself and the rows before it: `q` (T, H, D), `k` and `v` (T, K, D)."""
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))  # (1, heads, T, D)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return out[0].transpose(0, 1)  # (T, H, D)
