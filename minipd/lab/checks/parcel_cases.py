"""What exercise 07.1 is asked: parcels with known faults, and what must be said of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from minipd.lab.hints import Answer

if TYPE_CHECKING:
    from minipd.lab.parcels import Arrival

WORDS = ("layers", "blocks", "tokens", "digests", "")
TWO_LAYERS = "it comes from a model of two layers"
NO_DIGESTS = "it came without digests"
FOUR_LAYERS = "it comes from a model of four layers"


def _said(answer: Answer, arrival: Arrival) -> object:
    a = arrival
    return answer(a.parcel, list(a.reserved), a.num_tokens, a.store)


def says(verdict: str, *faults: str) -> Callable[[Answer], bool]:
    """Whether each of the faults gets this verdict."""

    def holds(answer: Answer) -> bool:
        from minipd.lab.parcels import arrival

        return all(_said(answer, arrival(fault)) == verdict for fault in faults)

    return holds


def blocks_are_equal(answer: Answer) -> bool:
    """A whole parcel may fail for many reasons, but not for its blocks."""
    return not says("blocks", "nothing")(answer)


def returns_a_text(answer: Answer) -> bool:
    from minipd.lab.parcels import arrival

    return all(isinstance(_said(answer, arrival(f)), str) for f in ("nothing", TWO_LAYERS))


def known_words(answer: Answer) -> bool:
    """Whatever is wrong, it is said in one of the words that the exercise names.

    Digests that are missing altogether have a check of their own: code may stop there.
    """
    from minipd.lab.parcels import FAULTS, arrival

    return all(_said(answer, arrival(f)) in WORDS for f in FAULTS if f != NO_DIGESTS)


def order_counts(answer: Answer) -> bool:
    """The same blocks in another order: the words name them, so that is said first."""
    from dataclasses import replace

    from minipd.lab.parcels import arrival

    a = arrival()
    turned = replace(a, parcel=replace(a.parcel, block_ids=a.parcel.block_ids[::-1]))
    return _said(answer, turned) == "blocks"


def other_memory_is_ignored(answer: Answer) -> bool:
    """Blocks that belong to others may hold anything."""
    from minipd.lab.parcels import arrival

    a = arrival()
    others = [n for n in range(a.store.layout.num_blocks) if n not in a.reserved]
    a.store.buffer[:, :, others] = 3.5
    return _said(answer, a) == ""


def first_thing_first(answer: Answer) -> bool:
    """Another model, other blocks and other tokens at once: layers come first, then blocks."""
    from dataclasses import replace

    from minipd.lab.parcels import arrival

    a = arrival(FOUR_LAYERS)
    changed = replace(a.parcel, num_tokens=3, block_ids=(1, 2, 3))
    all_wrong = replace(a, parcel=changed)
    two_wrong = replace(a, parcel=replace(changed, num_layers=3, digests=a.parcel.digests[:6]))
    return _said(answer, all_wrong) == "layers" and _said(answer, two_wrong) == "blocks"
