"""Checks of exercise 13.4: route a prompt by queue and overlap, and fetch where that is sooner."""

from __future__ import annotations

from math import isclose

from minipd.lab.hints import Answer, Check, Exercise, Hints

READ, FETCH = 0.001, 0.0001  # seconds per token


def _made(
    answer: Answer,
    prompt: int,
    workers: list[tuple[float, int]],
    read_s: float = READ,
    fetch_s: float = FETCH,
) -> tuple[int, float]:
    worker, seconds = answer(prompt, list(workers), read_s, fetch_s)
    return int(worker), float(seconds)


def _is(made: tuple[int, float], worker: int, seconds: float) -> bool:
    return made[0] == worker and isclose(made[1], seconds, rel_tol=1e-9, abs_tol=1e-12)


def _pair(answer: Answer) -> bool:
    made = answer(1000, [(0.0, 0), (0.0, 0)], READ, FETCH)
    return isinstance(made, tuple) and len(made) == 2  # pyright: ignore[reportUnknownArgumentType]


def _queue(answer: Answer) -> bool:
    """The holder is so busy that anybody else is sooner."""
    return _made(answer, 1000, [(5.0, 900), (0.0, 0)])[0] == 1


def _overlap(answer: Answer) -> bool:
    """A slightly longer queue is worth it, since fetching is slow here."""
    return _made(answer, 1000, [(0.2, 900), (0.0, 0)], fetch_s=0.01)[0] == 0


def _fetches(answer: Answer) -> bool:
    """Idle, it fetches 900 tokens in 0.09 s and reads 100 in 0.1 s."""
    return _made(answer, 1000, [(5.0, 900), (0.0, 0)])[1] < 0.9


def _not_forced(answer: Answer) -> bool:
    """Fetching takes longer than reading: nobody must do it."""
    made = _made(answer, 1000, [(5.0, 900), (0.0, 0)], fetch_s=0.01)
    return _is(made, 1, 1.0)


def _rest(answer: Answer) -> bool:
    """What nobody holds has to be read after fetching."""
    return _made(answer, 1000, [(5.0, 500), (0.0, 0)])[1] >= 0.5


def _only_missing(answer: Answer) -> bool:
    """600 of 900 are there already, so 300 are fetched."""
    made = _made(answer, 1000, [(5.0, 900), (0.0, 600)])
    return _is(made, 1, 300 * FETCH + 100 * READ)


def _in_turn(answer: Answer) -> bool:
    """0.05 s of queue, 0.09 s of fetching, 0.1 s of reading, one after the other."""
    return not _is(_made(answer, 1000, [(5.0, 900), (0.05, 0)]), 1, 0.19)


def _first(answer: Answer) -> bool:
    return _made(answer, 100, [(0.5, 0), (0.1, 0), (0.1, 0)])[0] == 1


def _right(answer: Answer) -> bool:
    cases = (
        ([(0.0, 0)], 1000, FETCH, 0, 1.0),
        ([(0.05, 900), (0.0, 0)], 1000, FETCH, 0, 0.15),
        ([(0.2, 900), (0.0, 0)], 1000, FETCH, 1, 0.19),
        ([(0.0, 100), (0.02, 300), (0.4, 800)], 1000, FETCH, 0, 0.27),
        ([(0.0, 100), (0.02, 300), (0.4, 800)], 1000, 0.002, 2, 0.6),
    )
    return all(_is(_made(answer, p, w, fetch_s=f), n, s) for w, p, f, n, s in cases)


ROUTE = Exercise(
    "13.4",
    "Route, and perhaps move",
    "route",
    (
        Check(
            "a_pair",
            "Two things were asked for: a worker's number, and seconds.",
            _pair,
            Hints(
                "Which two questions does the text ask?",
                "The worker comes first, counted from 0, then the seconds.",
                "return number, seconds",
            ),
        ),
        Check(
            "queues_count",
            "The holder has 5 s of work in its queue; an idle worker reads the prompt in 1 s.",
            _queue,
            Hints(
                "How long does the prompt wait before anybody looks at it?",
                "What is held spares reading; a queue costs waiting; both are seconds.",
                "Add each worker's queue to what it then takes.",
            ),
        ),
        Check(
            "overlap_counts",
            "0.2 s of queue are less than the 0.9 s of reading that the holder spares.",
            _overlap,
            Hints(
                "How much does each of the two still have to read?",
                "The shortest queue is not yet the soonest first token.",
                "Reading takes (prompt_tokens - held) * read_s.",
            ),
        ),
        Check(
            "fetching_counts",
            "The idle worker could fetch 900 tokens and have the prompt read in 0.19 s.",
            _fetches,
            Hints(
                "Must an idle worker read what a busy one holds?",
                "The best holder's beginning can be fetched, which here is ten times as fast.",
                "Compare with (most - held) * fetch_s + (prompt_tokens - most) * read_s.",
            ),
        ),
        Check(
            "fetching_is_no_duty",
            "Here fetching takes ten times as long as reading, so the worker reads.",
            _not_forced,
            Hints(
                "Is moving always better than computing?",
                "It was the question of the whole lesson: it depends on two rates.",
                "Take the smaller of both ways for each worker.",
            ),
        ),
        Check(
            "the_rest_is_read",
            "Nobody holds the last 500 tokens, so they take 0.5 s of reading.",
            _rest,
            Hints(
                "How far does the best holder's beginning reach?",
                "Behind it, every worker must read.",
                "Add (prompt_tokens - most) * read_s to the fetching.",
            ),
        ),
        Check(
            "only_what_is_missing",
            "600 tokens are there already, so only 300 have to be fetched.",
            _only_missing,
            Hints(
                "What does this worker hold itself?",
                "It lacks what lies between its own beginning and the best holder's.",
                "Fetch (most - held) tokens.",
            ),
        ),
        Check(
            "fetching_waits_its_turn",
            "0.05 s of queue, 0.09 s of fetching and 0.1 s of reading, one after the other, are "
            "0.24 s.",
            _in_turn,
            Hints(
                "When does the fetch begin?",
                "A worker that fetches before its queue is done would do two things at once.",
                "Add the queue to the fetching; do not take the longer of the two.",
            ),
        ),
        Check(
            "first_of_equals",
            "Workers 1 and 2 are equally soon: take the first of them.",
            _first,
            Hints(
                "Which one does your comparison keep when two are equal?",
                "Go through the workers in order and change only for a smaller number.",
                "min(range(len(workers)), key=seconds) keeps the first.",
            ),
        ),
        Check(
            "seconds",
            "Some cases give another worker, or other seconds.",
            _right,
            Hints(
                "Make a table with a line for each worker, and both ways in it.",
                "Queue, then the cheaper of reading all it lacks and fetching first.",
                "queue + min(all read, fetched up to the best holder and the rest read)",
            ),
        ),
    ),
)
