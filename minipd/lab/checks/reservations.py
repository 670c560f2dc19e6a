"""Checks of exercise 07.3: which prompts may be read, by the decode worker's free blocks."""

from __future__ import annotations

from collections.abc import Callable

from minipd.lab.checks.returned import returns_something
from minipd.lab.hints import Answer, Check, Exercise, Hints

Pairs = list[tuple[str, int]]
P = 16


def _made(answer: Answer, waiting: Pairs, free: int, holding: int, size: int = P) -> Pairs:
    return [(str(n), int(b)) for n, b in answer(list(waiting), free, holding, size)]


def _gives(waiting: Pairs, free: int, holding: int, *expected: Pairs) -> Callable[[Answer], bool]:
    return lambda answer: _made(answer, waiting, free, holding) in expected


def _pairs(answer: Answer) -> bool:
    """Also where nothing fits: then it is a list of none."""
    for free in (9, 1):
        made = answer([("ann", 20)], free, 0, P)
        if not isinstance(made, list) or not all(
            isinstance(one, (tuple, list)) and len(one) == 2  # pyright: ignore[reportUnknownArgumentType]
            for one in made  # pyright: ignore[reportUnknownVariableType]
        ):
            return False
    return True


def _keeps_what_fits(answer: Answer) -> bool:
    made = _made(answer, [("ann", 48), ("ben", 48)], 5, 0)
    return "ann" in [name for name, _ in made]


def _one_block_each(answer: Answer) -> bool:
    """A held sequence keeps one block free: not as many as it has, and not two."""
    after_ann = _made(answer, [("ann", 48), ("ben", 16)], 5, 0)
    return after_ann == [("ann", 3), ("ben", 1)] and _gives([("ann", 32)], 5, 3, [("ann", 2)])(
        answer
    )


def _leaves_the_queue(answer: Answer) -> bool:
    waiting = [("ann", 20), ("ben", 20)]
    answer(waiting, 9, 0, P)
    return waiting == [("ann", 20), ("ben", 20)]


RESERVATIONS = Exercise(
    "07.3",
    "Who may be read next?",
    "reservations",
    (
        returns_something("reservations", "a list", lambda answer: answer([("ann", 20)], 9, 0, P)),
        Check(
            "pairs",
            "reservations must return a list of pairs: a name and a number of blocks.",
            _pairs,
            Hints(
                "What do you collect in your list?",
                "The prefill worker must know where to write, so names alone are not enough. And "
                "where nobody fits, the list is empty, and still a list.",
                "Append (name, blocks) to the list; return the list in every case.",
            ),
        ),
        Check(
            "rounds_up",
            "20 tokens take 2 blocks of 16, 16 tokens take 1 and 17 take 2.",
            lambda answer: all(
                _made(answer, [("ann", tokens)], 50, 0) == [("ann", blocks)]
                for tokens, blocks in ((20, 2), (16, 1), (17, 2))
            ),
            Hints(
                "How full is the last block?",
                "A block that is only partly full is needed all the same; one that would stay "
                "empty is not.",
                "Round up: (tokens + block_size - 1) // block_size.",
            ),
        ),
        Check(
            "block_size_is_given",
            "With blocks of 4 tokens, a prompt of 20 tokens takes 5 of them.",
            lambda answer: _made(answer, [("ann", 20)], 50, 0, 4) == [("ann", 5)],
            Hints(
                "Where does your number of tokens for each block come from?",
                "Blocks of 16 tokens are usual, and no law; the caller says how large they are.",
                "Use block_size.",
            ),
        ),
        Check(
            "exactly_fits",
            "A prompt that takes the very last free block fits, when nothing else is held.",
            _gives([("ann", 64)], 4, 0, [("ann", 4)]),
            Hints(
                "Is four more than four?",
                "A newcomer keeps no block back for itself; only those already held do.",
                "It does not fit if blocks + holding > free; with equality it does.",
            ),
        ),
        Check(
            "room_to_grow",
            "Three sequences are held and 4 blocks are free: only 1 of them may be given away.",
            _gives([("ann", 32)], 4, 3, []),
            Hints(
                "What do the sequences need that are being written?",
                "Each of them gets longer with every step; without a free block it would have to "
                "be thrown out and read again.",
                "Compare blocks with free - holding.",
            ),
        ),
        Check(
            "nobody_overtakes",
            "Ann's long prompt does not fit yet: Ben, who came later, has to wait as well.",
            _gives([("ann", 160), ("ben", 16)], 5, 0, []),
            Hints(
                "What happens to Ann if short prompts keep coming?",
                "Each short prompt that slips past takes the blocks that she waits for.",
                "Stop at the first one that does not fit: break, not continue.",
            ),
        ),
        Check(
            "keeps_what_fits",
            "Ann's prompt fits and Ben's does not; then Ann gets her blocks all the same.",
            _keeps_what_fits,
            Hints(
                "What has been promised before Ben's turn comes?",
                "Whoever does not fit ends the loop; what was reserved before stays reserved.",
                "break, and return the list that you have so far.",
            ),
        ),
        Check(
            "blocks_are_given_once",
            "Two prompts of 3 blocks were put into 5 free blocks.",
            _gives([("ann", 48), ("ben", 48)], 5, 0, [("ann", 3)]),
            Hints(
                "How many blocks are free after the first reservation?",
                "A block that is set aside for one prompt is not free for the next.",
                "Take the blocks off free after each reservation.",
            ),
        ),
        Check(
            "new_ones_are_held",
            "After Ann's reservation one more sequence is held: no block is left for Ben's prompt.",
            _gives([("ann", 16), ("ben", 16)], 2, 0, [("ann", 1)]),
            Hints(
                "Who needs a block to grow by the time Ben comes?",
                "Ann's sequence is held from the moment of its reservation.",
                "Add 1 to holding after each reservation.",
            ),
        ),
        Check(
            "all_that_fit",
            "Everybody who fits now gets a reservation now.",
            _gives([("a", 10), ("b", 20), ("c", 30)], 20, 2, [("a", 1), ("b", 2), ("c", 2)]),
            Hints(
                "How many reservations does one call make?",
                "The prefill worker can read several prompts in one step.",
                "Go on with the next one until one does not fit.",
            ),
        ),
        Check(
            "one_block_each",
            "More was kept back than one block for each sequence that is held.",
            _one_block_each,
            Hints(
                "How many blocks may one sequence need in the next step?",
                "It grows by one token, so by one block at most, however long it is.",
                "holding counts sequences: add 1 for each reservation, whatever its size.",
            ),
        ),
        Check(
            "queue_unchanged",
            "The list of waiting prompts must stay as it was.",
            _leaves_the_queue,
            Hints(
                "Whose list is that?",
                "pop and remove change the caller's list; your answer says who leaves it.",
                "Go through it with for.",
            ),
        ),
    ),
)
