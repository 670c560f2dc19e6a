"""Send a prompt where its beginning is cached: overlap against load.

The coordinator hears which prompts a worker has read and which blocks it has forgotten, and keeps a
map of them. It is approximate: what is on its way is not in it yet, and a worker that never tells
what it forgets is believed to hold its last `max_blocks`. NVIDIA Dynamo's KV router and llm-d's
precise prefix scorer work like this; Dynamo too weighs tokens to be computed against what is
under way (docs.nvidia.com/dynamo, "Routing Concepts": prefill blocks after overlap plus decode
blocks, the lowest sum wins; llm-d.ai/docs, "KV-Cache Indexer").
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from minipd.cache.allocator import BlockAllocator, hash_block
from minipd.request import Request
from minipd.sched.router import Route, WorkerLoad

Names = Callable[[Request, Items[int]], list[bytes]]


@dataclass(slots=True)
class PrefixMap:
    """Which worker holds which blocks, by name, as far as was heard; its memory is bounded."""

    max_blocks: int = 100_000  # per worker; what was heard of longest ago is dropped
    _held: dict[str, OrderedDict[bytes, None]] = field(
        default_factory=dict[str, OrderedDict[bytes, None]]
    )

    def add(self, worker: str, names: Iterable[bytes]) -> None:
        """It has computed or received these, or was asked for them again."""
        held = self._held.setdefault(worker, OrderedDict())
        for name in reversed(list(names)):  # a chain's end is dropped before its start
            held[name] = None
            held.move_to_end(name)
        while len(held) > self.max_blocks:
            held.popitem(last=False)

    def remove(self, worker: str, names: Iterable[bytes]) -> None:
        held = self._held.get(worker, {})
        for name in names:
            held.pop(name, None)

    def forget(self, worker: str) -> None:
        """It died, or begins anew with an empty cache."""
        self._held.pop(worker, None)

    def names(self, worker: str) -> list[bytes]:
        """What the worker is believed to hold."""
        return list(self._held.get(worker, ()))

    def num_held(self, worker: str, names: Items[bytes]) -> int:
        """How many of these, from the first on, the worker holds."""
        held = self._held.get(worker, {})
        return next((i for i, name in enumerate(names) if name not in held), len(names))


@dataclass(slots=True)
class PrefixAware:
    """The worker with the least to do: tokens of this prompt that it does not hold, tokens that
    wait there to be read, and `tokens_per_running` for each answer that it is writing.

    In a split the reader and the writer are chosen alike, since what the writer holds need not be
    sent; it reads up to `max_local_tokens` that it does not hold itself. `names` gives the names of
    a request's full blocks where they are not the hashes of its tokens.
    """

    block_size: int = 16
    tokens_per_running: int = 64
    max_local_tokens: int = 0
    names: Names | None = None
    known: PrefixMap = field(default_factory=PrefixMap)

    def names_of(self, request: Request, output_ids: Items[int] = ()) -> list[bytes]:
        """Names of the full blocks that are cached once these tokens are out: all but the last."""
        if self.names is not None:
            return self.names(request, output_ids)
        size, tokens = self.block_size, [*request.prompt_ids, *output_ids[:-1]]
        found: list[bytes] = []
        for start in range(0, len(tokens) - size + 1, size):
            found.append(hash_block(found[-1] if found else b"", tokens[start : start + size]))
        return found

    def look_up(
        self, request: Request, output_ids: Items[int], loads: Iterable[WorkerLoad]
    ) -> None:
        """Note down for each worker how many of the request's first tokens it holds."""
        names = self.names_of(request, output_ids)
        for load in loads:
            load.cached_tokens = self.known.num_held(load.name, names) * self.block_size

    def route(
        self, num_uncached_tokens: int, prefill: list[WorkerLoad], decode: list[WorkerLoad]
    ) -> Route:
        writer = min(decode, key=self._tokens_of_work)
        if not prefill or num_uncached_tokens - writer.cached_tokens <= self.max_local_tokens:
            return Route(writer.name, None, self._reason(writer, num_uncached_tokens, decode))
        reader = min(prefill, key=self._tokens_of_work)
        reason = self._reason(reader, num_uncached_tokens, prefill)
        return Route(writer.name, reader.name, reason)

    def _tokens_of_work(self, load: WorkerLoad) -> int:
        running = self.tokens_per_running * load.num_running
        return load.queued_prefill_tokens + running - load.cached_tokens

    def _reason(self, chosen: WorkerLoad, num_tokens: int, loads: list[WorkerLoad]) -> str:
        most = max(loads, key=lambda load: load.cached_tokens)
        if not most.cached_tokens:
            return "nobody holds its beginning: least work"
        told = f"{chosen.cached_tokens} of {num_tokens} tokens are held there"
        if chosen.cached_tokens < most.cached_tokens:
            told += f", {most.cached_tokens} at the busier {most.name}"
        return told


def forgotten_by(allocator: BlockAllocator) -> tuple[bytes, ...]:
    """Names that neither the cache nor its tiers hold any more, since the last call.

    Only where `allocator.forgotten` is a list, not None, does anybody keep count.
    """
    if allocator.forgotten is None:
        return ()
    gone, allocator.forgotten = allocator.forgotten, []
    if allocator.books is not None:
        gone += allocator.books.take_lost()
    return tuple(name for name in dict.fromkeys(gone) if not allocator.holds(name))
