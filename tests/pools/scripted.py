"""An executor whose tokens follow from the KV it finds: wrong or missing KV gives wrong tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items

import torch

from minipd.cache.store import KVLayout, KVStore, slots_of
from minipd.engine.batch import Chunk
from minipd.model.config import ModelConfig
from minipd.request import Request

VOCAB = 512


class ScriptedExecutor:
    """The KV of a token is its id, in every layer; the next token is a sum over all of them."""

    def __init__(self, config: ModelConfig, num_blocks: int, block_size: int = 16) -> None:
        self.store = KVStore(KVLayout.of(config, num_blocks, block_size, torch.float32))
        self.on_layer: Callable[[int, Items[Chunk]], None] | None = None

    def run(self, chunks: list[Chunk]) -> list[int]:
        store = self.store
        for layer in range(store.layout.num_layers):
            for chunk in chunks:
                slots = slots_of(chunk.block_ids, chunk.start, chunk.stop, store.layout.block_size)
                ids = torch.tensor(chunk.token_ids, dtype=torch.float32)[:, None, None]  # (T, 1, 1)
                rows = ids.expand(-1, store.layout.num_kv_heads, store.layout.head_dim)  # (T, K, D)
                store.write(layer, slots, rows, rows + layer)
            if self.on_layer is not None:
                self.on_layer(layer, chunks)
        return [self._token(chunk) for chunk in chunks if chunk.sampling is not None]

    def _token(self, chunk: Chunk) -> int:
        layout = self.store.layout
        run = slots_of(chunk.block_ids, 0, chunk.stop, layout.block_size)
        found: list[list[int]] = []
        for layer in range(layout.num_layers):
            keys, values = self.store.read(layer, run)  # (K, D, S), (K, S, D)
            found.append([int(x) for x in keys[-1, -1]])
            assert found[0] == found[-1] == [int(x) - layer for x in values[0, :, 0]]
        return next_token(found[0])


def next_token(ids: Iterable[int]) -> int:
    total = 1
    for token_id in ids:
        total = (total * 31 + token_id) % 1_000_003
    return 8 + total % (VOCAB - 8)


def expected(request: Request) -> list[int]:
    """What it must answer, whoever serves it."""
    ids = list(request.prompt_ids)
    for _ in range(request.sampling.max_tokens):
        ids.append(next_token(ids))
    return ids[len(request.prompt_ids) :]
