"""Prompts that begin alike: a generated trace of a published one's shape, and what a cache of a
certain size would have found again.

Lengths in tokens. A prompt is cut into blocks; a block's name stands for all tokens up to its end.
"""

from __future__ import annotations

import importlib
import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from minipd.fleet.kvpool import block_names
from minipd.lab.show import show
from minipd.measure.rows import Segment, TraceRow
from minipd.measure.traces import read_trace
from minipd.measure.workloads import Lengths

BLOCK = 512  # tokens: what one hash id of a Mooncake trace stands for
VARIABLE = "MINIPD_MOONCAKE_TRACE"
FILE_NAMES = ("synthetic_trace.jsonl", "mooncake_synthetic.jsonl")

# Shape of Mooncake's synthetic trace (kvcache-ai/Mooncake, FAST25-release/traces): of its prompts
# that begin like no earlier one, 53 % are short questions, 29 % documents asked about once, and
# 18 % documents asked about again, 5.4 times in all on average, about a minute apart.
QUESTION, SINGLE = 0.53, 0.82  # cumulated shares
SHORT = Lengths(60, 1.3, 12, 1_000)
DOCUMENT = Lengths(16_500, 0.4, 1_200, 120_000)
ASKED_AGAIN = Lengths(19_000, 0.65, 900, 120_000)
OWN_WORDS = Lengths(220, 0.8, 20, 2_000)  # after the document
LONG_ANSWER, SHORT_ANSWER = Lengths(250, 0.8, 4, 900), Lengths(30, 1.4, 2, 800)
RATE_PER_S, MORE_ASKS = 3.9, 3.9
GAP_SHARE = 0.1  # of the trace's span: the mean time until a document is asked about again


def synthetic_rows(
    num_requests: int, seed: int = 13, rate_per_s: float = RATE_PER_S
) -> list[TraceRow]:
    """About `num_requests` requests in order of arrival; equal arguments give equal rows."""
    rng = Random(f"minipd shared beginnings {seed}")
    span_s, rows = num_requests / rate_per_s, list[TraceRow]()
    while len(rows) < num_requests:
        rows += _asked(rng, f"text-{len(rows)}", span_s)
    rows.sort(key=lambda row: row.arrival_s)
    return [replace(row, arrival_s=round(row.arrival_s, 6)) for row in rows]


def _asked(rng: Random, text: str, span_s: float) -> list[TraceRow]:
    """A short question, or all the questions about one document."""
    kind, at_s = rng.random(), rng.uniform(0.0, span_s)
    if kind < QUESTION:
        length = SHORT.draw(rng)
        return [TraceRow(at_s, length, LONG_ANSWER.draw(rng), "", (Segment(text, length),))]
    if kind < SINGLE:
        document, gaps = DOCUMENT.draw(rng), list[float]()
    else:
        document = ASKED_AGAIN.draw(rng)
        more = 1 + int(rng.expovariate(1 / MORE_ASKS))
        gaps = [rng.expovariate(1 / (GAP_SHARE * span_s)) for _ in range(more)]
    late = min(1.0, (span_s - at_s) / sum(gaps)) if gaps else 1.0  # all within the span
    made: list[TraceRow] = []
    for gap_s in (0.0, *gaps):
        at_s, own = at_s + late * gap_s, OWN_WORDS.draw(rng)
        shared = (Segment(text, document),)
        made.append(TraceRow(at_s, document + own, SHORT_ANSWER.draw(rng), "", shared))
    return made


def real_trace(folder: Path = Path(".")) -> list[TraceRow] | None:
    """Mooncake's synthetic trace where the learner has it, else None.

    Looked for at the path that `MINIPD_MOONCAKE_TRACE` names, then by its usual names in `folder`.
    """
    named = os.environ.get(VARIABLE, "").strip()
    paths = [Path(named).expanduser()] if named else [folder / name for name in FILE_NAMES]
    for path in paths:
        if path.is_file():
            return read_trace(path).rows
    return None


def with_a_hot_document(rows: Iterable[TraceRow]) -> list[TraceRow]:
    """The same rows, but every second request asks about one and the same document."""
    shared = (Segment("everybody's document", 20_480),)
    changed: list[TraceRow] = []
    for number, row in enumerate(rows):
        hot = replace(row, prompt_tokens=20_480 + 12_000, segments=shared)
        changed.append(hot if number % 2 else row)
    return changed


def lru_hit_shares(rows: Sequence[TraceRow], sizes: Sequence[int]) -> list[float]:
    """Share of all prompt tokens that a cache of so many blocks finds; it forgets whole blocks,
    the one used longest ago first, and of a prompt its end before its beginning."""
    asked = [(row.prompt_tokens, block_names(row, BLOCK)) for row in rows]
    total = sum(tokens for tokens, _ in asked)
    return [_found([names for _, names in asked], size) / total for size in sizes]


def _found(prompts: Iterable[list[bytes]], size: int) -> int:
    """Tokens that one cache finds over all prompts."""
    held, found = OrderedDict[bytes, None](), 0
    for names in prompts:
        hits = 0
        while hits < len(names) and names[hits] in held:
            hits += 1
        found += hits * BLOCK
        for name in reversed(names):
            held[name] = None
            held.move_to_end(name)
        while len(held) > size:
            held.popitem(last=False)
    return found


def show_hit_curve(gigabytes: Sequence[float], shares: Sequence[float], most: float) -> None:
    """Hit share over the cache's size, and the share that no cache can exceed."""
    plt: Any = importlib.import_module("matplotlib.pyplot")
    fig, ax = plt.subplots(figsize=(7, 3))
    ax.plot(gigabytes, [100 * share for share in shares], "o-", color="black", label="this size")
    ax.axhline(100 * most, color="0.4", linestyle="--", label="a cache without end")
    ax.set(xscale="log", xlabel="cache (GB of keys and values)", ylabel="tokens found (%)")
    ax.set_xticks(list(gigabytes))
    ax.set_xticklabels([f"{size:,.0f}" for size in gigabytes])
    ax.minorticks_off()
    ax.set_ylim(0, 100)
    ax.legend(frameon=False, loc="upper left")
    ends = f"from {shares[0]:.0%} with {gigabytes[0]:,.0f} GB to {shares[-1]:.0%} with "
    alt = f"Rising line: tokens found again, {ends}{gigabytes[-1]:,.0f} GB; at most {most:.0%}."
    table = {"cache (GB)": [f"{size:,.0f}" for size in gigabytes]}
    show(fig, alt=alt, table=table | {"tokens found": [f"{share:.0%}" for share in shares]})


class Held(NamedTuple):
    """A block in a cache: the name of the one before it, when it was last used, who uses it now."""

    parent: str | None
    last_used: float
    users: int = 0
