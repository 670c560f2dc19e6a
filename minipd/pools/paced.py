"""A worker whose steps take as long as they did on this machine, without computing anything.

Scheduler, messages, pools and the bytes of the hand-off stay real; only the executor is replaced:
it sleeps for a measured time and makes tokens up. So more workers than cores can be watched. What
is shown of such a run must say that it was paced.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from hashlib import blake2b

from minipd.cache.store import KVStore
from minipd.engine.batch import Chunk
from minipd.model.config import ModelConfig
from minipd.sched.step_times import check_points, step_seconds


@dataclass(frozen=True, slots=True)
class Pace:
    """Measured step times in seconds (`step_seconds` says what comes between the points).

    `prefill` is (prompt tokens, seconds) of a prompt alone. `decode` is (sequences, seconds) with
    little context, and `per_context_token_s` what each token of context in the batch adds.
    """

    prefill: tuple[tuple[float, float], ...]
    decode: tuple[tuple[float, float], ...]
    per_context_token_s: float = 0.0

    def __post_init__(self) -> None:
        check_points("prefill", self.prefill)
        check_points("decode", self.decode)

    def seconds(self, chunks: Items[Chunk]) -> float:
        """Duration of a step."""
        pieces = [(len(c.token_ids), c.start) for c in chunks]
        return step_seconds(self.prefill, self.decode, self.per_context_token_s, pieces, 0, 0)


class PacedExecutor:
    """Sleeps through each step; layer after layer where a hand-off listens."""

    def __init__(self, config: ModelConfig, store: KVStore, pace: Pace) -> None:
        self.config, self.store, self.pace = config, store, pace
        self.on_layer: Callable[[int, Items[Chunk]], None] | None = None

    def run(self, chunks: Items[Chunk]) -> list[int]:
        due = time.monotonic()
        layer_s = self.pace.seconds(chunks) / self.config.num_layers
        for layer in range(self.config.num_layers):
            if self.on_layer is not None:
                due += layer_s
                _sleep_until(due)
                self.on_layer(layer, chunks)
        if self.on_layer is None:
            _sleep_until(due + layer_s * self.config.num_layers)
        return [self._token(c) for c in chunks if c.sampling is not None]

    def _token(self, chunk: Chunk) -> int:
        """Made up, but the same in every run: from the request's id and the position."""
        digest = blake2b(f"{chunk.request_id}:{chunk.stop}".encode(), digest_size=4).digest()
        return int.from_bytes(digest, "big") % self.config.vocab_size


def _sleep_until(due: float) -> None:
    time.sleep(max(0.0, due - time.monotonic()))
