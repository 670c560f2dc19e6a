"""Checks of exercise 07.1: refuse a hand-off that is not whole."""

from __future__ import annotations

from minipd.lab.checks.parcel_cases import (
    FOUR_LAYERS,
    TWO_LAYERS,
    blocks_are_equal,
    first_thing_first,
    known_words,
    order_counts,
    other_memory_is_ignored,
    returns_a_text,
    says,
)
from minipd.lab.hints import Check, Exercise, Hints

WHOLE_PARCEL = Exercise(
    "07.1",
    "Half a KV",
    "why_refuse",
    (
        Check(
            "a_text",
            "why_refuse must return a text: what does not match, or the empty text.",
            returns_a_text,
            Hints(
                "What does whoever calls your function want to write into a log?",
                "True and False say that something is wrong, and not what; a function that ends "
                "without return says None.",
                'return "layers" where the layers differ, and so on; at the end, return ""',
            ),
        ),
        Check(
            "known_words",
            "Only five texts mean something here: layers, blocks, tokens, digests, and the empty "
            "one.",
            known_words,
            Hints(
                "Look at the spelling of the text that was returned.",
                "Programs compare texts letter by letter; a capital letter or a missing s is "
                "another text.",
                'return "layers", "blocks", "tokens", "digests" or ""',
            ),
        ),
        Check(
            "lists_and_tuples",
            "A hand-off into just the reserved blocks was refused for its blocks.",
            blocks_are_equal,
            Hints(
                "Print both sides of your comparison. What differs?",
                "One is a list and the other a tuple, and those are never equal, even with the "
                "same numbers in them.",
                "list(parcel.block_ids) != list(reserved)",
            ),
        ),
        Check(
            "whole_is_accepted",
            "A hand-off that is whole was refused.",
            says("", "nothing"),
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
            says("layers", TWO_LAYERS, FOUR_LAYERS),
            Hints(
                "How many layers has your own model?",
                "Two lists compared pair by pair look equal as far as the shorter one goes.",
                "Compare parcel.num_layers with store.layout.num_layers, before anything else.",
            ),
        ),
        Check(
            "blocks_compared",
            "A parcel that was written into other blocks than the reserved ones must be refused.",
            says("blocks", "it was sent to other blocks"),
            Hints(
                "Where did the sender write, and where will you read?",
                "Just as many blocks are not the same blocks.",
                "Compare list(parcel.block_ids) with list(reserved).",
            ),
        ),
        Check(
            "order_of_blocks",
            "The reserved blocks in another order put every token into another one's place.",
            order_counts,
            Hints(
                "Is a set of blocks enough?",
                "A block table is a list: its order is the order of the tokens.",
                "Compare lists, without sorting and without set().",
            ),
        ),
        Check(
            "tokens_compared",
            "A parcel for one token less, or one more, must be refused for its tokens.",
            says("tokens", "it is for one token less", "it is for one token more"),
            Hints(
                "How far is the last block filled?",
                "Nine and ten tokens take the same blocks; the position of the next one differs.",
                "Compare parcel.num_tokens with num_tokens, and not the numbers of blocks.",
            ),
        ),
        Check(
            "last_block_seen",
            "The last block never arrived, and the parcel was accepted.",
            says("digests", "the last block is missing"),
            Hints(
                "Which blocks go into your digests?",
                "Ten tokens fill two blocks and a part of a third one; the third counts, too.",
                "Take digests_of(store, ...) over all reserved blocks.",
            ),
        ),
        Check(
            "strangers_seen",
            "The last block holds somebody else's keys and values, and nobody noticed.",
            says("digests", "the last block is somebody else's"),
            Hints(
                "Is a block that is not empty the right one?",
                "Memory that was used before is full of plausible numbers.",
                "Compare digests; looking for zeros is not enough.",
            ),
        ),
        Check(
            "every_layer",
            "The top layer never arrived, and the parcel was accepted.",
            says("digests", "the top layer is missing"),
            Hints(
                "How many layers did you compare?",
                "Each layer has keys and values of its own, sent one after the other.",
                "Compare all of parcel.digests with all that digests_of gives.",
            ),
        ),
        Check(
            "values_too",
            "The values of one layer never arrived, or its keys, and the parcel was accepted.",
            says(
                "digests",
                "the values of one layer are missing",
                "the keys of one layer are missing",
            ),
            Hints(
                "What stands at the even places of the digests, and what at the odd ones?",
                "Keys decide who is looked at, values what is seen there; both travelled.",
                "Compare every digest, not every second one.",
            ),
        ),
        Check(
            "keys_are_not_values",
            "Keys and values of one layer were exchanged, and the parcel was accepted.",
            says("digests", "keys and values of one layer are exchanged"),
            Hints(
                "All the right numbers are there. Are they in their places?",
                "A sum, a set or a sorted list of digests forgets which of them belongs where.",
                "Compare the digests as they stand: the first with the first, and so on.",
            ),
        ),
        Check(
            "digests_demanded",
            "A parcel that names no digests must be refused for its digests.",
            says("digests", "it came without digests"),
            Hints(
                "How many pairs does zip make of six digests and none?",
                "Pair by pair, two lists agree as far as the shorter one goes; here that is "
                "nowhere.",
                "Compare the two as wholes: list(...) != list(...).",
            ),
        ),
        Check(
            "order_in_memory",
            "Two blocks were exchanged on the way, and the parcel was accepted.",
            says("digests", "two blocks are exchanged"),
            Hints(
                "In which order do you take the blocks?",
                "A digest is of bytes in a certain order; the order of the tokens.",
                "Give digests_of the reserved blocks as they stand, unsorted.",
            ),
        ),
        Check(
            "only_its_own_blocks",
            "A whole hand-off was refused because of blocks that belong to others.",
            other_memory_is_ignored,
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
            first_thing_first,
            Hints(
                "Which question comes first?",
                "With another model, blocks and digests mean nothing, so layers come first.",
                "Ask in this order: layers, blocks, tokens, digests.",
            ),
        ),
    ),
)
