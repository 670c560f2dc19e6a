"""Checks of exercise 12.2: the price that is advertised, and the one that is paid."""

from __future__ import annotations

from math import isclose

from minipd.lab.hints import Answer, Check, Exercise, Hints

# 36 decode GPUs at $1 write 10,000 tokens/s: $1 per million. The readers feed a tenth of that.
CASE: dict[str, float] = {
    "prefill_gpus": 4,
    "decode_gpus": 36,
    "usd_per_hour": 1.0,
    "reads_tok_s": 10_000.0,
    "writes_tok_s": 10_000.0,
    "prompt": 1000,
    "answer": 100,
}
RICH = CASE | {"reads_tok_s": 1e9}  # so many readers that the decode pool is full


def _made(answer: Answer, case: dict[str, float] = CASE, **changes: float) -> list[float]:
    return [float(value) for value in answer(**(case | changes))]


def _near(a: float, b: float) -> bool:
    return isclose(a, b, rel_tol=1e-6)


def _two(answer: Answer) -> bool:
    made = answer(**CASE)
    return isinstance(made, (tuple, list)) and len(made) == 2  # pyright: ignore[reportUnknownArgumentType]


def _per_hour(answer: Answer) -> bool:
    """Off by 3,600 or 60, or by a million: a slip of units."""
    return 0.05 < _made(answer, RICH)[0] < 20.0


def _decode_only(answer: Answer) -> bool:
    """More prefill GPUs must not change the advertised price."""
    return _near(_made(answer, RICH)[0], _made(answer, RICH, prefill_gpus=400)[0])


def _everybody(answer: Answer) -> bool:
    return not _near(_made(answer, RICH)[1], _made(answer, RICH, prefill_gpus=400)[1])


def _readers_decide(answer: Answer) -> bool:
    """Too few readers make tokens dearer than a full decode pool does."""
    starved = _made(answer)[1]
    return starved > 2 * _made(answer, RICH)[1] and not _near(starved, 40 / 36)


def _full_pool(answer: Answer) -> bool:
    return _near(_made(answer)[0], _made(answer, RICH)[0])


def _writers_decide(answer: Answer) -> bool:
    """With readers without end the decode pool is what limits."""
    return _near(_made(answer, RICH)[1], 40 / 36)


def _output_only(answer: Answer) -> bool:
    """40 GPUs, 10 requests/s of 100 tokens: $11.11; counted with the prompts it would be a tenth
    or less."""
    return _made(answer)[1] > 5.0


def _value(answer: Answer) -> bool:
    made = _made(answer, prefill_gpus=24, decode_gpus=72, usd_per_hour=2.0, prompt=2000)
    return _near(made[0], 4.0) and _near(made[1], 192 / (5 * 100 * 3600) * 1e6)


TWO_BILLS = Exercise(
    "12.2",
    "Who is billed?",
    "two_bills",
    (
        Check(
            "two_prices",
            "two_bills must return two numbers: as advertised, and as paid.",
            _two,
            Hints(
                "Look at the last line of your function.",
                "A function gives back several values by returning a tuple.",
                "End with: return advertised, paid",
            ),
        ),
        Check(
            "dollars_per_million",
            "36 decode GPUs at $1 an hour that write 10,000 tokens/s make a million for $1.",
            _per_hour,
            Hints(
                "How long do 10,000 tokens/s take for a million tokens?",
                "Prices are per hour, rates per second; and it is a million tokens.",
                "gpus * usd_per_hour / (tokens_per_s * 3600) * 1e6",
            ),
        ),
        Check(
            "advertised_bills_decode",
            "More prefill GPUs changed your advertised price; that bill leaves them out.",
            _decode_only,
            Hints(
                "Which GPUs does the report's price count?",
                "It is the flattering number on purpose: readers work for nothing.",
                "Multiply by decode_gpus alone for the first price.",
            ),
        ),
        Check(
            "advertised_pool_is_full",
            "The advertised price must not depend on how fast the readers are.",
            _full_pool,
            Hints(
                "At which rate does the report's decode pool write?",
                "Measured on its own, the decode pool never waits for a reader.",
                "Use writes_tok_s as it is for the first price.",
            ),
        ),
        Check(
            "everybody_is_paid",
            "Prefill GPUs cost nothing in your second price.",
            _everybody,
            Hints(
                "Who is paid at the end of the month?",
                "Every GPU costs its price per hour, whichever pool it is in.",
                "Multiply by prefill_gpus + decode_gpus for the second price.",
            ),
        ),
        Check(
            "slower_pool_decides",
            "Readers that feed a tenth of the decode pool must make an output token much dearer.",
            _readers_decide,
            Hints(
                "How many requests per second can each pool do?",
                "A request needs both pools, so the slower of the two decides (lesson 10).",
                "min(reads_tok_s / prompt, writes_tok_s / answer)",
            ),
        ),
        Check(
            "output_tokens",
            "10 requests/s of 100 output tokens: your price counts tokens that nobody wrote.",
            _output_only,
            Hints(
                "Per million of which tokens?",
                "The bill of all GPUs is laid on what is sold: output tokens.",
                "Output tokens per second are requests per second times answer.",
            ),
        ),
        Check(
            "writers_can_decide_too",
            "With readers without end, 40 GPUs for a full decode pool cost $1.11 per million.",
            _writers_decide,
            Hints(
                "What limits the fleet when reading costs nothing?",
                "Then the decode pool is full, and the second price is the first one with all "
                "GPUs in it.",
                "Take the min of both pools' request rates, not the readers' alone.",
            ),
        ),
        Check(
            "prices",
            "24 + 72 GPUs at $2, 5 requests/s of 100 tokens: $4.00 advertised, $106.67 paid.",
            _value,
            Hints(
                "Work the example out by hand.",
                "72 * 2 dollars buy 36 million tokens; 96 * 2 dollars buy 1.8 million.",
                "Both prices are the same formula with other GPUs and another rate.",
            ),
        ),
    ),
)
