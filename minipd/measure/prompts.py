"""Token ids for the rows of a trace: random, so that no prefix cache makes prefill free by luck,
and equal exactly where the rows say that a prefix is shared. Standard library only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from random import Random

from minipd.measure.rows import TraceRow


class PromptMaker:
    """Draws prompts; keeps the streams it has drawn so that shared prefixes come out equal.

    Ids run over `[0, vocab_size)` without `forbidden` (end-of-text, for example).
    """

    def __init__(self, vocab_size: int, seed: int = 0, forbidden: Collection[int] = ()) -> None:
        banned = set(forbidden)
        self._ids = [token_id for token_id in range(vocab_size) if token_id not in banned]
        if not self._ids:
            raise ValueError(f"A vocabulary of {vocab_size} leaves no token to write prompts with.")
        self._seed = seed
        self._streams: dict[str, tuple[Random, list[int]]] = {}

    def stream(self, name: str, tokens: int) -> list[int]:
        """The first `tokens` ids of the named stream, however often and far it is asked for."""
        if name not in self._streams:
            self._streams[name] = (Random(f"minipd prompt {self._seed} {name}"), [])
        rng, drawn = self._streams[name]
        if len(drawn) < tokens:
            drawn.extend(rng.choices(self._ids, k=tokens - len(drawn)))
        return drawn[:tokens]

    def prompt(self, row: TraceRow, index: int) -> list[int]:
        """The prompt of row number `index` (its own part depends on the index alone)."""
        token_ids = [token for name, tokens in row.segments for token in self.stream(name, tokens)]
        own_tokens = row.prompt_tokens - len(token_ids)
        assert own_tokens >= 0, "segments must not be longer than the prompt"
        own = Random(f"minipd prompt {self._seed} row {index}")
        return token_ids + own.choices(self._ids, k=own_tokens)


def iter_prompts(
    rows: Iterable[TraceRow], vocab_size: int, seed: int = 0, forbidden: Collection[int] = ()
) -> Iterator[list[int]]:
    """Prompts one by one, for traces too long to hold; memory grows with the shared streams."""
    maker = PromptMaker(vocab_size, seed, forbidden)
    for index, row in enumerate(rows):
        yield maker.prompt(row, index)


def make_prompts(
    rows: Iterable[TraceRow], vocab_size: int, seed: int = 0, forbidden: Collection[int] = ()
) -> list[list[int]]:
    """Token ids of every row's prompt, in order."""
    return list(iter_prompts(rows, vocab_size, seed, forbidden))
