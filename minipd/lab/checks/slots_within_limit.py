"""Checks of exercise 04.3: the most sequences within a limit on the wait for a token."""

from __future__ import annotations

from math import isclose

from minipd.lab.hints import Answer, Check, Exercise, Hints

# In no order: seconds of a step. With a limit of 0.12 s: 8 sequences, 80 tokens/s.
TABLE = {8: 0.1, 1: 0.05, 16: 0.16, 4: 0.08}
OTHER_ORDER = {1: 0.05, 4: 0.08, 8: 0.1, 16: 0.16}
LIMIT_S, SIZE, THROUGHPUT = 0.12, 8, 80.0


def _found(answer: Answer, limit_s: float = LIMIT_S) -> tuple[int, float]:
    size, rate = answer(dict(TABLE), limit_s)
    return size, float(rate)


def _is_pair_or_none(answer: Answer) -> bool:
    made = answer(dict(TABLE), LIMIT_S)
    return isinstance(made, tuple) and len(made) == 2  # pyright: ignore[reportUnknownArgumentType]


def _same_in_any_order(answer: Answer) -> bool:
    backwards = dict(reversed(OTHER_ORDER.items()))
    sizes = {answer(dict(t), LIMIT_S)[0] for t in (TABLE, OTHER_ORDER, backwards)}
    return sizes == {SIZE}


def _size_before_best_rate(answer: Answer) -> bool:
    """Two sequences share a step so badly that one alone makes the machine write more."""
    return answer({1: 0.05, 2: 0.12}, LIMIT_S)[0] == 2


MOST_SEQUENCES = Exercise(
    "04.3",
    "As many slots as patience allows",
    "most_sequences",
    (
        Check(
            "pair",
            "most_sequences must return a pair (sequences, tokens per second) where some fit.",
            _is_pair_or_none,
            Hints(
                "Look at what your function returns when something fits.",
                "Two values are asked for: a number of sequences, and a rate.",
                "End with: return sequences, throughput",
            ),
        ),
        Check(
            "sequences_first",
            "The pair came back the other way round: the rate first.",
            lambda answer: not isclose(float(answer(dict(TABLE), LIMIT_S)[0]), THROUGHPUT),
            Hints(
                "Both are there. In which order?",
                "Whoever calls it unpacks it as: sequences, throughput = most_sequences(...).",
                "End with: return sequences, throughput",
            ),
        ),
        Check(
            "the_limit_counts",
            "A limit of a thousandth of a second, and sixteen sequences were allowed.",
            lambda answer: (answer(dict(TABLE), 0.001) or (0, 0.0))[0] != 16,
            Hints(
                "Does your answer ever change with the limit?",
                "The largest throughput of all is no help to a reader who will not wait that long.",
                "Leave out every size whose seconds are over limit_s, before you choose.",
            ),
        ),
        Check(
            "everyone_waits_for_the_step",
            "With a limit of 0.02 s no size fits: the shortest step takes 0.05 s.",
            lambda answer: (answer(dict(TABLE), 0.02) or (0, 0.0))[0] == 0,
            Hints(
                "How long does one reader wait for a token, when sixteen share a step of 0.16 s?",
                "Everybody gets one token for each step and waits for all of it; the step divided "
                "by its sequences is the machine's time per token, and nobody's wait.",
                "Compare the seconds of the step with limit_s, without dividing.",
            ),
        ),
        Check(
            "none_where_nothing_fits",
            "Where nothing fits, the answer is None, not a pair.",
            lambda answer: answer(dict(TABLE), 0.02) is None,
            Hints(
                "What do you return when every size is over the limit?",
                "Zero sequences is no setting for a server; None says that there is none.",
                "If no size is left: return None",
            ),
        ),
        Check(
            "most_not_fewest",
            "A smaller number than possible: one sequence came back, and eight fit.",
            lambda answer: _found(answer)[0] != 1,
            Hints(
                "Which end of the allowed sizes did you take?",
                "All sizes within the limit are acceptable to readers; the owner wants the most.",
                "Take max(...) of the allowed sizes.",
            ),
        ),
        Check(
            "any_order",
            "The answer depends on the order of the table.",
            _same_in_any_order,
            Hints(
                "Is the last entry of a table its largest?",
                "A dict keeps the order in which it was written, and that may be any.",
                "Compare the sizes themselves: max(...), or go through sorted(...).",
            ),
        ),
        Check(
            "the_limit_itself_is_accepted",
            "A step of exactly the limit, 0.1 s, was refused.",
            lambda answer: _found(answer, 0.1)[0] == SIZE,
            Hints(
                "Read once more what happens exactly at the limit.",
                "At most means that the limit itself is allowed.",
                "Use <= instead of <.",
            ),
        ),
        Check(
            "size_before_rate",
            "For {1: 0.05, 2: 0.12} and 0.12 s the most sequences are 2, even if 1 writes more.",
            _size_before_best_rate,
            Hints(
                "What was asked for: the most sequences or the highest rate?",
                "Sharing may even lower the rate when a machine does it badly; the question was "
                "how many readers can be served within the limit.",
                "Choose by the size, and only then compute its throughput.",
            ),
        ),
        Check(
            "machine_not_reader",
            "That is the rate of one reader, not of the machine.",
            lambda answer: not isclose(_found(answer)[1], 1 / TABLE[SIZE]),
            Hints(
                "How many tokens does one step write?",
                "Every sequence of the step gets a token, so a step writes as many as it has.",
                "throughput = sequences / seconds of the step",
            ),
        ),
        Check(
            "throughput",
            f"{SIZE} sequences in steps of {TABLE[SIZE]:g} s are {THROUGHPUT:g} tokens/s.",
            lambda answer: isclose(_found(answer)[1], THROUGHPUT),
            Hints(
                "Say the unit aloud: tokens per second.",
                "A step writes 8 tokens and takes a tenth of a second.",
                "Divide the sequences by the seconds of their step.",
            ),
        ),
    ),
)
