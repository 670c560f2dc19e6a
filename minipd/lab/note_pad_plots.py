"""Pictures and tables of lesson 02: steps with and without a KV cache, and faulty ones."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from minipd.lab.show import show, show_table

_MARKS = {0: ("o", "white"), 1: ("s", "black")}


def show_steps(steps: Mapping[str, Sequence[float]]) -> None:
    """Dots: seconds of each token, for two ways of writing the same answer."""
    plt: Any = importlib.import_module("matplotlib.pyplot")
    fig, ax = plt.subplots(figsize=(7, 2.8))
    for place, (name, seconds) in enumerate(steps.items()):
        mark, inside = _MARKS[place]
        numbers = range(1, len(seconds) + 1)
        ax.plot(numbers, seconds, mark, color="black", markerfacecolor=inside, label=name)
    ax.set(xlabel="token of the answer", ylabel="seconds", ylim=(0, None))
    ax.xaxis.set_major_locator(
        importlib.import_module("matplotlib.ticker").MaxNLocator(integer=True)
    )
    ax.legend(loc="center right", framealpha=1)
    show(fig, alt=steps_alt(steps), table=steps_table(steps))


def steps_alt(steps: Mapping[str, Sequence[float]]) -> str:
    """The picture in words: how the first token compares with the others, each way."""
    words = [
        f"{name}: {s[0]:.2f} s for the first token, then {min(s[1:]):.2f} to {max(s[1:]):.2f} s"
        for name, s in steps.items()
    ]
    return f"Dot plot of the seconds that each token took. {'; '.join(words)}."


def steps_table(steps: Mapping[str, Sequence[float]]) -> dict[str, list[object]]:
    """A row for each token."""
    longest = max(len(seconds) for seconds in steps.values())
    table: dict[str, list[object]] = {"token": list(range(1, longest + 1))}
    for name, seconds in steps.items():
        table[f"{name} (s)"] = list(seconds)
    return table


def show_faults(right: Sequence[int], faulty: Mapping[str, Sequence[int]], tokenizer: Any) -> None:
    """A row for each faulty cache: how many tokens it got right before the first wrong one."""
    answers = {"nothing": right, **faulty}
    table: dict[str, list[object]] = {"what is wrong": list(answers)}
    table["correct before the first difference"] = [
        f"{num_equal(right, tokens)} of {len(right)} tokens" for tokens in answers.values()
    ]
    table["what it wrote"] = [tokenizer.decode(list(tokens)) for tokens in answers.values()]
    show_table(table)


def num_equal(right: Sequence[int], tokens: Sequence[int]) -> int:
    """How many tokens agree before the first that does not."""
    pairs = zip(right, tokens)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(right), len(tokens)))
