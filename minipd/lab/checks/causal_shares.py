"""Checks of exercise 01.4: the causal shares of one attention head, also with keys kept."""

from __future__ import annotations

from math import exp, isclose
from typing import Any, cast

from minipd.lab.hints import Answer, Check, Exercise, Hints

# Three tokens, four numbers each. Row 1 fits key 0 with a score of 2 and its own with 0, so its
# first share tells what the scores were divided by; three tokens, so that T and D differ.
QUERIES = [[1.0, 0, 0, 0], [2.0, 0, 0, 0], [4.0, 2.0, 0, 0]]
KEYS = [[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 1.0, 0]]
LAST_ROW = (0.66524, 0.24473, 0.09003)  # scores 2, 1 and 0


def _rows(answer: Answer) -> list[list[float]]:
    return _shares(answer, QUERIES, KEYS)


def _shares(
    answer: Answer, queries: list[list[float]], keys: list[list[float]]
) -> list[list[float]]:
    import torch

    made = answer(torch.tensor(queries), torch.tensor(keys))
    return cast("list[list[float]]", made.tolist())


def _first_share_at(score: float) -> float:
    """The first of two shares when its score is higher by `score`."""
    return exp(score) / (exp(score) + 1)


def _is_not(answer: Answer, score: float) -> bool:
    return not isclose(_rows(answer)[1][0], _first_share_at(score), abs_tol=1e-4)


def _is_square(answer: Answer) -> bool:
    import torch

    made: Any = answer(torch.tensor(QUERIES), torch.tensor(KEYS))
    return isinstance(made, torch.Tensor) and tuple(made.shape) == (3, 3)


def _look_all_the_same(answer: Answer, num_queries: int, num_keys: int) -> bool:
    """Queries that fit nothing in particular share evenly among the tokens up to their own."""
    rows = _shares(answer, [[0.0] * 8] * num_queries, [[1.0] * 8] * num_keys)
    return all(
        isclose(share, 1 / seen if place < seen else 0.0, abs_tol=1e-5)
        for seen, shares in enumerate(rows, num_keys - num_queries + 1)
        for place, share in enumerate(shares)
    )


def _divides_by_the_root_of_nine(answer: Answer) -> bool:
    """D = 9: the second query fits the first key with 3 and its own with 0."""
    rows = _shares(answer, [[0.0] * 9, [3.0] + [0.0] * 8], [[1.0] + [0.0] * 8, [0.0] * 9])
    return isclose(rows[1][0], _first_share_at(1.0), abs_tol=1e-4)


def _are_shares(answer: Answer) -> bool:
    return all(-1e-6 <= share <= 1 + 1e-6 for row in _rows(answer) for share in row)


SHAPE_CHECKS = (
    Check(
        "a_square",
        "For 3 queries and 3 keys, causal_shares must return a tensor of 3 rows of 3 numbers.",
        _is_square,
        Hints(
            "How many tokens look, and at how many?",
            "A product of (T, D) and (D, T) is (T, T): one number for each pair of tokens.",
            "Begin with q @ k.T and return a tensor of that shape.",
        ),
    ),
    Check(
        "shares_not_scores",
        "A share lies between 0 and 1; yours do not.",
        _are_shares,
        Hints(
            "What did step three do with the scores?",
            "The softmax turns scores, which may be anything, into shares.",
            "Call .softmax(...) on the masked scores before you return them.",
        ),
    ),
    Check(
        "sees_itself",
        "Each token sees itself too, the first one nothing else.",
        lambda answer: all(_rows(answer)[place][place] > 0 for place in range(3)),
        Hints(
            "What is left for the first token to look at?",
            "Later means later: a token's own place is not hidden from it.",
            "The diagonal stays visible: triu(1), not triu(0).",
        ),
    ),
    Check(
        "no_look_ahead",
        "The first token takes something from the third one, which does not exist yet.",
        lambda answer: _rows(answer)[0][2] == 0,
        Hints(
            "Which step of the lesson is missing, or came to nothing?",
            "Hidden scores must be minus infinity before the softmax. A score of zero is no "
            "hiding: e to the power of zero is one.",
            "scores.masked_fill(later, -torch.inf), where later is True above the diagonal.",
        ),
    ),
    Check(
        "not_even_the_next",
        "The first token takes something from the second one.",
        lambda answer: _rows(answer)[0][1] == 0 and _rows(answer)[1][2] == 0,
        Hints(
            "How far off the diagonal does your mask begin?",
            "A token must not see the very next one either: that is the one to be guessed.",
            "The mask begins one above the diagonal: triu(1), not triu(2).",
        ),
    ),
    Check(
        "rows_add_up",
        "The shares of each token must add up to one, along its row.",
        lambda answer: all(isclose(sum(row), 1, abs_tol=1e-4) for row in _rows(answer)),
        Hints(
            "Add up one of your rows. And one of your columns.",
            "Each row is one token that looks; its shares are of its own attention. If you hide "
            "something after the softmax, a part of them is thrown away.",
            "Mask first, then softmax along the rows: dim=-1, not 0.",
        ),
    ),
)
VALUE_CHECKS = (
    Check(
        "queries_look_at_keys",
        "Row 1 must be the second token's query against all keys; yours is a key against queries.",
        lambda answer: _is_not(answer, 0.0),
        Hints(
            "Who is looking, and who is looked at?",
            "The rows belong to the tokens that look, and what looks is the query.",
            "q @ k.T, not k @ q.T.",
        ),
    ),
    Check(
        "divided_by_the_root",
        "The scores were not divided by anything.",
        lambda answer: _is_not(answer, 2.0),
        Hints(
            "Something happened to the scores in step one.",
            "Sums of more products get larger; dividing by the root of D keeps shares from going "
            "all to one token.",
            "Divide q @ k.T by q.shape[-1] ** 0.5.",
        ),
    ),
    Check(
        "root_not_size",
        "The scores were divided by D; it should be its square root.",
        lambda answer: _is_not(answer, 0.5),
        Hints(
            "By what exactly is a score divided?",
            "Sums of D products that are now positive, now negative grow like the root of D.",
            "** 0.5 makes a square root.",
        ),
    ),
    Check(
        "root_of_d_not_t",
        "The scores were divided by the root of the number of tokens.",
        lambda answer: _is_not(answer, 2.0 / 3**0.5),
        Hints(
            "Which of the two sizes is the number of products in one score?",
            "A score adds up D products, however many tokens there are.",
            "D is q.shape[-1]; len(q) is the number of tokens.",
        ),
    ),
    Check(
        "shares",
        "For the check's three tokens the last row should be "
        f"{', '.join(f'{share:.3f}' for share in LAST_ROW)}.",
        lambda answer: all(
            isclose(a, b, abs_tol=1e-4) for a, b in zip(_rows(answer)[2], LAST_ROW, strict=True)
        ),
        Hints(
            "Work the last row out by hand: its scores are 4, 2 and 0 before anything else.",
            "Divided by two they are 2, 1 and 0; e to those powers is 7.39, 2.72 and 1.",
            "Scores, divide, mask, softmax along the row: four short lines.",
        ),
    ),
    Check(
        "root_of_any_d",
        "With rows of 9 numbers the scores must be divided by 3, the root of 9.",
        _divides_by_the_root_of_nine,
        Hints(
            "Which number do you divide by, and where does it come from?",
            "The 2 was the root of the lesson's D, which was 4. Other models have another D.",
            "Take D from the shape of q: q.shape[-1] ** 0.5 is its root.",
        ),
    ),
    Check(
        "any_size",
        "Queries of zeros fit every key alike: token number n must take 1/n from each it sees.",
        lambda answer: _look_all_the_same(answer, 5, 5),
        Hints(
            "Does your function know the sizes of the example only?",
            "The number of tokens and of numbers in a row are in the shape of q.",
            "Use len(q) and q.shape[-1] instead of fixed numbers.",
        ),
    ),
    Check(
        "looks_from_the_end",
        "One query and three keys: the query is the last token's, and it sees all three.",
        lambda answer: _look_all_the_same(answer, 1, 3),
        Hints(
            "Which of the three tokens does the only query belong to?",
            "The queries are those of the last tokens of the text, so the mask is aligned at its "
            "end: row 0 belongs to token S - T.",
            "Shift the mask to the right by len(k) - len(q).",
        ),
    ),
    Check(
        "new_tokens_hide_too",
        "Two queries and five keys: the first of the two must not see the last token.",
        lambda answer: _look_all_the_same(answer, 2, 5),
        Hints(
            "Among the last two tokens, who comes later?",
            "Kept keys are all in the past, but among the tokens that look there is a future.",
            "A mask of T rows and S columns, True where column > row + len(k) - len(q).",
        ),
    ),
)
CAUSAL_SHARES = Exercise(
    "01.4",
    "Who looks at whom",
    "causal_shares",
    (*SHAPE_CHECKS, *VALUE_CHECKS),
)
