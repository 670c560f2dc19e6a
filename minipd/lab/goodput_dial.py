"""The pictures of lesson 09: good requests over the rate, and a dial that moves the limits.

With the dial nothing is run again: every request of the sweep is judged by the chosen limits.
"""

from __future__ import annotations

import html
import importlib
from collections.abc import Mapping
from typing import Any

from minipd.lab.goodput_sweep import MODES, TARGET, Swept, goodputs, winner
from minipd.lab.show import figure_html, show
from minipd.measure.slo import SLO

MARKS = {"colocated": "o-", "chunked": "s--", "disaggregated": "^:"}


def show_attainment(swept: Swept, objectives: Mapping[str, SLO]) -> None:
    """One panel for each objective: share of good requests over the request rate."""
    plt: Any = importlib.import_module("matplotlib.pyplot")
    fig, axes = plt.subplots(1, len(objectives), figsize=(11, 3.2), sharey=True)
    for axis, (name, slo) in zip(axes, objectives.items()):
        for mode in MODES:
            shares = [100 * swept.attainment(mode, rate, slo) for rate in swept.rates]
            axis.plot(swept.rates, shares, MARKS[mode], color="black", label=mode, markersize=4)
        axis.axhline(100 * TARGET, color="0.5", linewidth=0.8)
        axis.set(title=name, xlabel="requests/s, both workers", ylim=(-3, 103))
    axes[0].set_ylabel("good requests (%)")
    axes[-1].legend(fontsize=8)
    fig.tight_layout()
    told = [
        f"{name}: " + ", ".join(f"{m} {v:.2g}" for m, v in goodputs(swept, slo).items())
        for name, slo in objectives.items()
    ]
    alt = (
        "Three panels, one for each reader: the share of good requests falls as the rate grows. "
        f"Highest rates with {TARGET:.0%} good, in requests per second: {'; '.join(told)}."
    )
    show(fig, alt=alt, table=attainment_table(swept, objectives))


def attainment_table(swept: Swept, objectives: Mapping[str, SLO]) -> dict[str, list[object]]:
    """The numbers of the picture: a row for each reader and rate."""
    cells = [(name, slo, rate) for name, slo in objectives.items() for rate in swept.rates]
    table: dict[str, list[object]] = {
        "reader": [name for name, _, _ in cells],
        "requests/s": [rate for _, _, rate in cells],
    }
    for mode in MODES:
        table[mode] = [f"{swept.attainment(mode, rate, slo):.0%}" for _, slo, rate in cells]
    return table


def chosen_slo(ttft_s: float, gap_s: float) -> SLO:
    """Both limits in seconds: of the first token, and of 99 % of a reader's own gaps."""
    return SLO(ttft_s=ttft_s, itl_p99_s=gap_s)


def dial_text(swept: Swept, ttft_s: float, gap_s: float) -> str:
    """Who wins under two limits, and by how much, in two sentences."""
    found = goodputs(swept, chosen_slo(ttft_s, gap_s))
    first = winner(found)
    rates = ", ".join(f"{mode} {rate / 2:.2f}" for mode, rate in found.items())
    limits = f"First token within {ttft_s:.2g} s, gaps within {gap_s:.2g} s"
    if first == "nobody":
        return f"{limits}: no way of serving keeps {TARGET:.0%} of its readers happy, at any rate."
    told = "it is a tie" if first == "a tie" else f"{first} wins"
    return f"{limits}: {told}. Good requests per second and worker: {rates}."


def dial_figure(swept: Swept, ttft_s: float, gap_s: float) -> Any:
    """Share of good requests over the rate under the chosen limits, one line for each mode."""
    plt: Any = importlib.import_module("matplotlib.pyplot")
    fig, axis = plt.subplots(figsize=(6.4, 3))
    slo = chosen_slo(ttft_s, gap_s)
    for mode in MODES:
        shares = [100 * swept.attainment(mode, rate, slo) for rate in swept.rates]
        axis.plot(swept.rates, shares, MARKS[mode], color="black", label=mode, markersize=5)
    axis.axhline(100 * TARGET, color="0.5", linewidth=0.8)
    axis.set(xlabel="requests/s, both workers", ylabel="good requests (%)", ylim=(-3, 103))
    axis.legend(fontsize=8)
    fig.tight_layout()
    return fig


def dial_html(swept: Swept, ttft_s: float, gap_s: float) -> str:
    return figure_html(dial_figure(swept, ttft_s, gap_s), dial_text(swept, ttft_s, gap_s))


def limits_of(swept: Swept) -> tuple[list[float], list[float]]:
    """Limits worth choosing: from what an idle system reaches to what nobody would accept."""
    calm = [r for (_, rate, _), rs in swept.requests.items() if rate == swept.rates[0] for r in rs]
    firsts = sorted(request.ttft_s for request in calm if request.ttft_s is not None)
    steps = sorted(gap for request in calm for gap in request.itl_s)
    usual_s, step_s = firsts[len(firsts) // 2], steps[len(steps) // 2]
    ttft = [_two_digits(usual_s * factor) for factor in (1.5, 2.2, 3, 4, 6, 8, 12)]
    gap = [_two_digits(step_s * factor) for factor in (1.5, 2.5, 4, 7, 12, 20, 45)]
    return ttft, gap


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")


def winners_map(swept: Swept) -> dict[str, list[object]]:
    """The dial as a table: the winner for every pair of limits."""
    ttft, gap = limits_of(swept)
    table: dict[str, list[object]] = {"gaps within (s)": list(gap)}
    for first in ttft:
        column = [winner(goodputs(swept, chosen_slo(first, one))) for one in gap]
        table[f"first token within {first:g} s"] = list(column)
    return table


def make_dial(swept: Swept) -> Any:
    """Two sliders, the picture, and the same in words, spoken when it changes."""
    from minipd.lab.widgets import W, row, status_html

    ttft, gap = limits_of(swept)
    first = _slider(W, ttft, "First token within (s)", "Longest wait for the first token, seconds")
    gaps = _slider(W, gap, "Gaps within (s)", "Longest gap between two tokens, in seconds")
    picture, words = W.HTML(), W.HTML()

    def draw(_: object = None) -> None:
        picture.value = dial_html(swept, first.value, gaps.value)
        words.value = status_html(html.escape(dial_text(swept, first.value, gaps.value)))

    first.observe(draw, names="value")
    gaps.observe(draw, names="value")
    draw()
    return W.VBox([row([first, gaps]), words, picture])


def _slider(widgets: Any, options: list[float], description: str, tooltip: str) -> Any:
    return widgets.SelectionSlider(
        options=options,
        value=options[len(options) // 2],
        description=description,
        tooltip=tooltip,
        style={"description_width": "initial"},
        continuous_update=False,
    )


def show_dial(swept: Swept) -> None:
    """Show the dial; `dial_text` and `winners_map` say the same without widgets."""
    from minipd.lab.predict import display_widget

    display_widget(make_dial(swept))
