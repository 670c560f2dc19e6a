"""Checks of exercise 09.2: goodput from the records of single requests."""

from __future__ import annotations

from collections.abc import Callable
from math import isclose
from typing import Any

from minipd.lab.hints import Answer, Check, Exercise, Hints

Records = list[dict[str, Any]]
TTFT_S, GAP_S = 1.0, 0.2  # the limits of all checks


def _record(ttft_s: float | None, *gaps_s: float) -> dict[str, Any]:
    return {"ttft_s": ttft_s, "gaps_s": list(gaps_s)}


FINE, LATE = _record(0.5, 0.1, 0.1), _record(3.0, 0.1, 0.1)
FROZEN = _record(0.5, 0.1, 0.1, 0.1, 0.5)  # one long gap; its mean is exactly the limit
SINGLE, FAILED = _record(0.5), _record(None)
EXACT = _record(TTFT_S, GAP_S, GAP_S)


def _of(**numbers: int) -> Records:
    kinds = {"fine": FINE, "late": LATE, "frozen": FROZEN, "single": SINGLE, "failed": FAILED}
    kinds["exact"] = EXACT
    return [
        {"ttft_s": kinds[kind]["ttft_s"], "gaps_s": list(kinds[kind]["gaps_s"])}
        for kind, number in numbers.items()
        for _ in range(number)
    ]


def _ask(answer: Answer, runs: dict[float, Records], workers: int = 1, **more: float) -> float:
    return float(answer(runs, TTFT_S, GAP_S, workers, **more))


def _gives(
    rate: float, runs: dict[float, Records], workers: int = 1, **more: float
) -> Callable[[Answer], bool]:
    """A check that holds when the answer for these runs is `rate`."""

    def holds(answer: Answer) -> bool:
        return isclose(_ask(answer, _copied(runs), workers, **more), rate, abs_tol=1e-9)

    return holds


def _copied(runs: dict[float, Records]) -> dict[float, Records]:
    return {
        rate: [{"ttft_s": r["ttft_s"], "gaps_s": list(r["gaps_s"])} for r in records]
        for rate, records in runs.items()
    }


def _leaves_its_input_alone(answer: Answer) -> bool:
    runs = {2.0: _of(fine=3, frozen=1), 1.0: _of(fine=2)}
    before = _copied(runs)
    _ask(answer, runs)
    return runs == before and list(runs) == list(before)


CHECKS = (
    Check(
        "first_token_limited",
        "At 2 requests/s half of the first tokens came too late, and the rate still counted.",
        _gives(1.0, {1.0: _of(fine=10), 2.0: _of(fine=5, late=5)}),
        Hints(
            "Which of the two limits do you never look at?",
            "A request is good only if it keeps all of its limits, the first token's too.",
            'Ask for record["ttft_s"] <= ttft_s as well.',
        ),
    ),
    Check(
        "gaps_limited",
        "At 2 requests/s half of the answers froze for seconds, and the rate still counted.",
        _gives(1.0, {1.0: _of(fine=10), 2.0: [*_of(fine=5), *(_record(0.5, 4.0),) * 5]}),
        Hints(
            "Which of the two limits do you never look at?",
            "A request is good only if it keeps all of its limits, that of its gaps too.",
            'Ask whether every gap of record["gaps_s"] is at most gap_s.',
        ),
    ),
    Check(
        "each_request_judged",
        "Two of ten readers waited far too long, and a mean over all of them hid it.",
        _gives(1.0, {1.0: _of(fine=10), 2.0: [*_of(fine=8), *(_record(2.0, 0.1),) * 2]}),
        Hints(
            "Who is served well when the mean is within the limit?",
            "A mean mixes very good and very bad waits; goodput counts requests, one by one.",
            "For each record decide good or not; then count the good ones.",
        ),
    ),
    Check(
        "longest_gap_counts",
        "An answer with one freeze among short gaps was taken for good.",
        _gives(1.0, {1.0: _of(fine=10), 2.0: _of(fine=8, frozen=2)}),
        Hints(
            "Does one freeze move the mean of many short gaps?",
            "The mean of an answer's gaps is its TPOT, and a TPOT forgives a freeze.",
            "Hold each single gap against the limit: all(gap <= gap_s for gap in gaps).",
        ),
    ),
    Check(
        "both_by_the_same_request",
        "9 of 10 kept the one limit and 9 of 10 the other, but only 8 kept both.",
        _gives(1.0, {1.0: _of(fine=10), 2.0: _of(fine=8, late=1, frozen=1)}),
        Hints(
            "Are the good ones of the first limit and those of the second the same people?",
            "A request that breaks one limit is not good, whatever it does with the other.",
            "Combine both conditions for one record with `and`, before you count.",
        ),
    ),
    Check(
        "one_token_passes",
        "Answers of one token were not taken for good.",
        _gives(2.0, {1.0: _of(fine=10), 2.0: _of(single=10)}),
        Hints(
            "What does your code do with an empty list of gaps?",
            "An answer of one token has no gap, so none of its gaps is too long.",
            "all(...) over an empty list is True; max(...) needs a default.",
        ),
    ),
    Check(
        "failed_requests_count",
        "Two of ten requests failed, and the rate still counted.",
        _gives(1.0, {1.0: _of(fine=10), 2.0: _of(fine=8, failed=2)}),
        Hints(
            "What happened to those who never got a token?",
            "A failed request is not good and stays in the denominator: else a server that drops "
            "its work would look best.",
            "Divide by len(records), all of them; a ttft_s of None is not good.",
        ),
    ),
    Check(
        "the_limit_is_good",
        "Requests that hit both limits exactly were not taken for good.",
        _gives(2.0, {1.0: _of(fine=10), 2.0: _of(exact=10)}),
        Hints(
            "Is exactly the limit still within it?",
            "An objective is met when the value is at most the limit.",
            "Use <= and not <.",
        ),
    ),
    Check(
        "any_order",
        "With the rates in another order the goodput was another one.",
        _gives(2.0, {3.0: _of(late=10), 2.0: _of(fine=10), 1.0: _of(fine=10)}),
        Hints(
            "Which rate does your loop see first?",
            "A dictionary keeps the order in which it was filled, not the order of the rates.",
            "for rate in sorted(runs):",
        ),
    ),
    Check(
        "stops_at_the_first_miss",
        "3 requests/s counted, although 2 requests/s had missed the target.",
        _gives(1.0, {1.0: _of(fine=10), 2.0: _of(late=10), 3.0: _of(fine=10)}),
        Hints(
            "Would you promise a rate when a lower one has just failed?",
            "With few requests a high rate may pass by luck; goodput ends at the first miss.",
            "Leave the loop (break) at the first rate that misses the target.",
        ),
    ),
    Check(
        "per_worker",
        "Four workers managed 2 requests/s together; that is 0.5 per worker.",
        _gives(0.5, {1.0: _of(fine=10), 2.0: _of(fine=10)}, workers=4),
        Hints(
            "How much hardware did that take?",
            "Goodput is counted per GPU, else whoever buys more wins.",
            "Divide the rate by workers at the end.",
        ),
    ),
    Check(
        "target",
        "With a target of a half, 6 good of 10 are enough, and 4 of 10 are not.",
        _gives(1.0, {1.0: _of(fine=6, late=4), 2.0: _of(fine=4, late=6)}, target=0.5),
        Hints(
            "Is the target written into your code as a number?",
            "The share that is enough comes in as an argument; at least that share is needed.",
            "Compare the share of good requests with target.",
        ),
    ),
    Check(
        "nothing_good",
        "When the lowest rate misses the target, the goodput is 0.0.",
        _gives(0.0, {1.0: _of(late=10), 2.0: _of(fine=10)}),
        Hints(
            "What is returned when no rate passes?",
            "The search starts with nothing reached.",
            "Begin with 0.0 and raise it whenever a rate passes.",
        ),
    ),
    Check(
        "input_unchanged",
        "The records that were handed in must stay as they were.",
        _leaves_its_input_alone,
        Hints(
            "Somebody still needs those records.",
            "sort, pop and remove change the caller's lists.",
            "Use sorted(...) and comprehensions, which make new lists.",
        ),
    ),
)
GOODPUT_PER_WORKER = Exercise("09.2", "Goodput from raw records", "goodput_per_worker", CHECKS)
