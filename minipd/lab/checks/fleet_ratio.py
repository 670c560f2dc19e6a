"""Checks of exercise 12.1: nodes that a day's tokens keep busy."""

from __future__ import annotations

from math import isclose

from minipd.lab.hints import Answer, Check, Exercise, Hints

DAY_S = 86_400.0
# Ten nodes read 100 tokens/s each and twenty write 20 tokens/s each, all day long.
EASY = (10 * 100 * DAY_S, 20 * 20 * DAY_S, 100.0, 20.0)
# 2.34567 nodes that read and 3.76543 that write: 1.60527 for each.
BROKEN = (2.34567 * 400 * DAY_S, 3.76543 * 50 * DAY_S, 400.0, 50.0)


def _made(answer: Answer, case: tuple[float, float, float, float] = EASY) -> list[float]:
    return [float(value) for value in answer(*case)]


def _three(answer: Answer) -> bool:
    made = answer(*EASY)
    return isinstance(made, (tuple, list)) and len(made) == 3  # pyright: ignore[reportUnknownArgumentType]


def _per_second(answer: Answer) -> bool:
    """Wrong units of time make both numbers wrong by the same factor."""
    prefill, decode, _ = _made(answer)
    same = isclose(prefill / 10, decode / 20, rel_tol=1e-6)
    return not (same and not isclose(prefill, 10, rel_tol=1e-6))


def _own_rates(answer: Answer) -> bool:
    """A faster writer changes the number of decode nodes and of nothing else."""
    read, written, reads, writes = EASY
    faster = _made(answer, (read, written, reads, 2 * writes))
    return isclose(sum(_made(answer)[:2]) - sum(faster[:2]), 10.0, rel_tol=1e-6)


def _readers_first(answer: Answer) -> bool:
    return not isclose(_made(answer)[0], 20.0, rel_tol=1e-6)


def _not_rounded(answer: Answer) -> bool:
    """The nodes are right by now but for rounding; the ratio may still be upside down."""
    prefill, decode, ratio = _made(answer, BROKEN)
    wanted = 3.76543 / 2.34567
    rounded = abs(ratio - wanted) < 0.45 and not isclose(ratio, wanted, rel_tol=1e-6)
    exact = isclose(prefill, 2.34567, rel_tol=1e-6) and isclose(decode, 3.76543, rel_tol=1e-6)
    return exact and not rounded


def _decode_for_each(answer: Answer) -> bool:
    return not isclose(_made(answer)[2], 0.5, rel_tol=1e-6)


def _published(answer: Answer) -> bool:
    made = _made(answer, (608e9, 168e9, 73_700.0, 14_800.0))
    prefill, decode = 608e9 / 73_700 / DAY_S, 168e9 / 14_800 / DAY_S
    wanted = (prefill, decode, decode / prefill)
    return all(isclose(a, b, rel_tol=1e-6) for a, b in zip(made, wanted))


FLEET_RATIO = Exercise(
    "12.1",
    "A unit is not a fleet",
    "fleet_ratio",
    (
        Check(
            "three_numbers",
            "fleet_ratio must return three numbers: prefill nodes, decode nodes, their ratio.",
            _three,
            Hints(
                "Look at the last line of your function.",
                "A function gives back several values by returning a tuple.",
                "End with: return prefill, decode, decode / prefill",
            ),
        ),
        Check(
            "seconds_of_a_day",
            "Ten nodes that read 100 tokens/s all day read 86,400,000 tokens; you get another "
            "number of nodes from that.",
            _per_second,
            Hints(
                "In which unit of time are the tokens given, and in which the rates?",
                "A node works for all the seconds of a day.",
                "Divide by the rate times 24 * 60 * 60.",
            ),
        ),
        Check(
            "each_pool_its_rate",
            "Writers that are twice as fast must halve the decode nodes, and nothing else.",
            _own_rates,
            Hints(
                "Which rate did you divide which tokens by?",
                "Tokens that are read keep readers busy, tokens that are written keep writers.",
                "read_per_day goes with reads_tok_s, written_per_day with writes_tok_s.",
            ),
        ),
        Check(
            "readers_first",
            "You return the decode nodes first.",
            _readers_first,
            Hints(
                "In which order were the numbers asked for?",
                "P:D names prefill first.",
                "return prefill, decode, ...",
            ),
        ),
        Check(
            "not_rounded",
            "Averages of 2.34567 and 3.76543 nodes, 1 to 1.60527, were rounded; leave them.",
            _not_rounded,
            Hints(
                "Does a part of a node make sense in an average?",
                "A fleet grows and shrinks with the hour; its average need not be whole.",
                "Leave out round, ceil, int and //.",
            ),
        ),
        Check(
            "decode_for_each_prefill",
            "Ten nodes read and twenty write: that is two decode nodes for each prefill node.",
            _decode_for_each,
            Hints(
                "Is your ratio above 1 where the decode pool is the larger one?",
                "'So many decode nodes for each prefill node' has prefill below the line.",
                "Divide decode by prefill.",
            ),
        ),
        Check(
            "published_day",
            "608e9 tokens read at 73,700/s and 168e9 written at 14,800/s give 95.5 and 131.4 "
            "nodes, 1 to 1.38.",
            _published,
            Hints(
                "Work the published day out by hand.",
                "Tokens per day over (tokens per second of a node times the seconds of a day).",
                "608e9 / (73_700 * 86_400) is 95.5.",
            ),
        ),
    ),
)
