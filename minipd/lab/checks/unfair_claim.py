"""Checks of exercise 08.3: why a comparison does not show that remote prefill costs nothing."""

from __future__ import annotations

from typing import Any

from minipd.lab.hints import Answer, Check, Exercise, Hints

CACHED, UNTIMED, PER_GPU = "cached prompts", "prefill untimed", "not per GPU"
FAIR: dict[str, object] = {
    "gpus": 4,
    "rate_counts": "all",
    "prompt_tokens": 100_000,
    "computed_tokens": 99_500,
    "clock_starts": "arrival",
}


def _found(answer: Answer, colocated: dict[str, object], split: dict[str, object]) -> set[str]:
    return set(answer(FAIR | colocated, FAIR | split))


def _is_set(answer: Answer) -> bool:
    made: Any = answer(dict(FAIR), FAIR | {"gpus": 8})
    return isinstance(made, (set, frozenset, list, tuple))


def _either(answer: Answer, changed: dict[str, object], reason: str) -> bool:
    """Wherever the fault is: in the first run, in the second, in both."""
    places = ((changed, {}), ({}, changed), (changed, changed))
    return all(reason in _found(answer, *place) for place in places)


def _words(answer: Answer) -> bool:
    worst: dict[str, object] = {"gpus": 8, "computed_tokens": 10, "clock_starts": "prefill done"}
    return _found(answer, worst, {"computed_tokens": 10}) <= {CACHED, UNTIMED, PER_GPU}


def _divided(answer: Answer) -> bool:
    both: dict[str, object] = {"rate_counts": "per GPU"}
    return PER_GPU not in _found(answer, both, both | {"gpus": 8})


def _half_divided(answer: Answer) -> bool:
    return PER_GPU in _found(answer, {"rate_counts": "per GPU"}, {})


def _one_gpu(answer: Answer) -> bool:
    return PER_GPU not in _found(answer, {"gpus": 1}, {"rate_counts": "per GPU"})


def _all_at_once(answer: Answer) -> bool:
    split: dict[str, object] = {"gpus": 8, "computed_tokens": 10, "clock_starts": "first token"}
    return _found(answer, {}, split) == {CACHED, UNTIMED, PER_GPU}


UNFAIR_CLAIM = Exercise(
    "08.3",
    "Remote prefill costs nothing",
    "unfair",
    (
        Check(
            "a_set",
            "unfair must return a set of reasons.",
            _is_set,
            Hints(
                "Look at the last line of your function.",
                "There may be no reason, one, or several: a set holds them all.",
                "found = set(); ...; return found",
            ),
        ),
        Check(
            "their_words",
            "A reason must be spelt as the task spells it.",
            _words,
            Hints(
                "Compare your texts with the task, letter by letter.",
                "There are three reasons, and each has exactly one spelling.",
                '"cached prompts", "prefill untimed", "not per GPU"',
            ),
        ),
        Check(
            "few_cached_is_fair",
            "Half a token in a hundred from a cache was called unfair.",
            lambda answer: CACHED not in _found(answer, {}, {}),
            Hints(
                "Read the last paragraph of the task again.",
                "A prompt's first few words are the same for everybody, and cached.",
                "Unfair only below 0.99 * prompt_tokens.",
            ),
        ),
        Check(
            "one_in_a_hundred_is_fair",
            "Exactly one token in a hundred from a cache was called unfair.",
            lambda answer: (
                CACHED
                not in _found(answer, {"computed_tokens": 99_000}, {"computed_tokens": 99_000})
            ),
            Hints(
                'Does "up to" include the limit?',
                "One token in a hundred is still fair; only more than that is not.",
                "Use < and not <=. (A share such as 1 - 0.99 is not exactly 0.01: compare tokens.)",
            ),
        ),
        Check(
            "alike_is_not_fair",
            "Both runs found their prompts in a cache, and you let them pass.",
            lambda answer: (
                CACHED in _found(answer, {"computed_tokens": 100}, {"computed_tokens": 100})
            ),
            Hints(
                "Are two runs that are equally wrong a proof?",
                "Where nothing is read, nothing shows what reading elsewhere costs.",
                "Look at each run alone, not at whether the two are equal.",
            ),
        ),
        Check(
            "cached_in_either",
            "Cached prompts must be seen in either run.",
            lambda answer: _either(answer, {"computed_tokens": 60_000}, CACHED),
            Hints(
                "Which of the two runs do you look at?",
                "A cache helps whichever run it is in.",
                "any(run[...] ... for run in (colocated, split))",
            ),
        ),
        Check(
            "late_clock",
            "A clock that starts after the arrival must be seen, in either run or in both.",
            lambda answer: (
                _either(answer, {"clock_starts": "prefill done"}, UNTIMED)
                and _either(answer, {"clock_starts": "first token"}, UNTIMED)
            ),
            Hints(
                "When does the user's wait begin?",
                "Any moment after the arrival leaves out waiting; it need not be the same in both.",
                'any(run["clock_starts"] != "arrival" for run in (colocated, split))',
            ),
        ),
        Check(
            "more_gpus",
            "4 GPUs against 8, rates of all together: not per GPU.",
            lambda answer: (
                PER_GPU in _found(answer, {}, {"gpus": 8})
                and PER_GPU in _found(answer, {"gpus": 8}, {})
            ),
            Hints(
                "Twice the GPUs, the same conclusion?",
                "A rate of all GPUs together grows with their number.",
                "Compare how many GPUs each rate belongs to.",
            ),
        ),
        Check(
            "already_divided",
            "Both rates are per GPU already, so 4 and 8 GPUs may be compared.",
            _divided,
            Hints(
                "What does rate_counts say?",
                "A rate that is divided already belongs to one GPU, however many there were.",
                '1 if run["rate_counts"] == "per GPU" else run["gpus"]',
            ),
        ),
        Check(
            "half_divided",
            "One rate is per GPU and the other one is not: that is no comparison.",
            _half_divided,
            Hints(
                "The same number of GPUs, and yet ...?",
                "One rate belongs to 1 GPU, the other one to 4.",
                '1 if run["rate_counts"] == "per GPU" else run["gpus"]',
            ),
        ),
        Check(
            "one_gpu_is_one_gpu",
            "A rate of 1 GPU in all and a rate per GPU belong to the same number of GPUs.",
            _one_gpu,
            Hints(
                "What is the rate of one GPU, divided by one?",
                "Compare numbers of GPUs, not the words.",
                "counted = [...]; unfair if counted[0] != counted[1]",
            ),
        ),
        Check(
            "every_reason",
            "A comparison with all three faults must give all three reasons.",
            _all_at_once,
            Hints(
                "Does your function stop at the first reason?",
                "A report may be unfair in several ways at once, and one repair is not enough.",
                "Three separate ifs, each adding to the set.",
            ),
        ),
        Check(
            "fair_is_empty",
            "A fair comparison must give the empty set.",
            lambda answer: _found(answer, {}, {}) == set(),
            Hints(
                "Try two equal, honest runs.",
                "No fault, no reason.",
                "Start with found = set() and add only what you find.",
            ),
        ),
    ),
)
