"""From a timeline's events to what is drawn: blocks, freezes, hand-offs, tokens; no pixels yet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from minipd.measure.ordering import Roles, count, in_order, number
from minipd.measure.stalls import DEFAULT_K, Gap, Stall, find_stalls, token_gaps, undisturbed_step_s
from minipd.timeline import Event

BlockKind = Literal["prefill", "decode", "mixed"]
JOIN_S = 0.002  # decode steps closer than this (or 1/1000 of the window) are drawn as one block


@dataclass(frozen=True, slots=True)
class View:
    """The window of time that is drawn, in seconds from the first arrival."""

    start_s: float
    end_s: float


@dataclass(slots=True)
class Block:
    """What a worker ran without a break: one prefill step, or decode steps in a row."""

    kind: BlockKind
    start_s: float
    end_s: float
    tokens: int
    steps: int = 1

    def label(self, width_px: float) -> str:
        """Words that fit inside; empty if none do, or for decode."""
        if self.kind != "prefill":
            return ""
        for words in (
            f"prefill {self.tokens:,} tokens",
            f"{self.tokens:,} tok",
            f"{self.tokens:,}",
        ):
            if len(words) * 6.6 + 12 < width_px:
                return words
        return ""

    def tip(self) -> str:
        length_ms = (self.end_s - self.start_s) * 1000
        return f"{self.kind}: {self.tokens:,} tokens, {self.steps} steps, {length_ms:,.1f} ms"


@dataclass(frozen=True, slots=True)
class Handoff:
    """KV on its way: first write to commit."""

    request_id: str
    source: str
    target: str
    start_s: float
    end_s: float


@dataclass(slots=True)
class Lanes:
    """Everything one panel shows, cut to `view`, times in seconds from the first arrival."""

    view: View
    workers: list[str]
    roles: dict[str, str]
    blocks: dict[str, list[Block]]
    stalls: list[Stall]
    waits: list[Stall]  # as long as a freeze, but nobody froze: the answer's notes were on the road
    handoffs: list[Handoff]
    gaps: list[Gap]
    stalled_over_s: float
    sequences: list[str]
    token_s: dict[str, list[float]]


def read_lanes(
    events: Iterable[Event],
    sequences: int | list[str],
    undisturbed_s: float | None = None,
    start_s: float | None = None,
    end_s: float | None = None,
) -> Lanes:
    """Read one run; `sequences` answers with the longest gaps are kept, or those named, in order of
    their first tokens."""
    ordered = _from_zero(in_order(events))
    view = View(start_s or 0.0, end_s or max((event.t_s for event in ordered), default=1.0))
    if not view.end_s > view.start_s:
        raise ValueError(f"The window ends at {view.end_s} s, not after its start; move end_s.")
    step_s = undisturbed_s or undisturbed_step_s(ordered) or 0.0
    roles = _roles(ordered)
    gaps = [gap for gap in token_gaps(ordered) if _inside(gap.start_s, gap.end_s, view)]
    token_s = _tokens(ordered)
    if isinstance(sequences, int):
        sequences = _frozen_most(gaps, sequences)
    shown = sorted((s for s in sequences if s in token_s), key=lambda name: token_s[name][0])
    blocks = {worker: _blocks(ordered, worker, view) for worker in _workers(ordered, roles)}
    stalls, handoffs = find_stalls(ordered, DEFAULT_K, step_s or None), _handoffs(ordered, blocks)
    stalls = [stall for stall in stalls if _inside(stall.start_s, stall.end_s, view)]
    waits = [stall for stall in stalls if _waits_for_notes(stall, handoffs)]
    return Lanes(
        view=view,
        workers=list(blocks),
        roles=roles,
        blocks=blocks,
        stalls=[stall for stall in stalls if stall not in waits],
        waits=waits,
        handoffs=[h for h in handoffs if _inside(h.start_s, h.end_s, view)],
        gaps=gaps,
        stalled_over_s=DEFAULT_K * step_s if step_s else float("inf"),
        sequences=shown,
        token_s={name: token_s[name] for name in shown},
    )


def _waits_for_notes(stall: Stall, handoffs: list[Handoff]) -> bool:
    """Nothing was read there meanwhile, and every answer in it got its notes while it lasted."""
    came = {
        h.request_id
        for h in handoffs
        if h.target == stall.worker and stall.start_s < h.end_s <= stall.end_s
    }
    return not stall.cause and came.issuperset(stall.requests)


def _from_zero(events: list[Event]) -> list[Event]:
    """Shift the clock so that the first arrival (or first event) is 0."""
    arrivals = [event.t_s for event in events if event.kind == "arrived"]
    zero_s = min(arrivals or [event.t_s for event in events], default=0.0)
    shifted: list[Event] = []
    for event in events:
        data = event.data
        if "start_s" in data:
            data = data | {"start_s": number(event, "start_s") - zero_s}
        shifted.append(replace(event, t_s=event.t_s - zero_s, data=data))
    return shifted


def _inside(start_s: float, end_s: float, view: View) -> bool:
    return end_s > view.start_s and start_s < view.end_s


def _roles(events: list[Event]) -> dict[str, str]:
    """The last role of each worker within the run."""
    roles = Roles()
    for event in events:
        roles.feed(event)
    return {event.worker: roles.get(event.worker) for event in events if event.worker}


def _workers(events: list[Event], roles: dict[str, str]) -> list[str]:
    """Workers that ran a step: prefill pool first, so that hand-offs point downwards."""
    names = {event.worker for event in events if event.kind == "step"}
    rank = {"prefill": 0, "both": 1, "decode": 2}
    return sorted(names, key=lambda name: (rank.get(roles.get(name, ""), 1), name))


def _tokens(events: list[Event]) -> dict[str, list[float]]:
    token_s: dict[str, list[float]] = {}
    for event in events:
        if event.kind == "token":
            token_s.setdefault(event.request_id, []).append(event.t_s)
    return token_s


def _frozen_most(gaps: list[Gap], sequences: int) -> list[str]:
    longest: dict[str, float] = {}
    for gap in gaps:
        longest[gap.request_id] = max(longest.get(gap.request_id, 0.0), gap.length_s)
    return sorted(longest, key=lambda name: -longest[name])[:sequences]


def _blocks(events: list[Event], worker: str, view: View) -> list[Block]:
    """Steps of one worker; decode steps that follow each other closely are one block."""
    blocks: list[Block] = []
    join_s = max(JOIN_S, (view.end_s - view.start_s) / 1000)
    for event in events:
        if event.kind != "step" or event.worker != worker:
            continue
        block = _block(event)
        if not _inside(block.start_s, block.end_s, view):
            continue
        last = blocks[-1] if blocks else None
        joins = last and last.kind == block.kind != "prefill"
        if last and joins and block.start_s - last.end_s < join_s:
            last.end_s, last.tokens = block.end_s, last.tokens + block.tokens
            last.steps += 1
        else:
            blocks.append(block)
    return blocks


def _block(event: Event) -> Block:
    prefill_tokens, decode_seqs = count(event, "prefill_tokens"), count(event, "decode_seqs")
    kind: BlockKind = "decode"
    if prefill_tokens:
        kind = "mixed" if decode_seqs else "prefill"
    start_s = number(event, "start_s", event.t_s)
    return Block(kind, start_s, event.t_s, prefill_tokens + decode_seqs)


def _handoffs(events: list[Event], workers: dict[str, list[Block]]) -> list[Handoff]:
    """From a request's `handoff_started` to its `committed`, between workers that are drawn."""
    open_starts: dict[str, Event] = {}
    found: list[Handoff] = []
    for event in events:
        if event.kind == "handoff_started":
            open_starts[event.request_id] = event
        elif event.kind == "committed" and event.request_id in open_starts:
            start = open_starts.pop(event.request_id)
            if start.worker in workers and event.worker in workers:
                pair = (start.worker, event.worker)
                found.append(Handoff(event.request_id, *pair, start.t_s, event.t_s))
    return found
