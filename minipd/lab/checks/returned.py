"""A first check that many exercises share: the function hands something back at all."""

from __future__ import annotations

from collections.abc import Callable

from minipd.lab.hints import Answer, Check, Hints


def returns_something(name: str, what: str, call: Callable[[Answer], object]) -> Check:
    """A check that `call`, one ordinary call of the answer, gives anything but None."""
    return Check(
        "returns_something",
        f"{name} handed nothing back; it must return {what}.",
        lambda answer: call(answer) is not None,
        Hints(
            "Where does your result go when the function ends?",
            "print shows a value to you; whoever called the function gets only what follows "
            "return, and None if there is no return.",
            "End every way through the function with return and your result.",
        ),
    )
