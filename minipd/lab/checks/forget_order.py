"""Checks of exercise 13.3: forgetting blocks without leaving a child behind its parent."""

from __future__ import annotations

from minipd.lab.hints import Answer, Check, Exercise, Hints
from minipd.lab.shared_beginnings import Held

# A text a - b - c, read in order, so that its beginning is the oldest; and an older one, x - y.
CHAIN = {"a": Held(None, 3), "b": Held("a", 4), "c": Held("b", 5)}
TWO = CHAIN | {"x": Held(None, 1), "y": Held("x", 2)}
# Two texts that begin alike: r, then p or q; q was used last.
FORK = {"r": Held(None, 1), "p": Held("r", 2), "q": Held("r", 9)}


def _order(answer: Answer, held: dict[str, Held], needed: int) -> list[str]:
    return list(answer(dict(held), needed))


def _is_list(answer: Answer) -> bool:
    made = answer(dict(TWO), 2)
    return isinstance(made, list) and all(isinstance(name, str) for name in made)  # pyright: ignore[reportUnknownVariableType]


def _stays(answer: Answer) -> bool:
    given = dict(TWO)
    answer(given, 3)
    return given == TWO


def _in_use(answer: Answer) -> bool:
    busy = TWO | {"y": Held("x", 2, users=1)}
    lone = {"u": Held(None, 1, users=2), "v": Held(None, 2)}
    return "y" not in _order(answer, busy, 5) and "u" not in _order(answer, lone, 2)


def _children_first(answer: Answer) -> bool:
    """A parent that goes at all goes after its children."""
    for held, needed in ((CHAIN, 1), (CHAIN, 2), (TWO, 4), (FORK, 2)):
        gone = _order(answer, held, needed)
        for number, name in enumerate(gone):
            if any(held[child].parent == name for child in held if child not in gone[:number]):
                return False
    return True


def _held_by_a_child(answer: Answer) -> bool:
    """A parent whose child is in use stays, though nobody uses the parent itself."""
    busy = CHAIN | {"c": Held("b", 5, users=1)}
    return _order(answer, busy, 3) == []


def _not_too_many(answer: Answer) -> bool:
    return all(len(_order(answer, TWO, n)) <= n for n in range(6))


def _parents_follow(answer: Answer) -> bool:
    return len(_order(answer, CHAIN, 3)) == 3


def _oldest(answer: Answer) -> bool:
    flat = {"m": Held(None, 8), "n": Held(None, 7), "o": Held(None, 9)}
    forks = _order(answer, FORK, 1) == ["p"]
    return _order(answer, flat, 3) == ["n", "m", "o"] and forks


def _expected(held: dict[str, Held], needed: int) -> list[str]:
    """By taking every order apart: the oldest childless block, again and again."""
    gone: list[str] = []
    for _ in range(min(needed, len(held))):
        rest = {name: one for name, one in held.items() if name not in gone}
        may = [n for n, one in rest.items() if not one.users and not _has_child(rest, n)]
        gone += sorted(may, key=lambda n: rest[n].last_used)[:1]
    return gone


def _has_child(rest: dict[str, Held], name: str) -> bool:
    return any(one.parent == name for one in rest.values())


def _right(answer: Answer) -> bool:
    tree = FORK | {"s": Held("p", 3), "t": Held("p", 4, users=1), "z": Held("q", 10)} | TWO
    cases = (CHAIN, TWO, FORK, tree)
    return all(_order(answer, held, n) == _expected(held, n) for held in cases for n in range(12))


FORGET = Exercise(
    "13.3",
    "In which order to forget",
    "forget",
    (
        Check(
            "list_of_names",
            "forget must return a list of names.",
            _is_list,
            Hints(
                "What will the caller do with the result, one after the other?",
                "An order is a list; each entry is a block's name.",
                "Begin with an empty list and append a name for each block that goes.",
            ),
        ),
        Check(
            "held_stays",
            "`held` was changed; the caller does the forgetting.",
            _stays,
            Hints(
                "Whose dictionary is it?",
                "You may take things out of a copy.",
                "left = dict(held)",
            ),
        ),
        Check(
            "in_use_stays",
            "A block that somebody uses right now was forgotten.",
            _in_use,
            Hints(
                "What happens to an answer whose notes vanish while it is written?",
                "Only blocks with no users may go.",
                "Consider a block only if its users are 0.",
            ),
        ),
        Check(
            "children_before_parents",
            "A parent went while a child of it was still there.",
            _children_first,
            Hints(
                "How would anybody find the child afterwards?",
                "A text is found from its beginning, so its end must go first.",
                "Skip a block while any remaining block names it as its parent.",
            ),
        ),
        Check(
            "child_in_use_keeps_parent",
            "c is in use, so b and a, which lie before it, must stay as well.",
            _held_by_a_child,
            Hints(
                "Is a block that nobody uses always free to go?",
                "Its child is still there, and will be looked for from the beginning.",
                "The rule about children holds for children in use, too.",
            ),
        ),
        Check(
            "not_more_than_needed",
            "More blocks were forgotten than asked for.",
            _not_too_many,
            Hints(
                "When do you stop?",
                "Every block that goes too early has to be read again.",
                "Stop as soon as the list has `needed` names.",
            ),
        ),
        Check(
            "parents_may_follow",
            "Three blocks were needed, and all three of the chain could go, one after the other.",
            _parents_follow,
            Hints(
                "What is b, once c has gone?",
                "After each block, look again at who has no child any more.",
                "Work out the free blocks inside the loop, not before it.",
            ),
        ),
        Check(
            "oldest_first",
            "Among those that may go, the one used longest ago goes first.",
            _oldest,
            Hints(
                "Which of them is least likely to be asked for soon?",
                "A small last_used is long ago.",
                "min(free, key=lambda name: left[name].last_used)",
            ),
        ),
        Check(
            "order",
            "Some trees of texts are forgotten in another order.",
            _right,
            Hints(
                "Draw the tree on paper, and cross out one block at a time.",
                "Each round: who has no users and no children left? The oldest of them goes.",
                "while there is need: parents of what is left; free ones; the oldest; take it out.",
            ),
        ),
    ),
)
