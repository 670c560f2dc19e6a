"""The roofline: what a machine can attain at each arithmetic intensity, and where work lies below.

Intensities in FLOP per byte, rates in FLOP/s and byte/s. Matplotlib is loaded when one is drawn.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from minipd.lab.kv_sizes import MODELS
from minipd.lab.predict import reveal
from minipd.lab.show import Table, show, show_table
from minipd.measure.counts import decode_bytes, decode_flops, prefill_flops, weight_bytes
from minipd.model.config import ModelConfig

Limit = Literal["memory", "arithmetic"]


@dataclass(frozen=True, slots=True)
class Roof:
    """The two ceilings of one machine; `flops` in FLOP/s, `bytes_per_s` in byte/s."""

    name: str
    flops: float
    bytes_per_s: float

    @property
    def ridge(self) -> float:
        """The corner: FLOP per byte at which both ceilings bind at once."""
        return self.flops / self.bytes_per_s

    def attainable(self, intensity: float) -> float:
        """FLOP/s at most for work that does `intensity` FLOP with each byte it reads."""
        return min(self.flops, intensity * self.bytes_per_s)

    def limit(self, intensity: float) -> Limit:
        return "memory" if intensity < self.ridge else "arithmetic"

    def seconds(self, work: Work) -> float:
        """The least time: reading and arithmetic overlap, so the longer one decides."""
        return max(work.flops / self.flops, work.num_bytes / self.bytes_per_s)


@dataclass(frozen=True, slots=True)
class Work:
    """What one pass of the model has to do: operations, and bytes read from memory."""

    name: str
    flops: float
    num_bytes: float

    @property
    def intensity(self) -> float:
        return self.flops / self.num_bytes


@dataclass(frozen=True, slots=True)
class Point:
    """One measured pass of `work`."""

    work: Work
    seconds: float

    @property
    def flops(self) -> float:
        return self.work.flops / self.seconds

    def mfu(self, roof: Roof) -> float:
        return self.flops / roof.flops

    def mbu(self, roof: Roof) -> float:
        return self.work.num_bytes / self.seconds / roof.bytes_per_s

    def of_roof(self, roof: Roof) -> float:
        """Share of what the lower one of the two ceilings allows: the larger of MFU and MBU."""
        return self.flops / roof.attainable(self.work.intensity)


# Dense 16-bit FLOP/s and memory bandwidth from the makers' data sheets, SXM modules (facts.yaml,
# gpu-ridge-points). The A100's 2.0 TB/s is DistServe's rounding; with 2.039 its ridge is 153.
GPUS = (
    Roof("A100", 312e12, 2.0e12),
    Roof("H100", 989.5e12, 3.35e12),
    Roof("H200", 989.5e12, 4.8e12),
)


def prefill_work(config: ModelConfig, tokens: int, bytes_per_value: float) -> Work:
    """One pass over a prompt: the weights are read once, whatever its length."""
    name = "1 token in one pass" if tokens == 1 else f"{tokens:,} tokens in one pass"
    return Work(name, prefill_flops(config, tokens), weight_bytes(config, 1) * bytes_per_value)


def decode_work(
    config: ModelConfig, sequences: int, context: float, bytes_per_value: float
) -> Work:
    """One step that writes a token for each of `sequences`, each looking back at `context`."""
    answers = "1 answer" if sequences == 1 else f"{sequences:,} answers"
    num_bytes = decode_bytes(config, 1, sequences, context) * bytes_per_value
    name = f"one step for {answers}"
    return Work(name, decode_flops(config, sequences, context), num_bytes)


def points_table(roof: Roof, points: Sequence[Point]) -> dict[str, list[object]]:
    """Measured passes as columns: what each did, what the roof allows, what limits it."""
    works = [point.work for point in points]
    return {
        "pass": [work.name for work in works],
        "ms": [1000 * point.seconds for point in points],
        "FLOP per byte": [work.intensity for work in works],
        "GFLOP/s": [point.flops / 1e9 for point in points],
        "roof allows": [roof.attainable(work.intensity) / 1e9 for work in works],
        "limited by": [roof.limit(work.intensity) for work in works],
        "MFU": [f"{point.mfu(roof):.0%}" for point in points],
        "MBU": [f"{point.mbu(roof):.0%}" for point in points],
    }


def corners_table(roofs: Sequence[Roof], bytes_per_value: Mapping[str, float]) -> Table:
    """Where each machine's corner lies, and how many tokens in one pass reach it."""
    return {
        "machine": [roof.name for roof in roofs],
        "arithmetic (TFLOP/s)": [roof.flops / 1e12 for roof in roofs],
        "reading (TB/s)": [roof.bytes_per_s / 1e12 for roof in roofs],
        "corner (FLOP per byte)": [f"{roof.ridge:.3g}" for roof in roofs],
        "bytes of a weight": [bytes_per_value.get(roof.name, 2) for roof in roofs],
        "tokens in a pass at the corner": [
            f"{corner_tokens(roof, bytes_per_value.get(roof.name, 2)):.0f}" for roof in roofs
        ],
    }


def corner_tokens(roof: Roof, bytes_per_value: float) -> float:
    """Tokens in one pass at which arithmetic takes over: intensity is 2 T / bytes of a weight."""
    return roof.ridge * bytes_per_value / 2


STYLES = ("-", "--", "-.", ":")
MARKS = "osD^vP*X"


def draw_roofline(
    roofs: Sequence[Roof], points: Sequence[Point] = (), works: Sequence[Work] = ()
) -> Any:
    """The figure: roofs told apart by line style and name, passes by marker and legend.

    `points` were measured; `works` are drawn on the roof of the first machine, as what it allows.
    """
    plt: Any = importlib.import_module("matplotlib.pyplot")
    fig, ax = plt.subplots(figsize=(7, 4))
    unit, name = _unit(roofs)
    all_works = [*(point.work for point in points), *works]
    xs = _span([*(work.intensity for work in all_works), *(roof.ridge for roof in roofs)])
    for roof, style in zip(roofs, STYLES):
        places = [xs[0], roof.ridge, xs[1]]
        label = f"{roof.name}: corner at {roof.ridge:.3g}"
        heights = [roof.attainable(x) / unit for x in places]
        ax.plot(places, heights, style, color="black", linewidth=1.6, label=label)
    grey = {"linestyle": "", "markeredgecolor": "black", "markersize": 9}
    for point, mark in zip(points, MARKS):
        at = [point.work.intensity], [point.flops / unit]
        ax.plot(*at, marker=mark, color="0.7", label=point.work.name, **grey)
    for work, mark in zip(works, MARKS[::-1]):
        at = [work.intensity], [roofs[0].attainable(work.intensity) / unit]
        ax.plot(*at, marker=mark, color="white", label=f"{work.name} (at most)", **grey)
    ax.set(xscale="log", yscale="log", xlim=xs, ylabel=name)
    ax.set_xlabel("operations with each byte read (FLOP per byte)")
    _plain_numbers(ax)
    ax.grid(True, which="major", color="0.9")
    ax.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return fig


def _unit(roofs: Sequence[Roof]) -> tuple[float, str]:
    return (1e12, "TFLOP/s") if roofs[0].flops > 1e13 else (1e9, "GFLOP/s")


def _span(intensities: Sequence[float]) -> tuple[float, float]:
    """The same stretch in every picture, unless something lies outside it."""
    return min(0.2, min(intensities) / 3), max(2000.0, max(intensities) * 3)


def _plain_numbers(ax: Any) -> None:
    """Powers of ten written out, and nothing between them."""
    ticker: Any = importlib.import_module("matplotlib.ticker")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))
        axis.set_minor_formatter(ticker.NullFormatter())


def roofline_alt(
    roofs: Sequence[Roof], points: Sequence[Point] = (), works: Sequence[Work] = ()
) -> str:
    """The picture in words."""
    unit, name = _unit(roofs)
    told = [
        f"{roof.name} rises with memory speed up to {roof.ridge:.3g} FLOP per byte and is flat at "
        f"{roof.flops / unit:,.4g} {name} from there"
        for roof in roofs
    ]
    told += [
        f"{p.work.name}: {p.work.intensity:.3g} FLOP per byte, {p.flops / unit:,.3g} {name}, "
        f"{p.of_roof(roofs[0]):.0%} of the roof"
        for p in points
    ]
    told += [
        f"{work.name}: at most {roofs[0].attainable(work.intensity) / unit:,.3g} {name}, "
        f"limited by {roofs[0].limit(work.intensity)}"
        for work in works
    ]
    return f"Roofline, both axes logarithmic. {'. '.join(told)}."


def show_roofline(roofs: Sequence[Roof], points: Sequence[Point] = ()) -> None:
    """Show the picture with its numbers; the first roof is the machine of the points."""
    table = points_table(roofs[0], points) if points else corners_table(roofs, {})
    show(draw_roofline(roofs, points), alt=roofline_alt(roofs, points), table=table)


SpeedUp = Callable[[tuple[float, float], tuple[float, float], float, float], float]
GAINS_MORE = ("the step of decode", "the pass of 512 tokens", "both gain the same")


def upgrade(speed_up: SpeedUp, prediction: str) -> None:
    """The exercises' last step: a learner's formula, from this machine to an H100.

    Measures the ceilings, shows what each phase of SmolLM2 would gain, reveals which gains more. An
    exercise that is not done yet gets one sentence instead.
    """
    try:
        speed_up((1.0, 1.0), (2.0, 2.0), 1.0, 1.0)
    except NotImplementedError:
        print("This cell needs your speed_up: solve Exercise 3, then run it again.")
        return
    import torch

    from minipd.measure.ceilings import measure_ceilings

    own, new, model = measure_ceilings(threads=torch.get_num_threads(), quick=True), GPUS[1], MODELS
    works = [decode_work(model["SmolLM2-135M"], 1, 100, 4)]
    works.append(prefill_work(model["SmolLM2-135M"], 512, 4))
    # Weights of half the bytes over there: the same as reading twice as fast.
    pairs = (own.flops, own.read_bytes_per_s), (new.flops, 2 * new.bytes_per_s)
    gains = [float(speed_up(*pairs, work.flops, work.num_bytes)) for work in works]
    show_table({"phase": GAINS_MORE[:2], f"times as fast on an {new.name}, at most": gains})
    close = abs(gains[0] - gains[1]) < 0.05 * max(gains)
    reveal(prediction, GAINS_MORE[2] if close else GAINS_MORE[gains.index(max(gains))])
