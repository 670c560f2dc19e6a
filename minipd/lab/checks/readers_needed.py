"""Checks of exercise 10.2: prefill workers for a mean TTFT, by the M/D/1 queue."""

from __future__ import annotations

import sys
import time
from types import FrameType
from typing import Any

from minipd.lab.hints import Answer, Check, Exercise, Hints

LONGEST_S = 2.0  # processor time of one answer; a busy machine does not shorten it
STILL_COUNTING = -1


class _StillCountingError(BaseException):
    """Raised inside an answer whose time is over; its `except Exception` must not catch it."""


def _needed(answer: Answer, rate_per_s: float, read_s: float, limit_s: float) -> int | None:
    try:
        made = _stopped_late(answer, rate_per_s, read_s, limit_s)
    except _StillCountingError:
        return STILL_COUNTING
    return None if made is None else int(made)


def _stopped_late(answer: Answer, *case: float) -> Any:
    """The answer; a loop that would never end is stopped at one of its next lines."""
    until, before = time.thread_time() + LONGEST_S, sys.gettrace()

    def look(_frame: FrameType, _event: str, _arg: Any) -> Any:
        if time.thread_time() > until:
            raise _StillCountingError
        return look

    sys.settrace(look)
    try:
        return answer(*case)
    finally:
        sys.settrace(before)


def _shared(answer: Answer) -> bool:
    return _needed(answer, 20.0, 0.1, 0.3) not in (None, STILL_COUNTING)


def _overload(answer: Answer) -> bool:
    """Two workers are needed to keep up at all, and the formula is negative for one."""
    return _needed(answer, 12.0, 0.1, 0.5) != 1


def _ends(answer: Answer) -> bool:
    return _needed(answer, 1.0, 0.5, 0.4) != STILL_COUNTING


def _hopeless(answer: Answer) -> bool:
    return _needed(answer, 1.0, 0.5, 0.4) is None


def _no_time_left(answer: Answer) -> bool:
    return _needed(answer, 2.0, 0.4, 0.4) is None


def _reading_counts(answer: Answer) -> bool:
    """One worker: 0.1 s of reading and 0.05 s of waiting (half busy)."""
    return _needed(answer, 5.0, 0.1, 0.12) != 1


def _waiting_counts(answer: Answer) -> bool:
    """One worker keeps up at nine tenths, and its readers wait 0.45 s."""
    return _needed(answer, 9.0, 0.1, 0.2) != 1


def _the_half(answer: Answer) -> bool:
    """Half busy: 0.1 s and 0.05 s; without the 2 it would be 0.2 s."""
    return _needed(answer, 5.0, 0.1, 0.16) == 1


def _exactly(answer: Answer) -> bool:
    """Half busy, in halves and quarters alone: 0.5 s and 0.25 s, without any rounding."""
    return _needed(answer, 1.0, 0.5, 0.75) == 1


def _many(answer: Answer) -> bool:
    """Each may get 5 requests per second."""
    return _needed(answer, 1001.0, 0.1, 0.15) == 201


def _all(answer: Answer) -> bool:
    cases = {(5.0, 0.1, 0.16): 1, (20.0, 0.1, 0.16): 4, (30.0, 0.1, 0.2): 5, (0.1, 0.1, 0.11): 1}
    return all(_needed(answer, *case) == count for case, count in cases.items())


READERS_NEEDED = Exercise(
    "10.2",
    "How many readers for a promise?",
    "readers_needed",
    (
        Check(
            "rate_is_shared",
            "20 requests per second of 0.1 s each need more than one worker, not a miracle.",
            _shared,
            Hints(
                "How many requests per second does each of three workers get?",
                "The router deals the stream out: each worker's queue sees its share alone.",
                "Use rate_per_s / count as R in the formula.",
            ),
        ),
        Check(
            "overload_is_no_answer",
            "One worker cannot read 12 prompts of 0.1 s in a second, and you let it.",
            _overload,
            Hints(
                "What sign has the formula's second part when R D is above 1?",
                "Beyond full load there is no mean: the queue grows for as long as you look.",
                "Ask first whether R times D is below 1.",
            ),
        ),
        Check(
            "comes_to_an_end",
            "Reading takes 0.5 s, the limit is 0.4 s, and your function was stopped: it would have "
            "counted for ever.",
            _ends,
            Hints(
                "Some limits no number can keep.",
                "A loop that looks for a good enough number never ends where there is none.",
                "Return None before the loop if read_s is not under limit_s.",
            ),
        ),
        Check(
            "none_when_hopeless",
            "Reading takes 0.5 s and the limit is 0.4 s: no number of workers helps.",
            _hopeless,
            Hints(
                "What does a request wait for when it is alone?",
                "More workers shorten the queue, never the reading of one prompt.",
                "Return None before you count if read_s is not under limit_s.",
            ),
        ),
        Check(
            "waiting_counts",
            "At nine tenths of its load a worker keeps people waiting far beyond this limit.",
            _waiting_counts,
            Hints(
                "Is a worker that keeps up quick?",
                "Random arrivals come in bunches; a nearly full worker always has a queue.",
                "Hold the whole formula against limit_s, not only R D < 1.",
            ),
        ),
        Check(
            "reading_counts",
            "The time to first token holds the reading itself, too.",
            _reading_counts,
            Hints(
                "Your answer would be right for somebody who only waits.",
                "TTFT is the wait in the queue and then the reading of one's own prompt.",
                "Add read_s to the wait.",
            ),
        ),
        Check(
            "the_half",
            "A half-busy worker keeps a mean of 0.15 s here; you wanted a second worker.",
            _the_half,
            Hints(
                "Compute the formula for one half-busy worker by hand.",
                "With equal reading times the wait is half of what it is with random ones.",
                "The part after the plus is divided by 2 (1 - R D).",
            ),
        ),
        Check(
            "no_time_left_to_wait",
            "Reading alone takes all of the 0.4 s: you found a number, or would look for ever.",
            _no_time_left,
            Hints(
                "How long may anybody wait if reading takes up the whole limit?",
                "Random arrivals make somebody wait, however many workers there are.",
                "Return None also where read_s equals limit_s.",
            ),
        ),
        Check(
            "exactly_the_limit",
            "A mean of exactly 0.75 s keeps a limit of 0.75 s; one half-busy worker has it here.",
            _exactly,
            Hints(
                "Is a promise broken by somebody who comes exactly on time?",
                '"At or under" holds the limit itself, too.',
                "Compare with <= in place of <.",
            ),
        ),
        Check(
            "as_many_as_it_takes",
            "1001 requests per second of 0.1 s each need 201 workers for 0.15 s.",
            _many,
            Hints(
                "How far does your count go?",
                "Each worker may get 5 requests per second here, and the stream may be any size.",
                "Count on without an end, once you know that some number is enough.",
            ),
        ),
        Check(
            "counts",
            "5, 20 and 30 requests per second need 1, 4 and 5 workers at 0.16, 0.16 and 0.2 s.",
            _all,
            Hints(
                "Try the formula for one worker more and one fewer.",
                "The smallest number that keeps the limit is asked for.",
                "Begin with one worker, and add one while the limit is broken.",
            ),
        ),
    ),
)
