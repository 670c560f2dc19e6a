"""Checks of exercise 05.2: which cached blocks a prompt may begin with."""

from __future__ import annotations

from minipd.cache.allocator import hash_block
from minipd.lab.hints import Answer, Check, Exercise, Hints
from minipd.request import is_whole_number

SIZE = 2
TEXT = [5, 6, 7, 8, 9, 9]  # three blocks of two tokens
IDS = (40, 41, 42)


def _chain(tokens: list[int]) -> list[bytes]:
    names, name = list[bytes](), b""
    for start in range(0, len(tokens) - SIZE + 1, SIZE):
        name = hash_block(name, tokens[start : start + SIZE])
        names.append(name)
    return names


def _cached(*lost: int) -> dict[bytes, int]:
    """The cache after TEXT was read, without the blocks number `lost`."""
    kept = zip(_chain(TEXT), IDS)
    return {name: block_id for number, (name, block_id) in enumerate(kept) if number not in lost}


def _reuses(answer: Answer, prompt: list[int], *lost: int) -> list[int]:
    return list(answer(list(prompt), SIZE, _cached(*lost)))


def _is_a_list(answer: Answer) -> bool:
    made = answer([*TEXT, 1], SIZE, _cached())
    return isinstance(made, list) and all(is_whole_number(one) for one in made)  # pyright: ignore[reportUnknownVariableType]


def _is_chained(answer: Answer) -> bool:
    """A block of equal tokens that stood behind something else is not this text's block."""
    first = hash_block(b"", TEXT[:2])
    cut_short = _cached(1, 2) | {hash_block(b"", TEXT[2:4]): 50}
    too_far = _cached(2) | {hash_block(first, TEXT[4:6]): 51}
    found = [list(answer([*TEXT, 1], SIZE, cache)) for cache in (cut_short, too_far)]
    return 50 not in found[0] and 51 not in found[1]


def _names_stay(answer: Answer) -> bool:
    cached, prompt = _cached(), [*TEXT, 1]
    answer(prompt, SIZE, cached)
    return cached == _cached() and prompt == [*TEXT, 1]


def _expected(prompt: list[int], lost: tuple[int, ...]) -> list[int]:
    found: list[int] = []
    for number in range(len(IDS)):
        end = (number + 1) * SIZE
        if number in lost or prompt[:end] != TEXT[:end] or end >= len(prompt):
            break
        found.append(IDS[number])
    return found


def _is_right(answer: Answer) -> bool:
    prompts = [TEXT[:n] + tail for n in range(1, 7) for tail in ([], [1], [1, 2, 3])]
    losses: list[tuple[int, ...]] = [(), (0,), (1,), (2,), (0, 1), (1, 2)]
    return all(_reuses(answer, p, *lost) == _expected(p, lost) for p in prompts for lost in losses)


REUSABLE_BLOCKS = Exercise(
    "05.2",
    "A prompt that is cached to its last token",
    "reusable_blocks",
    (
        Check(
            "list_of_ids",
            "reusable_blocks must return a list of block ids.",
            _is_a_list,
            Hints(
                "What will the caller put at the front of the block table?",
                "The values of by_name are ids; collect them in order.",
                "Begin with an empty list and append by_name[...] for each block found.",
            ),
        ),
        Check(
            "names_stay",
            "by_name and the prompt must stay as they were: others want to share, too.",
            _names_stay,
            Hints(
                "Somebody else may ask the same in a moment.",
                "Looking something up must not take it away.",
                "Use by_name[name], not by_name.pop(name).",
            ),
        ),
        Check(
            "one_token_left",
            "All 4 tokens of the prompt were reused, so there is nothing to run.",
            lambda answer: _reuses(answer, TEXT[:4]) != [40, 41],
            Hints(
                "What would the engine take the first token of the answer from?",
                "Scores come out for tokens that are run. If the whole prompt is cached, its last "
                "block has to be run again.",
                "Look at the first (len(token_ids) - 1) // block_size blocks only.",
            ),
        ),
        Check(
            "names_in_a_chain",
            "A block's name must depend on everything before it, through the block just before.",
            _is_chained,
            Hints(
                "Are equal tokens enough to share a block?",
                "Keys and values depend on all tokens before them, so each name is made from the "
                "name of the block before.",
                "name = hash_block(name, the block's tokens), starting from b''.",
            ),
        ),
        Check(
            "as_many_as_possible",
            "7 tokens in blocks of 2: three blocks can be reused, and one token is left.",
            lambda answer: len(_reuses(answer, [*TEXT, 1])) != 2,
            Hints(
                "Is the last full block always one too many?",
                "If a token follows it, that token can be run, and the block can be reused.",
                "Look at the first (len(token_ids) - 1) // block_size blocks.",
            ),
        ),
        Check(
            "stops_at_a_gap",
            "The second block is gone, and the third one was put into its place.",
            lambda answer: 42 not in _reuses(answer, [*TEXT, 1], 1),
            Hints(
                "Which tokens would the second entry of the block table stand for?",
                "The table is read by position: after a missing block, no later one can be used.",
                "Leave the loop (break) at the first name that is not there.",
            ),
        ),
        Check(
            "blocks",
            "Some prompts did not get the blocks that they could reuse.",
            _is_right,
            Hints(
                "Run the hunt below: it shows the smallest case that fails.",
                "Walk through the full blocks from the front; stop at the first that is not cached "
                "or that would leave no token.",
                "for number in range((len(token_ids) - 1) // block_size): make its name from the "
                "one before; stop if by_name lacks it.",
            ),
        ),
    ),
)
