"""KV blocks of a simulated worker: how many are free, and which prompts begin alike.

The schedulers ask these allocators what they ask the engine's: they *are* the engine's, with two
changes. `CountedBlocks` shares nothing and only counts, so that a block costs nothing to take.
`SharedBlocks` names blocks after what a trace says of them instead of hashing tokens; blocks that
it forgets may go down to a `Tier`, and come back from there.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Protocol

from minipd.cache.allocator import BlockAllocator, check_sizes
from minipd.fleet.models import Model
from minipd.fleet.work import Parallel
from minipd.measure.rows import TraceRow
from minipd.request import Sequence

NAME_BYTES = 12
RESERVED_SHARE = 0.10  # of a device's memory: activations, communication buffers, fragments


class CapacityError(ValueError):
    """A model that leaves no room for any KV on the devices it is given."""


def kv_tokens(model: Model, memory_bytes: float, parallel: Parallel) -> int:
    """Tokens whose KV fits beside the weights on one replica of `parallel.devices` devices.

    Each pipeline stage keeps its own layers' KV; attention replicas hold different sequences.
    Raises `CapacityError` where not even the weights fit.
    """
    tp, pp, ep = parallel.tp, parallel.pp, parallel.ep
    usable = memory_bytes * (1.0 - RESERVED_SHARE)
    weights = model.weight_bytes_on_device(tp, pp, ep)
    if weights >= usable:
        raise CapacityError(
            f"{model.name} needs {weights / 1e9:.1f} GB of weights on each device and "
            f"{usable / 1e9:.1f} GB are usable; spread it over more devices (tp, pp) or choose "
            "larger ones."
        )
    per_token = model.kv_bytes_per_token(tp) / pp
    return int((usable - weights) / per_token) * parallel.attention_replicas


class CountedBlocks(BlockAllocator):
    """Blocks without identity: the same answers as without prefix reuse, in constant time."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        check_sizes(num_blocks, block_size)
        super().__init__(1, block_size, prefix_reuse=False, prefer_runs=False)
        self.num_blocks = num_blocks
        self._num_free = num_blocks

    @property
    def num_free_blocks(self) -> int:
        return self._num_free

    @property
    def num_used_blocks(self) -> int:
        return self.num_blocks - self._num_free

    def can_admit(self, sequence: Sequence, num_tokens: int | None = None) -> bool:
        return self.blocks_for(num_tokens or sequence.num_tokens) <= self._num_free

    def grow(self, sequence: Sequence, num_tokens: int) -> None:
        missing = -(-num_tokens // self.block_size) - len(sequence.block_ids)
        assert missing <= self._num_free, "grow only when can_grow says so"
        if missing > 0:
            self._num_free -= missing
            sequence.block_ids += [0] * missing

    def can_grow(self, sequence: Sequence, num_tokens: int) -> bool:
        return -(-num_tokens // self.block_size) - len(sequence.block_ids) <= self._num_free

    def release(self, sequence: Sequence) -> None:
        self._num_free += len(sequence.block_ids)
        assert self._num_free <= self.num_blocks, "blocks were given back twice"
        sequence.block_ids = []
        sequence.num_cached_tokens = 0


class Tier(Protocol):
    """Where blocks go that a worker's own memory forgets: host memory, a disk, a shared store."""

    def keep(self, name: bytes) -> None:
        """A block of this name has just been forgotten by the worker."""
        ...

    def fetch(self, names: list[bytes]) -> tuple[int, float]:
        """How many of these, from the first on, are brought back, and the seconds that takes."""
        ...


class SharedBlocks(BlockAllocator):
    """Prefix reuse by name. `names(request_id)` are those of the request's shareable blocks.

    `loading_s` adds up the time that a tier needs to bring blocks back; the worker spends it with
    its next step and sets it to 0.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        names: Callable[[str], list[bytes]],
        tier: Tier | None = None,
    ) -> None:
        super().__init__(num_blocks, block_size, prefix_reuse=True, prefer_runs=False)
        self.names = names
        self.tier = tier
        self.loading_s = 0.0

    def admit(self, sequence: Sequence, num_tokens: int | None = None) -> None:
        super().admit(sequence, num_tokens)
        if self.tier is None:
            return
        found = sequence.num_cached_tokens // self.block_size
        last = (sequence.num_tokens - 1) // self.block_size  # one token must be left to run
        wanted = [self._hash_of(sequence, index) for index in range(found, last)]
        num_back, seconds = self.tier.fetch(wanted) if wanted else (0, 0.0)
        sequence.num_cached_tokens += num_back * self.block_size
        self.loading_s += seconds

    def _hash_of(self, sequence: Sequence, index: int) -> bytes:
        hashes = sequence.block_hashes
        if not hashes:
            hashes.extend(self.names(sequence.id))
        while len(hashes) <= index:  # its own tokens, and its answer: like nobody else's
            hashes.append(f"{sequence.id}/{len(hashes)}".encode())
        return hashes[index]

    def _take_unused(self, after: int | None) -> int:
        oldest = next(iter(self._free))
        name = self._hashes[oldest]
        block_id = super()._take_unused(after)
        if self.tier is not None and name is not None:
            assert block_id == oldest, "without runs the oldest free block is taken"
            self.tier.keep(name)
        return block_id


def block_names(row: TraceRow, block_size: int) -> list[bytes]:
    """Names of the row's full shareable blocks: equal where all tokens up to their end are."""
    names: list[bytes] = []
    text, used, parent = b"", 0, b""  # the block that is being filled
    for stream, tokens in row.segments:
        start = 0
        while start < tokens:
            take = min(tokens - start, block_size - used)
            text += f"{stream}:{start}+{take};".encode()
            start, used = start + take, used + take
            if used == block_size:
                parent = blake2b(parent + text, digest_size=NAME_BYTES).digest()
                names.append(parent)
                text, used = b"", 0
    return names
