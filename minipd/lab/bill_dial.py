"""Lesson 12: what a million tokens cost, by who is billed, at what price, and at what ratio."""

from __future__ import annotations

import html
import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from minipd.fleet.formulas import usd_per_million
from minipd.lab.show import Table, figure_html, html_table
from minipd.lab.widgets import W, status_html

GPUS_PER_NODE = 8
ANSWERS = (50, 100, 200, 500, 1000, 2000, 4000)
PRICES = (1.0, 1.5, 2.0, 2.3, 3.0, 4.0, 6.0)


@dataclass(frozen=True, slots=True)
class Pools:
    """Two pools of nodes; tokens per second of one node, USD per GPU-hour, tokens of a prompt."""

    prefill_nodes: int
    decode_nodes: int
    reads_tok_s: float
    writes_tok_s: float
    usd_per_gpu_hour: float
    prompt: int

    @property
    def gpus(self) -> int:
        return GPUS_PER_NODE * (self.prefill_nodes + self.decode_nodes)

    def requests_per_s(self, answer: int) -> float:
        """What both pools can do; the slower one decides."""
        reads = self.prefill_nodes * self.reads_tok_s / self.prompt
        return min(reads, self.decode_nodes * self.writes_tok_s / answer)

    def writers_busy(self, answer: int) -> float:
        full = self.decode_nodes * self.writes_tok_s
        return self.requests_per_s(answer) * answer / full


@dataclass(frozen=True, slots=True)
class Bill:
    """USD per million output tokens. `advertised`: the decode GPUs alone, their pool full;
    `everybody`: all GPUs, the same; `matched`: all GPUs, at the rate that both pools sustain."""

    advertised: float
    everybody: float
    matched: float

    @property
    def rows(self) -> dict[str, float]:
        return {
            "decode GPUs only, decode pool full": self.advertised,
            "all GPUs, decode pool full": self.everybody,
            "all GPUs, at the rate both pools sustain": self.matched,
        }


def bill_of(pools: Pools, answer: int) -> Bill:
    """Everything is charged to output tokens: what is sold as "per million output tokens"."""
    price, full = pools.usd_per_gpu_hour, pools.decode_nodes * pools.writes_tok_s
    writers = GPUS_PER_NODE * pools.decode_nodes
    return Bill(
        usd_per_million(writers, price, full),
        usd_per_million(pools.gpus, price, full),
        usd_per_million(pools.gpus, price, pools.requests_per_s(answer) * answer),
    )


# What was measured, phase by phase, by those who published it (facts 1.3 and 1.5).
DEEPSEEK_96 = Pools(3, 9, 52_300, 22_282, 2.0, 2000)
KIMI_128 = Pools(4, 12, 56_000, 24_000, 2.3, 2000)


def bill_text(pools: Pools, answer: int) -> str:
    bill = bill_of(pools, answer)
    return (
        f"{pools.prefill_nodes} prefill and {pools.decode_nodes} decode nodes at "
        f"USD {pools.usd_per_gpu_hour:g} per GPU-hour, {pools.prompt:,} tokens in, {answer:,} out: "
        f"USD {bill.advertised:.2f} per million output tokens if only full decode GPUs are billed, "
        f"USD {bill.everybody:.2f} with all GPUs, USD {bill.matched:.2f} at the rate that both "
        f"pools sustain; the decode pool is then busy {pools.writers_busy(answer):.0%} of its "
        "time."
    )


def bill_table(pools: Pools, answers: Sequence[int] = ANSWERS) -> Table:
    """The dial as a table: one line for each length of the answer."""
    bills = [bill_of(pools, answer) for answer in answers]
    return {
        "answer (tokens)": [f"{answer:,}" for answer in answers],
        "decode GPUs only (USD)": [f"{bill.advertised:.2f}" for bill in bills],
        "all GPUs (USD)": [f"{bill.everybody:.2f}" for bill in bills],
        "all GPUs, both pools' rate (USD)": [f"{bill.matched:.2f}" for bill in bills],
        "decode pool busy": [f"{pools.writers_busy(answer):.0%}" for answer in answers],
    }


def bill_figure(pools: Pools, answer: int) -> Any:
    """Three bars, each with its figure."""
    plt: Any = importlib.import_module("matplotlib.pyplot")
    rows = bill_of(pools, answer).rows
    fig, axis = plt.subplots(figsize=(7, 1.9))
    bars = axis.barh(list(rows), list(rows.values()), color="0.75", edgecolor="black")
    axis.bar_label(bars, [f" {usd:.2f}" for usd in rows.values()])
    axis.invert_yaxis()
    axis.set(xlabel="USD per million output tokens", xlim=(0, 1.2 * max(rows.values())))
    return fig


def bill_html(pools: Pools, answer: int) -> str:
    """One spoken sentence, the bars, and the whole table."""
    told = bill_text(pools, answer)
    picture = figure_html(bill_figure(pools, answer), f"Three bars. {told}")
    numbers = html_table(bill_table(pools))
    spoken = status_html(f"<b>{html.escape(told)}</b>")
    table = f"<details><summary>All lengths as a table</summary>{numbers}</details>"
    return f"{spoken}{picture}{table}"


class BillDial:
    """Four sliders; every change works the bill out again."""

    def __init__(self, pools: Pools, answer: int) -> None:
        self.pools = pools
        self.readers = self._whole(pools.prefill_nodes, "Prefill nodes")
        self.writers = self._whole(pools.decode_nodes, "Decode nodes")
        self.price = self._choice(
            [(f"{p:g} USD/h", p) for p in PRICES], pools.usd_per_gpu_hour, "Price"
        )
        lengths = [(f"{n:,}", n) for n in ANSWERS]
        self.answer = self._choice(lengths, answer, "Answer (tokens)")
        self.result = W.HTML()
        sliders = [self.readers, self.writers, self.price, self.answer]
        for slider in sliders:
            slider.observe(self._update, names="value")
        self.widget = W.VBox([*sliders, self.result])
        self._update()

    def _whole(self, value: int, name: str) -> Any:
        return W.IntSlider(value, 1, 24, 1, description=name, **_look(f"{name} of eight GPUs"))

    def _choice(self, options: list[tuple[str, Any]], value: Any, name: str) -> Any:
        return W.SelectionSlider(options=options, value=value, description=name, **_look(name))

    def _update(self, _: object = None) -> None:
        self.pools = replace(
            self.pools,
            prefill_nodes=self.readers.value,
            decode_nodes=self.writers.value,
            usd_per_gpu_hour=self.price.value,
        )
        self.result.value = bill_html(self.pools, self.answer.value)


def _look(tooltip: str) -> dict[str, Any]:
    return {
        "tooltip": tooltip,
        "continuous_update": False,
        "style": {"description_width": "9em"},
        "layout": W.Layout(width="min(100%, 40em)"),
    }


def show_bill_dial(pools: Pools = DEEPSEEK_96, answer: int = 100) -> None:
    """Show the dial; `bill_text` and `bill_table` say the same without widgets."""
    from minipd.lab.predict import display_widget

    display_widget(BillDial(pools, answer).widget)
