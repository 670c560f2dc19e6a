"""A feed-forward in many parts, of which each token goes through a few: mixture of experts.

A router scores all X experts for each token and keeps the k best; the token's result is their
weighted sum (arXiv:1701.06538; here as in Qwen3-MoE). So a token needs the arithmetic of k experts
only. But different tokens choose different experts: a step reads the weights of every expert that
*any* of its tokens chose, and of no other. One token touches k of them, a large batch nearly all.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from minipd.model.expert_config import ExpertConfig
from minipd.model.layers import swiglu

# A product of fewer rows sums in another order (see DETERMINISTIC_ROWS of the executor). A batch
# that has so many rows gives each expert as many, with zeros; then a token's result depends on its
# own row alone. A smaller batch is not padded: there, reading the experts is all that it costs.
MIN_ROWS = 16


class Router(nn.Module):
    """Chooses the experts of each token."""

    def __init__(self, config: ExpertConfig, hidden_size: int) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(hidden_size, config.count), requires_grad=False)

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Weights (T, k) and numbers (T, k) of the k best experts for each row of `h` (T, E).

        The weights are shares of a softmax over all X experts, taken in float32.
        """
        shares = (h @ self.weight).softmax(dim=-1, dtype=torch.float32)  # (T, X)
        weights, chosen = shares.topk(self.config.top_k, dim=-1)  # (T, k) each
        if self.config.normalised:
            weights = weights / weights.sum(dim=-1, keepdim=True)  # (T, k)
        return weights.to(h.dtype), chosen


class Experts(nn.Module):
    """The feed-forward of a layer with experts: E to E, like a dense one."""

    def __init__(self, config: ExpertConfig, hidden_size: int) -> None:
        super().__init__()
        self.router = Router(config, hidden_size)
        up, down = (config.count, hidden_size, 2 * config.ffn_size), config.ffn_size
        self.gate_up = nn.Parameter(torch.empty(up), requires_grad=False)  # (X, E, 2F)
        self.down = nn.Parameter(
            torch.empty(config.count, down, hidden_size), requires_grad=False
        )  # (X, F, E)

    def forward(self, h: Tensor) -> Tensor:
        """The weighted sum of each row's experts: `h` (T, E) to (T, E)."""
        weights, chosen = self.router(h)  # (T, k) each
        # Places of the choices, sorted by expert: first all that chose expert 0, then 1, ...
        places = chosen.flatten().argsort(stable=True)  # (T k,)
        counts: list[int] = chosen.flatten().bincount().tolist()
        touched = [number for number, count in enumerate(counts) if count]
        groups = h[places // chosen.shape[1]].split([counts[e] for e in touched])  # (n, E) each
        fewest = MIN_ROWS if len(h) >= MIN_ROWS else 1
        results = [self.expert(e, group, fewest) for e, group in zip(touched, groups, strict=True)]
        out = h.new_empty(len(places), h.shape[1])  # (T k, E)
        out[places] = torch.cat(results)
        return torch.bmm(weights[:, None], out.view(*chosen.shape, -1))[:, 0]  # (T, E)

    def expert(self, number: int, rows: Tensor, fewest: int) -> Tensor:
        """One expert's SwiGLU on `rows` (n, E); it is computed on at least `fewest` of them."""
        lacking = fewest - len(rows)
        padded = F.pad(rows, (0, 0, 0, lacking)) if lacking > 0 else rows  # (max(n, fewest), E)
        return (swiglu(padded @ self.gate_up[number]) @ self.down[number])[: len(rows)]  # (n, E)


@dataclass(slots=True)
class ExpertPass:
    """One forward pass: how many of its tokens each layer's router sent to each expert.

    `num_tokens` counts all rows, those too that `deterministic` adds as padding.
    """

    num_tokens: int
    counts: dict[int, list[int]] = field(default_factory=dict[int, list[int]])  # layer -> X numbers

    def touched(self, layer: int) -> int:
        """Distinct experts that some token of this pass chose."""
        return sum(1 for count in self.counts[layer] if count)

    @property
    def mean_touched(self) -> float:
        return sum(map(self.touched, self.counts)) / len(self.counts)


@contextmanager
def watch_experts(model: nn.Module) -> Generator[list[ExpertPass]]:
    """Notes every forward pass of a decoder while it is open; costs nothing when it is not.

    `model` is a decoder (`LoadedModel.decoder`). Passes appear in the list as they run. A decoder
    that several engines use at once would mix their passes.
    """
    passes: list[ExpertPass] = []
    handles = [
        module.router.register_forward_hook(_Note(int(name.split(".")[1]), passes))
        for name, module in model.named_modules()
        if isinstance(module, Experts)
    ]
    try:
        yield passes
    finally:
        for handle in handles:
            handle.remove()


class _Note:
    """What the router of one layer calls after each choice."""

    def __init__(self, layer: int, passes: list[ExpertPass]) -> None:
        self.layer, self.passes = layer, passes

    def __call__(self, router: Router, _: object, output: tuple[Tensor, Tensor]) -> None:
        chosen = output[1]  # (T, k)
        if not self.passes or self.layer in self.passes[-1].counts:
            self.passes.append(ExpertPass(len(chosen)))
        counts: list[int] = chosen.flatten().bincount(minlength=router.config.count).tolist()
        self.passes[-1].counts[self.layer] = counts
