"""The roofline explorer: a machine, a model and a number of tokens in, what limits the pass out."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from minipd.lab.kv_sizes import MODELS
from minipd.lab.roofline import GPUS, Roof, Work, draw_roofline, prefill_work, roofline_alt
from minipd.lab.show import Table, figure_html, html_table
from minipd.lab.widgets import W, button, row, status_html

SHOWN = ("SmolLM2-135M", "Qwen2.5-0.5B", "Llama-3-8B", "Llama-3-70B")
SIZES = {"4 bytes": 4, "2 bytes": 2, "1 byte": 1}
TOKENS = tuple(2**power for power in range(14))  # 1 to 8,192
# Memory of one GPU in bytes, from the same data sheets as its ceilings; a tenth stays free.
MEMORY = {"A100": 80e9, "H100": 80e9, "H200": 141e9}
USABLE = 0.9


def short(value: float) -> str:
    """Three digits, and never an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@dataclass(frozen=True, slots=True)
class Forecast:
    """One pass of `tokens` through a model on `count` machines that share it without any loss."""

    roof: Roof
    count: int
    model: str
    bytes_per_value: int
    tokens: int
    work: Work

    @property
    def seconds(self) -> float:
        return self.roof.seconds(self.work)

    @property
    def limit(self) -> str:
        return self.roof.limit(self.work.intensity)

    @property
    def sentence(self) -> str:
        """The whole forecast in words."""
        size = "1 byte" if self.bytes_per_value == 1 else f"{self.bytes_per_value} bytes"
        passes = "1 token" if self.tokens == 1 else f"{self.tokens:,} tokens"
        side = "below" if self.limit == "memory" else "above"
        told = f"{self.model}, weights of {size}, {passes} in one pass, on {self.roof.name}: "
        told += f"{short(self.work.intensity)} FLOP per byte, {side} the corner at "
        told += f"{self.roof.ridge:.3g}, so {self.limit} limits it. It takes at least "
        told += f"{short(1000 * self.seconds)} ms, which is at most "
        return told + f"{short(self.tokens / self.seconds)} tokens/s."


def forecast(roof: Roof, model: str, bytes_per_value: int, tokens: int) -> Forecast:
    """What the roof allows; a model too large for one GPU gets as many as hold its weights."""
    work = prefill_work(MODELS[model], tokens, bytes_per_value)
    room = MEMORY.get(roof.name, float("inf")) * USABLE
    count = max(1, ceil(MODELS[model].num_parameters * bytes_per_value / room))
    if count > 1:
        name = f"{count} {roof.name}s together"
        roof = replace(
            roof, name=name, flops=count * roof.flops, bytes_per_s=count * roof.bytes_per_s
        )
    return Forecast(roof, count, model, bytes_per_value, tokens, work)


def forecast_table(
    roofs: Sequence[Roof], model: str, bytes_per_value: int, tokens: Sequence[int] = (1, 64, 512)
) -> Table:
    """The explorer's text version: several lengths on every machine."""
    made = [forecast(roof, model, bytes_per_value, count) for roof in roofs for count in tokens]
    return {
        "machine": [one.roof.name for one in made],
        "tokens in one pass": [f"{one.tokens:,}" for one in made],
        "FLOP per byte": [short(one.work.intensity) for one in made],
        "limited by": [one.limit for one in made],
        "ms at least": [short(1000 * one.seconds) for one in made],
        "tokens/s at most": [short(one.tokens / one.seconds) for one in made],
    }


def explorer_html(made: Forecast) -> str:
    """The result: one spoken sentence, the picture, and the numbers as a table."""
    figure = draw_roofline([made.roof], works=[made.work])
    picture = figure_html(figure, roofline_alt([made.roof], works=[made.work]))
    numbers = html_table(forecast_table([made.roof], made.model, made.bytes_per_value, TOKENS))
    told = status_html(f"<b>{html.escape(made.sentence)}</b>")
    return f"{told}{picture}<details><summary>All lengths as a table</summary>{numbers}</details>"


class Explorer:
    """Three rows of buttons and a slider; every change works the result out again."""

    def __init__(self, roofs: Sequence[Roof]) -> None:
        self.roofs = {roof.name: roof for roof in roofs}
        self.machine, self.model, self.size = roofs[-1].name, SHOWN[2], "2 bytes"
        self.tokens = W.SelectionSlider(
            options=[(f"{count:,}", count) for count in TOKENS],
            value=1,
            description="Tokens in one pass",
            continuous_update=False,
            style={"description_width": "auto"},
            layout=W.Layout(width="min(100%, 46em)"),
        )
        self.tokens.observe(self._update, names="value")
        self.result = W.HTML()
        rows = [
            self._choices("Machine", list(self.roofs), self.choose_machine),
            self._choices("Model", list(SHOWN), self.choose_model),
            self._choices("A weight has", list(SIZES), self.choose_size),
        ]
        self.widget = W.VBox([*rows, self.tokens, self.result])
        self._update()

    def _choices(self, label: str, names: list[str], choose: Callable[[str], None]) -> Any:
        made = [button(name, lambda name=name: choose(name), f"{label}: {name}") for name in names]
        return row([W.Label(f"{label}:"), *made])

    def choose_machine(self, name: str) -> None:
        self.machine = name
        self._update()

    def choose_model(self, name: str) -> None:
        self.model = name
        self._update()

    def choose_size(self, name: str) -> None:
        self.size = name
        self._update()

    @property
    def forecast(self) -> Forecast:
        roof = self.roofs[self.machine]
        return forecast(roof, self.model, SIZES[self.size], self.tokens.value)

    def _update(self, _: object = None) -> None:
        self.result.value = explorer_html(self.forecast)


def roofline_explorer(own: Roof) -> object:
    """The explorer as a notebook widget, this machine first; the last line of a cell."""
    return Explorer([own, *GPUS]).widget
