"""Requests, and what must hold after every run whatever happened in it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable

from minipd.llm import LLM
from minipd.measure.invariants import check_timeline
from minipd.measure.same_tokens import Comparison, compare, logits_of
from minipd.pools.cluster import Cluster, Run
from minipd.request import Request, SamplingParams
from minipd.timeline import TERMINAL_KINDS, Event

VOCAB = 512


def prompt(seed: int, length: int) -> tuple[int, ...]:
    return tuple(random.Random(seed).choices(range(8, VOCAB), k=length))


def ask(name: str, length: int, max_tokens: int = 8, at_s: float = 0.0, **more: object) -> Request:
    """A request whose prompt depends on its name alone."""
    params = SamplingParams(max_tokens, ignore_eos=True)
    ids = prompt(sum(map(ord, name)) + length, length)
    return Request(name, ids, params, at_s, **more)  # type: ignore[arg-type]


def mixed(count: int = 10, gap_s: float = 0.01) -> list[Request]:
    """Prompts of 1 to 200 tokens, among them multiples of the block size; answers of 1 to 12."""
    lengths = [1, 16, 33, 64, 128, 5, 200, 31, 17, 90]
    return [
        ask(f"m{n}", lengths[n % len(lengths)], 1 + 5 * n % 12, n * gap_s) for n in range(count)
    ]


def answers(llm: LLM, requests: Iterable[Request]) -> dict[str, list[int]]:
    """The reference: each request alone, one after another, on one worker."""
    return {r.id: llm.generate([list(r.prompt_ids)], r.sampling)[0].token_ids for r in requests}


def check_sound(run: Run, requests: Iterable[Request]) -> None:
    """No leak, no broken rule, exactly one terminal event for each request."""
    assert set(run.leaked_blocks.values()) <= {0}, run.leaked_blocks
    assert check_timeline(run.timeline) == []
    ends = Counter(e.request_id for e in run.timeline if e.kind in TERMINAL_KINDS)
    assert ends == Counter({r.id: 1 for r in requests})


def check_same(
    llm: LLM, requests: Iterable[Request], expected: dict[str, list[int]], run: Run
) -> list[Comparison]:
    """The rule for greedy tokens; with `tiny` a near-tie is possible and must be one."""
    logits = logits_of(llm.model.decoder)
    found = [
        compare(r.prompt_ids, expected[r.id], run.outputs.get(r.id, []), logits, logits)
        for r in requests
    ]
    assert not [c for c in found if c.kind == "different"]
    return found


def events(run: Run, kind: str, request_id: str | None = None) -> list[Event]:
    return [e for e in run.timeline if e.kind == kind and request_id in (None, e.request_id)]


def ending(run: Run, request_id: str) -> tuple[str, str]:
    """Kind and reason of the terminal event."""
    (event,) = [e for e in run.timeline if e.kind in TERMINAL_KINDS and e.request_id == request_id]
    return event.kind, str(event.data["reason"])


def when(cluster: Cluster, condition: Callable[[Event], bool], act: Callable[[], None]) -> None:
    """Do `act` once, as soon as an event of the next run meets the condition."""
    done: list[bool] = []

    def watch(event: Event) -> None:
        if not done and condition(event):
            done.append(True)
            act()

    cluster.on_event = watch
