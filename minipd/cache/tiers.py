"""The tiers themselves: carries out the moves that the books have noted down.

Host memory is one buffer of block-sized slots, pinned where the device is a GPU; copies then run on
a stream of their own that waits for the steps before and is waited for by the step after. On a CPU
"device" and host are the same memory: the copies are real, and what they show is the price of a
copy, not that of a bus.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

import torch
from torch import Tensor

from minipd.cache.books import Move, Tier, TierBooks
from minipd.cache.disk import DamagedBlockError
from minipd.cache.store import KVLayout, KVStore
from minipd.cache.tier_sizes import TierSizes, host_slots, open_folder

KEY_ORDER = "paired"  # within a key (`minipd.model.weights`); another order is another cache
CopyKind = Literal["kv_evicted", "kv_fetched", "kv_lost"]
Way = tuple[CopyKind, Tier, str]  # the tier that gives or takes, and the request that waits


@dataclass(slots=True)
class Copied:
    """Blocks that went the same way for the same request: an event of the timeline."""

    kind: CopyKind
    tier: Tier
    request_id: str = ""
    blocks: int = 0
    seconds: float = 0.0
    end_s: float = 0.0
    reason: str = ""

    def add(self, blocks: int, began_s: float, end_s: float) -> None:
        self.blocks += blocks
        self.seconds += end_s - began_s
        self.end_s = end_s


@dataclass(slots=True)
class Outcome:
    """What came of the moves; `unfilled` are device blocks, by id, whose KV did not come."""

    copied: list[Copied] = field(default_factory=list[Copied])
    unfilled: dict[int, bytes] = field(default_factory=dict[int, bytes])
    spoilt: set[bytes] = field(default_factory=set[bytes])  # names of all that did not come


class KVTiers:
    """Of one store. `books` belongs to its allocator; `fingerprint` names the model's weights."""

    def __init__(
        self, store: KVStore, fingerprint: str, sizes: TierSizes, clock: Callable[[], float]
    ) -> None:
        self.store, self.sizes, self.clock = store, sizes, clock
        layout = store.layout
        self.block_bytes = 2 * layout.num_layers * layout.block_bytes
        self.folder = open_folder(sizes, f"{fingerprint}-{_short(layout)}", self.block_bytes)
        self.host = self._buffer(host_slots(sizes, self.block_bytes))  # (slots, L, 2, P, K, D)
        self._staging = self._buffer(1)  # (1, L, 2, P, K, D), between a file and the device
        device = store.device
        self._module = torch.get_device_module(device)
        self._stream = None if device.type == "cpu" else self._module.Stream(device)
        self.books = self._open_books()
        self._is_used = False
        if self.folder is not None:
            for name in self.books.found_on_disk(self.folder.scan()):
                self.folder.delete(name)

    def _buffer(self, slots: int) -> Tensor:
        layout = self.store.layout
        shape = (slots, layout.num_layers, 2, *layout.shape[3:])
        return torch.empty(shape, dtype=layout.dtype, pin_memory=self.store.device.type == "cuda")

    def new_books(self) -> TierBooks:
        """Empty tiers for an allocator that begins anew; the files of this run are deleted."""
        if not self._is_used:
            return self.books
        if self.folder is not None:
            for name in self.books.names("disk"):
                self.folder.delete(name)
        self._is_used, self.books = False, self._open_books()
        return self.books

    def _open_books(self) -> TierBooks:
        disk_blocks = self.sizes.disk_blocks(self.folder) if self.folder is not None else 0
        size = self.store.layout.block_size
        return TierBooks(len(self.host), disk_blocks, self.block_bytes, size, self.sizes.policy)

    # -- carrying out -------------------------------------------------------------------------

    def carry_out(self, moves: Iterable[Move]) -> Outcome:
        """Make the copies, in order, and wait for them."""
        self._is_used = True
        outcome, totals = Outcome(), dict[Way, Copied]()
        with self._own_stream():
            for way, group in groupby(moves, _way):
                began = self.clock()
                blocks = sum([self._try(move, outcome) for move in group])
                self._settle()
                if blocks and way is not None:
                    told = totals.setdefault(way, Copied(*way))
                    told.add(blocks, began, self.clock())
        outcome.copied += totals.values()
        return outcome

    @contextlib.contextmanager
    def _own_stream(self) -> Generator[None, None, None]:
        """What ran before is over first; the caller's stream goes on once the copies are made."""
        if self._stream is None:
            yield
            return
        current = self._module.current_stream(self.store.device)
        self._stream.wait_stream(current)
        with self._module.stream(self._stream):
            yield
        current.wait_stream(self._stream)

    def _settle(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()

    def _try(self, move: Move, outcome: Outcome) -> bool:
        """One copy; False where it failed, which is told and booked."""
        into = move.target.index if move.target and move.target.where == "device" else None
        try:
            if move.name in outcome.spoilt and move.source.where != "disk":
                raise DamagedBlockError("it was to come from a file that was damaged")
            self._copy(move)
        except (OSError, DamagedBlockError) as error:
            self._book_loss(move, str(error), outcome)
            if into is not None:
                outcome.unfilled[into] = move.name
            return False
        if into is not None:
            outcome.unfilled.pop(into, None)
        return True

    def _book_loss(self, move: Move, reason: str, outcome: Outcome) -> None:
        way = _way(move)
        assert way is not None, "nothing is lost where a file cannot be deleted"
        kind, tier, request_id = way
        self.books.forget(move.name, tier)
        outcome.copied.append(
            Copied("kv_lost", tier, request_id, 1, end_s=self.clock(), reason=reason)
        )
        if kind == "kv_fetched":
            outcome.spoilt.add(move.name)

    def _copy(self, move: Move) -> None:
        source, target = move.source, move.target
        blocks = self.store.buffer  # (L, 2, N, P, K, D)
        match source.where, target.where if target is not None else None:
            case "device", "host":
                assert target is not None
                self.host[target.index].copy_(blocks[:, :, source.index], non_blocking=True)
            case "host", "device":
                assert target is not None
                blocks[:, :, target.index].copy_(self.host[source.index], non_blocking=True)
            case "device", "disk":
                self._staging[0].copy_(blocks[:, :, source.index])
                self._write(move.name, self._staging[0])
            case "host", "disk":
                self._settle()  # the slot may have been filled just now
                self._write(move.name, self.host[source.index])
            case "disk", "device":
                assert target is not None
                self._read(move.name)
                blocks[:, :, target.index].copy_(self._staging[0])
            case _:
                if self.folder is not None:
                    self.folder.delete(move.name)

    def _write(self, name: bytes, block: Tensor) -> None:
        assert self.folder is not None, "only books with a disk send blocks there"
        self.folder.write(name, _flat(block))

    def _read(self, name: bytes) -> None:
        assert self.folder is not None, "only books with a disk fetch blocks from there"
        self._settle()
        self.folder.read(name, _flat(self._staging[0]))


def _flat(block: Tensor) -> Any:
    """A contiguous CPU tensor in place, as a flat array of bytes."""
    return block.view(-1).view(torch.uint8).numpy()


def _way(move: Move) -> Way | None:
    """What moves of one kind, which follow one another, are told as; None: of no interest."""
    source, target = move.source.where, move.target.where if move.target is not None else None
    if target is None:
        return None
    if target == "device":
        return "kv_fetched", "host" if source == "host" else "disk", move.request_id
    return "kv_evicted", target, ""


def _short(layout: KVLayout) -> str:
    """What two caches must share for a block of one to be right in the other."""
    dtype = str(layout.dtype).removeprefix("torch.")
    heads = f"{layout.num_kv_heads}x{layout.head_dim}"
    return f"{layout.num_layers}-layers-{layout.block_size}-tokens-{heads}-{dtype}-{KEY_ORDER}"
