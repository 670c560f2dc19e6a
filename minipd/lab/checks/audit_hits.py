"""Checks of exercise 13.1: which average a report quotes, and which one measures work."""

from __future__ import annotations

from math import isclose

from minipd.lab.hints import Answer, Check, Exercise, Hints

# Two long prompts, one of them found, and two short new ones. Tokens 900 of 2,200, requests 0.225.
LOG = [(1000, 900), (1000, 0), (100, 0), (100, 0)]
BY_TOKENS, BY_REQUESTS = 900 / 2200, 0.9 / 4
EVEN = [(500, 250), (500, 250)]  # both averages are a half


def _made(answer: Answer, claimed: float) -> tuple[str, float]:
    which, spared = answer(list(LOG), claimed)
    return which, float(spared)


def _pair(answer: Answer) -> bool:
    made = answer(list(LOG), 0.5)
    return isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], str)  # pyright: ignore[reportUnknownArgumentType]


def _share(answer: Answer) -> bool:
    return 0.0 <= _made(answer, 0.5)[1] <= 1.0


def _not_believed(answer: Answer) -> bool:
    claims = (BY_REQUESTS, 0.7)
    return not all(isclose(_made(answer, claim)[1], claim) for claim in claims)


def _work(answer: Answer) -> bool:
    return all(isclose(_made(answer, c)[1], BY_TOKENS) for c in (BY_TOKENS, BY_REQUESTS, 0.7))


def _names(answer: Answer) -> bool:
    pair = (_made(answer, BY_TOKENS)[0], _made(answer, BY_REQUESTS)[0])
    return pair != ("requests", "tokens")


def _neither(answer: Answer) -> bool:
    return all(_made(answer, claim)[0] == "neither" for claim in (0.7, 0.3, 0.0))


def _rounded(answer: Answer) -> bool:
    rounded = (_made(answer, round(BY_TOKENS, 2))[0], _made(answer, 0.22500001)[0])
    return rounded == ("tokens", "requests")


def _both(answer: Answer) -> bool:
    return answer(list(EVEN), 0.5)[0] == "tokens"


def _right(answer: Answer) -> bool:
    return _made(answer, BY_REQUESTS)[0] == "requests" and _made(answer, 0.404)[0] == "neither"


AUDIT_HITS = Exercise(
    "13.1",
    "A report with one of two averages",
    "audit_hits",
    (
        Check(
            "a_pair",
            "Two things were asked for: the name of an average, and a share.",
            _pair,
            Hints(
                "Which two questions does the text ask?",
                "A name as a text, and a share as a number, in this order.",
                "return name, share",
            ),
        ),
        Check(
            "share_not_count",
            "A share lies between 0 and 1.",
            _share,
            Hints(
                "Which unit does your second number have?",
                "Tokens found over tokens asked for has none.",
                "Divide by the sum of all prompt tokens, and do not multiply by 100.",
            ),
        ),
        Check(
            "claim_not_believed",
            "The share spared is always what the report claims. Then why look at the log?",
            _not_believed,
            Hints(
                "Could the report be wrong in your function?",
                "What was spared stands in the log, whatever is claimed.",
                "Compute the second number from the log alone.",
            ),
        ),
        Check(
            "work_is_tokens",
            "900 of 2,200 tokens were found, so 41 % of the reading was spared.",
            _work,
            Hints(
                "Does a prompt of 100 tokens cost as much to read as one of 1,000?",
                "Work is counted in tokens: long prompts weigh more.",
                "Sum the found tokens, and divide by the sum of the prompt tokens.",
            ),
        ),
        Check(
            "names_not_swapped",
            "The two names stand at the wrong averages.",
            _names,
            Hints(
                "Say each average aloud: a mean over what?",
                '"requests" is the mean of each request\'s own share.',
                "sum(found) / sum(prompt) is the one that is named tokens.",
            ),
        ),
        Check(
            "neither_exists",
            "Claims of 70 %, of 30 % and of nothing are neither of the two averages.",
            _neither,
            Hints(
                "What if the author just hoped?",
                "The nearer average is not near enough if it is further off than 0.005.",
                "Check the distance of each, and return neither at the end.",
            ),
        ),
        Check(
            "rounded_claims",
            "A report writes 41 % for 40.9 %; that is near enough.",
            _rounded,
            Hints(
                "Do people quote shares with all their digits?",
                "Equal to within 0.005 counts as equal.",
                "abs(average - claimed) <= 0.005",
            ),
        ),
        Check(
            "tokens_if_both",
            "Where both averages are equal, say tokens.",
            _both,
            Hints(
                "Which of the two do you ask first?",
                "The text names the one to say when both fit.",
                "Compare with the average over tokens before the other one.",
            ),
        ),
        Check(
            "right_names",
            "Some claims get the wrong name.",
            _right,
            Hints(
                "Work out both averages of four requests by hand.",
                "22.5 % is the mean over the requests here; 40.4 % is more than half a point away "
                "from either.",
                "Two averages, two distances, and neither if both are too far.",
            ),
        ),
    ),
)
