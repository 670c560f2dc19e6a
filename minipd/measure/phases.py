"""minipd's two phases, timed alone: no tokenizer, no scheduler, no sampling (as llama-bench does).

Both engines of a comparison are driven through `Engine`, get the same token ids, and have
everything but the passes themselves prepared before the clock starts.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from statistics import fmean
from typing import Protocol

from minipd.engine.batch import Chunk
from minipd.engine.executor import Executor
from minipd.measure.stopwatch import no_garbage_collection, seconds
from minipd.model.experts import watch_experts
from minipd.model.load import LoadedModel
from minipd.request import SamplingParams

BLOCK_SIZE = 16


class Engine(Protocol):
    """One engine under test; each call starts from an empty KV cache and returns seconds."""

    def prefill(self, token_ids: list[int]) -> float:
        """One pass over the whole prompt, logits of its last token included."""
        ...

    def decode(self, token_ids: list[int], num_sequences: int = 1) -> float:
        """One single-token pass per token, from depth 0. Each sequence is fed the same tokens, each
        from another one on: sequences that are all alike would choose the same experts."""
        ...

    def decode_in_parts(
        self, token_ids: list[int], num_sequences: int, passes: int
    ) -> Iterator[float]:
        """The same, `passes` passes at each `next`, which returns their seconds: so that engines
        can take turns within one run."""
        ...


class MinipdEngine:
    """Our executor, its blocks laid out as the allocator lays out a fresh cache."""

    def __init__(self, model: LoadedModel, num_tokens: int, num_sequences: int) -> None:
        self._blocks_each = -(-num_tokens // BLOCK_SIZE)
        self._executor = Executor(model, self._blocks_each * num_sequences, BLOCK_SIZE)

    def prefill(self, token_ids: list[int]) -> float:
        return self._timed([[self._chunk(0, token_ids, 0)]])

    def decode(self, token_ids: list[int], num_sequences: int = 1) -> float:
        return sum(self.decode_in_parts(token_ids, num_sequences, len(token_ids)))

    def decode_in_parts(
        self, token_ids: list[int], num_sequences: int, passes: int
    ) -> Iterator[float]:
        """Runs of several sizes may take turns: sequence n has the same tokens in all of them,
        and so the same KV in the same blocks."""
        steps = [
            [
                self._chunk(sequence, [token_ids[(depth + sequence) % len(token_ids)]], depth)
                for sequence in range(num_sequences)
            ]
            for depth in range(len(token_ids))
        ]
        for start in range(0, len(steps), passes):
            yield self._timed(steps[start : start + passes])

    def experts_read(self, token_ids: list[int], num_sequences: int) -> float:
        """Distinct experts per layer and step in such a `decode`, on average."""
        with watch_experts(self._executor.decoder) as passes:
            self.decode(token_ids, num_sequences)
        return fmean(one.mean_touched for one in passes)

    def _timed(self, steps: list[list[Chunk]]) -> float:
        def run() -> None:
            for chunks in steps:
                self._executor.forward(chunks)

        with no_garbage_collection():
            return seconds(run, self._executor.device)

    def _chunk(self, sequence: int, token_ids: list[int], start: int) -> Chunk:
        first = sequence * self._blocks_each
        needed = -(-(start + len(token_ids)) // BLOCK_SIZE)
        blocks = list(range(first, first + needed))
        return Chunk(f"bench-{sequence}", token_ids, start, blocks, SamplingParams())


def random_tokens(vocab_size: int, count: int, seed: int = 0) -> list[int]:
    """Token ids drawn evenly from the vocabulary, the same ones for every engine and run."""
    draw = random.Random(seed)
    return [draw.randrange(vocab_size) for _ in range(count)]
