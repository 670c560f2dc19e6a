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


def _time_comes_first(answer: Answer) -> bool:
    made = answer(50, 4, 1, **MACHINE)
    return not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], str))  # pyright: ignore[reportUnknownArgumentType]


def _returns_time_and_limit(answer: Answer) -> bool:
    made = answer(50, 4, 1, **MACHINE)
    return isinstance(made, tuple) and len(made) == 2 and made[1] in ("memory", "arithmetic")  # pyright: ignore[reportUnknownArgumentType]


def _is_no_rate(answer: Answer) -> bool:
    """A slower memory makes a step longer; a rate would fall."""
    slow = float(answer(50, 4, 1, flops_per_s=1000.0, bytes_per_s=50.0)[0])
    return slow >= _time(answer, 1)


STEP_TIME = Exercise(
    "00.2",
    "How long is one step of decode?",
    "step_time",
    (
        Check(
            "time_first",
            "The pair came back the other way round: the limit first.",
            _time_comes_first,
            Hints(
                "Both are there. In which order?",
                "Whoever calls your function unpacks it as: seconds, limit = step_time(...).",
                "End with: return seconds, limit",
            ),
        ),
        Check(
            "time_and_limit",
            'step_time must return (seconds, "memory") or (seconds, "arithmetic"), so spelt.',
            _returns_time_and_limit,
            Hints(
                "Look at the last line of your function.",
                "Return two things: the time and the name of what set it.",
                'End with: return seconds, "memory" or seconds, "arithmetic"',
            ),
        ),
        Check(
            "seconds_not_rate",
            "With half the memory speed a step cannot get shorter.",
            _is_no_rate,
            Hints(
                "Say the unit of your first number aloud.",
                "Seconds for one step and steps per second are each other's inverse.",
                "Divide the work by the ceiling, not the ceiling by the work.",
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
            "step_not_token",
            "While memory is the limit, a step for four answers came out shorter than for one.",
            lambda answer: _time(answer, 4) >= _time(answer, 1) * 0.999,
            Hints(
                "Is that the time of the step, or of one token in it?",
                "All the answers wait for the same step: sharing it makes each token cheaper, and "
                "nobody's wait shorter.",
                "Leave out the division by sequences.",
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
            "arithmetic_for_each",
            "A hundred sequences must take more arithmetic than one.",
            lambda answer: not isclose(_time(answer, 100), READING_S),
            Hints(
                "Who multiplies for the other ninety-nine?",
                "The weights are read once for all, but every sequence is multiplied with them.",
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
            "not_always_memory",
            "A hundred sequences are limited by arithmetic, and the answer was the same as for 1.",
            lambda answer: _limit(answer, 1) != _limit(answer, 100),
            Hints(
                "Does your second value ever change?",
                "Which of the two takes longer depends on the number of sequences.",
                "Choose the name with the same comparison that chooses the time.",
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
