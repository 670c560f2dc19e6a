"""Who sat in which slot in which step: the picture of a batch over time."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minipd.lab.show import Table, show

Log = Sequence[Sequence[str]]  # the names in each step, in order


@dataclass(frozen=True, slots=True)
class Stay:
    """One request's steps `[first, end)` in one slot; from `useful_end` on it wrote for nobody."""

    name: str
    slot: int
    first: int
    useful_end: int
    end: int


def stays_of(log: Log, wanted: Mapping[str, int]) -> list[Stay]:
    """Every request's stay: a newcomer takes the lowest slot that nobody of its step sits in.

    A request runs in consecutive steps; of its tokens the first `wanted[name]` are of use.
    """
    slots: dict[str, int] = {}
    first: dict[str, int] = {}
    end: dict[str, int] = {}
    for number, names in enumerate(log):
        taken = {slots[name] for name in names if name in slots}
        for name in names:
            if name not in slots:
                slots[name] = next(i for i in range(len(names)) if i not in taken)
                taken.add(slots[name])
                first[name] = number
            end[name] = number + 1
    return [
        Stay(name, slots[name], first[name], min(first[name] + wanted[name], end[name]), end[name])
        for name in slots
    ]


def used_share(log: Log, wanted: Mapping[str, int], slots: int) -> float:
    """Share of all places (slots times steps) in which a wanted token was written."""
    stays = stays_of(log, wanted)
    return sum(stay.useful_end - stay.first for stay in stays) / (slots * len(log))


def stays_table(stays: Sequence[Stay]) -> Table:
    """The numbers of the picture: slots and steps count from 1."""
    return {
        "request": [stay.name for stay in stays],
        "slot": [stay.slot + 1 for stay in stays],
        "first step": [stay.first + 1 for stay in stays],
        "last step": [stay.end for stay in stays],
        "steps of use": [stay.useful_end - stay.first for stay in stays],
        "steps wasted": [stay.end - stay.useful_end for stay in stays],
    }


def show_seats(log: Log, wanted: Mapping[str, int], slots: int) -> None:
    """Bars: each request's stay in its slot; hatched where it only waited for the others."""
    stays, share = stays_of(log, wanted), used_share(log, wanted, slots)
    plt: Any = importlib.import_module("matplotlib.pyplot")
    fig, ax = plt.subplots(figsize=(8, 0.6 + 0.42 * slots))
    for stay in stays:
        place = (stay.slot - 0.38, 0.76)
        bars = [(stay.first, stay.useful_end - stay.first)]
        ax.broken_barh(bars, place, facecolor="white", edgecolor="black")
        if stay.end > stay.useful_end:
            waste = [(stay.useful_end, stay.end - stay.useful_end)]
            ax.broken_barh(waste, place, facecolor="0.85", edgecolor="0.4", hatch="//")
        ax.text(stay.first + 0.6, stay.slot, stay.name, va="center")
    ax.set(xlabel="step", ylabel="slot", xlim=(0, len(log)), ylim=(slots - 0.5, -0.5))
    ax.set_yticks(range(slots), [str(slot + 1) for slot in range(slots)])
    wasted = sum(stay.end - stay.useful_end for stay in stays)
    alt = (
        f"Slots over {len(log)} steps: {len(stays)} requests take turns in {slots} slots. "
        f"{share:.0%} of the places wrote a wanted token; {wasted} were hatched, that is, kept by "
        "a request that had finished; the rest stood empty."
    )
    show(fig, alt=alt, table=stays_table(stays))
