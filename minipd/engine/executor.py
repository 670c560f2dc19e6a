"""Runs one batch on one device: chunks in, one token id per chunk that wants one out.

The executor owns the KV store's tensors and no policy: which chunks, and on which blocks, is
decided by a scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from collections.abc import Sequence as Items
from contextlib import contextmanager

import torch
from torch import Tensor

from minipd.cache.store import KVLayout, KVStore
from minipd.engine.attention import GatherAttention
from minipd.engine.batch import Chunk
from minipd.engine.graphs import DecodeGraphs
from minipd.engine.paged import PagedAttention, PagedInputs, why_not_paged
from minipd.engine.sampler import sample
from minipd.model.load import LoadedModel

# Matrix products on a CPU sum in another order below this many rows (1, 2-15 and 16 or more were
# seen), so padding every step to it makes results independent of who else is in the batch.
DETERMINISTIC_ROWS = 16


LayerHook = Callable[[int, Items[Chunk]], None]


class Executor:
    """One copy of the weights and one KV store on one device.

    `on_layer(layer, chunks)`, if set, is called as soon as a layer's keys and values are stored,
    while its attention and the layers above have still to run. `deterministic` pads each step to at
    least 16 rows and, on a CPU, computes it on one thread: then a sequence's logits are bit-equal
    whatever shares its batch, as long as its own chunks are the same. (Two threads were seen to
    split the sums of a product of 17 to 192 rows, and not of others.)
    """

    def __init__(
        self,
        model: LoadedModel,
        num_blocks: int,
        block_size: int = 16,
        *,
        deterministic: bool = False,
        store: KVStore | None = None,
    ) -> None:
        self.model = model
        self.decoder = model.decoder
        self.deterministic = deterministic
        weights = model.decoder.head
        layout = KVLayout.of(model.config, num_blocks, block_size, weights.dtype)
        self.store = store or KVStore(layout, weights.device)
        self.on_layer: LayerHook | None = None
        self.why_not_paged = why_not_paged(layout, model.config.num_heads, self.device)
        self.graphs: DecodeGraphs | None = None
        if self.why_not_paged is None and model.config.experts is None:
            self.graphs = DecodeGraphs(self.decoder, self.store, deterministic=deterministic)

    @property
    def device(self) -> torch.device:
        return self.store.device

    def run(self, chunks: Items[Chunk]) -> list[int]:
        """Token ids of the chunks that want one, in order."""
        wanting = [c for c in chunks if c.sampling is not None]
        logits = self.forward(chunks)  # (R, V)
        if not wanting:
            return []
        params = [c.sampling for c in wanting if c.sampling is not None]
        return sample(logits, params, [c.stop for c in wanting])

    @torch.inference_mode()
    def forward(self, chunks: Items[Chunk]) -> Tensor:
        """Logits (R, V) after the last token of each of the R chunks that want a token."""
        assert chunks, "a batch holds at least one chunk"
        if self.deterministic and self.device.type == "cpu":
            with _one_thread():
                return self._forward(chunks)
        needs_layers = self.deterministic or self.on_layer is not None
        if self.graphs is not None and not needs_layers and self.graphs.can_run(chunks):
            return self.graphs.run(chunks)
        return self._forward(chunks)

    def _forward(self, chunks: Items[Chunk]) -> Tensor:
        tokens = [t for c in chunks for t in c.token_ids]
        positions = [p for c in chunks for p in range(c.start, c.stop)]
        if self.deterministic:
            padding = [0] * (DETERMINISTIC_ROWS - len(tokens))
            tokens, positions = tokens + padding, positions + padding
        attend = self.attention(chunks)
        if (hook := self.on_layer) is not None:
            attend.on_stored = lambda layer: hook(layer, chunks)
        hidden = self.decoder(self._ids(tokens), self._ids(positions), attend)  # (T, E)
        return self._logits(hidden, _last_rows(chunks))

    def attention(self, chunks: Items[Chunk]) -> PagedAttention | GatherAttention:
        if self.why_not_paged is None:
            inputs = PagedInputs(self.store, chunks)
            return PagedAttention(self.store, inputs, deterministic=self.deterministic)
        return GatherAttention(self.store, chunks)

    def _logits(self, hidden: Tensor, rows: list[int]) -> Tensor:
        """Project the wanted rows of `hidden` (T, E); deterministic runs pad these rows as well."""
        if self.deterministic and rows:
            padded = rows + [rows[0]] * (DETERMINISTIC_ROWS - len(rows))
            return self.decoder.logits(hidden[self._ids(padded)])[: len(rows)]  # (R, V)
        if rows == [len(hidden) - 1]:
            return self.decoder.logits(hidden[-1:])  # (1, V)
        return self.decoder.logits(hidden[self._ids(rows)])  # (R, V)

    def _ids(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)


@contextmanager
def _one_thread() -> Generator[None, None, None]:
    """Compute on the calling thread alone, and give the others back afterwards."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def _last_rows(chunks: Items[Chunk]) -> list[int]:
    """Index of each wanting chunk's last row in the ragged batch."""
    rows: list[int] = []
    end = 0
    for chunk in chunks:
        end += len(chunk.token_ids)
        if chunk.sampling is not None:
            rows.append(end - 1)
    return rows
