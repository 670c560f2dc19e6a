"""Lesson 11: experts that a step touches, and what that does to the bytes read for each token."""

from __future__ import annotations

import html
import importlib
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from minipd.fleet.configs import find_model
from minipd.fleet.formulas import expected_touched
from minipd.fleet.models import Model, touched_experts
from minipd.lab.show import figure_html, show
from minipd.model.experts import ExpertPass, watch_experts

SLOTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SPARSE = ("Qwen3-30B-A3B", "gemma-4-26B-A4B", "Qwen3-235B-A22B", "Mixtral-8x7B", "DeepSeek-V3")
STEPS = 24  # tokens of each answer that is written to count experts
_COLUMNS, _SIDE = 32, 20


def experts_of(model: Model) -> tuple[int, int]:
    """Routed experts of a layer, and how many of them a token goes through."""
    found = next((group.experts for group in model.layers if group.experts), None)
    assert found is not None, f"{model.name} has experts"
    return found.count, found.top_k


def random_prompts(vocab_size: int, count: int, tokens: int = 12, seed: int = 0) -> list[list[int]]:
    """Prompts that have nothing in common, as those of strangers."""
    draw = Random(f"lesson 11 {seed}")
    return [draw.choices(range(vocab_size), k=tokens) for _ in range(count)]


def decode_passes(llm: Any, prompts: Sequence[Sequence[int]]) -> list[ExpertPass]:
    """The decode steps in which all of the prompts' answers were written together."""
    from minipd.request import SamplingParams

    with watch_experts(llm.model.decoder) as passes:
        llm.generate(list(prompts), SamplingParams(max_tokens=STEPS, ignore_eos=True))
    return [one for one in passes[1:] if one.num_tokens == len(prompts)]


def mean_touched(passes: Sequence[ExpertPass]) -> float:
    """Distinct experts of a layer, on average over layers and steps."""
    return sum(one.mean_touched for one in passes) / len(passes)


def load_of(passes: Sequence[ExpertPass], layer: int = 0) -> list[int]:
    """How many tokens each expert of a layer got in all of these steps."""
    return [sum(column) for column in zip(*(one.counts[layer] for one in passes))]


def touched_table(
    count: int, top_k: int, measured: Mapping[int, float]
) -> dict[str, list[int | float]]:
    """Measured beside the two predictions, a row for each number of answers in a step."""
    return {
        "answers in a step": list(measured),
        "measured": [round(value, 1) for value in measured.values()],
        "all equally popular": [round(expected_touched(count, top_k, n), 1) for n in measured],
        "a few favourites": [round(touched_experts(count, top_k, n), 1) for n in measured],
    }


def show_touched(count: int, top_k: int, measured: Mapping[int, float]) -> None:
    """Experts touched over answers in a step: two predicted lines and the measured points."""
    plt: Any = importlib.import_module("matplotlib.pyplot")
    fig, axis = plt.subplots(figsize=(6.4, 3))
    sizes = range(1, 2 * max(measured) + 1)
    even = [expected_touched(count, top_k, n) for n in sizes]
    skewed = [touched_experts(count, top_k, n) for n in sizes]
    axis.plot(sizes, even, "-", color="black", label="predicted, all equally popular")
    axis.plot(sizes, skewed, ":", color="black", label="predicted, a few favourites")
    axis.plot(list(measured), list(measured.values()), "o", color="black", label="measured here")
    axis.axhline(count, color="0.5", linewidth=0.8)
    axis.set(xlabel="answers in a step", ylabel=f"of {count} experts", ylim=(0, 1.08 * count))
    axis.legend(fontsize=8, loc="lower right")
    fig.tight_layout()
    told = ", ".join(f"{value:.0f} for {size}" for size, value in measured.items())
    alt = (
        f"Experts touched over answers in a step rise steeply, then flatten towards {count}. "
        f"Measured: {told}. The points lie close to the line for equally popular experts."
    )
    show(fig, alt=alt, table=touched_table(count, top_k, measured))


def bytes_per_token(model: Model, slots: int) -> float:
    """Weight bytes that a decode step of `slots` answers reads for each of its tokens, if all
    experts are equally popular; keys and values are not counted."""
    return model.touched_parameters(slots, skew=0.0) * model.weight_bytes / slots


def fewer_bytes(model: Model, slots: int) -> float:
    """How many times fewer weight bytes a token costs with `slots` answers than alone."""
    return bytes_per_token(model, 1) / bytes_per_token(model, slots)


def slots_table(name: str, slots: Sequence[int] = SLOTS) -> dict[str, list[object]]:
    """The dial as a table: what each number of slots touches and saves."""
    model = find_model(name)
    count, top_k = experts_of(model)
    return {
        "slots": list(slots),
        f"experts touched, of {count}": [f"{expected_touched(count, top_k, n):.0f}" for n in slots],
        "GB read in a step": [f"{n * bytes_per_token(model, n) / 1e9:,.1f}" for n in slots],
        "GB for each token": [f"{bytes_per_token(model, n) / 1e9:,.2f}" for n in slots],
        "times fewer than alone": [f"{fewer_bytes(model, n):.1f}" for n in slots],
        "a dense model would have": [str(n) for n in slots],
    }


def one_draw(count: int, top_k: int, slots: int, seed: int = 0) -> set[int]:
    """The experts that `slots` tokens touch in one draw, all experts equally popular."""
    draw = Random(f"one draw {seed}")
    return {expert for _ in range(slots) for expert in draw.sample(range(count), top_k)}


def experts_svg(count: int, touched: set[int]) -> str:
    """A square for each expert: black with a cross if it was touched, else empty."""
    squares: list[str] = []
    for number in range(count):
        x, y = number % _COLUMNS * _SIDE + 2, number // _COLUMNS * _SIDE + 2
        inside, fill = _SIDE - 5, "#333" if number in touched else "white"
        size = f"width='{inside}' height='{inside}'"
        squares.append(f"<rect x='{x}' y='{y}' {size} fill='{fill}' stroke='#333'/>")
        if number in touched:
            cross = f"M{x + 4} {y + 4}l7 7m0-7l-7 7"
            squares.append(f"<path d='{cross}' stroke='white' stroke-width='2'/>")
    width, height = _COLUMNS * _SIDE + 4, -(-count // _COLUMNS) * _SIDE + 4
    head = f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}'>"
    return f"{head}<rect width='100%' height='100%' fill='white'/>{''.join(squares)}</svg>"


def dial_text(name: str, slots: int) -> str:
    """What a choice of slots touches, reads and saves, in three sentences."""
    model = find_model(name)
    count, top_k = experts_of(model)
    touched = expected_touched(count, top_k, slots)
    each = bytes_per_token(model, slots) / 1e9
    return (
        f"{slots} in each step of {model.name.split('/')[-1]}: about {touched:.0f} of {count} "
        f"experts of a layer are touched. Each token costs {each:.2f} GB of weights, "
        f"{fewer_bytes(model, slots):.1f} times fewer than alone. A dense model would have "
        f"{slots} times fewer."
    )


def dial_html(name: str, slots: int) -> str:
    """One draw of touched experts as a picture, its words as the alternative text."""
    count, top_k = experts_of(find_model(name))
    touched = one_draw(count, top_k, slots)
    alt = f"{count} squares, one for each expert; {len(touched)} are crossed. "
    return figure_html(experts_svg(count, touched), alt + dial_text(name, slots))


def make_dial(name: str = "gemma-4-26B-A4B", slots: int = 8) -> Any:
    """A list of models, a slider of slots, the picture, and the same in words, spoken."""
    from minipd.lab.widgets import W, row, status_html

    style = {"description_width": "initial"}
    model = W.Dropdown(options=list(SPARSE), value=name, description="Model", style=style)
    chosen = W.SelectionSlider(
        options=list(SLOTS),
        value=slots,
        description="Slots",
        style=style,
        tooltip="How many answers are written in each step",
    )
    picture, words = W.HTML(), W.HTML()

    def draw(_: object = None) -> None:
        picture.value = dial_html(model.value, chosen.value)
        words.value = status_html(html.escape(dial_text(model.value, chosen.value)))

    model.observe(draw, names="value")
    chosen.observe(draw, names="value")
    draw()
    return W.VBox([row([model, chosen]), words, picture])


def show_dial(name: str = "gemma-4-26B-A4B") -> None:
    """Show the dial; `dial_text` and `slots_table` say the same without widgets."""
    from minipd.lab.predict import display_widget

    display_widget(make_dial(name))
