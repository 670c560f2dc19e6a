"""Both phases on one worker: three ways to choose what runs next."""

from __future__ import annotations

from minipd.request import Sequence
from minipd.sched.base import Scheduler


class PrefillFirst(Scheduler):
    """Read whenever something waits; otherwise write. New users start soon, running ones freeze."""

    def pick(self, now: float) -> list[tuple[Sequence, int]]:
        prompts = self.admit_prompts(now, self.limits.max_batch_tokens)
        return prompts or self.pick_decodes(now)


class DecodeFirst(Scheduler):
    """Write until every running answer is done, then read. No answer freezes, new users starve."""

    def pick(self, now: float) -> list[tuple[Sequence, int]]:
        decodes = self.pick_decodes(now)
        return decodes or self.admit_prompts(now, self.limits.max_batch_tokens)


class Chunked(Scheduler):
    """Every step decodes all running sequences and fills the token budget with pieces of prompts.

    The budget is `limits.max_batch_tokens`, decodes included (stall-free batching, algorithm 3 of
    arXiv:2403.02310: decodes first, then the prompt begun, then new prompts).
    """

    def pick(self, now: float) -> list[tuple[Sequence, int]]:
        picks = self.pick_decodes(now)
        budget = max(1, self.limits.max_batch_tokens - len(picks))
        for sequence in self.running:
            if sequence.is_prefilling and budget > 0:
                picks.append((sequence, min(budget, sequence.num_uncached_tokens)))
                budget -= picks[-1][1]
        while budget > 0 and self.waiting and self.can_admit(self.waiting[0]):
            sequence = self.admit(now)
            picks.append((sequence, min(budget, sequence.num_uncached_tokens)))
            budget -= picks[-1][1]
        return picks
