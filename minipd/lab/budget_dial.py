"""The dial of lesson 06: a token budget, and the steps that follow from measured times."""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from minipd.lab.show import Table, figure_html, show
from minipd.measure.contest import Cores
from minipd.measure.machine import pinned
from minipd.measure.phases import MinipdEngine, random_tokens
from minipd.measure.stopwatch import num_threads
from minipd.model.load import LoadedModel

SIZES = (1, 4, 16, 32, 64, 128, 256, 512)  # tokens of a pass
BUDGETS = (8, 16, 32, 64, 128, 256, 512)
PassTimes = Mapping[int, float]


@dataclass(frozen=True, slots=True)
class StepBar:
    """One step of a server: how many prompt tokens it read, and for how many readers it wrote."""

    start_s: float
    end_s: float
    read_tokens: int
    writers: int

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Plan:
    """What a budget would do with one document while `writers` answers are written."""

    budget: int
    document_tokens: int
    steps: tuple[StepBar, ...]
    undisturbed_s: float  # a step that only writes

    @property
    def ttft_s(self) -> float:
        """Until the document's first token; nobody was before it."""
        return next(s.end_s for s in reversed(self.steps) if s.read_tokens)

    @property
    def longest_s(self) -> float:
        return max(step.length_s for step in self.steps if step.writers)

    @property
    def longest_tokens(self) -> float:
        return self.longest_s / self.undisturbed_s

    @property
    def num_pieces(self) -> int:
        return sum(step.read_tokens > 0 for step in self.steps)


# -- measured times -----------------------------------------------------------------------------


def measure_passes(
    model: LoadedModel, cores: Cores, sizes: Sequence[int] = SIZES, rounds: int = 2
) -> dict[int, float]:
    """Median seconds of one pass of each size on one server's cores, all sizes in turn, after one
    pass of the smallest as warm-up."""
    engine = MinipdEngine(model, max(sizes), 1)
    tokens = random_tokens(model.config.vocab_size, max(sizes))
    jobs = {size: partial(engine.prefill, tokens[:size]) for size in sizes}
    samples: dict[int, list[float]] = {size: [] for size in sizes}
    with pinned(cores.cpus[0] if cores.cpus else None), num_threads(cores.threads):
        jobs[min(sizes)]()
        for _ in range(rounds):
            for size in sizes:
                samples[size].append(jobs[size]())
    return {size: statistics.median(times) for size, times in samples.items()}


def reading_speed(model: LoadedModel, cores: Cores, tokens: int = 512) -> float:
    """Tokens/s of one document alone on one server's cores, after a warm-up."""
    return tokens / measure_passes(model, cores, (tokens,), rounds=1)[tokens]


def pass_time(passes: PassTimes, tokens: int) -> float:
    """Seconds of a pass of any size: linear between measured sizes, and beyond the last two."""
    sizes = sorted(passes)
    if tokens <= sizes[0]:
        return passes[sizes[0]]
    high = next((i for i, size in enumerate(sizes) if size >= tokens), len(sizes) - 1)
    low_size, high_size = sizes[high - 1], sizes[high]
    slope = (passes[high_size] - passes[low_size]) / (high_size - low_size)
    return passes[low_size] + slope * (tokens - low_size)


def plan_steps(
    passes: PassTimes, budget: int, document_tokens: int = 512, writers: int = 2, around: int = 3
) -> Plan:
    """Steps that only write, then the document in pieces, then writing again, the document too."""
    usual = pass_time(passes, writers)
    steps, now, left = list[StepBar](), 0.0, document_tokens

    def add(read_tokens: int, writing: int) -> None:
        nonlocal now
        end = now + pass_time(passes, read_tokens + writing)
        steps.append(StepBar(now, end, read_tokens, writing))
        now = end

    for _ in range(around):
        add(0, writers)
    arrived_s = now
    while left > 0:
        piece = min(left, max(1, budget - writers))
        add(piece, writers)
        left -= piece
    for _ in range(around):
        add(0, writers + 1)
    moved = (StepBar(s.start_s - arrived_s, s.end_s - arrived_s, s.read_tokens, s.writers)
             for s in steps)  # fmt: skip
    return Plan(budget, document_tokens, tuple(moved), usual)


def plan_table(plans: Sequence[Plan]) -> Table:
    """Several budgets side by side."""
    return {
        "budget (tokens)": [plan.budget for plan in plans],
        "pieces": [plan.num_pieces for plan in plans],
        "longest wait of a reader (ms)": [1000 * plan.longest_s for plan in plans],
        "in tokens": [plan.longest_tokens for plan in plans],
        "document's TTFT (s)": [plan.ttft_s for plan in plans],
    }


# -- pictures -----------------------------------------------------------------------------------


def steps_figure(steps: Sequence[StepBar]) -> Any:
    """One bar for each step; plain where it only writes, hatched where it reads as well."""
    plt: Any = importlib.import_module("matplotlib.pyplot")
    fig, axis = plt.subplots(figsize=(8, 1.9))
    kinds = {
        "only writes": ("#9ecae1", "", [s for s in steps if s.writers and not s.read_tokens]),
        "reads and writes": ("#fee391", "..", [s for s in steps if s.writers and s.read_tokens]),
        "only reads": ("#fdae6b", "///", [s for s in steps if not s.writers]),
    }
    for name, (colour, hatch, found) in kinds.items():
        if found:
            lengths, starts = [s.length_s for s in found], [s.start_s for s in found]
            style = {"color": colour, "hatch": hatch, "edgecolor": "black", "linewidth": 0.8}
            axis.barh([0] * len(found), lengths, left=starts, height=0.7, label=name, **style)
    span = steps[-1].end_s - steps[0].start_s
    for step in steps:
        if step.read_tokens and step.length_s > 0.045 * span:
            x = (step.start_s + step.end_s) / 2
            backed = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
            axis.text(x, 0, str(step.read_tokens), ha="center", va="center", bbox=backed)
    axis.set(xlabel="seconds", yticks=[], ylim=(-0.5, 0.5))
    axis.set_xlim(steps[0].start_s, steps[-1].end_s)
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, 1.4), ncol=3, frameon=False)
    return fig


def steps_text(steps: Sequence[StepBar]) -> str:
    """The same in words: how many steps of which kind, and the longest."""
    longest = max(steps, key=lambda step: step.length_s)
    reading = [step for step in steps if step.read_tokens]
    return (
        f"{len(steps)} steps, one bar each. {len(reading)} of them read, "
        f"{sum(s.read_tokens for s in reading)} tokens in all. The longest takes "
        f"{1000 * longest.length_s:.0f} ms, reads {longest.read_tokens} tokens and writes for "
        f"{longest.writers}."
    )


def steps_table(steps: Sequence[StepBar]) -> Table:
    return {
        "step": list(range(1, len(steps) + 1)),
        "start (s)": [round(step.start_s, 3) for step in steps],
        "length (ms)": [1000 * step.length_s for step in steps],
        "tokens read": [step.read_tokens for step in steps],
        "answers written": [step.writers for step in steps],
    }


def show_steps(steps: Sequence[StepBar]) -> None:
    """The steps of a run as bars, with their numbers; the number in a bar is its tokens read."""
    show(steps_figure(steps), alt=steps_text(steps), table=steps_table(steps))


def dial_text(plan: Plan) -> str:
    """What a budget means for readers and for the document, in three sentences."""
    return (
        f"Budget {plan.budget}: the document is read in {plan.num_pieces} pieces. A reader waits "
        f"at most {1000 * plan.longest_s:.0f} ms for a token, {plan.longest_tokens:.1f} times as "
        f"long as undisturbed. The document's first token comes after {plan.ttft_s:.2f} s."
    )


def dial_html(plan: Plan) -> str:
    return figure_html(steps_figure(plan.steps), f"{dial_text(plan)} {steps_text(plan.steps)}")


def make_dial(passes: PassTimes, document_tokens: int = 512) -> Any:
    """A slider for the budget, one for the readers, the steps, and the same in words."""
    from minipd.lab.widgets import W, row, status_html

    style = {"description_width": "initial"}
    budget = W.SelectionSlider(
        options=BUDGETS, value=64, description="Token budget of a step", style=style,
        tooltip="How many tokens a step may hold, read and written together",
    )  # fmt: skip
    writers = W.IntSlider(
        value=2, min=1, max=8, description="Answers being written", style=style,
        tooltip="How many answers are written while the document is read",
    )  # fmt: skip
    picture, words = W.HTML(), W.HTML()

    def draw(_: object = None) -> None:
        plan = plan_steps(passes, budget.value, document_tokens, writers.value)
        picture.value, words.value = dial_html(plan), status_html(dial_text(plan))

    budget.observe(draw, names="value")
    writers.observe(draw, names="value")
    draw()
    return W.VBox([row([budget, writers]), words, picture])


def show_dial(passes: PassTimes) -> None:
    """Show the dial; `plan_table` says the same without widgets."""
    from minipd.lab.predict import display_widget

    display_widget(make_dial(passes))
