"""Checks of exercise 10.1: the split whose slower pool is fastest."""

from __future__ import annotations

from minipd.lab.hints import Answer, Check, Exercise, Hints

# A decode worker with 10 places and a step of 0.1 s, answers of 11 tokens: 10 requests/s.
WRITES = {"together": 10, "step_s": 0.1, "tokens": 11}


def _split(answer: Answer, workers: int, reads_per_s: float, **writes: float) -> tuple[int, int]:
    x, y = answer(workers, reads_per_s, **(WRITES | writes))
    return int(x), int(y)


def _readers_come_first(answer: Answer) -> bool:
    return _split(answer, 6, 20.0) != (4, 2)  # reading is twice as fast as writing


def _slower_pool_decides(answer: Answer) -> bool:
    return _split(answer, 6, 0.5) != (1, 5)  # the reader is the slower one by far


def _written_together(answer: Answer) -> bool:
    return _split(answer, 5, 2.5) == (4, 1)


def _one_step_per_token(answer: Answer) -> bool:
    return _split(answer, 8, 10.0) == (4, 4)


def _first_token(answer: Answer) -> bool:
    """Answers of two tokens: decode owes one of them."""
    return _split(answer, 3, 50.0, tokens=2) == (2, 1)


def _both_have_one(answer: Answer) -> bool:
    return all(min(_split(answer, n, r)) >= 1 for n in (2, 3, 4) for r in (0.5, 10.0, 1000.0))


def _all(answer: Answer) -> bool:
    return _split(answer, 4, 30.0) == (1, 3) and _split(answer, 6, 5.0) == (4, 2)


def _tie(answer: Answer) -> bool:
    return _split(answer, 5, 10.0) == (2, 3)  # two readers and three writers, or the reverse


BEST_SPLIT = Exercise(
    "10.1",
    "Match the rates",
    "best_split",
    (
        Check(
            "readers_first",
            "A reader is twice as fast as a writer here, and your split has twice as many readers.",
            _readers_come_first,
            Hints(
                "Which of your two numbers is the prefill pool?",
                "The pair is in the order of its name, P:D: prefill workers, then decode workers.",
                "Look at the order in your last return.",
            ),
        ),
        Check(
            "both_pools_have_one",
            "One of the pools got no worker, and then nothing is ever finished.",
            _both_have_one,
            Hints(
                "Try it with two workers.",
                "Every request needs both pools, however small its part in one of them is.",
                "Let the number of prefill workers run over range(1, workers).",
            ),
        ),
        Check(
            "slower_pool_decides",
            "Your split serves less than another one would.",
            _slower_pool_decides,
            Hints(
                "Does a request pass through one pool, or through both?",
                "What one pool can do more than the other is of no use to anybody.",
                "Compare splits by the smaller of the two pools' rates.",
            ),
        ),
        Check(
            "written_together",
            "Ten answers at once are finished ten times as often as one.",
            _written_together,
            Hints(
                "What does a decode worker do for the other nine?",
                "All answers of a batch get a token from the same step.",
                "The rate of a decode worker has `together` above the line.",
            ),
        ),
        Check(
            "one_step_per_token",
            "A decode worker finishes 10 requests per second here, and your split says far more.",
            _one_step_per_token,
            Hints(
                "How many steps does one answer take?",
                "A step gives each answer one token, so an answer takes as many steps as tokens.",
                "Divide the answers at once by step_s times the tokens that decode owes.",
            ),
        ),
        Check(
            "first_token_is_prefills",
            "Answers of two tokens cost decode one step each, and yours cost two.",
            _first_token,
            Hints(
                "Which pool gives the first token?",
                "Prefill yields the first token, so decode owes one fewer.",
                "Use tokens - 1.",
            ),
        ),
        Check(
            "tie_goes_to_decode",
            "Two splits serve the same rate here; the one with more decode workers was asked for.",
            _tie,
            Hints(
                "Read the last sentence of the task again.",
                "max keeps the first of several equals, in the order in which it meets them.",
                "Add a second thing to compare by, or go through the splits from few readers up.",
            ),
        ),
        Check(
            "split",
            "With readers of 30 requests per second (and of 5) another split serves more.",
            _all,
            Hints(
                "Write down, for every split, what each pool can do.",
                "The best split is the one whose slower pool is fastest.",
                "max(range(1, workers), key=...) with the smaller of the two rates as the key.",
            ),
        ),
    ),
)
