"""What every link does: put one worker's KV blocks into another worker's store, one-sided.

The receiving worker exposes its store once. A sending worker connects to it once and then writes
without asking: `begin` a hand-off, `write` layer after layer while later layers are still being
computed, and `poll` until every byte is there. Only then may the manifest be sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Items
from typing import Any, Protocol

import torch
from torch import Tensor

from minipd.cache.store import KVLayout, KVStore


class LinkError(RuntimeError):
    """A link that cannot be set up here, or that broke; the message says what is missing."""


class StuckError(RuntimeError):
    """A write that was given up and may still arrive: only the end of this process prevents it."""


def paired_runs(blocks: Items[int], into: Items[int]) -> Iterator[tuple[slice, slice]]:
    """Source and target block ids as few pairs of slices, each one run on both sides.

    [4, 5, 6, 9] into [0, 1, 7, 8] becomes 4:6 into 0:2, 6:7 into 7:8, 9:10 into 8:9.
    """
    assert len(blocks) == len(into), f"{len(blocks)} blocks cannot fill {len(into)}"
    at = 0
    while at < len(blocks):
        end = at + 1
        while (
            end < len(blocks)
            and blocks[end] == blocks[end - 1] + 1
            and into[end] == into[end - 1] + 1
        ):
            end += 1
        yield slice(blocks[at], blocks[end - 1] + 1), slice(into[at], into[end - 1] + 1)
        at = end


BOTH = (0, 1)  # of a layer's tensors: keys and values


def copy_blocks(
    layer: int,
    source: KVStore,
    blocks: Items[int],
    target: KVStore,
    into: Items[int],
    parts: Items[int] = BOTH,
) -> None:
    """Copy blocks of one layer; on a GPU, on the current stream."""
    assert max(into, default=0) < target.layout.num_blocks, f"no block {max(into)} in the target"
    both_on_cpu = source.device.type == target.device.type == "cpu"
    for part in parts:
        ours, theirs = source.buffer[layer, part], target.buffer[layer, part]  # (N, P, K, D)
        if both_on_cpu:
            sent, found = as_bytes(ours), as_bytes(theirs)
            for src, dst in paired_runs(blocks, into):
                found[dst] = sent[src]
        else:
            for src, dst in paired_runs(blocks, into):
                theirs[dst].copy_(ours[src], non_blocking=True)


def as_bytes(rows: Tensor) -> Any:
    """A CPU tensor in place, as a numpy array of bytes: a slice of it costs a tenth of torch's."""
    return rows.view(torch.uint8).numpy()


class Transfer(Protocol):
    """One hand-off under way."""

    @property
    def num_bytes(self) -> int: ...

    @property
    def busy_s(self) -> float:
        """Time that the sending worker itself has spent on it."""
        ...

    def write(self, layer: int, blocks: Items[int], into: Items[int]) -> None:
        """Send these blocks of `layer`; their KV is final. May return before they have arrived.

        It is called in the middle of a prefill, so it never raises for a broken link: `poll` does.
        """
        ...

    def poll(self) -> bool:
        """Is everything written so far in the target's store? Does not wait.

        Raises `LinkError` if it never will be, and nothing more of it can arrive; `StuckError` if
        something may, at a target that lives. Then the worker must end.
        """
        ...

    def digests(self) -> tuple[int, ...]:
        """Digests of what was sent, taken from the source's bytes."""
        ...


class Writer(Protocol):
    """A connection to one target's store."""

    def begin(self) -> Transfer: ...

    def close(self) -> None:
        """Let go of the target; what is under way need not arrive any more."""
        ...


class Link(Protocol):
    """How KV travels in one cluster; each worker has its own copy, made from the same settings."""

    def make_store(self, layout: KVLayout, device: torch.device, name: str) -> KVStore:
        """The worker's own store, placed where others can write to it. `name` is unique."""
        ...

    def expose(self, store: KVStore) -> Any:
        """A small picklable value with which another worker can connect."""
        ...

    def connect(self, source: KVStore, registration: Any) -> Writer: ...

    def progress(self) -> None:
        """Called once per turn of the worker's loop, for links that need a moment of its time."""
        ...

    def close(self) -> None: ...


class BrokenTransfer:
    """Stands in for a hand-off that could not even begin: the prompt is read, and `poll` tells."""

    num_bytes = 0
    busy_s = 0.0

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def write(self, layer: int, blocks: Items[int], into: Items[int]) -> None:
        pass

    def poll(self) -> bool:
        raise LinkError(self.reason)

    def digests(self) -> tuple[int, ...]:
        return ()
