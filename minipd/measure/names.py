"""What to say when somebody asks for a name that does not exist. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def no_such(what: str, name: str, choices: Iterable[str]) -> str:
    """One sentence: there is no such `what`, the nearest name if one is near, all names."""
    known = list(choices)
    near = get_close_matches(name.lower(), known, n=1)
    guess = f"did you mean {near[0]!r}? C" if near else "c"
    return f"There is no {what} {name[:40]!r}; {guess}hoose {', '.join(known)}."
