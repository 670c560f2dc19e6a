"""Checks of exercise 09.1: TPOT, and ITL as vLLM's benchmark counts it."""

from __future__ import annotations

from math import isclose
from typing import Any

from minipd.lab.hints import Answer, Check, Exercise, Hints

# Half a second to the first token, then one token, then three at once: five tokens, three chunks.
CHUNKS = [(0.5, 1), (0.6, 1), (1.5, 3)]
TPOT, GAPS = 1.0 / 4, [0.1, 0.9]
PLAIN = [(2.0, 1), (2.5, 1), (3.5, 1)]  # a token in each chunk
ONE = [(0.3, 1)]


def _tpot(answer: Answer, chunks: list[tuple[float, int]]) -> Any:
    return answer(list(chunks))[0]


def _itl(answer: Answer, chunks: list[tuple[float, int]]) -> list[float]:
    return list(answer(list(chunks))[1])


def _close(found: list[float], expected: list[float]) -> bool:
    return len(found) == len(expected) and all(
        isclose(a, b, rel_tol=1e-6) for a, b in zip(found, expected)
    )


def _returns_a_pair(answer: Answer) -> bool:
    made: Any = answer(list(PLAIN))
    return isinstance(made, tuple) and len(made) == 2 and hasattr(made[1], "__len__")  # pyright: ignore[reportUnknownArgumentType]


def _unchanged(answer: Answer) -> bool:
    chunks = list(CHUNKS)
    answer(chunks)
    return chunks == CHUNKS


TPOT_CHECKS = (
    Check(
        "first_wait_left_out",
        "A request that waits two seconds longer for its first token must have the same TPOT.",
        lambda answer: isclose(
            _tpot(answer, PLAIN), _tpot(answer, [(t + 2, n) for t, n in PLAIN]), rel_tol=1e-6
        ),
        Hints(
            "Does your TPOT grow when somebody waits longer for the first token?",
            "TPOT is about the tokens after the first; the wait for the first one is the TTFT.",
            "Subtract the time of the first chunk from that of the last one.",
        ),
    ),
    Check(
        "intervals_not_tokens",
        "Three tokens at 2, 2.5 and 3.5 s: the TPOT came out as if there were three intervals.",
        lambda answer: not isclose(_tpot(answer, PLAIN), 0.5),
        Hints(
            "Count the fence posts, then the gaps between them.",
            "n tokens have n - 1 intervals, since nothing of the first token is counted.",
            "Divide by the number of tokens minus one.",
        ),
    ),
    Check(
        "tokens_not_chunks",
        f"For {CHUNKS} the TPOT came out as if each chunk brought one token.",
        lambda answer: not isclose(_tpot(answer, CHUNKS), 0.5),
        Hints(
            "How many tokens does the last chunk bring?",
            "A chunk is what the network delivers; TPOT divides by what the model wrote.",
            "Add up the second numbers of all chunks, then subtract one.",
        ),
    ),
    Check(
        "one_token_has_none",
        "An answer of one token has no time between tokens: its TPOT is None.",
        lambda answer: _tpot(answer, ONE) is None,
        Hints(
            "What would a TPOT of zero say about the reader's wait?",
            "With one token there is no interval; a zero would be the best value of all and pull "
            "every mean down.",
            "If there are fewer than two tokens, return None in the first place.",
        ),
    ),
    Check(
        "tpot",
        f"For {CHUNKS} the TPOT is {TPOT:g} s, and for {PLAIN} it is 0.75 s.",
        lambda answer: isclose(_tpot(answer, CHUNKS), TPOT) and isclose(_tpot(answer, PLAIN), 0.75),
        Hints(
            "Work both out by hand.",
            "From the first to the last chunk one second passes, and four tokens come after the "
            "first.",
            "(last time - first time) / (number of tokens - 1), in seconds",
        ),
    ),
)
ITL_CHECKS = (
    Check(
        "first_wait_is_no_gap",
        "The wait for the first chunk is among your gaps.",
        lambda answer: len(_itl(answer, ONE)) == 0 and len(_itl(answer, PLAIN)) != 3,
        Hints(
            "Between which two chunks does your first gap lie?",
            "A gap is between two chunks; what comes before the first one is the TTFT.",
            "Pair the chunks with the same list from the second one on: zip(chunks, chunks[1:]).",
        ),
    ),
    Check(
        "one_sample_per_chunk",
        f"{CHUNKS} has two gaps for vLLM, not one for every token.",
        lambda answer: len(_itl(answer, CHUNKS)) == 2,
        Hints(
            "Whose definition counts a sample for every token?",
            "vLLM's benchmark sees chunks arrive and does not look into them.",
            "One sample for each pair of neighbouring chunks.",
        ),
    ),
    Check(
        "gap_not_divided",
        "The gap before a chunk of three tokens was divided by three.",
        lambda answer: not _close(_itl(answer, CHUNKS), [0.1, 0.3]),
        Hints(
            "Whose definition shares a gap among the tokens of a chunk?",
            "vLLM's ITL is what a client waits for the next chunk, whatever it brings.",
            "Leave the number of tokens out of the gaps.",
        ),
    ),
    Check(
        "itl",
        f"For {CHUNKS} the gaps are {GAPS} s.",
        lambda answer: _close(_itl(answer, CHUNKS), GAPS),
        Hints(
            "Work them out by hand.",
            "Each gap is the time of a chunk minus the time of the one before, in seconds.",
            "[after - before for before, after in zip(times, times[1:])]",
        ),
    ),
    Check(
        "input_unchanged",
        "The list that was handed in must stay as it was.",
        _unchanged,
        Hints(
            "Somebody still needs those chunks.",
            "pop and del change the caller's list; a slice makes a new one.",
            "Replace chunks.pop(0) by chunks[1:].",
        ),
    ),
)
TOKEN_TIMES = Exercise(
    "09.1",
    "Two numbers that go by one name",
    "token_times",
    (
        Check(
            "a_pair",
            "token_times must return a pair: the TPOT, and a list of gaps.",
            _returns_a_pair,
            Hints(
                "Look at the last line of your function.",
                "A function gives back two values by returning a tuple.",
                "End with: return tpot, gaps",
            ),
        ),
        *TPOT_CHECKS,
        *ITL_CHECKS,
    ),
)
