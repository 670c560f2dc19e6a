"""Lesson 01's two predictions about changed keys and values: what happened, as a choice.

The reasons against the other choices stand here, out of sight of whoever reads the question.
"""

from __future__ import annotations

from collections.abc import Sequence

Same = Sequence[Sequence[bool]]  # for each layer and token: are key and value the very same bits?

ONLY_LAST, ALL, ALL_BUT_FIRST = "Only the last one", "All four", "All but the first one"
NONE = "None: the words change, the keys do not"
NO_LAYER, EVERY_LAYER = "In no layer", "In every layer"
BUT_THE_FIRST, LAST_LAYER = "In every layer but the first", "In the last layer only"
WHY_NOT = {
    "01.last": {
        ALL: "no token can see a later one, so the first three could not notice.",
        ALL_BUT_FIRST: "what lies before the replaced token cannot see it.",
        NONE: "keys and values are made from the token itself.",
    },
    "01.first": {
        NO_LAYER: "their values are mixed from what they see, and they see the first token.",
        EVERY_LAYER: "in the first layer nobody has looked at anybody yet.",
        LAST_LAYER: "the first attention already mixes the new token in.",
    },
}


def changed_tokens(same: Same) -> str:
    """Which tokens got another key or value anywhere: a choice of "01.last", or their places."""
    changed = [not all(column) for column in zip(*same, strict=True)]
    last = len(changed) - 1
    named = {
        (): NONE,
        (last,): ONLY_LAST,
        tuple(range(last + 1)): ALL,
        tuple(range(1, last + 1)): ALL_BUT_FIRST,
    }
    places = tuple(place for place, is_changed in enumerate(changed) if is_changed)
    return named.get(places, f"Tokens {[place + 1 for place in places]}")


def changed_layers(same: Same) -> str:
    """Layers in which tokens behind the first changed: a choice of "01.first", or numbers."""
    changed = [not all(layer[1:]) for layer in same]
    last = len(changed) - 1
    named = {
        (): NO_LAYER,
        tuple(range(last + 1)): EVERY_LAYER,
        tuple(range(1, last + 1)): BUT_THE_FIRST,
        (last,): LAST_LAYER,
    }
    layers = tuple(number for number, is_changed in enumerate(changed) if is_changed)
    return named.get(layers, f"In layers {[number + 1 for number in layers]}")
