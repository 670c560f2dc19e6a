"""Checks of exercise 04.1: how much of a static batch writes wanted tokens."""

from __future__ import annotations

from math import isclose

from minipd.lab.hints import Answer, Check, Exercise, Hints

# Two groups of four slots, the second with two requests only: 24 + 5 steps, 116 places, 50 tokens.
LENGTHS, SLOTS = [24, 4, 8, 6, 5, 3], 4
SHARE = 50 / 116
ONE_LONGEST = 50 / (6 * 24)  # as if all six waited for the longest of all
SORTED = (50 / 120, 50 / 112)  # grouped by length, shortest or longest first
SEATED_ONLY = 50 / 106  # the two empty slots of the second group left out
MEAN_OF_GROUPS = (42 / 96 + 8 / 20) / 2


def _share(answer: Answer) -> float:
    return float(answer(list(LENGTHS), SLOTS))


def _is_none_of(answer: Answer, *values: float) -> bool:
    return not any(isclose(_share(answer), value, rel_tol=1e-6) for value in values)


def _leaves_its_input_alone(answer: Answer) -> bool:
    lengths = list(LENGTHS)
    answer(lengths, SLOTS)
    return lengths == LENGTHS


OCCUPANCY = Exercise(
    "04.1",
    "What static batching wastes",
    "occupancy",
    (
        Check(
            "share_not_percent",
            "The share came out a hundred times too large.",
            lambda answer: _is_none_of(answer, 100 * SHARE),
            Hints(
                "Is that a share or a percentage?",
                "A share of a half is 0.5; only on the screen it is written as 50 %.",
                "Leave out the multiplication by 100.",
            ),
        ),
        Check(
            "not_inverted",
            "A share cannot be over 1.",
            lambda answer: _share(answer) <= 1.0,
            Hints(
                "Which of your two numbers is the part, and which the whole?",
                "The places are the whole; those that wrote a wanted token are the part.",
                "Divide the wanted tokens by the places.",
            ),
        ),
        Check(
            "used_not_wasted",
            "That is the share that was wasted.",
            lambda answer: _is_none_of(answer, 1 - SHARE),
            Hints(
                "What does your number count: use or waste?",
                "Used and wasted places add up to 1.",
                "Take the wanted tokens over the places, without subtracting from 1.",
            ),
        ),
        Check(
            "a_group_waits_for_its_own",
            "The second group was made to wait for the longest request of all.",
            lambda answer: _is_none_of(answer, ONE_LONGEST),
            Hints(
                "For whom does the second group wait?",
                "Every group runs as many steps as the longest of its own members wants.",
                "Cut the list into pieces of `slots` requests, and take the max of each piece.",
            ),
        ),
        Check(
            "in_the_order_of_the_list",
            "The requests were grouped by their lengths.",
            lambda answer: _is_none_of(answer, *SORTED),
            Hints(
                "Does the server know beforehand how long an answer gets?",
                "The first `slots` requests of the list are the first group, however long they "
                "are; nobody can sort by what is not known yet.",
                "Leave out sorted(...) and take slices of the list as it stands.",
            ),
        ),
        Check(
            "empty_slots_count",
            "The empty slots of the last group were left out.",
            lambda answer: _is_none_of(answer, SEATED_ONLY),
            Hints(
                "How many slots does the last group have?",
                "A slot that nobody sits in is wasted as well; the server has it all the same.",
                "Multiply the steps of every group by `slots`, not by the number of its members.",
            ),
        ),
        Check(
            "places_not_groups",
            "That is the mean of the groups' shares.",
            lambda answer: _is_none_of(answer, MEAN_OF_GROUPS),
            Hints(
                "Should a short group count as much as a long one?",
                "The mean of shares gives a group of five steps the weight of one of twenty-four; "
                "it is the mean of rates of lesson 00 again.",
                "Add up the wanted tokens, add up the places, and divide once.",
            ),
        ),
        Check(
            "share",
            f"For lengths {LENGTHS} and {SLOTS} slots the share is {SHARE:.4f}.",
            lambda answer: isclose(_share(answer), SHARE, rel_tol=1e-6),
            Hints(
                "Draw the slots as lines and work it out by hand.",
                "The first group takes 24 steps and the second 5: 29 steps of 4 places, 50 tokens.",
                "steps = the sum, over the groups, of each group's max; then "
                "sum(lengths) over steps times slots.",
            ),
        ),
        Check(
            "equal_lengths_waste_nothing",
            "Four answers of 5 tokens in 2 slots leave no place unused: the share is 1.",
            lambda answer: isclose(float(answer([5, 5, 5, 5], 2)), 1.0),
            Hints(
                "What is there to wait for when all are equally long?",
                "Two groups of 5 steps with 2 places each: 20 places for 20 tokens.",
                "Check where your groups begin and end: 0, slots, 2 * slots, and so on.",
            ),
        ),
        Check(
            "inputs_unchanged",
            "The list that was handed in must stay as it was.",
            _leaves_its_input_alone,
            Hints(
                "Somebody still needs that list.",
                "pop, sort and del change the caller's list; slices make new ones.",
                "Work on slices like lengths[start : start + slots].",
            ),
        ),
    ),
)
