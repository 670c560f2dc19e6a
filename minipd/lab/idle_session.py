"""A user is away for some minutes: what it costs to keep the session's KV, by place.

Rent for the time, plus the way back; both in USD. Prices are assumptions that the reader edits.
"""

from __future__ import annotations

import html
import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from minipd.fleet.gpus import find_device
from minipd.lab.kv_places import reader_of
from minipd.lab.show import Table, figure_html, html_table
from minipd.lab.widgets import W, button, row, status_html

MINUTES = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1_000, 10_000)
TOKENS = (1_024, 2_048, 4_096, 8_192, 16_384, 32_768)
# USD per GB and hour. Ours, unverified: the order of what clouds ask for memory and local disks.
HOST_USD, DISK_USD = 0.004, 0.0002
# Bytes/s to one GPU. A PCIe 5.0 slot of 16 lanes, less overhead; a fast local disk.
HOST_BYTES_PER_S, DISK_BYTES_PER_S = 50e9, 5e9
MACHINES = {
    "8B on one H100": ("Llama-3.1-8B", "h100_sxm", 1),
    "70B on eight H100": ("Llama-3.1-70B", "h100_sxm", 8),
    "8B on one L4": ("Llama-3.1-8B", "l4", 1),
}


@dataclass(frozen=True, slots=True)
class Place:
    """`usd_per_hour` of the whole session's KV; `back_s` until it is there again."""

    name: str
    usd_per_hour: float
    back_s: float


@dataclass(frozen=True, slots=True)
class Session:
    """KV of `tokens` tokens behind a replica of `gpus` GPUs, which wait while it comes back."""

    name: str
    tokens: int
    gigabytes: float
    prefill_s: float
    gpus: int
    gpu_memory_gb: float
    usd_per_gpu_hour: float
    usd_host: float = HOST_USD
    usd_disk: float = DISK_USD

    @property
    def places(self) -> list[Place]:
        """Four ways to wait: kept in three places, or nowhere."""
        gpu_usd = self.usd_per_gpu_hour / self.gpu_memory_gb
        size, each = self.gigabytes, self.gigabytes * 1e9 / self.gpus  # every GPU fetches its part
        return [
            Place("GPU memory", gpu_usd * size, 0.0),
            Place("host memory", self.usd_host * size, each / HOST_BYTES_PER_S),
            Place("disk", self.usd_disk * size, each / DISK_BYTES_PER_S),
            Place("nowhere: read again", 0.0, self.prefill_s),
        ]

    def usd(self, place: Place, minutes: float) -> float:
        """Rent for the idle time, and the GPUs' time for the way back."""
        waiting = self.gpus * self.usd_per_gpu_hour * place.back_s / 3600
        return place.usd_per_hour * minutes / 60 + waiting

    def cheapest(self, minutes: float) -> Place:
        return min(self.places, key=lambda place: self.usd(place, minutes))

    def break_even_minutes(self, kept: Place, other: Place) -> float:
        """Idle minutes from which `other` is cheaper than `kept`; infinite if it never is."""
        rent = kept.usd_per_hour - other.usd_per_hour
        saved = self.usd(other, 0.0) - self.usd(kept, 0.0)
        return max(0.0, 60 * saved / rent) if rent > 0 else math.inf

    def cheaper_after(self, kept: Place) -> tuple[float, Place]:
        """Idle minutes from which another place is cheaper than `kept`, and which one is first."""
        others = [place for place in self.places if place.usd_per_hour < kept.usd_per_hour]
        if not others:
            return math.inf, kept
        after = [(self.break_even_minutes(kept, place), place) for place in others]
        return min(after, key=lambda pair: pair[0])

    def best_from(self, kept: Place) -> float:
        """Idle minutes from which no dearer place is cheaper than `kept`."""
        dearer = [place for place in self.places if place.usd_per_hour > kept.usd_per_hour]
        return max((self.break_even_minutes(place, kept) for place in dearer), default=0.0)


def session_of(machine: str, tokens: int) -> Session:
    """One of `MACHINES`, with the hardware table's price."""
    model, gpu, tp = MACHINES[machine]
    device, reader = find_device(gpu), reader_of(model, gpu, tp, (tokens,))
    return Session(
        machine,
        tokens,
        tokens * reader.kv_bytes / 1e9,
        reader.seconds[tokens],
        tp,
        device.memory_bytes / 1e9,
        device.usd_per_hour,
    )


def in_time(minutes: float) -> str:
    if math.isinf(minutes):
        return "never"
    if minutes < 1 / 120:
        return "at once"
    if minutes < 1:
        return f"{_digits(60 * minutes)} s"
    return f"{_digits(minutes)} min" if minutes < 120 else f"{_digits(minutes / 60)} h"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}".removesuffix(".0")


def rent_table(session: Session) -> Table:
    """Rent, way back, and from which idle time another place is the cheaper choice."""
    places = session.places
    after = [session.cheaper_after(place) for place in places[:-1]]
    return {
        "keep it in": [place.name for place in places],
        "USD per hour": [f"{place.usd_per_hour:.6f}" for place in places],
        "way back (s)": [f"{place.back_s:.3f}" for place in places],
        "USD for the way back": [f"{session.usd(place, 0.0):.6f}" for place in places],
        "cheaper after": [*(f"{in_time(when)} ({one.name})" for when, one in after), "-"],
    }


def best_table(sessions: Sequence[Session], name: str) -> Table:
    """When a place is the cheapest of all, session by session."""
    found: list[tuple[Place, str]] = []
    for session in sessions:
        place = next(one for one in session.places if one.name == name)
        start, (end, _) = session.best_from(place), session.cheaper_after(place)
        told = f"from {in_time(start)} to {in_time(end)}" if start < end else "never"
        found.append((place, told))
    return {
        "session": [f"{one.name}, {one.tokens:,} tokens" for one in sessions],
        f"{name}, way back (s)": [f"{place.back_s:.3f}" for place, _ in found],
        "read again (s)": [f"{one.prefill_s:.3f}" for one in sessions],
        f"{name} is the cheapest": [told for _, told in found],
    }


def choice_table(session: Session, minutes: Sequence[float] = MINUTES) -> Table:
    """The cheapest place by idle time, and what each would cost in millionths of a dollar."""
    table: dict[str, list[object]] = {"idle": [in_time(one) for one in minutes]}
    for place in session.places:
        costs = [f"{1e6 * session.usd(place, one):,.0f}" for one in minutes]
        table[f"{place.name} (USD / 1,000,000)"] = list(costs)
    return table | {"cheapest": [session.cheapest(one).name for one in minutes]}


def in_words(session: Session, minutes: float) -> str:
    best = session.cheapest(minutes)
    told = f"{session.name}, {session.tokens:,} tokens ({session.gigabytes:.2f} GB), idle for "
    told += f"{in_time(minutes)}: cheapest is {best.name}, "
    told += f"{1e6 * session.usd(best, minutes):,.0f} millionths of a dollar; "
    return told + f"the user then waits {best.back_s:.2f} s for it."


def draw_costs(session: Session, minutes: float) -> Any:
    """One line for each place over the idle time; the chosen time is marked."""
    plt: Any = importlib.import_module("matplotlib.pyplot")
    fig, ax = plt.subplots(figsize=(7, 3.2))
    for place, look in zip(session.places, ("-", "--", ":", "-.")):
        costs = [1e6 * session.usd(place, one) for one in MINUTES]
        ax.loglog(MINUTES, costs, look, color="black", label=place.name)
    ax.axvline(minutes, color="0.6", linewidth=1)
    ax.set(xlabel="idle time (minutes)", ylabel="USD / 1,000,000")
    ax.set_xticks([0.1, 1, 10, 100, 1_000, 10_000])
    ax.set_xticklabels(["0.1", "1", "10", "100", "1,000", "10,000"])
    ax.minorticks_off()
    ax.legend(frameon=False)
    return fig


def session_html(session: Session, minutes: float) -> str:
    """One spoken sentence, the picture, and its numbers."""
    told = in_words(session, minutes)
    alt = f"Four cost lines over the idle time, one for each place. {told}"
    picture = figure_html(draw_costs(session, minutes), alt)
    numbers = html_table(choice_table(session))
    spoken = status_html(f"<b>{html.escape(told)}</b>")
    return f"{spoken}{picture}<details><summary>All times as a table</summary>{numbers}</details>"


class IdleView:
    """Machine, session length, idle time and three prices; every change works it out again."""

    def __init__(self, machine: str, tokens: int, minutes: float) -> None:
        self.machine = machine
        common: Any = {
            "continuous_update": False,
            "style": {"description_width": "13em"},
            "layout": W.Layout(width="min(100%, 46em)"),
        }
        lengths = [(f"{n:,}", n) for n in TOKENS]
        self.tokens = W.SelectionSlider(
            options=lengths, value=tokens, description="Session (tokens)", **common
        )
        times = [(in_time(one), one) for one in MINUTES]
        self.minutes = W.SelectionSlider(
            options=times, value=minutes, description="Idle for", **common
        )
        usd = session_of(machine, tokens).usd_per_gpu_hour
        price: Any = {"style": common["style"], "layout": W.Layout(width="22em")}
        self.gpu = W.FloatText(usd, description="USD per GPU-hour", step=0.1, **price)
        self.host = W.FloatText(HOST_USD, description="host, USD per GB-hour", **price)
        self.disk = W.FloatText(DISK_USD, description="disk, USD per GB-hour", **price)
        self.result = W.HTML()
        dials = [self.tokens, self.minutes, self.gpu, self.host, self.disk]
        for dial in dials:
            dial.observe(self._update, names="value")
        machines = [button(n, lambda n=n: self.choose(n), f"Machine: {n}") for n in MACHINES]
        head = row([W.Label("Machine:"), *machines])
        prices = row([self.gpu, self.host, self.disk])
        self.widget = W.VBox([head, self.tokens, self.minutes, prices, self.result])
        self._update()

    def choose(self, machine: str) -> None:
        """Another machine, at the hardware table's price."""
        self.machine = machine
        self.gpu.value = session_of(machine, self.tokens.value).usd_per_gpu_hour
        self._update()

    @property
    def session(self) -> Session:
        gpu, host, disk = (max(0.0, one.value) for one in (self.gpu, self.host, self.disk))
        made = session_of(self.machine, self.tokens.value)
        return replace(made, usd_per_gpu_hour=gpu, usd_host=host, usd_disk=disk)

    def _update(self, _: object = None) -> None:
        self.result.value = session_html(self.session, self.minutes.value)


def idle_widget(
    machine: str = "8B on one H100", tokens: int = 8_192, minutes: float = 10
) -> object:
    """The dials as a notebook widget; the last line of a cell."""
    return IdleView(machine, tokens, minutes).widget
