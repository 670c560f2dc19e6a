"""Checks of exercise 02.3: how many users fit beside the weights."""

from __future__ import annotations

from minipd.lab.hints import Answer, Check, Exercise, Hints

# 5,000 bytes are left for notes; 21 tokens need 3 blocks of 8, that is 240 bytes: 20.8 users.
BOX = {
    "memory_bytes": 10_000,
    "weight_bytes": 4_000,
    "reserve_bytes": 1_000,
    "kv_bytes_per_token": 10,
    "tokens_per_user": 21,
    "block_size": 8,
}
USERS = 20
WITHOUT_WEIGHTS, WITHOUT_RESERVE, WITHOUT_BOTH, WEIGHTS_EACH = 37, 25, 41, 2
BY_TOKENS, BLOCKS_DOWN, ROUNDED_UP, TOKENS = 23, 31, 21, 500


def _users(answer: Answer, **changed: int) -> float:
    return float(answer(**(BOX | changed)))


def _is_not(answer: Answer, *values: int) -> bool:
    """Fractions are looked at as the whole users in them."""
    return int(_users(answer)) not in values


def _is_whole(answer: Answer) -> bool:
    return isinstance(answer(**BOX), int)


def _nobody_at_least(answer: Answer) -> bool:
    return _users(answer, memory_bytes=4_500) == 0 and _users(answer, memory_bytes=3_000) == 0


USERS_FIT = Exercise(
    "02.3",
    "How many users fit?",
    "users_that_fit",
    (
        Check(
            "users_not_tokens",
            "That is the number of tokens that fit.",
            lambda answer: _is_not(answer, TOKENS),
            Hints(
                "Say the unit of your result aloud.",
                "Each user needs room for a whole conversation.",
                "Divide by what one user takes, not by what one token takes.",
            ),
        ),
        Check(
            "weights_once",
            "The weights were counted again for every user.",
            lambda answer: _is_not(answer, WEIGHTS_EACH),
            Hints(
                "What do all the users of one box share?",
                "The weights are the same for everybody and are loaded once; only the notes are "
                "each user's own.",
                "Subtract weight_bytes once, before you divide.",
            ),
        ),
        Check(
            "weights_subtracted",
            "The memory of the weights was given to the users.",
            lambda answer: _is_not(answer, WITHOUT_WEIGHTS, WITHOUT_BOTH),
            Hints(
                "What is in the memory before the first user comes?",
                "The model itself: notes get only what its weights leave.",
                "Subtract weight_bytes from memory_bytes.",
            ),
        ),
        Check(
            "reserve_kept_free",
            "The reserve was given to the users.",
            lambda answer: _is_not(answer, WITHOUT_RESERVE),
            Hints(
                "Is there memory that must not be used?",
                "Intermediate results need memory, too; without a reserve the first long prompt "
                "ends the program.",
                "Subtract reserve_bytes as well.",
            ),
        ),
        Check(
            "whole_blocks",
            "Each user got exactly their tokens, but the engine gives whole blocks.",
            lambda answer: _is_not(answer, BY_TOKENS),
            Hints(
                "How many blocks does a conversation of 21 tokens need, if a block holds 8?",
                "Three: two full ones and one that is used in part, and nobody else gets its rest.",
                "Round tokens_per_user / block_size up, and multiply by block_size again.",
            ),
        ),
        Check(
            "last_block_counts",
            "Each user got too few blocks for their conversation.",
            lambda answer: _is_not(answer, BLOCKS_DOWN),
            Hints(
                "Where do the last 5 of 21 tokens go, if a block holds 8?",
                "The division // rounds down; blocks must be rounded up.",
                "math.ceil(tokens_per_user / block_size), or -(-a // b)",
            ),
        ),
        Check(
            "no_part_of_a_user",
            "The last user was let in with room for only a part of the conversation.",
            lambda answer: _is_not(answer, ROUNDED_UP),
            Hints(
                "There is room for 20.8 users. How many can you let in?",
                "A conversation that does not fit whole cannot be finished.",
                "Use // for the number of users, not round or ceil.",
            ),
        ),
        Check(
            "whole_number",
            "The number of users must be a whole number (an int).",
            _is_whole,
            Hints(
                "Can a part of a user ask something?",
                "The division / keeps the fraction; // leaves it out.",
                "Use // for the last division.",
            ),
        ),
        Check(
            "users",
            f"In the example of the check, {USERS} users fit.",
            lambda answer: _users(answer) == USERS,
            Hints(
                "Work the example out by hand: what is left for notes?",
                "10,000 less 4,000 less 1,000 leaves 5,000 bytes; a user takes 3 blocks of 8 "
                "tokens of 10 bytes.",
                "left // (blocks * block_size * kv_bytes_per_token)",
            ),
        ),
        Check(
            "exact_blocks",
            "A conversation of 24 tokens fills 3 blocks of 8 exactly, and needs no fourth.",
            lambda answer: _users(answer, tokens_per_user=24) == USERS,
            Hints(
                "Try a conversation that fills its blocks exactly.",
                "a // b + 1 is one too many whenever b divides a.",
                "math.ceil(tokens_per_user / block_size), or -(-a // b)",
            ),
        ),
        Check(
            "nobody_at_least",
            "Where weights and reserve do not fit, the answer is 0 users.",
            _nobody_at_least,
            Hints(
                "What if the model is larger than the box?",
                "What is left for notes cannot be less than nothing.",
                "max(0, ...) around what is left",
            ),
        ),
    ),
)
