"""What one step runs: for each sequence a chunk of its tokens. Plain Python, no torch."""

from __future__ import annotations

from dataclasses import dataclass

from minipd.request import SamplingParams, Sequence


@dataclass(slots=True)
class Chunk:
    """Tokens `[start, start + len(token_ids))` of one sequence, and where its KV lives.

    Prefill is a chunk of many tokens, decode a chunk of one; the engine needs no other distinction.
    `sampling` is None when the chunk ends before the sequence does, so that no token is wanted.
    """

    request_id: str
    token_ids: list[int]
    start: int
    block_ids: list[int]
    sampling: SamplingParams | None

    @property
    def stop(self) -> int:
        return self.start + len(self.token_ids)


def chunk_of(sequence: Sequence, count: int) -> Chunk:
    """The next `count` tokens of a sequence, which owns blocks for them."""
    start = sequence.num_cached_tokens
    stop = start + count
    sampling = sequence.request.sampling if stop == sequence.num_tokens else None
    return Chunk(sequence.id, sequence.token_ids(start, stop), start, sequence.block_ids, sampling)


@dataclass(slots=True)
class Batch:
    """The chunks of one step, when it was decided, and how its tokens split between the phases."""

    chunks: list[Chunk]
    start_s: float
    num_prefill_tokens: int = 0
    num_decode_seqs: int = 0
