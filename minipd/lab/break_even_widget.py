"""The scale of lesson 08: prompt length, bandwidth and running chats in, who waits longer out."""

from __future__ import annotations

import html
import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

from minipd.lab.break_even import LATENCY_S, Server, added_s, break_even, in_words, spared_s
from minipd.lab.remote_or_local import Trial
from minipd.lab.show import Table, figure_html, html_table, show
from minipd.lab.widgets import W, button, row, status_html
from minipd.measure.links import LinkFit

ServerFor = Callable[[int], Server]  # by running chats
LENGTHS = tuple(2**power for power in range(4, 16))  # 16 to 32,768 tokens
GBITS = (0.01, 0.1, 1, 10, 25, 100, 400, 3600)


def link_of(gbit_per_s: float) -> LinkFit:
    """A network card's figure as bytes per second: eight bits to the byte."""
    return LinkFit(LATENCY_S, gbit_per_s * 1e9 / 8)


def balance(server: Server, gbit_per_s: float, tokens: int) -> str:
    """Both sides of the scale for one prompt, and the break-even, in words."""
    link = link_of(gbit_per_s)
    added, spared = added_s(server, link, tokens), spared_s(server, tokens)
    pays = "Remote pays" if spared >= added else "Local is better"
    told = f"{server.name}, {server.chats} running chats, {gbit_per_s:g} Gb/s: reading "
    told += f"{tokens:,} tokens elsewhere adds {added * 1e3:,.1f} ms to one wait and spares "
    told += f"{spared * 1e3:,.1f} ms of all the others. {pays}. "
    even = break_even(server, link)
    if math.isinf(even):
        return told + "On this link no length pays."
    return told + f"Remote pays from about {in_words(even)} tokens."


def balance_table(
    server_for: ServerFor, tokens: int, chats: Sequence[int], gbits: Sequence[float]
) -> Table:
    """The widget's text version: the verdict and the break-even for several settings."""
    made = [(server_for(count), gbit) for count in chats for gbit in gbits]
    sides = [(added_s(s, link_of(g), tokens), spared_s(s, tokens)) for s, g in made]
    return {
        "running chats": [server.chats for server, _ in made],
        "Gb/s": [f"{gbit:g}" for _, gbit in made],
        f"added for {tokens:,} tokens (ms)": [f"{added * 1e3:,.1f}" for added, _ in sides],
        "spared (ms)": [f"{spared * 1e3:,.1f}" for _, spared in sides],
        "better": ["remote" if spared >= added else "local" for added, spared in sides],
        "remote from (tokens)": [in_words(break_even(s, link_of(g))) for s, g in made],
    }


def draw_balance(server: Server, link: LinkFit, tokens: int | None = None) -> Any:
    """Both sides over the prompt length; the break-even is marked and named."""
    plt: Any = importlib.import_module("matplotlib.pyplot")
    fig, ax = plt.subplots(figsize=(7, 3.2))
    added = [1e3 * added_s(server, link, n) for n in LENGTHS]
    spared = [1e3 * max(spared_s(server, n), 1e-6) for n in LENGTHS]
    ax.loglog(LENGTHS, added, "-", color="black", label="added to one reader's wait")
    ax.loglog(LENGTHS, spared, "--", color="black", label="spared, all running chats together")
    even = break_even(server, link)
    if math.isfinite(even):
        ax.axvline(even, color="0.4", linestyle=":")
        ax.text(even * 1.06, min(added) / 8, f"remote from {even:,.0f}", va="bottom")
    if tokens is not None:
        places = [1e3 * added_s(server, link, tokens), 1e3 * max(spared_s(server, tokens), 1e-6)]
        ax.plot([tokens] * 2, places, "o", color="black", markersize=5)
    ax.set(xlabel="prompt (tokens)", ylabel="milliseconds", xticks=LENGTHS[::2])
    ax.set_xticklabels([f"{n:,}" for n in LENGTHS[::2]])
    ax.set_ylim(bottom=min(added) / 10)
    ax.minorticks_off()
    ax.legend(frameon=False)
    return fig


def curves_table(server: Server, link: LinkFit) -> Table:
    """The picture's numbers."""
    return {
        "prompt (tokens)": [f"{n:,}" for n in LENGTHS],
        "added (ms)": [f"{1e3 * added_s(server, link, n):,.1f}" for n in LENGTHS],
        "spared (ms)": [f"{1e3 * spared_s(server, n):,.1f}" for n in LENGTHS],
    }


def balance_html(server: Server, gbit_per_s: float, tokens: int) -> str:
    """The result: one spoken sentence, the picture, and the numbers as a table."""
    link, told = link_of(gbit_per_s), balance(server, gbit_per_s, tokens)
    alt = f"Two rising lines over the prompt length, added and spared waiting. {told}"
    picture = figure_html(draw_balance(server, link, tokens), alt)
    numbers = html_table(curves_table(server, link))
    spoken = status_html(f"<b>{html.escape(told)}</b>")
    return f"{spoken}{picture}<details><summary>All lengths as a table</summary>{numbers}</details>"


def show_trial(trial: Trial, server: Server, link: LinkFit) -> None:
    """Measured marks on predicted lines: what was added, and what was spared."""
    plt: Any = importlib.import_module("matplotlib.pyplot")
    lengths = [tokens for tokens, _, _ in trial.points]
    made: dict[str, list[float]] = {
        "added, predicted": [added_s(server, link, n) for n in lengths],
        "added, measured": [added for _, added, _ in trial.points],
        "spared, predicted": [spared_s(server, n) for n in lengths],
        "spared, measured": [spared for _, _, spared in trial.points],
    }
    fig, ax = plt.subplots(figsize=(7, 3))
    for (name, values), look in zip(made.items(), ("-", "o", "--", "s")):
        ax.plot(lengths, values, look, color="black", label=name, fillstyle="none")
    ax.set(xlabel="prompt (tokens)", ylabel="seconds")
    ax.legend(frameon=False)
    found = trial.break_even
    crossing = "do not cross" if found is None else f"cross at {found:.0f} tokens"
    table = {"prompt (tokens)": lengths} | {n: [f"{v:.3f}" for v in x] for n, x in made.items()}
    show(fig, alt=f"Added and spared waiting by prompt length; they {crossing}.", table=table)


class Balance:
    """A choice of machine and three sliders; every change works the result out again."""

    def __init__(self, servers: dict[str, ServerFor], tokens: int, gbit: float, chats: int) -> None:
        self.servers, self.machine = servers, next(iter(servers))
        common: Any = {
            "continuous_update": False,
            "style": {"description_width": "11em"},
            "layout": W.Layout(width="min(100%, 46em)"),
        }
        lengths = [(f"{n:,}", n) for n in LENGTHS]
        self.tokens = W.SelectionSlider(
            options=lengths, value=tokens, description="Prompt (tokens)", **common
        )
        rates = [(f"{g:,g}", g) for g in GBITS]
        self.gbit = W.SelectionSlider(
            options=rates, value=gbit, description="Bandwidth (Gb/s)", **common
        )
        self.chats = W.IntSlider(chats, 1, 64, 1, description="Running chats", **common)
        self.result = W.HTML()
        sliders = [self.tokens, self.gbit, self.chats]
        for slider in sliders:
            slider.observe(self._update, names="value")
        machines = [button(n, lambda n=n: self.choose(n), f"Machine: {n}") for n in servers]
        self.widget = W.VBox([row([W.Label("Machine:"), *machines]), *sliders, self.result])
        self._update()

    def choose(self, machine: str) -> None:
        self.machine = machine
        self._update()

    @property
    def server(self) -> Server:
        return self.servers[self.machine](self.chats.value)

    def _update(self, _: object = None) -> None:
        self.result.value = balance_html(self.server, self.gbit.value, self.tokens.value)


def balance_widget(
    servers: dict[str, ServerFor], tokens: int = 2048, gbit: float = 10, chats: int = 4
) -> object:
    """The scale as a notebook widget; the last line of a cell."""
    return Balance(servers, tokens, gbit, chats).widget
