"""Checks of exercise 09.3: which rules of a fair comparison a report breaks."""

from __future__ import annotations

from typing import Any

from minipd.lab.hints import Answer, Check, Exercise, Hints

FAIR: dict[str, Any] = {
    "gpus": 2,
    "per_gpu": False,
    "sent_tokens": 8000,
    "read_tokens": 8000,
    "warm_up_ends_s": 10.0,
    "first_arrival_s": 20.0,
    "clock_starts_s": 20.0,
}
GPUS, CACHED, UNTIMED, WARM_UP = (
    "unequal GPUs",
    "cached prompts",
    "prefill untimed",
    "warm-up counted",
)


def _found(answer: Answer, one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    """What the answer says about two sides, which differ from a fair one by what is given."""
    return set(answer(FAIR | one, FAIR | other))


def _is_a_set_of_names(answer: Answer) -> bool:
    made: Any = answer(FAIR | {"gpus": 1}, dict(FAIR))
    return isinstance(made, (set, frozenset, list, tuple))


def _either_side(answer: Answer) -> bool:
    changes = ({"read_tokens": 10}, {"clock_starts_s": 21.0}, {"clock_starts_s": 5.0})
    return all(_found(answer, {}, change) == _found(answer, change, {}) for change in changes)


def _leaves_its_input_alone(answer: Answer) -> bool:
    one, other = dict(FAIR), FAIR | {"gpus": 4}
    answer(one, other)
    return one == FAIR and other == FAIR | {"gpus": 4}


CHECKS = (
    Check(
        "a_set_of_names",
        "broken_rules must return a set with the names of the broken rules.",
        _is_a_set_of_names,
        Hints(
            "What does a reader of your verdict want to know?",
            "That a comparison is unfair helps nobody; which rule it breaks does.",
            "Start with set(), add a name for each broken rule, and return it.",
        ),
    ),
    Check(
        "fair_is_fair",
        "Two equal, well-measured sides break no rule.",
        lambda answer: _found(answer, {}, {}) == set(),
        Hints(
            "Which of your conditions holds for a fair report?",
            "A stopwatch that starts with the first request is right, and so is reading all "
            "tokens.",
            "Compare with < and >, not with <= and >=.",
        ),
    ),
    Check(
        "unequal_gpus",
        "Eight GPUs against four went through.",
        lambda answer: _found(answer, {"gpus": 8}, {"gpus": 4}) == {GPUS},
        Hints(
            "How much hardware has each side?",
            "Whoever has more hardware wins nearly everything; that says nothing about the idea.",
            'Compare one["gpus"] with other["gpus"].',
        ),
    ),
    Check(
        "per_gpu_is_fair",
        "Results that are both divided by their GPUs may be compared.",
        lambda answer: (
            _found(answer, {"gpus": 8, "per_gpu": True}, {"gpus": 4, "per_gpu": True}) == set()
        ),
        Hints(
            "What does dividing by the number of GPUs do?",
            "A result per GPU is what goodput asks for: then the numbers may differ.",
            "Count 1 for a side that is per_gpu, whatever it used.",
        ),
    ),
    Check(
        "both_per_gpu",
        "One result per GPU and one that is not went through.",
        lambda answer: _found(answer, {"gpus": 8, "per_gpu": True}, {"gpus": 4}) == {GPUS},
        Hints(
            "What if only one of the two was divided?",
            "Then a total is compared with a share, which is worse than before.",
            "Count 1 for the side that is per_gpu, and its GPUs for the other one.",
        ),
    ),
    Check(
        "total_against_per_gpu",
        "Two GPUs on each side, but only one result was divided by them; that went through.",
        lambda answer: (
            _found(answer, {"per_gpu": True}, {}) == {GPUS}
            and _found(answer, {}, {"per_gpu": True}) == {GPUS}
        ),
        Hints(
            "Is equal hardware enough, if only one of the two results was divided?",
            "One result belongs to one GPU, the other one to two.",
            "Compare what the results belong to: 1 where a side is per_gpu, else its gpus.",
        ),
    ),
    Check(
        "one_gpu_is_one_gpu",
        "The result of a single GPU may be compared with a result per GPU.",
        lambda answer: (
            _found(answer, {"gpus": 1}, {"gpus": 8, "per_gpu": True}) == set()
            and _found(answer, {"gpus": 8, "per_gpu": True}, {"gpus": 1}) == set()
        ),
        Hints(
            "How many GPUs does each of the two results belong to?",
            "A result of one GPU is the same before and after it is divided by one.",
            "Compare numbers of GPUs, not the two values of per_gpu.",
        ),
    ),
    Check(
        "cached_prompts",
        "The clients sent 8,000 tokens and the server read 500 of them; that went through.",
        lambda answer: _found(answer, {"read_tokens": 500}, {"read_tokens": 500}) == {CACHED},
        Hints(
            "Was everything that was sent also read?",
            "Tokens that the prefix cache knew cost nothing, so the prefill was hardly measured.",
            "Compare read_tokens with sent_tokens on each side.",
        ),
    ),
    Check(
        "one_cached_token",
        "7,999 of 8,000 tokens were read, and that went through.",
        lambda answer: _found(answer, {"read_tokens": 7999}, {}) == {CACHED},
        Hints(
            "Does the rule of this task forgive a few cached tokens?",
            "Fewer read than sent is the rule here, by however little.",
            "Compare the two numbers as they are, without a factor.",
        ),
    ),
    Check(
        "prefill_untimed",
        "A stopwatch that started a second after the first request went through.",
        lambda answer: (
            _found(answer, {"clock_starts_s": 21.0}, {"clock_starts_s": 21.0}) == {UNTIMED}
        ),
        Hints(
            "What does a server do in the first second after a request was sent?",
            "It queues and reads: a stopwatch that starts later leaves out the prefill.",
            "clock_starts_s > first_arrival_s",
        ),
    ),
    Check(
        "early_clock_times_prefill",
        "A stopwatch that runs before the first request leaves no prefill out.",
        lambda answer: UNTIMED not in _found(answer, {"clock_starts_s": 15.0}, {}),
        Hints(
            "Is an early stopwatch too early or too late for the prefill?",
            "It makes the result worse, not better, and it times all of the prefill.",
            "Only complain when the stopwatch started later than the first request.",
        ),
    ),
    Check(
        "warm_up_counted",
        "A stopwatch that started during the warm-up went through.",
        lambda answer: (
            _found(answer, {"clock_starts_s": 5.0}, {"clock_starts_s": 5.0}) == {WARM_UP}
        ),
        Hints(
            "When was the warm-up over, and when did the stopwatch start?",
            "A first run pays for what happens only once; timed, it spoils the result.",
            "clock_starts_s < warm_up_ends_s",
        ),
    ),
    Check(
        "either_side",
        "A mistake counts on one side and not on the other.",
        _either_side,
        Hints(
            "Which of the two sides do you trust?",
            "A comparison is as good as its worse side.",
            "Ask the same questions in a loop over both sides.",
        ),
    ),
    Check(
        "all_of_them",
        "A comparison that breaks all four rules must get all four names.",
        lambda answer: (
            _found(
                answer,
                {"gpus": 8, "read_tokens": 500, "clock_starts_s": 5.0},
                {"clock_starts_s": 30.0},
            )
            == {GPUS, CACHED, UNTIMED, WARM_UP}
        ),
        Hints(
            "Does your function go on after it has found something?",
            "A report may break several rules, and whoever mends it wants to know all of them.",
            "Collect the names, and return only at the end.",
        ),
    ),
    Check(
        "input_unchanged",
        "The two sides that were handed in must stay as they were.",
        _leaves_its_input_alone,
        Hints(
            "Somebody still needs that report.",
            "pop and update change the caller's dictionary.",
            'Read with side["gpus"] and leave it there.',
        ),
    ),
)
BROKEN_RULES = Exercise("09.3", "The detective", "broken_rules", CHECKS)
