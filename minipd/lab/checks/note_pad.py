"""Checks of exercise 02.2: adding rows to one layer of a KV cache."""

from __future__ import annotations

from minipd.lab.checks.note_pad_case import IN_USE, ROOM, PadCase
from minipd.lab.hints import Answer, Check, Exercise, Hints


def _returns_three(answer: Answer) -> bool:
    made = PadCase(answer, 2).made
    return isinstance(made, tuple) and len(made) == 3  # pyright: ignore[reportUnknownArgumentType]


def _keys_stay_keys(answer: Answer) -> bool:
    case = PadCase(answer, 2)
    return min(case.seen_keys) >= 0 and max(case.seen_values) <= 0


def _keeps_earlier_rows(answer: Answer) -> bool:
    return PadCase(answer, 2).pad_keys[:IN_USE] == [1, 2]


def _writes_in_place(answer: Answer) -> bool:
    return max(PadCase(answer, 2).pad_keys) > IN_USE


def _leaves_no_gap(answer: Answer) -> bool:
    return PadCase(answer, 2).pad_keys[IN_USE] != 0


def _notes_the_last(answer: Answer) -> bool:
    return 4 in PadCase(answer, 2).pad_keys and 3 in PadCase(answer, 1).pad_keys


def _counts_every_token(answer: Answer) -> bool:
    return (PadCase(answer, 2).length, PadCase(answer, 1).length) == (4, 3)


def _returns_no_empty_rows(answer: Answer) -> bool:
    return len(PadCase(answer, 2).seen_keys) <= 4


def _returns_everything(answer: Answer) -> bool:
    case = PadCase(answer, 2)
    return case.seen_keys == [1, 2, 3, 4] and case.seen_values == [-1, -2, -3, -4]


def _starts_empty(answer: Answer) -> bool:
    case = PadCase(answer, 3, in_use=0)
    return case.seen_keys == [1, 2, 3] and case.length == 3


def _fills_the_last_row(answer: Answer) -> bool:
    try:
        return PadCase(answer, ROOM - IN_USE).seen_keys == [1, 2, 3, 4, 5, 6]
    except ValueError:
        return False


def _leaves_a_full_pad_alone(answer: Answer) -> bool:
    """Three rows where there is room for two: both tensors must keep every number."""
    import torch

    keys, values = torch.ones(ROOM, 1, 2), -torch.ones(ROOM, 1, 2)
    keys[ROOM - 2 :], values[ROOM - 2 :] = 0, 0
    before = keys.clone(), values.clone()
    k, v = torch.full((3, 1, 2), 7.0), torch.full((3, 1, 2), -7.0)
    try:
        answer(keys, values, ROOM - 2, k, v)
    except ValueError:
        return torch.equal(keys, before[0]) and torch.equal(values, before[1])
    return False


def _says_when_full(answer: Answer) -> bool:
    try:
        PadCase(answer, ROOM - IN_USE + 1)
    except ValueError:
        return True
    except Exception:  # another error is no sentence for whoever asked
        return False
    return False


NOTE_PAD = Exercise(
    "02.2",
    "Add lines to the note-pad",
    "note",
    (
        Check(
            "three_things",
            "note must return three things: keys so far, values so far, and the new length.",
            _returns_three,
            Hints(
                "Look at the last line of your function.",
                "A function gives back several values by returning a tuple.",
                "End with: return ..., ..., new_length",
            ),
        ),
        Check(
            "keys_stay_keys",
            "A value turned up among the keys, or a key among the values.",
            _keys_stay_keys,
            Hints(
                "Follow one row from the argument to its place.",
                "Keys are compared with queries, values are mixed; swapped, both still have the "
                "right shape, so nothing complains.",
                "k goes into keys, v into values, and keys are returned first.",
            ),
        ),
        Check(
            "earlier_rows_kept",
            "The rows that were in use before have changed.",
            _keeps_earlier_rows,
            Hints(
                "Where do you begin to write?",
                "The first rows belong to earlier tokens, and their keys and values never change.",
                "Begin at row length, not at row 0.",
            ),
        ),
        Check(
            "written_in_place",
            "The tensors that were handed in do not hold the new rows.",
            _writes_in_place,
            Hints(
                "Does the pad itself know about the new tokens?",
                "torch.cat makes a new tensor and copies everything that was there: for every "
                "token of an answer, that is all the notes again.",
                "Assign to a slice: keys[...:...] = k",
            ),
        ),
        Check(
            "next_free_row",
            "The row just behind those in use is still empty.",
            _leaves_no_gap,
            Hints(
                "Which row is the first free one?",
                "Rows are counted from 0: with two rows in use, row 2 is free.",
                "Write from row length to row length + len(k).",
            ),
        ),
        Check(
            "last_token_noted",
            "The row of the last new token was not written.",
            _notes_the_last,
            Hints(
                "Count the rows that you write.",
                "The end of a slice is not part of it: keys[2:4] has two rows.",
                "The slice ends at length + len(k), without - 1.",
            ),
        ),
        Check(
            "length_counts_every_token",
            "The new length must count every new token: 4 after two more, 3 after one more.",
            _counts_every_token,
            Hints(
                "How many tokens can come at once?",
                "Decode adds one token, prefill a whole prompt.",
                "Add len(k) to length.",
            ),
        ),
        Check(
            "no_empty_rows",
            "Rows came back that nobody has written.",
            _returns_no_empty_rows,
            Hints(
                "Which rows may a query look at?",
                "An empty row is not nothing: a key of zeros takes its share of the attention.",
                "Return keys[:new_length] and values[:new_length].",
            ),
        ),
        Check(
            "everything_so_far",
            "Keys and values so far must hold the earlier rows and the new ones, in this order.",
            _returns_everything,
            Hints(
                "What does the new token want to look at?",
                "All tokens up to itself: those on the pad and those that have just come.",
                "Return keys[:new_length] and values[:new_length].",
            ),
        ),
        Check(
            "starts_empty",
            "On an empty pad, the rows of a prompt must become its first rows.",
            _starts_empty,
            Hints(
                "Try it with length = 0.",
                "Prefill is no special case: it adds many rows behind none.",
                "Leave out whatever you do for length == 0 alone.",
            ),
        ),
        Check(
            "fills_the_last_row",
            "Rows that exactly fill the pad must be accepted.",
            _fills_the_last_row,
            Hints(
                "With room for six rows, is a sixth one too many?",
                "The pad is too small only when more rows are needed than there are.",
                "Compare with > and not with >=.",
            ),
        ),
        Check(
            "says_when_it_is_full",
            "New rows for which there is no room must raise a ValueError.",
            _says_when_full,
            Hints(
                "What should the engine learn when the pad is full?",
                "A token dropped in silence makes nonsense later, and PyTorch's own message about "
                "sizes says nothing about a pad. Test before you write.",
                "if length + len(k) > len(keys): raise ValueError(...)",
            ),
        ),
        Check(
            "full_pad_left_alone",
            "Three new rows with room for two: the pad was written to before the ValueError.",
            _leaves_a_full_pad_alone,
            Hints(
                "What does the pad hold after your error?",
                "Whoever catches the error goes on with the pad; half of a prompt in it, or keys "
                "without values, would be used without a word.",
                "Test and raise first; write to keys and values only after that.",
            ),
        ),
    ),
)
