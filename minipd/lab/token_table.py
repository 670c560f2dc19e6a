"""Text as a model gets it: pieces, their numbers, and what comes next, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # what a decoder writes for half a character
Group = tuple[str, list[int]]


def groups(tokenizer: Any, token_ids: Sequence[int]) -> list[Group]:
    """The smallest runs of tokens that make whole characters, each with its text.

    A tokenizer that works on bytes may cut a character in pieces: none of them has a text alone.
    """
    made: list[Group] = []
    run: list[int] = []
    for token_id in token_ids:
        run.append(token_id)
        text = str(tokenizer.decode(run))
        if UNFINISHED not in text:
            made.append((text, run))
            run = []
    return [*made, (str(tokenizer.decode(run)), run)] if run else made


def token_table(tokenizer: Any, token_ids: Sequence[int]) -> dict[str, list[object]]:
    """A row for each group: its text in quotes, its tokens' numbers, how many there are."""
    rows = groups(tokenizer, token_ids)
    return {
        "text": [f"'{text}'" for text, _ in rows],
        "numbers of its tokens": [", ".join(map(str, run)) for _, run in rows],
        "tokens": [len(run) for _, run in rows],
    }


def best_table(tokenizer: Any, scores: Tensor, count: int = 5) -> dict[str, list[object]]:
    """The `count` likeliest next tokens from one row of scores (V,), with score and share."""
    best = scores.float().topk(count)
    shares = scores.float().softmax(-1)[best.indices].tolist()
    return {
        "next token": [f"'{tokenizer.decode([token_id])}'" for token_id in best.indices.tolist()],
        "logit": [f"{value:.2f}" for value in best.values.tolist()],
        "share": [f"{share:.1%}" for share in shares],
    }


def code_table(made: Mapping[str, Tensor]) -> dict[str, list[object]]:
    """A row for each line of code: the rows of the tensor that it makes, and their shape."""
    return {
        "code": list(made),
        "makes": [_in_words(x) for x in made.values()],
        "shape": [" x ".join(map(str, x.shape)) for x in made.values()],
    }


def _in_words(x: Tensor) -> str:
    """The numbers row by row, to two places."""
    return str(
        (x.double() * 100).round().div(100).tolist() if x.is_floating_point() else x.tolist()
    )


def four_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Four tokens, and for each of them another one that could stand in its place.

    With the lessons' model these are the words "The cat sat down" and "My dog ran up".
    """
    first, other = (list(tokenizer.encode(text))[:4] for text in ("The cat sat down", OTHER))
    swaps = [b if a != b else b + 1 for a, b in zip(first, other, strict=True)]
    return first, swaps


OTHER = "My dog ran up"
