"""Parcels of lesson 07's exercises: small hand-offs, whole or with one known fault, on real stores.

Keys and values are drawn at random with a fixed seed; digests are the engine's own.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass

import torch

from minipd.cache.store import KVLayout, KVStore
from minipd.pools.links.digests import Digests

LAYOUT = KVLayout(3, 8, 4, 1, 2, torch.float32)  # layers, blocks, tokens, KV heads, head size
NUM_TOKENS = 10  # two blocks and a half
SOURCE, RESERVED = [0, 1, 2], [6, 2, 5]
# What goes wrong on the way, in the order of the exercise's table.
FAULTS = (
    "nothing",
    "the last block is missing",
    "the last block is somebody else's",
    "the top layer is missing",
    "the keys of one layer are missing",
    "the values of one layer are missing",
    "keys and values of one layer are exchanged",
    "two blocks are exchanged",
    "it was sent to other blocks",
    "it is for one token less",
    "it is for one token more",
    "it came without digests",
    "it comes from a model of two layers",
    "it comes from a model of four layers",
)


@dataclass(frozen=True, slots=True)
class Parcel:
    """What the sender says: the manifest of this exercise.

    `digests` has two numbers for each layer, first of its keys, then of its values, taken from the
    sender's own memory, over all blocks in order.
    """

    num_layers: int
    block_ids: tuple[int, ...]
    num_tokens: int
    digests: tuple[int, ...]

    def __repr__(self) -> str:
        """Short enough to be read in a failed check."""
        return (
            f"<parcel: {self.num_layers} layers, blocks {list(self.block_ids)}, "
            f"{self.num_tokens} tokens, {len(self.digests)} digests>"
        )


@dataclass(frozen=True, slots=True)
class Arrival:
    """A parcel, and what the receiver knows and holds when it comes."""

    parcel: Parcel
    reserved: list[int]
    num_tokens: int
    store: KVStore


def digests_of(store: KVStore, block_ids: Items[int]) -> tuple[int, ...]:
    """Digests of what lies in these blocks now: keys, then values, layer after layer."""
    taken = Digests(store)
    for layer in range(store.layout.num_layers):
        taken.add(layer, block_ids)
    return taken.result()


def arrival(fault: str = "nothing") -> Arrival:
    """A hand-off of 10 tokens into blocks 6, 2, 5, with one of `FAULTS`."""
    if fault not in FAULTS:
        raise ValueError(f"There is no fault {fault!r}; use one of FAULTS.")
    draw = torch.Generator().manual_seed(7)
    sender, store = KVStore(LAYOUT), KVStore(LAYOUT)
    sender.buffer.copy_(torch.randn(LAYOUT.shape, generator=draw))  # (L, 2, N, P, K, D)
    store.buffer[:, :, RESERVED] = sender.buffer[:, :, SOURCE]
    _spoil(store, sender, fault)
    digests = digests_of(sender, SOURCE)
    parcel = Parcel(LAYOUT.num_layers, tuple(RESERVED), NUM_TOKENS, digests)
    return Arrival(_misstate(parcel, fault), list(RESERVED), NUM_TOKENS, store)


def _spoil(store: KVStore, sender: KVStore, fault: str) -> None:
    """What the fault does to the receiver's memory."""
    last, first = RESERVED[-1], RESERVED[0]
    if fault == "the last block is missing":
        store.buffer[:, :, last] = 0.0
    elif fault == "the last block is somebody else's":
        store.buffer[:, :, last] = sender.buffer[:, :, 7]
    elif fault == "the top layer is missing":
        store.buffer[-1] = 0.0
    elif fault == "the keys of one layer are missing":
        store.keys[1][RESERVED] = 0.0
    elif fault == "the values of one layer are missing":
        store.values[1][RESERVED] = 0.0
    elif fault == "keys and values of one layer are exchanged":
        store.buffer[1] = store.buffer[1].flip(0)  # (2, N, P, K, D)
    elif fault == "two blocks are exchanged":
        store.buffer[:, :, [first, last]] = store.buffer[:, :, [last, first]].clone()


def _misstate(parcel: Parcel, fault: str) -> Parcel:
    """What the fault does to the sender's words; digests stay those of what was sent."""
    layers, ids, tokens = parcel.num_layers, parcel.block_ids, parcel.num_tokens
    if fault == "it was sent to other blocks":
        return Parcel(layers, (6, 2, 1), tokens, parcel.digests)
    if fault == "it is for one token less":
        return Parcel(layers, ids, tokens - 1, parcel.digests)
    if fault == "it is for one token more":
        return Parcel(layers, ids, tokens + 1, parcel.digests)
    if fault == "it came without digests":
        return Parcel(layers, ids, tokens, ())
    if fault == "it comes from a model of two layers":
        return Parcel(2, ids, tokens, parcel.digests[:4])
    if fault == "it comes from a model of four layers":
        return Parcel(4, ids, tokens, (*parcel.digests, 5, 6))
    return parcel


def judge_all(why_refuse: Callable[..., object]) -> dict[str, list[object]]:
    """What a check says to every fault, as columns by heading; a stub's own sentence ends it."""
    verdicts: list[object] = []
    for fault in FAULTS:
        a = arrival(fault)
        try:
            said = why_refuse(a.parcel, a.reserved, a.num_tokens, a.store)
        except NotImplementedError:
            said = "(nothing yet)"
        except Exception as error:  # one parcel that stops the code must not hide the others
            said = f"(stopped: {type(error).__name__})"
        verdicts.append("accepted" if said == "" else said)
    return {"what went wrong": list(FAULTS), "your check says": verdicts}
