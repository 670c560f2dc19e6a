"""How long the same freeze is on data-centre hardware: published step times of a 70B model.

Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RealHardware:
    """Median times of Llama-2-70B over eight GPUs of a DGX, in milliseconds.

    Source: Splitwise (ISCA'24), `data/perf_model.csv` of splitwise-sim, read in facts 2.2.
    `prefill` by prompt tokens (one prompt); `decode` by context tokens (one sequence);
    `decode_batch` by sequences of 512 tokens.
    """

    name: str
    prefill: dict[int, float]
    decode: dict[int, float]
    decode_batch: dict[int, float]

    def prefill_ms(self, prompt_tokens: int) -> float:
        return _between(self.prefill, prompt_tokens)

    def decode_ms(self, context_tokens: int = 512, batch: int = 1) -> float:
        """One decode step; a batch slows the step by the ratio measured at 512 tokens."""
        slowed = _between(self.decode_batch, batch) / self.decode_batch[1]
        return _between(self.decode, context_tokens) * slowed

    def freeze_tokens(self, prompt_tokens: int, batch: int = 1) -> float:
        """Decode steps that one prompt's prefill costs everybody else on the same machine."""
        return self.prefill_ms(prompt_tokens) / self.decode_ms(prompt_tokens, batch)


def _between(points: dict[int, float], at: float) -> float:
    """Linear between measured points; constant below the first, along the last slope above."""
    xs = sorted(points)
    if at <= xs[0]:
        return points[xs[0]]
    high = next((index for index, x in enumerate(xs) if x >= at), len(xs) - 1)
    x0, x1 = xs[high - 1], xs[high]
    return points[x0] + (points[x1] - points[x0]) * (at - x0) / (x1 - x0)


A100X8 = RealHardware(
    "Llama-2-70B on 8 A100",
    {512: 94.3, 1024: 154.5, 2048: 274.0, 4096: 661.0, 8192: 1550.0},
    {512: 44.9, 1024: 45.0, 2048: 45.4, 4096: 46.5, 8192: 46.5},
    {1: 44.9, 8: 46.5, 64: 71.6},
)
H100X8 = RealHardware(
    "Llama-2-70B on 8 H100",
    {512: 53.4, 1024: 77.9, 2048: 136.8, 4096: 390.0, 8192: 845.0},
    {512: 29.8, 2048: 31.1, 4096: 30.6, 8192: 31.4},
    {1: 29.8, 8: 32.5, 64: 50.2},
)
