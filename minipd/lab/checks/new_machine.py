"""Checks of exercise 03.3: how much faster a pass is on another machine."""

from __future__ import annotations

from math import isclose

from minipd.lab.hints import Answer, Check, Exercise, Hints

# (FLOP/s, bytes/s): the corners lie at 10 and at 15 FLOP per byte.
OLD, NEW = (1000.0, 100.0), (3000.0, 200.0)
WRITING = {"flops": 400.0, "num_bytes": 200.0}  # 2 per byte: memory on both, 2 s then 1 s
READING = {"flops": 6000.0, "num_bytes": 200.0}  # 30 per byte: arithmetic on both, 6 s then 2 s
BETWEEN = {"flops": 2400.0, "num_bytes": 200.0}  # 12 per byte: arithmetic, then memory; 2.4 s, 1 s


def _gain(answer: Answer, work: dict[str, float], new: tuple[float, float] = NEW) -> float:
    return float(answer(OLD, new, **work))


def _is_no_inverse(answer: Answer) -> bool:
    return not isclose(_gain(answer, WRITING), 0.5) and not isclose(_gain(answer, READING), 1 / 3)


def _is_no_percentage(answer: Answer) -> bool:
    percents = (100.0, 200.0)  # the gain alone, and all of it
    return not any(isclose(_gain(answer, WRITING), value) for value in percents)


def _twice_as_fast(answer: Answer) -> bool:
    return all(isclose(_gain(answer, w, (2000.0, 200.0)), 2.0) for w in (WRITING, READING, BETWEEN))


def _is_not_added(answer: Answer) -> bool:
    added = (0.4 + 2.0) / (400 / 3000 + 1.0)
    return not isclose(_gain(answer, WRITING), added)


def _longer_time_decides(answer: Answer) -> bool:
    """With the shorter times, writing would gain 3 and reading 2."""
    return not (isclose(_gain(answer, WRITING), 3.0) and isclose(_gain(answer, READING), 2.0))


SPEED_UP = Exercise(
    "03.3",
    "What would the new machine gain?",
    "speed_up",
    (
        Check(
            "one_number",
            "speed_up must return one number.",
            lambda answer: isinstance(answer(OLD, NEW, **WRITING), (int, float)),
            Hints(
                "Look at the last line of your function.",
                "The task asks how many times as fast the pass is: a single number.",
                "End with: return seconds_on_the_old / seconds_on_the_new",
            ),
        ),
        Check(
            "faster_is_above_one",
            "A machine that is faster in everything must gain more than 1.",
            _is_no_inverse,
            Hints(
                "Which of the two times goes on top?",
                "Twice as fast means half the time: the old time is the larger one.",
                "Divide the old time by the new time.",
            ),
        ),
        Check(
            "times_not_percent",
            "Twice as fast is 2.0, and yours came out in percent.",
            _is_no_percentage,
            Hints(
                "What does 1.0 mean in the task?",
                "Where nothing changes, the answer is 1.0: it is a factor, not a difference.",
                "Return the factor itself: no subtraction of 1, no multiplication by 100.",
            ),
        ),
        Check(
            "same_machine_twice_as_fast",
            "A machine twice as fast in both respects must gain 2.0 for every pass.",
            _twice_as_fast,
            Hints(
                "Try a new machine that is simply twice the old one.",
                "The corner does not move then, and yet everything takes half the time.",
                "Work out the seconds of the pass on each machine, and divide them.",
            ),
        ),
        Check(
            "not_added",
            "Reading and arithmetic overlap: a pass does not take the sum of both times.",
            _is_not_added,
            Hints(
                "Can a machine multiply while the next weights are on their way?",
                "The two times run side by side, so the longer one hides the shorter one.",
                "Take the max of the two times, not their sum.",
            ),
        ),
        Check(
            "slower_one_decides",
            "Each pass gained what its faster half gained.",
            _longer_time_decides,
            Hints(
                "Which of the two does a pass have to wait for?",
                "Reading and arithmetic must both be done: the longer time decides.",
                "Take the max of the two times, not the min.",
            ),
        ),
        Check(
            "memory_decides",
            "2 FLOP per byte is limited by memory on both machines: 2 times as fast, not 3.",
            lambda answer: isclose(_gain(answer, WRITING), 2.0),
            Hints(
                "Which of the two ceilings does this pass lean on?",
                "Left of the corner only the reading ceiling counts, and arithmetic is idle.",
                "Seconds on a machine: max(flops / flops_per_s, num_bytes / bytes_per_s).",
            ),
        ),
        Check(
            "limit_changes",
            "12 FLOP per byte: arithmetic limits on the old machine, memory on the new one.",
            lambda answer: (
                isclose(_gain(answer, BETWEEN), 2.4)
                or not (
                    isclose(_gain(answer, WRITING), 2.0) and isclose(_gain(answer, READING), 3.0)
                )
            ),
            Hints(
                "Does the same ceiling limit this pass on both machines?",
                "The new corner lies further to the right; a pass between the two corners "
                "changes its limit.",
                "Work out each machine's seconds on its own, then divide: 2.4 s and 1 s here.",
            ),
        ),
        Check(
            "arithmetic_decides",
            "30 FLOP per byte is limited by arithmetic on both machines: 3 times as fast, not 2.",
            lambda answer: isclose(_gain(answer, READING), 3.0),
            Hints(
                "Which of the two ceilings does this pass lean on?",
                "Right of the corner only the arithmetic ceiling counts.",
                "Seconds on a machine: max(flops / flops_per_s, num_bytes / bytes_per_s).",
            ),
        ),
    ),
)
