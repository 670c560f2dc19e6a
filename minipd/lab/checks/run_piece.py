"""Checks of exercise 05.4: where the tokens of a piece go, and which blocks it fills."""

from __future__ import annotations

from minipd.lab.hints import Answer, Check, Exercise, Hints

TABLE, SIZE = [7, 3, 9, 5], 4
Pair = tuple[list[int], list[int]]


def _run(answer: Answer, start: int, stop: int, size: int = SIZE) -> Pair:
    rows, full = answer(list(TABLE), start, stop, size)
    return list(rows), list(full)


def _row(token: int, size: int) -> int:
    index, offset = divmod(token, size)
    return TABLE[index] * size + offset


def _is_a_pair(answer: Answer) -> bool:
    made = answer(list(TABLE), 0, 5, SIZE)
    return isinstance(made, tuple) and [isinstance(x, list) for x in made] == [True, True]  # pyright: ignore[reportUnknownVariableType]


def _expected(start: int, stop: int, size: int) -> Pair:
    ends = [(index + 1) * size for index in range(len(TABLE))]
    full = [block_id for block_id, end in zip(TABLE, ends) if start < end <= stop]
    return [_row(token, size) for token in range(start, stop)], full


def _is_right(answer: Answer) -> bool:
    cases = [(a, b, n) for n in (1, 2, 3, 4) for b in range(1, 4 * n + 1) for a in range(b)]
    return all(_run(answer, a, b, n) == _expected(a, b, n) for a, b, n in cases)


RUN_PIECE = Exercise(
    "05.4",
    "A prompt read in pieces",
    "run_piece",
    (
        Check(
            "two_lists",
            "run_piece must return two lists: rows, full blocks.",
            _is_a_pair,
            Hints(
                "Look at the last line of your function.",
                "A function gives back two values by returning a tuple.",
                "Return the list of rows, a comma, the list of block ids.",
            ),
        ),
        Check(
            "rows_first",
            "The pair came back the other way round: the blocks first.",
            lambda answer: _run(answer, 0, 4) != ([7], [28, 29, 30, 31]),
            Hints(
                "Both lists are there. In which order?",
                "Whoever calls your function unpacks it as: rows, full = run_piece(...).",
                "Put the rows before the comma.",
            ),
        ),
        Check(
            "as_many_rows_as_tokens",
            "A piece of 3 tokens must give 3 rows.",
            lambda answer: len(_run(answer, 2, 5)[0]) == 3,
            Hints(
                "How many tokens lie from start to stop - 1?",
                "stop itself belongs to the next piece.",
                "range(start, stop)",
            ),
        ),
        Check(
            "through_the_table",
            "The first token goes to the first row of block 7, which is row 28.",
            lambda answer: _run(answer, 0, 1)[0] == [28],
            Hints(
                "Where does block 7 begin in the memory?",
                "Rows are counted through the whole memory: every block before this one has "
                "block_size of them.",
                "block_ids[token // block_size] * block_size + ...",
            ),
        ),
        Check(
            "places_of_the_sequence",
            "A piece that begins in the middle of a block put its tokens where others lie.",
            lambda answer: _run(answer, 2, 6)[0] == [30, 31, 12, 13],
            Hints(
                "Try a piece that does not begin where a block does.",
                "The place in a block is counted from the beginning of the sequence; the piece "
                "knows nothing of blocks.",
                "For token t: t % block_size, with t running from start to stop - 1.",
            ),
        ),
        Check(
            "ids_not_numbers",
            "The second list must hold ids of blocks, not their places in the table.",
            lambda answer: _run(answer, 0, 4)[1] != [0],
            Hints(
                "What will the caller look up with these numbers?",
                "Names belong to blocks, and a block is known by its id.",
                "Take a slice of block_ids.",
            ),
        ),
        Check(
            "not_before_it_is_full",
            "A block with empty places was reported as full; a stranger could share it now.",
            lambda answer: _run(answer, 0, 6)[1] != [7, 3] and not _run(answer, 0, 3)[1],
            Hints(
                "How many of the places of the last block are taken?",
                "A name stands for all the tokens of a block; what is not there yet cannot be "
                "named.",
                "Round down: stop // block_size blocks of the sequence are full after the piece.",
            ),
        ),
        Check(
            "reported_once",
            "A block that an earlier piece had filled was reported once more.",
            lambda answer: 7 not in _run(answer, 4, 8)[1],
            Hints(
                "Which blocks were full before this piece began?",
                "Of the blocks that are full after the piece, leave out those that were full "
                "before it.",
                "start // block_size of them were full already.",
            ),
        ),
        Check(
            "finished_by_this_piece",
            "Tokens 2 to 5 fill up block 7, which an earlier piece had begun.",
            lambda answer: _run(answer, 2, 6)[1] == [7] and _run(answer, 3, 4)[1] == [7],
            Hints(
                "Who takes the last place of a block that was begun earlier?",
                "Even a piece shorter than a block can fill one, if others have begun it.",
                "Full before: start // block_size. Full after: stop // block_size. The blocks "
                "between the two are new.",
            ),
        ),
        Check(
            "rows_and_blocks",
            "For some pieces the rows or the full blocks are not right.",
            _is_right,
            Hints(
                "Run the hunt below: it shows the smallest case that fails.",
                "Both lists follow from positions in the sequence alone.",
                "Rows: for each t, through the table. Blocks: a slice of the table between two "
                "whole-number divisions.",
            ),
        ),
    ),
)
