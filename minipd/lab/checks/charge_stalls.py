"""Checks of exercise 06.2: stalls in a timeline, each charged to the reading that caused it."""

from __future__ import annotations

from typing import Any

from minipd.lab.checks.returned import returns_something
from minipd.lab.hints import Answer, Check, Exercise, Hints

Tokens = dict[str, list[float]]
Reads = list[tuple[str, float, float]]
Stalls = list[tuple[str, float, float, str]]

# Gaps of 1 s, but A waits from 2 to 11, most of it for `doc`, and from 12 to 16 for no reading.
TOKENS: Tokens = {
    "A": [0.0, 1.0, 2.0, 11.0, 12.0, 16.0],
    "B": [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5],
}
READS: Reads = [("short", 2.1, 2.6), ("doc", 2.6, 9.0), ("late", 10.8, 11.4)]
FOUND: Stalls = [("A", 2.0, 11.0, "doc"), ("A", 12.0, 16.0, "")]


def _made(answer: Answer, tokens: Tokens = TOKENS, reads: Reads = READS, k: float = 3.0) -> Any:
    """What the answer returns for copies that it may change as it likes."""
    return answer({name: list(times) for name, times in tokens.items()}, list(reads), k)


def _found(answer: Answer, tokens: Tokens = TOKENS, reads: Reads = READS, k: float = 3.0) -> Stalls:
    made = _made(answer, tokens, reads, k)
    return [(str(who), float(start), float(end), str(cause)) for who, start, end, cause in made]


def _spans(stalls: Stalls) -> list[tuple[str, float, float]]:
    return [stall[:3] for stall in stalls]


def _steady(gaps: list[float]) -> list[float]:
    """Token times with these gaps between them."""
    times = [0.0]
    for gap in gaps:
        times.append(times[-1] + gap)
    return times


def _limit_itself(answer: Answer) -> bool:
    return _found(answer, {"A": _steady([1.0] * 8 + [3.0])}, []) == []


def _one_limit_for_all(answer: Answer) -> bool:
    """A slow reader's gaps are long by the standard of everybody's."""
    tokens = {"fast": _steady([1.0] * 20), "slow": _steady([4.0] * 3)}
    return [who for who, *_ in _found(answer, tokens, [])] == ["slow"] * 3


def _median_not_mean(answer: Answer) -> bool:
    """Two huge gaps raise the mean above a third of the smaller stall, and not the median."""
    tokens = {"A": _steady([1.0] * 8 + [30.0, 5.0])}
    return len(_found(answer, tokens, [])) == 2


def _uses_k(answer: Answer) -> bool:
    """With a usual gap of 2 s, so that k itself, or k more than the gap, is another limit."""
    tokens = {"A": _steady([2.0] * 8 + [8.0])}
    return len(_found(answer, tokens, [], 3.0)) == 1 and _found(answer, tokens, [], 5.0) == []


def _median_of_an_even_number(answer: Answer) -> bool:
    """Half-way between 1 and 3.5 s; with either of them, or the smallest gap, others stall."""
    tokens = {"A": _steady([1.0, 3.5, 1.0, 8.0, 1.0, 3.5])}
    return [stall[1] for stall in _found(answer, tokens, [])] == [5.5]


def _sorted_by_start(answer: Answer) -> bool:
    """Z's stall begins first; A comes first by name, in the dictionary, and by its stall's end."""
    tokens = {"A": _steady([1.0] * 8 + [9.0]), "Z": _steady([1.0] * 6 + [14.0])}
    return [stall[1] for stall in _found(answer, tokens, [])] == [6.0, 8.0]


def _most_overlap(answer: Answer) -> bool:
    """The reading that fills most of the gap, wherever it stands, begins and ends."""
    tokens = {"A": _steady([1.0] * 8 + [10.0])}  # stalled from 8 to 18
    for reads in (
        [("x", 7.0, 9.0), ("y", 9.0, 15.0), ("z", 15.0, 40.0)],
        [("x", 0.0, 9.0), ("y", 9.0, 17.5)],
        [("y", 7.5, 15.0), ("x", 15.0, 17.0)],
        [("x", 9.0, 12.0), ("y", 12.0, 18.5)],
    ):
        if [stall[3] for stall in _found(answer, tokens, reads)] != ["y"]:
            return False
    return True


def _nobody_to_blame(answer: Answer) -> bool:
    """No reading at all, one far away, and two that only touch the stall from 12 to 16."""
    touching = [("before", 9.5, 12.0), ("after", 16.0, 18.0)]
    if _found(answer, reads=touching)[1][3] != "":
        return False
    return _found(answer)[1][3] == "" and _found(answer, reads=[])[0][3] == ""


CHARGE_STALLS = Exercise(
    "06.2",
    "Charge every stall to its cause",
    "charge_stalls",
    (
        returns_something("charge_stalls", "the list of stalls", _made),
        Check(
            "four_values",
            "Each stall must be (reader, start, end, cause): two names and two times.",
            lambda answer: all(
                len(s) == 4 and isinstance(s[0], str) and isinstance(s[3], str)
                for s in _made(answer)
            ),
            Hints(
                "Look at one element of your list.",
                "Four values in this order: who waited, from when, until when, because of whom.",
                'found.append((reader, start, end, cause)), with "" for no cause',
            ),
        ),
        Check(
            "within_one_reader",
            "A gap lies between two tokens of the same reader; A's long waits were not found.",
            lambda answer: any(who == "A" and start == 2.0 for who, start, *_ in _found(answer)),
            Hints(
                "B got tokens while A stood still. Does that help A?",
                "Gaps are counted for each reader apart; pooled times hide that one of them waits.",
                "Go over token_s.items() and pair each time with the next one of the same list.",
            ),
        ),
        Check(
            "ends_not_lengths",
            "The third value is the time at which the stall ended, not how long it took.",
            lambda answer: not any(end < start for _, start, end, _ in _found(answer)),
            Hints(
                "Is your third value a time or a length?",
                "A stall is from one token to the next: two times on the clock.",
                "(reader, earlier, later, cause)",
            ),
        ),
        Check(
            "median_not_mean",
            "One very long gap hid another long one.",
            _median_not_mean,
            Hints(
                "What does a single huge gap do to your limit?",
                "A mean is pulled up by the very stalls you look for; a median is not.",
                "usual = statistics.median(all_gaps)",
            ),
        ),
        Check(
            "uses_k",
            "With k = 5 a gap of four usual ones is no stall; with k = 3 it is.",
            _uses_k,
            Hints(
                "Where does your limit come from?",
                "k is given by the caller; another k, another limit.",
                "limit = k * usual",
            ),
        ),
        Check(
            "one_limit_for_all",
            "A reader whose gaps are all long was not stalled by its own standard.",
            _one_limit_for_all,
            Hints(
                "Whose gaps is your median taken over?",
                "The usual gap is one for the whole timeline: over the gaps of all readers.",
                "Collect the gaps of all readers in one list before you take the median.",
            ),
        ),
        Check(
            "halfway",
            "Of gaps of 1, 1, 1, 3.5, 3.5, 8 s the median is 2.25 s; only the last is a stall.",
            _median_of_an_even_number,
            Hints(
                "Which of six gaps is the middle one?",
                "With an even number of gaps the median lies halfway between the two middle ones.",
                "usual = statistics.median(all_gaps)",
            ),
        ),
        Check(
            "above_the_limit",
            "A gap of exactly k times the median is not a stall yet.",
            _limit_itself,
            Hints(
                "Look at your comparison.",
                "A stall is longer than the limit, not as long as it.",
                "later - earlier > k * usual",
            ),
        ),
        Check(
            "finds_all",
            "A waits twice, from 2 to 11 and from 12 to 16, and nobody else does.",
            lambda answer: sorted(_spans(_found(answer))) == _spans(FOUND),
            Hints(
                "Print the gaps of A: 1, 1, 9, 1, 4.",
                "Every gap above the limit is a stall of its own.",
                "for earlier, later in zip(times, times[1:]): ...",
            ),
        ),
        Check(
            "sorted_by_start",
            "The stalls came out in another order than they began.",
            _sorted_by_start,
            Hints(
                "In which order do you go over the readers?",
                "The list must be in the order of time, whoever waited.",
                "Sort by the second value before you return.",
            ),
        ),
        Check(
            "nobody_to_blame",
            'A waited from 12 to 16 and nothing was read then: its cause must be "".',
            _nobody_to_blame,
            Hints(
                "Does your cause really share time with the stall?",
                "A reading that ended before, or began after, has nothing to do with it.",
                'Charge a reading only if min(ends) - max(starts) > 0, else "".',
            ),
        ),
        Check(
            "most_overlap",
            "Where several readings overlap a stall, the one that fills most of it is the cause.",
            _most_overlap,
            Hints(
                "How much of the stall does each reading fill?",
                "Not the first, the last or the longest reading, but the longest shared time.",
                "shared = min(end, read_end) - max(start, read_start); take the largest",
            ),
        ),
    ),
)
