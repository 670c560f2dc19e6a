"""Plots of lessons, with their words and numbers; matplotlib is loaded when one is drawn."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from minipd.lab.show import show
from minipd.measure.stats import Samples

Use = Mapping[str, float]  # a phase's share of a ceiling, by name of the phase


def _subplots(count: int = 1) -> tuple[Any, Any]:
    plt: Any = importlib.import_module("matplotlib.pyplot")
    return plt.subplots(1, count, figsize=(7, 2.5))


def _whole_numbers(axis: Any) -> None:
    ticker: Any = importlib.import_module("matplotlib.ticker")
    axis.set_major_locator(ticker.MaxNLocator(integer=True))


def show_pauses(arrivals: Sequence[float]) -> None:
    """Bars: how long one waited for each piece of an answer; `arrivals` are seconds."""
    pauses = [later - earlier for earlier, later in zip([0.0, *arrivals], arrivals)]
    fig, ax = _subplots()
    ax.bar(range(1, len(pauses) + 1), pauses, color="0.55", edgecolor="black")
    ax.set(xlabel="piece of the answer", ylabel="seconds waited")
    _whole_numbers(ax.xaxis)
    words = f"Bar chart: {pauses[0]:.2f} s before the first piece, then {len(pauses) - 1} waits"
    if len(pauses) > 1:
        words += f" of {min(pauses[1:]):.2f} to {max(pauses[1:]):.2f} s"
    table = {"piece": list(range(1, len(pauses) + 1)), "seconds waited": pauses}
    show(fig, alt=f"{words}.", table=table)


def show_samples(quantities: Mapping[str, Samples], scale: float = 1.0) -> None:
    """Dots: every sample of each quantity (named with its unit), divided by `scale`."""
    fig, axes = _subplots(len(quantities))
    for ax, (name, samples) in zip(axes, quantities.items()):
        places = range(1, len(samples.values) + 1)
        ax.plot(places, [value / scale for value in samples.values], "o", color="black")
        ax.set(xlabel="repetition", ylabel=name)
        ax.set_ylim(0, samples.best / scale * 1.15)
        _whole_numbers(ax.xaxis)
    fig.tight_layout()
    spreads = [f"{s.spread:.0%} for {name}" for name, s in quantities.items()]
    table: dict[str, list[object]] = {"what": list(quantities)}
    table["samples"] = [len(s.values) for s in quantities.values()]
    table["best"] = [s.best / scale for s in quantities.values()]
    table["median"] = [s.median / scale for s in quantities.values()]
    table["spread"] = [f"{s.spread:.0%}" for s in quantities.values()]
    show(fig, alt=f"Dot plots of all samples. Spread: {', '.join(spreads)}.", table=table)


def show_use(rates: Mapping[str, float], mfu: Use, mbu: Use) -> None:
    """Bars: the share of both ceilings that each phase reaches."""
    fig, ax = _subplots()
    shares = {f"arithmetic,\n{phase}": share for phase, share in mfu.items()}
    shares |= {f"reading,\n{phase}": share for phase, share in mbu.items()}
    hatch = ["/" if "prefill" in name else "." for name in shares]
    ax.bar(list(shares), list(shares.values()), color="0.75", edgecolor="black", hatch=hatch)
    ax.set(ylabel="share of the ceiling", ylim=(0, max(1, *shares.values())))
    words = [f"{p}: {mfu[p]:.0%} of the arithmetic, {mbu[p]:.0%} of the reading" for p in rates]
    table: dict[str, list[object]] = {"phase": list(rates), "tokens/s": list(rates.values())}
    table["MFU"] = [f"{mfu[phase]:.0%}" for phase in rates]
    table["MBU"] = [f"{mbu[phase]:.0%}" for phase in rates]
    show(fig, alt=f"Bars: shares of the ceilings. {'; '.join(words)}.", table=table)
