"""Checks of exercise 06.1: a document's freeze, in tokens that each reader loses."""

from __future__ import annotations

from math import isclose

from minipd.lab.checks.returned import returns_something
from minipd.lab.hints import Answer, Check, Exercise, Hints

# 500 tokens to read at 250 tokens/s are 2 s; four readers share 40 tokens/s, 10 for each.
CASE = {
    "prompt_tokens": 600,
    "cached_tokens": 100,
    "prefill_tok_s": 250.0,
    "decode_tok_s": 40.0,
    "readers": 4,
}
SECONDS, LOST, CACHED_ONLY = 2.0, 20.0, 4.0


def _lost(answer: Answer, **changes: float) -> float:
    return float(answer(*(CASE | changes).values()))


def _is_close(answer: Answer, wrong: float) -> bool:
    return isclose(_lost(answer), wrong, rel_tol=1e-6)


def _is_a_number(answer: Answer) -> bool:
    made = answer(*CASE.values())
    return isinstance(made, (int, float)) and not isinstance(made, bool)


def _is_rounded(answer: Answer) -> bool:
    """501 / 270 has no end behind the decimal point, and neither has what comes of it."""
    made = _lost(answer, prompt_tokens=601, prefill_tok_s=270.0)
    return made == round(made, 3)


TOKENS_LOST = Exercise(
    "06.1",
    "What a document costs each reader",
    "tokens_lost",
    (
        returns_something("tokens_lost", "a number", lambda answer: answer(*CASE.values())),
        Check(
            "a_number",
            "tokens_lost must return a number.",
            _is_a_number,
            Hints(
                "What is the type of your result?",
                "Others go on computing with it: a text or a list of numbers is of no use there.",
                "Return the result of your division and multiplication as it is.",
            ),
        ),
        Check(
            "tokens_not_seconds",
            "That is how long the freeze lasts in seconds; the question was tokens.",
            lambda answer: not _is_close(answer, SECONDS),
            Hints(
                "Say the unit of your result aloud.",
                "You have the seconds of reading. How many tokens would a reader have got in them?",
                "Multiply the seconds by the tokens per second of one reader.",
            ),
        ),
        Check(
            "not_the_cached_ones",
            "That is the price of the 100 tokens that are in the cache.",
            lambda answer: not _is_close(answer, CACHED_ONLY),
            Hints(
                "Which of the prompt's tokens still have to go through the model?",
                "cached_tokens are those that are done already (lesson 05); the others cost time.",
                "tokens_to_read = prompt_tokens - cached_tokens",
            ),
        ),
        Check(
            "not_the_ratio_of_speeds",
            "That depends on the two speeds only; how long is the document?",
            lambda answer: not isclose(_lost(answer), _lost(answer, prompt_tokens=1200)),
            Hints(
                "Does your result change with the length of the prompt?",
                "The ratio of the speeds says how many tokens are read in the time of one written.",
                "First the seconds of this document, then the tokens in those seconds.",
            ),
        ),
        Check(
            "not_inverted",
            "A longer prompt must cost more tokens.",
            lambda answer: _lost(answer, prompt_tokens=1200) > _lost(answer),
            Hints(
                "Try a prompt of twice the length by hand.",
                "Tokens divided by tokens per second are seconds; not the other way round.",
                "seconds = tokens_to_read / prefill_tok_s",
            ),
        ),
        Check(
            "cached_tokens_are_not_read",
            "The 100 cached tokens were read as well.",
            lambda answer: not _is_close(answer, 24.0),
            Hints(
                "Which of the prompt's tokens go through the model at all?",
                "Tokens whose keys and values are in the cache already are not read (lesson 05).",
                "tokens_to_read = prompt_tokens - cached_tokens",
            ),
        ),
        Check(
            "each_reader_not_all",
            "That is what all four readers lose together.",
            lambda answer: not _is_close(answer, LOST * 4),
            Hints(
                "Whose tokens per second is decode_tok_s?",
                "It is the server's rate for all its readers; a step gives one token to each "
                "(lesson 04).",
                "One reader gets decode_tok_s / readers tokens per second.",
            ),
        ),
        Check(
            "readers_share_the_rate",
            "With more readers on the same rate, each of them has less to lose.",
            lambda answer: _lost(answer, readers=8) < _lost(answer),
            Hints(
                "Twice as many readers share the same tokens per second: what is left for one?",
                "The server's rate is divided among its readers, not multiplied by their number.",
                "rate_of_one = decode_tok_s / readers",
            ),
        ),
        Check(
            "not_rounded",
            "501 tokens at 270 tokens/s give a number without end, and yours was rounded.",
            lambda answer: not _is_rounded(answer),
            Hints(
                "Look for int(), round() or //.",
                "A freeze may end between two tokens; leave the fraction.",
                "Divide with / and return the number as it is.",
            ),
        ),
        Check(
            "value",
            "500 tokens at 250 tokens/s, 4 readers at 40 tokens/s together: each loses 20 tokens.",
            lambda answer: (
                _is_close(answer, LOST)
                and isclose(_lost(answer, readers=1), 80.0)
                and isclose(_lost(answer, cached_tokens=350), 10.0)
            ),
            Hints(
                "Work the case out by hand: first seconds, then tokens.",
                "500 tokens take 2 s; one of four readers gets 10 tokens per second.",
                "(prompt_tokens - cached_tokens) / prefill_tok_s * decode_tok_s / readers",
            ),
        ),
    ),
)
