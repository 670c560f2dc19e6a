"""Checks of exercise 07.1: refuse a hand-off that is not whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from minipd.lab.hints import Answer, Check, Exercise, Hints

if TYPE_CHECKING:
    from minipd.lab.parcels import Arrival


def _said(answer: Answer, arrival: Arrival) -> object:
    a = arrival
    return answer(a.parcel, list(a.reserved), a.num_tokens, a.store)


def _says(fault: str, *allowed: str) -> Callable[[Answer], bool]:
    """Whether a fault gets one of the allowed verdicts."""

    def holds(answer: Answer) -> bool:
        from minipd.lab.parcels import arrival

        return _said(answer, arrival(fault)) in allowed

    return holds


def _returns_a_text(answer: Answer) -> bool:
    from minipd.lab.parcels import arrival

    return all(isinstance(_said(answer, arrival(f)), str) for f in ("nothing", WRONG[0]))


WRONG = ("it comes from a model of two layers",)


def _order_counts(answer: Answer) -> bool:
    """The same blocks in another order: the words name them, so that is said first."""
    from dataclasses import replace

    from minipd.lab.parcels import arrival

    a = arrival()
    turned = replace(a, parcel=replace(a.parcel, block_ids=a.parcel.block_ids[::-1]))
    return _said(answer, turned) == "blocks"


def _other_memory_is_ignored(answer: Answer) -> bool:
    """Blocks that belong to others may hold anything."""
    from minipd.lab.parcels import arrival

    a = arrival()
    others = [n for n in range(a.store.layout.num_blocks) if n not in a.reserved]
    a.store.buffer[:, :, others] = 3.5
    return _said(answer, a) == ""


def _first_thing_first(answer: Answer) -> bool:
    """Another model, other blocks and other tokens at once: layers come first, then blocks."""
    from dataclasses import replace

    from minipd.lab.parcels import arrival

    a = arrival("it comes from a model of four layers")
    changed = replace(a.parcel, num_tokens=3, block_ids=(1, 2, 3))
    all_wrong = replace(a, parcel=changed)
    two_wrong = replace(a, parcel=replace(changed, num_layers=3, digests=a.parcel.digests[:6]))
    return _said(answer, all_wrong) == "layers" and _said(answer, two_wrong) == "blocks"


WHOLE_PARCEL = Exercise(
    "07.1",
    "Half a KV",
    "why_refuse",
    (
        Check(
            "a_text",
            "why_refuse must return a text: what does not match, or the empty text.",
            _returns_a_text,
            Hints(
                "What does whoever calls your function want to write into a log?",
                "True and False say that something is wrong, and not what.",
                'return "layers" where the layers differ, and so on; at the end, return ""',
            ),
        ),
        Check(
            "whole_is_accepted",
            "A hand-off that is whole was refused.",
            _says("nothing", ""),
            Hints(
                "What did you compare with what?",
                "Digests agree only over the same blocks in the same order: all the reserved ones, "
                "the partly filled last one too, and no others. And a list never equals a tuple.",
                "digests_of(store, reserved) against parcel.digests; list(...) around both sides "
                "of every comparison.",
            ),
        ),
        Check(
            "layers_compared",
            "A parcel of a model with another number of layers must be refused for its layers.",
            lambda answer: (
                _says(WRONG[0], "layers")(answer)
                and _says("it comes from a model of four layers", "layers")(answer)
            ),
            Hints(
                "How many layers has your own model?",
                "Two lists compared pair by pair look equal as far as the shorter one goes.",
                "Compare parcel.num_layers with store.layout.num_layers, before anything else.",
            ),
        ),
        Check(
            "blocks_compared",
            "A parcel that was written into other blocks than the reserved ones must be refused.",
            _says("it was sent to other blocks", "blocks"),
            Hints(
                "Where did the sender write, and where will you read?",
                "Just as many blocks are not the same blocks.",
                "Compare list(parcel.block_ids) with list(reserved).",
            ),
        ),
        Check(
            "order_of_blocks",
            "The reserved blocks in another order put every token into another one's place.",
            _order_counts,
            Hints(
                "Is a set of blocks enough?",
                "A block table is a list: its order is the order of the tokens.",
                "Compare lists, without sorting and without set().",
            ),
        ),
        Check(
            "tokens_compared",
            "A parcel for one token less must be refused for its tokens.",
            _says("it is for one token less", "tokens"),
            Hints(
                "How far is the last block filled?",
                "Nine and ten tokens take the same blocks; the position of the next one differs.",
                "Compare parcel.num_tokens with num_tokens, and not the numbers of blocks.",
            ),
        ),
        Check(
            "last_block_seen",
            "The last block never arrived, and the parcel was accepted.",
            _says("the last block is missing", "digests"),
            Hints(
                "Which blocks go into your digests?",
                "Ten tokens fill two blocks and a part of a third one; the third counts, too.",
                "Take digests_of(store, ...) over all reserved blocks.",
            ),
        ),
        Check(
            "strangers_seen",
            "The last block holds somebody else's keys and values, and nobody noticed.",
            _says("the last block is somebody else's", "digests"),
            Hints(
                "Is a block that is not empty the right one?",
                "Memory that was used before is full of plausible numbers.",
                "Compare digests; looking for zeros is not enough.",
            ),
        ),
        Check(
            "every_layer",
            "The top layer never arrived, and the parcel was accepted.",
            _says("the top layer is missing", "digests"),
            Hints(
                "How many layers did you compare?",
                "Each layer has keys and values of its own, sent one after the other.",
                "Compare all of parcel.digests with all that digests_of gives.",
            ),
        ),
        Check(
            "values_too",
            "The values of one layer never arrived, and the parcel was accepted.",
            _says("the values of one layer are missing", "digests"),
            Hints(
                "What stands at the odd places of the digests?",
                "Keys decide who is looked at, values what is seen there; both travelled.",
                "Compare every digest, not every second one.",
            ),
        ),
        Check(
            "order_in_memory",
            "Two blocks were exchanged on the way, and the parcel was accepted.",
            _says("two blocks are exchanged", "digests"),
            Hints(
                "In which order do you take the blocks?",
                "A digest is of bytes in a certain order; the order of the tokens.",
                "Give digests_of the reserved blocks as they stand, unsorted.",
            ),
        ),
        Check(
            "only_its_own_blocks",
            "A whole hand-off was refused because of blocks that belong to others.",
            _other_memory_is_ignored,
            Hints(
                "Whose memory did you look at?",
                "Around the reserved blocks lie other people's sequences, which change all the "
                "time.",
                "Digests over reserved, not over all blocks of the store.",
            ),
        ),
        Check(
            "first_thing_first",
            "Several things were wrong at once, and not the first of them was named.",
            _first_thing_first,
            Hints(
                "Which question comes first?",
                "With another model, blocks and digests mean nothing, so layers come first.",
                "Ask in this order: layers, blocks, tokens, digests.",
            ),
        ),
    ),
)
