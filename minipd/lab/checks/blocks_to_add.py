"""Checks of exercise 05.1: how many blocks a sequence still needs."""

from __future__ import annotations

from minipd.lab.hints import Answer, Check, Exercise, Hints
from minipd.request import is_whole_number

CASES = [(tokens, owned, size) for tokens in range(1, 14) for owned in range(5) for size in (1, 3)]


def _is_whole(answer: Answer) -> bool:
    return all(is_whole_number(answer(*case)) for case in ((5, 1, 4), (8, 2, 4), (1, 0, 4)))


def _is_right(answer: Answer) -> bool:
    for tokens, owned, size in CASES:
        more = answer(tokens, owned, size)
        enough = tokens <= (owned + more) * size
        if more < 0 or not enough or (more > 0 and tokens <= (owned + more - 1) * size):
            return False
    return True


BLOCKS_TO_ADD = Exercise(
    "05.1",
    "A prompt exactly as long as its blocks",
    "blocks_to_add",
    (
        Check(
            "whole_number",
            "The number of blocks must be a whole number (an int).",
            _is_whole,
            Hints(
                "Can one take a quarter of a block?",
                "A block is taken whole, however few of its places are needed.",
                "Use // for whole numbers; (a + b - 1) // b rounds a / b up.",
            ),
        ),
        Check(
            "exactly_full",
            "4 tokens fill one block of 4 exactly, and a second block was asked for.",
            lambda answer: answer(4, 0, 4) != 2 and answer(8, 2, 4) != 1,
            Hints(
                "Try a prompt that ends exactly where a block does.",
                "Rounding up is not the same as rounding down and adding one: they differ where "
                "nothing is left over.",
                "(num_tokens + block_size - 1) // block_size",
            ),
        ),
        Check(
            "rounds_up",
            "5 tokens do not fit into one block of 4, nor 1 token into none.",
            lambda answer: answer(5, 1, 4) != 0 and answer(1, 0, 4) != 0,
            Hints(
                "Where does the last token of 5 go?",
                "A block that is only partly filled is needed all the same: round up.",
                "(num_tokens + block_size - 1) // block_size, or math.ceil",
            ),
        ),
        Check(
            "blocks_not_tokens",
            "9 tokens and 1 owned block of 4: for 5 tokens not 5 blocks are missing.",
            lambda answer: answer(9, 1, 4) != 5,
            Hints(
                "Say the unit of your result aloud.",
                "Count in blocks from the start: blocks needed in all, less blocks owned.",
                "First the blocks for all the tokens, rounded up; then subtract blocks_owned.",
            ),
        ),
        Check(
            "many_at_once",
            "A prompt of 17 tokens needs 5 blocks of 4 at once.",
            lambda answer: answer(17, 0, 4) == 5,
            Hints(
                "Does a sequence always grow by a single token?",
                "While writing it does; a prompt arrives whole and may need many blocks.",
                "Compute how many are missing instead of asking whether one is.",
            ),
        ),
        Check(
            "owned_count",
            "With 2 owned blocks, fewer are missing than with none.",
            lambda answer: answer(17, 2, 4) != answer(17, 0, 4),
            Hints(
                "One of the arguments is not used.",
                "The sequence keeps the blocks that it has; only the difference is missing.",
                "Subtract blocks_owned from the blocks needed in all.",
            ),
        ),
        Check(
            "never_negative",
            "A sequence that owns 3 blocks and needs 1 has none to add, and none to take away.",
            lambda answer: answer(4, 3, 4) == 0,
            Hints(
                "What if more is owned than needed?",
                "A sequence may have been given its blocks early; the answer is then none.",
                "max(0, ...)",
            ),
        ),
        Check(
            "blocks_of_one",
            "With blocks of a single token, each token needs a block of its own.",
            lambda answer: answer(3, 2, 1) == 1 and answer(1, 0, 1) == 1,
            Hints(
                "Try the smallest block that there is.",
                "A remainder of one marks the first token of a block only where blocks are "
                "longer than one token.",
                "Use no remainder: compare the blocks needed in all with the blocks owned.",
            ),
        ),
        Check(
            "amount",
            "Every token needs a place, and no block may be added that stays empty.",
            _is_right,
            Hints(
                "Run the hunt below: it shows the smallest case that fails.",
                "The blocks needed in all are the tokens over the block size, rounded up.",
                "That number less blocks_owned, and at least 0.",
            ),
        ),
    ),
)
