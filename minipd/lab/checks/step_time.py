"""Checks of exercise 00.2: a decode step's time from the machine's two ceilings."""

from __future__ import annotations

from math import isclose

from minipd.lab.hints import Answer, Check, Exercise, Hints

# A machine with easy numbers: 1,000 FLOP/s and 100 bytes/s; a model of 50 weights of 4 bytes.
MACHINE = {"flops_per_s": 1000.0, "bytes_per_s": 100.0}
READING_S, MULTIPLYING_ONE_S = 2.0, 0.1


def _time(answer: Answer, sequences: int, bytes_per_value: int = 4) -> float:
    return float(answer(50, bytes_per_value, sequences, **MACHINE)[0])


def _limit(answer: Answer, sequences: int) -> str:
    return str(answer(50, 4, sequences, **MACHINE)[1])


def _returns_time_and_limit(answer: Answer) -> bool:
    made = answer(50, 4, 1, **MACHINE)
    return isinstance(made, tuple) and len(made) == 2 and made[1] in ("memory", "arithmetic")  # pyright: ignore[reportUnknownArgumentType]


STEP_TIME = Exercise(
    "00.2",
    "How long is one step of decode?",
    "step_time",
    (
        Check(
            "time_and_limit",
            'step_time must return (seconds, "memory") or (seconds, "arithmetic").',
            _returns_time_and_limit,
            Hints(
                "Look at the last line of your function.",
                "Return two things: the time and the name of what set it.",
                'End with: return seconds, "memory" or seconds, "arithmetic"',
            ),
        ),
        Check(
            "slower_one_decides",
            "A step cannot finish before its slower half has.",
            lambda answer: not isclose(_time(answer, 4), 4 * MULTIPLYING_ONE_S),
            Hints(
                "Which of the two does the step have to wait for?",
                "Both must be done before the step is: the longer time decides.",
                "Take max(reading, multiplying), not min.",
            ),
        ),
        Check(
            "weights_read_once",
            "While memory is the limit, four sequences must take as long as one.",
            lambda answer: not isclose(_time(answer, 4), 4 * _time(answer, 1)),
            Hints(
                "What is shared by all the sequences of one step?",
                "A step reads the weights once, however many sequences use them on the way.",
                "bytes = parameters * bytes_per_value, without sequences.",
            ),
        ),
        Check(
            "not_added",
            "Reading and multiplying overlap, so the step took too long here.",
            lambda answer: not isclose(_time(answer, 4), READING_S + 4 * MULTIPLYING_ONE_S),
            Hints(
                "Can a processor multiply while the next weights are on their way?",
                "The two times run side by side, so the longer one hides the shorter one.",
                "Take max(reading, multiplying), not their sum.",
            ),
        ),
        Check(
            "two_operations_per_weight",
            "With 100 sequences the step took half as long as the arithmetic needs.",
            lambda answer: not isclose(_time(answer, 100), 50 * MULTIPLYING_ONE_S),
            Hints(
                "What happens with a weight once it has been read?",
                "A weight is multiplied by an input and the product is added to a sum.",
                "flops = 2 * parameters * sequences",
            ),
        ),
        Check(
            "bytes_of_the_dtype",
            "Weights of 2 bytes must be read in half the time of weights of 4 bytes.",
            lambda answer: isclose(_time(answer, 1, 2), READING_S / 2),
            Hints(
                "Your reading time does not follow the size of a weight.",
                "The ceiling is in bytes per second, so count bytes and not weights.",
                "reading = parameters * bytes_per_value / bytes_per_s",
            ),
        ),
        Check(
            "time",
            "50 weights of 4 bytes at 100 bytes/s take 2 s for 1 sequence, 10 s for 100.",
            lambda answer: isclose(_time(answer, 1), 2.0) and isclose(_time(answer, 100), 10.0),
            Hints(
                "Work both cases out by hand first.",
                "Reading is 200 bytes at 100 bytes/s; multiplying is 100 operations for each "
                "sequence at 1,000 operations/s.",
                "reading = bytes / bytes_per_s; multiplying = operations / flops_per_s; "
                "the longer of the two is the step.",
            ),
        ),
        Check(
            "names_the_limit",
            'One sequence is limited by "memory", a hundred by "arithmetic".',
            lambda answer: (_limit(answer, 1), _limit(answer, 100)) == ("memory", "arithmetic"),
            Hints(
                "Are the two names the right way round?",
                "The limit is the one of the two that takes longer.",
                '"memory" if reading >= multiplying else "arithmetic"',
            ),
        ),
    ),
)
