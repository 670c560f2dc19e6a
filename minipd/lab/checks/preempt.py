"""Checks of exercise 05.3: a sequence gives up its blocks and will be read again."""

from __future__ import annotations

from collections.abc import Callable

from minipd.lab.hints import Answer, Check, Exercise, Hints
from minipd.lab.hunting import Books, two_answers
from minipd.request import Sequence

SHARED, OWN, WRITTEN = 2, 3, 4  # blocks, blocks, tokens
Claim = Callable[[Books, Sequence, Sequence], bool]


def _after(claim: Claim) -> Callable[[Answer], bool]:
    """Whether a claim holds once the first of two sequences was preempted."""

    def holds(answer: Answer) -> bool:
        books, sequence, other = two_answers(SHARED, OWN, WRITTEN)
        answer(books, sequence)
        return claim(books, sequence, other)

    return holds


def _does_not_run(books: Books, sequence: Sequence, other: Sequence) -> bool:
    return not any(one is sequence for one in books.running) and books.running == [other]


def _is_first(books: Books, sequence: Sequence, other: Sequence) -> bool:
    return [one.id for one in books.waiting] == ["first", "third"]


def _shared_stay(books: Books, sequence: Sequence, other: Sequence) -> bool:
    return not set(books.free) & set(other.block_ids)


def _own_return(books: Books, sequence: Sequence, other: Sequence) -> bool:
    own = range(SHARED, SHARED + OWN)
    return set(own) <= set(books.free) and len(set(books.free)) == len(books.free)


def _users_counted(books: Books, sequence: Sequence, other: Sequence) -> bool:
    return books.users == [1] * SHARED + [0] * OWN + [1, 0, 0]


def _others_untouched(books: Books, sequence: Sequence, other: Sequence) -> bool:
    _, _, fresh = two_answers(SHARED, OWN, WRITTEN)
    same_table = other.block_ids == fresh.block_ids
    return same_table and other.num_cached_tokens == fresh.num_cached_tokens


PREEMPT = Exercise(
    "05.3",
    "Preempt, then read again",
    "preempt",
    (
        Check(
            "does_not_run",
            "The sequence is still among the running ones, or another one is not.",
            _after(_does_not_run),
            Hints(
                "Who runs now?",
                "A sequence is either running or waiting, never both.",
                "books.running.remove(...)",
            ),
        ),
        Check(
            "first_in_line",
            "The preempted sequence must wait before all others, once, and nobody gets lost.",
            _after(_is_first),
            Hints(
                "Who was here first?",
                "At the back of a long queue a half-written answer could wait for ever, and each "
                "newcomer would take the place that it needs.",
                "Put it at position 0 of books.waiting.",
            ),
        ),
        Check(
            "words_are_kept",
            "The words that were written are gone, but somebody has read them already.",
            _after(lambda books, sequence, other: sequence.output_ids == list(range(WRITTEN))),
            Hints(
                "What does the reader of the answer see on the screen?",
                "Keys and values can be computed again from the tokens; the tokens cannot.",
                "Leave output_ids alone.",
            ),
        ),
        Check(
            "owns_no_block",
            "The sequence still has block ids in its table.",
            _after(lambda books, sequence, other: not sequence.block_ids),
            Hints(
                "Whose blocks are these now?",
                "A table with blocks of somebody else leads to corrupted answers.",
                "Give the sequence an empty list of block_ids, after you went through the old one.",
            ),
        ),
        Check(
            "nothing_cached",
            "The sequence owns no block, and still believes that some of its tokens are cached.",
            _after(lambda books, sequence, other: sequence.num_cached_tokens == 0),
            Hints(
                "From which token on will it be read?",
                "The engine runs the tokens from num_cached_tokens on: all those before it would "
                "have no keys and values at all.",
                "Set num_cached_tokens back to zero.",
            ),
        ),
        Check(
            "is_read_again",
            "The sequence must be read again: is_prefilling has to be true.",
            _after(lambda books, sequence, other: sequence.is_prefilling is True),
            Hints(
                "Is its next step a step of writing?",
                "Before it can write on, all of its tokens have to be read again.",
                "Set is_prefilling to True.",
            ),
        ),
        Check(
            "shared_blocks_stay",
            "A block is free that the other sequence still reads.",
            _after(_shared_stay),
            Hints(
                "Who else looks at these blocks?",
                "A block is free when its last user has left, and not before.",
                "Count the user off first; add the block to free only if users is 0 then.",
            ),
        ),
        Check(
            "own_blocks_return",
            "The blocks that nobody uses any more must be free, each once.",
            _after(_own_return),
            Hints(
                "Why was the sequence preempted at all?",
                "Blocks that no table and no list names are lost until the server restarts: a "
                "leak.",
                "For each of its blocks without a user left: add it to books.free.",
            ),
        ),
        Check(
            "users_counted",
            "Each of its blocks must have exactly one user less, and no other block.",
            _after(_users_counted),
            Hints(
                "What will happen when the other sequence is done?",
                "If a count stays too high, the block never becomes free again.",
                "Take 1 off users for every block of the sequence, shared or not.",
            ),
        ),
        Check(
            "others_untouched",
            "The other running sequence must stay as it was.",
            _after(_others_untouched),
            Hints(
                "Which sequence did you change?",
                "Only the preempted sequence gives something up.",
                "Change the attributes of the sequence that was handed in, and of books.",
            ),
        ),
    ),
)
