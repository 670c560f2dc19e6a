"""Decode steps replayed as CUDA graphs: the kernels are recorded once per batch size.

A decode step launches hundreds of small kernels; on a fast GPU the launches take longer than the
work. A graph replays them all with one launch, on tensors whose addresses never change. A model
with experts has none: which kernels run, and on how many rows, depends on what its routers choose.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items

import torch
from torch import Tensor

from minipd.cache.store import KVStore
from minipd.engine.batch import Chunk
from minipd.engine.paged import PagedAttention, PagedInputs
from minipd.model.decoder import Decoder

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class DecodeGraphs:
    """Graphs for the batch sizes above, recorded at first use. Padding repeats the first sequence:
    it writes the same values to the same slot again, so it changes nothing.
    """

    def __init__(self, decoder: Decoder, store: KVStore, *, deterministic: bool = False) -> None:
        self.decoder = decoder
        self.store = store
        self.deterministic = deterministic
        self.max_blocks = min(
            store.layout.num_blocks, -(-decoder.config.max_context // store.layout.block_size)
        )
        self._steps: dict[int, DecodeStep] = {}

    def can_run(self, chunks: Items[Chunk]) -> bool:
        """Only decodes, all of them wanting a token, and not more than the largest graph."""
        return len(chunks) <= BATCH_SIZES[-1] and all(
            len(c.token_ids) == 1 and c.sampling is not None for c in chunks
        )

    def run(self, chunks: Items[Chunk]) -> Tensor:
        """Logits (B, V) of the B chunks; valid until the next run."""
        size = next(s for s in BATCH_SIZES if s >= len(chunks))
        padded = [*chunks, *[chunks[0]] * (size - len(chunks))]
        if size not in self._steps:
            self._steps[size] = DecodeStep(self, padded)
        return self._steps[size].run(padded)[: len(chunks)]  # (B, V)


class DecodeStep:
    """One batch size: fixed input tensors, and the recorded (or, off CUDA, plain) computation."""

    def __init__(self, graphs: DecodeGraphs, chunks: Items[Chunk]) -> None:
        self.store, self.max_blocks = graphs.store, graphs.max_blocks
        self.inputs = PagedInputs(self.store, chunks, self.max_blocks)
        self.inputs.max_length = graphs.decoder.config.max_context  # recorded, so for all lengths
        self.tokens = torch.zeros(len(chunks), dtype=torch.int64, device=self.store.device)
        self.positions = torch.zeros_like(self.tokens)
        attend = PagedAttention(self.store, self.inputs, deterministic=graphs.deterministic)

        def compute() -> Tensor:
            hidden = graphs.decoder(self.tokens, self.positions, attend)  # (B, E)
            return graphs.decoder.logits(hidden)  # (B, V)

        self._fill(chunks)
        self._replay = _record(compute, self.store.device)

    def run(self, chunks: Items[Chunk]) -> Tensor:
        self._fill(chunks)
        return self._replay()  # (B, V)

    def _fill(self, chunks: Items[Chunk]) -> None:
        self.inputs.fill(PagedInputs(self.store, chunks, self.max_blocks))
        self.tokens.copy_(torch.tensor([c.token_ids[0] for c in chunks]))
        self.positions.copy_(torch.tensor([c.start for c in chunks]))


def _record(compute: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
    """A function that repeats `compute`: as a CUDA graph there, by calling it elsewhere."""
    if device.type != "cuda":
        return compute
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):  # warm-up, so that no lazy initialisation is recorded
        for _ in range(2):
            compute()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # Other threads may use the GPU meanwhile: only this one is held to what a graph can record.
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        out = compute()

    def replay() -> Tensor:
        graph.replay()
        return out

    return replay
