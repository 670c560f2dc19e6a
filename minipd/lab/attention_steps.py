"""Lesson 01's experiment step by step: a token is changed, whose keys and values change with it?

Everything shown is measured: one pass over the text as it was, one over the text as it is, and a
comparison bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from minipd.lab.show import html_table
from minipd.model.decoder import Attend, Decoder

KV = list[tuple[Tensor, Tensor]]  # for each layer: keys (T, K, D) and values (T, K, D)
Same = list[list[bool]]  # for each layer and token: are key and value the very same bits?
Table = dict[str, list[object]]
STEPS = ("words", "first_kv", "attention", "second_kv", "all_kv")
TITLES = {
    "words": "The text",
    "first_kv": "Layer 1: keys and values",
    "attention": "Layer 1: who looks at whom (first head)",
    "second_kv": "Layer 2: keys and values",
    "all_kv": "All layers: keys and values",
}
EXPLAINED = {
    "words": "One token was replaced. Nothing has been computed yet.",
    "first_kv": "In the first layer a key and a value are made from the token alone, so only the "
    "replaced token has others.",
    "attention": "Each row is one token that looks back. A row that may look at the replaced token "
    "comes out changed; rows above it cannot see it.",
    "second_kv": "The second layer makes its keys and values from what the first one put out: "
    "every token that looked at the replaced one now differs.",
    "all_kv": "So it goes on to the last layer. Tokens before the replaced one keep their bits "
    "everywhere.",
}


def record(decoder: Decoder, token_ids: Sequence[int], attend: Attend) -> tuple[KV, list[Tensor]]:
    """Keys and values of every layer, and every layer's queries (T, H, D), from one pass."""
    kept: KV = []
    queries: list[Tensor] = []

    def watching(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        queries.append(q.clone())
        kept.append((k.clone(), v.clone()))
        return attend(layer, q, k, v)

    with torch.inference_mode():
        decoder(torch.tensor(list(token_ids)), torch.arange(len(token_ids)), watching)
    return kept, queries


def same_bits(before: KV, after: KV) -> Same:
    """For each layer and token, whether key and value are equal bit for bit (same shapes)."""
    return [
        [torch.equal(k[t], k2[t]) and torch.equal(v[t], v2[t]) for t in range(len(k))]
        for (k, v), (k2, v2) in zip(before, after, strict=True)
    ]


def first_head_weights(queries: Tensor, keys: Tensor) -> list[list[float]]:
    """Causal weights of query head 0: `queries` (T, H, D), `keys` (T, K, D) to T rows of T."""
    scores = queries[:, 0] @ keys[:, 0].T / queries.shape[-1] ** 0.5  # (T, T)
    later = torch.ones_like(scores, dtype=torch.bool).triu(1)  # (T, T)
    return scores.masked_fill(later, -torch.inf).softmax(-1).tolist()


def layers_in_words(same: Sequence[bool]) -> str:
    """In which layers, counted from 1, a token kept its key and value."""
    if all(same):
        return f"same in all {len(same)} layers"
    if not any(same):
        return f"changed in all {len(same)} layers"
    num_kept = list(same).index(False)
    if not any(same[num_kept:]):
        return f"changed from layer {num_kept + 1} on"
    return f"changed in {sum(not is_same for is_same in same)} of {len(same)} layers"


def changes_table(words: Sequence[str], same: Same) -> Table:
    """A row for each token: in which layers its key and value are the same bits as before."""
    columns = zip(*same, strict=True)
    return {
        "token": [f"'{word}'" for word in words],
        "its key and value": [layers_in_words(column) for column in columns],
    }


@dataclass(frozen=True, slots=True)
class Change:
    """What replacing one token (`place`, from 0) did: measured flags and weights."""

    words: list[str]  # after the change
    place: int
    old_word: str
    same: Same
    weights: list[list[float]]
    old_weights: list[list[float]]

    def table(self, step: str) -> Table:
        """What one of `STEPS` shows, in words and numbers."""
        if step == "words":
            state = ["as before" for _ in self.places]
            state[self.place] = f"replaces '{self.old_word}'"
            return {"token": self.quoted, "what happened": [*state]}
        if step == "attention":
            return self._attention()
        if step == "all_kv":
            return changes_table(self.words, self.same)
        layer = 0 if step == "first_kv" else 1
        state = ["same bits" if is_same else "CHANGED" for is_same in self.same[layer]]
        return {"token": self.quoted, "key and value": [*state]}

    @property
    def places(self) -> range:
        return range(len(self.words))

    @property
    def quoted(self) -> list[object]:
        return [f"'{word}'" for word in self.words]

    def _attention(self) -> Table:
        table: Table = {"looks back": self.quoted}
        for column, word in enumerate(self.words):
            table[f"at '{word}'"] = [self._weight(row, column) for row in self.places]
        return table

    def _weight(self, row: int, column: int) -> str:
        if column > row:
            return "hidden"
        new, old = self.weights[row][column], self.old_weights[row][column]
        if new == old:
            return f"{new:.2f}"
        return f"{new:.2f} (was {old:.2f})" if f"{new:.2f}" != f"{old:.2f}" else f"{new:.2f} (new)"


def watch_changes(
    decoder: Decoder,
    tokenizer: Any,
    token_ids: Sequence[int],
    swaps: Sequence[int],
    attend: Attend,
) -> list[Change]:
    """One `Change` for each place of the text, its token replaced by that place's swap."""
    before, queries = record(decoder, token_ids, attend)
    weights = first_head_weights(queries[0], before[0][0])
    changes: list[Change] = []
    for place, swap in enumerate(swaps):
        ids = [*token_ids[:place], swap, *token_ids[place + 1 :]]
        after, new_queries = record(decoder, ids, attend)
        changes.append(
            Change(
                words=[str(tokenizer.decode([token_id])) for token_id in ids],
                place=place,
                old_word=str(tokenizer.decode([token_ids[place]])),
                same=same_bits(before, after),
                weights=first_head_weights(new_queries[0], after[0][0]),
                old_weights=weights,
            )
        )
    return changes


def summary_table(changes: Sequence[Change]) -> Table:
    """All experiments in one table: a row for each replaced token, a column for each token."""
    table: Table = {"replaced": [f"'{c.old_word}' by '{c.words[c.place]}'" for c in changes]}
    for place, _ in enumerate(changes[0].words):
        states = [layers_in_words([layer[place] for layer in c.same]) for c in changes]
        table[f"token {place + 1}"] = [*states]
    return table


def step_html(change: Change, step: str) -> str:
    """One step as HTML: its title, its table, and what it means."""
    number = f"Step {STEPS.index(step) + 1} of {len(STEPS)}"
    return f"{html_table(change.table(step), f'{number}. {TITLES[step]}')}<p>{EXPLAINED[step]}</p>"
