"""Checks of exercise 04.2: who leaves and who joins between two steps."""

from __future__ import annotations

from minipd.lab.hints import Answer, Check, Exercise, Hints

Pairs = list[tuple[str, int]]

RUNNING: Pairs = [("A", 0), ("B", 3), ("C", 0)]
WAITING: Pairs = [("D", 5), ("E", 2), ("F", 4)]
SLOTS = 3  # B stays, D and E join, F waits on


def _result(
    answer: Answer, running: Pairs = RUNNING, waiting: Pairs = WAITING, slots: int = SLOTS
) -> tuple[Pairs, Pairs]:
    new_running, new_waiting = answer(list(running), list(waiting), slots)
    return [tuple(one) for one in new_running], [tuple(one) for one in new_waiting]


def _names(pairs: Pairs) -> list[str]:
    return [name for name, _ in pairs]


def _is_a_pair_of_lists(answer: Answer) -> bool:
    made = answer(list(RUNNING), list(WAITING), SLOTS)
    return isinstance(made, tuple) and [isinstance(x, list) for x in made] == [True] * 2  # pyright: ignore[reportUnknownVariableType]


def _running_comes_first(answer: Answer) -> bool:
    first, second = _result(answer)
    return not ("B" in _names(second) and "B" not in _names(first))


def _joins_while_others_run(answer: Answer) -> bool:
    running, _ = _result(answer, [("B", 3)], [("D", 5)], 2)
    return "D" in _names(running)


def _nobody_joins_a_full_batch(answer: Answer) -> bool:
    full: Pairs = [("A", 1), ("B", 2), ("C", 3)]
    running, waiting = _result(answer, full, WAITING, 2)
    return sorted(running) == full and waiting == WAITING


def _keeps_everyone(answer: Answer) -> bool:
    running, waiting = _result(answer)
    return set(_names(running) + _names(waiting)) >= {"B", "D", "E", "F"}


def _nobody_twice(answer: Answer) -> bool:
    running, waiting = _result(answer)
    together = _names(running) + _names(waiting)
    return len(together) == len(set(together))


def _counts_stay(answer: Answer) -> bool:
    running, waiting = _result(answer)
    return set(running + waiting) <= set(RUNNING + WAITING)


def _leaves_its_inputs_alone(answer: Answer) -> bool:
    running, waiting = list(RUNNING), list(WAITING)
    answer(running, waiting, SLOTS)
    return running == RUNNING and waiting == WAITING


def _decides_rightly(answer: Answer) -> bool:
    running, waiting = _result(answer)
    alone = _result(answer, [], [], 2)
    return sorted(running) == [("B", 3), ("D", 5), ("E", 2)] and (
        waiting == [("F", 4)] and alone == ([], [])
    )


WHO_LEAVES = (
    Check(
        "two_lists",
        "between_steps must return a pair of lists (running, waiting).",
        _is_a_pair_of_lists,
        Hints(
            "Look at the last line of your function.",
            "A function gives back two values by returning a tuple; each of them is a list here.",
            "End with: return running, waiting, under the names of your two new lists",
        ),
    ),
    Check(
        "running_first",
        "The pair came back the other way round: those who wait first.",
        _running_comes_first,
        Hints(
            "Both lists are there. In which order?",
            "Whoever calls it unpacks it as: running, waiting = between_steps(...).",
            "Return the list of those who run first.",
        ),
    ),
    Check(
        "finished_leave",
        "A request that wants no more tokens is still running.",
        lambda answer: all(left > 0 for _, left in _result(answer)[0]),
        Hints(
            "Who has nothing left to write?",
            "A finished request that keeps its slot is what made static batching wasteful.",
            "Keep only those pairs of `running` whose second value is above 0.",
        ),
    ),
)
WHO_JOINS = (
    Check(
        "full_means_full",
        "Three run, and there are two slots: nobody may join, and everybody waits on.",
        _nobody_joins_a_full_batch,
        Hints(
            "How many free slots are there when more run than the server has slots?",
            "Slots less running is below zero here, and a slice up to -1 is not empty: it leaves "
            "out the last one only.",
            "The free slots are max(0, slots - len(...)); or join in a while loop that asks first.",
        ),
    ),
    Check(
        "within_the_slots",
        f"More than {SLOTS} requests run in {SLOTS} slots.",
        lambda answer: len(_result(answer)[0]) <= SLOTS,
        Hints(
            "How many may run at most?",
            "A slot is memory for one conversation; who finds none free has to wait.",
            "Let somebody join only while len(running) < slots.",
        ),
    ),
    Check(
        "joins_while_others_run",
        "One runs, one slot is free, and the one who waits was not let in.",
        _joins_while_others_run,
        Hints(
            "For what does the newcomer wait?",
            "Waiting until everybody is done is static batching; here one free slot is enough.",
            "Do not ask whether `running` is empty, only whether a slot is free.",
        ),
    ),
    Check(
        "freed_slots_count",
        "Two finished, two waited, and nobody took the freed slots.",
        lambda answer: len(_result(answer)[0]) > 1,
        Hints(
            "When do you count the free slots?",
            "Whoever leaves makes room at once: first all leave, then the free slots are counted.",
            "Count len() of those who stay, not of the old `running`.",
        ),
    ),
    Check(
        "all_free_slots",
        "Two slots are free and three wait, but only one joined.",
        lambda answer: len(_result(answer)[0]) != 2,
        Hints(
            "Is one newcomer for each step enough?",
            "A slot that stays empty for a step is a place wasted; fill all that are free.",
            "Use a while loop, or a slice, instead of an if.",
        ),
    ),
    Check(
        "first_come_first_served",
        "D and E came first, and were not the ones to join.",
        lambda answer: {"D", "E"} <= set(_names(_result(answer)[0])),
        Hints(
            "Who has waited longest?",
            "If the newest go first, the oldest may wait for ever.",
            "Take newcomers from the beginning of `waiting`, not from its end.",
        ),
    ),
)
THE_BOOKS = (
    Check(
        "nobody_lost",
        "A request has vanished: it neither runs nor waits.",
        _keeps_everyone,
        Hints(
            "Count them: how many went in, and how many came out?",
            "Who finds no slot must still be waiting afterwards.",
            "The second list is what is left of `waiting` after those who joined.",
        ),
    ),
    Check(
        "nobody_twice",
        "A request runs and waits at the same time.",
        _nobody_twice,
        Hints(
            "Where is somebody who has just joined?",
            "Joining means to leave the queue; else the same prompt is read again.",
            "Leave those who joined out of the second list.",
        ),
    ),
    Check(
        "counts_unchanged",
        "The number of tokens that a request still wants has changed.",
        _counts_stay,
        Hints(
            "Does anybody write a token between two steps?",
            "The step books its tokens; this function only decides who is in the next one.",
            "Hand the pairs on as they are.",
        ),
    ),
    Check(
        "inputs_unchanged",
        "The lists that were handed in must stay as they were.",
        _leaves_its_inputs_alone,
        Hints(
            "Somebody still needs those lists.",
            "pop, remove and append change the caller's list; slices and comprehensions make new "
            "ones.",
            "Begin with copies: list(running) and list(waiting).",
        ),
    ),
    Check(
        "decision",
        "B stays, D and E join, F waits; and with nobody there, both lists are empty.",
        _decides_rightly,
        Hints(
            "Play it with three cups and six slips of paper.",
            "First those with nothing left go; then slots less those who stay is how many join.",
            "The next `running` is those who stay, then the first so many of `waiting`.",
        ),
    ),
)
BETWEEN_STEPS = Exercise(
    "04.2",
    "One decision between two steps",
    "between_steps",
    (*WHO_LEAVES, *WHO_JOINS, *THE_BOOKS),
)
