"""The nearest of several names to one that is unknown. Standard library only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches


def nearest(name: str, known: Sequence[str], simplify: Callable[[str], str]) -> str | None:
    """The name in `known` most like `name` once both are simplified; None if none is alike."""
    simple = {simplify(word): word for word in known}
    found = get_close_matches(simplify(name), list(simple), n=1, cutoff=0.4)
    return simple[found[0]] if found else None
