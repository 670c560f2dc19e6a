"""What lesson 05 measures: who fits into a memory, a run with little of it, a shared beginning."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Any

from minipd import LLM, SamplingParams
from minipd.cache.allocator import BlockAllocator
from minipd.lab.show import show
from minipd.measure.same_tokens import Comparison, compare, logits_of
from minipd.measure.workloads import generate
from minipd.model.load import LoadedModel
from minipd.request import Request, Sequence
from minipd.timeline import Event

WORDS = {
    "equal": "token for token the same",
    "near_tie": "the same up to a near-tie, where two tokens scored almost equally",
    "different": "DIFFERENT",
}


def chat_lengths(count: int, most: int, seed: int = 5) -> list[tuple[int, int]]:
    """Prompt and answer lengths in tokens of `count` chat requests, of at most `most` together.

    Their shape is that of a published trace: see `minipd.measure.workloads`.
    """
    rows = generate("chat", 2 * count, 1.0, seed)
    pairs = [(row.prompt_tokens, row.output_tokens) for row in rows]
    return [pair for pair in pairs if sum(pair) <= most][:count]


def how_many_fit(places: Iterable[int], memory: int) -> int:
    """How many of the first users fit side by side; `places` and `memory` in tokens."""
    count = used = 0
    for needed in places:
        used += needed
        if used > memory:
            break
        count += 1
    return count


def how_many_fit_in_blocks(lengths: Iterable[int], memory: int, block_size: int) -> int:
    """The same with the engine's own allocator: admit users of these lengths until it refuses."""
    allocator = BlockAllocator(memory // block_size, block_size, prefix_reuse=False)
    count = 0
    for length in lengths:
        sequence = Sequence(Request(str(count), (0,) * length))
        if not allocator.can_admit(sequence):
            break
        allocator.admit(sequence)
        count += 1
    return count


def empty_share(lengths: Items[int], block_size: int) -> float:
    """Share of the places in these users' blocks that hold no token."""
    places = sum(-(-length // block_size) * block_size for length in lengths)
    return 1 - sum(lengths) / places


def show_fit(counts: Mapping[str, int]) -> None:
    """Bars: how many users each way of giving out memory lets in."""
    plt: Any = importlib.import_module("matplotlib.pyplot")
    fig, ax = plt.subplots(figsize=(7, 0.5 * len(counts) + 0.8))
    bars = ax.barh(list(counts), list(counts.values()), color="0.75", edgecolor="black")
    ax.bar_label(bars, padding=3)
    ax.invert_yaxis()
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set(xlabel="users at once in the same memory", xlim=(0, 1.15 * max(counts.values())))
    words = "; ".join(f"{name}: {count}" for name, count in counts.items())
    table = {"given out": list(counts), "users at once": list(counts.values())}
    show(fig, alt=f"Bars: users at once in the same memory. {words}.", table=table)


@dataclass(frozen=True, slots=True)
class Served:
    """One run of some requests: what came out, how long it took, and what memory did to it.

    `peak` is the most answers written in one step, `preempted` how often one lost its blocks,
    `read_again` the tokens that were computed a second time because of it.
    """

    answers: list[list[int]]
    seconds: float
    peak: int
    preempted: int
    read_again: int

    @property
    def tokens_per_s(self) -> float:
        return sum(map(len, self.answers)) / self.seconds


def serve(llm: LLM, prompts: Items[list[int]], max_tokens: int) -> Served:
    """Answer all prompts together, greedily, `max_tokens` tokens each."""
    llm.timeline.clear()
    start = time.perf_counter()
    made = llm.generate(prompts, SamplingParams(max_tokens, ignore_eos=True))
    seconds = time.perf_counter() - start
    events = list(llm.timeline)
    again = [e for e in _kind(events, "prefill_started") if e.data["reason"] == "preempted"]
    return Served(
        [completion.token_ids for completion in made],
        seconds,
        max((_number(e, "decode_seqs") for e in _kind(events, "step")), default=0),
        len(_kind(events, "preempted")),
        sum(_number(e, "tokens") for e in again),
    )


def faster_of_two(llm: LLM, prompts: Items[list[int]], max_tokens: int) -> Served:
    """The faster of two equal runs: an interruption can only make one slower."""
    runs = [serve(llm, prompts, max_tokens) for _ in range(2)]
    return min(runs, key=lambda run: run.seconds)


def _kind(events: Items[Event], kind: str) -> list[Event]:
    return [event for event in events if event.kind == kind]


def _number(event: Event, name: str) -> int:
    value = event.data[name]
    assert isinstance(value, int), f"{name} of a {event.kind} event is a whole number"
    return value


def first_token_s(llm: LLM, prompt: list[int]) -> float:
    """Seconds from asking to the first token of the answer."""
    start = time.perf_counter()
    for _ in llm.stream(prompt, SamplingParams(max_tokens=1)):
        return time.perf_counter() - start
    raise AssertionError("every answer has a first token")


def judged(
    model: LoadedModel, prompt: list[int], reference: list[int], ours: list[int]
) -> Comparison:
    """Whether two greedy answers are the same, by the course's rule for near-ties."""
    logits = logits_of(model.decoder)
    return compare(prompt, reference, ours, logits, logits)


def verdict(model: LoadedModel, prompt: list[int], reference: list[int], ours: list[int]) -> str:
    """`judged`, in words."""
    return WORDS[judged(model, prompt, reference, ours).kind]
