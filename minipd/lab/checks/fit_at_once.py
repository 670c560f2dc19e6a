"""Checks of exercise 11.3: how many sequences memory allows on a group of devices."""

from __future__ import annotations

from minipd.lab.hints import Answer, Check, Exercise, Hints

GB = 10**9
# 8 devices of 100 GB, a tenth kept free, 400 GB of weights, 0.1 MB of notes for each token.
BASE: dict[str, object] = {
    "devices": 8,
    "memory_bytes": 100 * GB,
    "reserve": 0.1,
    "weight_bytes": 400 * GB,
    "note_bytes": 100_000,
    "context": 10_000,
    "copied": False,
}


def _fit(answer: Answer, **changes: object) -> object:
    return answer(**(BASE | changes))


def _reserve(answer: Answer) -> bool:
    return _fit(answer) != 400  # (800 - 400) GB over 1 GB


def _weights(answer: Answer) -> bool:
    return _fit(answer) not in (720, 800)


def _weights_once(answer: Answer) -> bool:
    """Each device holds an eighth of the weights, not all of them."""
    return _fit(answer) != 0


def _context(answer: Answer) -> bool:
    return _fit(answer) != 3_200_000


def _group(answer: Answer) -> bool:
    return _fit(answer) == 320


def _copied(answer: Answer) -> bool:
    return _fit(answer, copied=True) == 40


def _too_large(answer: Answer) -> bool:
    return _fit(answer, weight_bytes=900 * GB) == 0 and _fit(answer, weight_bytes=720 * GB) == 0


def _whole(answer: Answer) -> bool:
    made = _fit(answer, context=30_000)
    return made == 106 and isinstance(made, int)


def _other(answer: Answer) -> bool:
    changes: dict[str, object] = {"devices": 2, "weight_bytes": 100 * GB, "reserve": 0.0}
    return _fit(answer, **changes) == 100 and _fit(answer, **changes, copied=True) == 50


FIT_AT_ONCE = Exercise(
    "11.3",
    "How many fit at once?",
    "fit_at_once",
    (
        Check(
            "weights_take_room",
            "You give all the memory to notes; the weights have to lie somewhere, too.",
            _weights,
            Hints(
                "What lies in the memory before the first customer comes?",
                "What is left for notes is the memory less the weights.",
                "room = usable - weight_bytes",
            ),
        ),
        Check(
            "weights_are_shared_out",
            "On 8 devices the weights are held once in all, not once on each.",
            _weights_once,
            Hints(
                "How many bytes of weights does one device of this group hold?",
                "A cut model lies on all devices together; that is what the cut is for.",
                "weight_bytes / devices on each device",
            ),
        ),
        Check(
            "some_stays_free",
            "A tenth of the memory must stay free.",
            _reserve,
            Hints(
                "Which of the arguments have you not used?",
                "Results in between and messages need memory as well.",
                "memory_bytes * (1 - reserve)",
            ),
        ),
        Check(
            "context_counts",
            "You count tokens; a conversation has `context` of them.",
            _context,
            Hints(
                "The result is far too large. What is it a number of?",
                "Each conversation keeps a note for each of its tokens.",
                "Divide by note_bytes * context.",
            ),
        ),
        Check(
            "too_large_is_zero",
            "Where the weights do not fit, or leave nothing, no conversation fits.",
            _too_large,
            Hints(
                "Try weights that are larger than the memory.",
                "There is no such thing as minus ninety conversations.",
                "max(0, ...)",
            ),
        ),
        Check(
            "whole_conversations",
            "106.7 conversations fit: that is 106, a whole number.",
            _whole,
            Hints(
                "Does a conversation fit that fits by two thirds?",
                "Round down, never up, and return an int.",
                "int(room // bytes_of_one)",
            ),
        ),
        Check(
            "copies_take_room",
            "Copied notes take room on every device: with 8 devices only an eighth as many fit.",
            _copied,
            Hints(
                "What changes if each device keeps all the notes?",
                "Then one conversation takes its bytes once on each device.",
                "Multiply the bytes of one conversation by devices if copied.",
            ),
        ),
        Check(
            "whole_group",
            "On these 8 devices 320 conversations of 10,000 tokens fit.",
            _group,
            Hints(
                "Write down the room of one device, then of all of them.",
                "(8 x 90 GB - 400 GB) of room, 1 GB for each conversation.",
                "(devices * memory_bytes * (1 - reserve) - weight_bytes) // (note_bytes * context)",
            ),
        ),
        Check(
            "another_group",
            "Two devices without reserve: 100 conversations fit, or 50 if notes are copied.",
            _other,
            Hints(
                "Is a number of the first group left in your code?",
                "Everything must come from the arguments.",
                "Use devices, not 8, also where notes are copied.",
            ),
        ),
    ),
)
