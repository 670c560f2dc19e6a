"""The two halves of a pair, with a scripted executor that notices wrong KV."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minipd.cache.allocator import BlockAllocator
from minipd.engine.batch import Chunk
from minipd.request import Request, SamplingParams
from minipd.sched.limits import Limits
from minipd.sched.split import DecodeOnly, PrefillOnly
from minipd.timeline import TERMINAL_KINDS, Event

BLOCK = 4


def next_token(text: list[int]) -> int:
    return (31 * sum(text) + 7 * len(text)) % 89 + 1


def answer(request: Request) -> list[int]:
    output: list[int] = []
    while len(output) < request.sampling.max_tokens:
        output.append(next_token([*request.prompt_ids, *output]))
    return output


class Executor:
    """Its KV is a copy of the text before each position; reading anything else is an error."""

    def __init__(self) -> None:
        self.slots: dict[tuple[int, int], list[int]] = {}

    def run(self, chunks: list[Chunk]) -> list[int]:
        texts = [self._run(chunk) for chunk in chunks]
        return [next_token(t) for t, c in zip(texts, chunks) if c.sampling is not None]

    def _run(self, chunk: Chunk) -> list[int]:
        where = [(chunk.block_ids[p // BLOCK], p % BLOCK) for p in range(chunk.stop)]
        text = self.slots[where[chunk.start - 1]] if chunk.start else []
        for position in range(chunk.start):
            assert self.slots[where[position]] == text[: position + 1]
        for offset, token in enumerate(chunk.token_ids):
            text = [*text, token]
            self.slots[where[chunk.start + offset]] = text
        return text


class Pair:
    """One prefill and one decode half, joined as the pools join them; `lag` steps per transfer."""

    def __init__(self, num_blocks: int, limits: Limits = Limits(), lag: int = 0) -> None:
        self.events: list[Event] = []
        self.prefill = PrefillOnly("p", BlockAllocator(num_blocks, BLOCK), limits)
        self.decode = DecodeOnly("d", BlockAllocator(num_blocks, BLOCK), limits)
        self.reader, self.writer = Executor(), Executor()
        self.lag = lag
        self.now = 0.0
        self.on_the_wire: dict[str, int] = {}
        self.block_ids: dict[str, list[int]] = {}
        self.cached: dict[str, int] = {}

    def submit(self, request: Request) -> None:
        self.decode.request_reservation(request)

    def turn(self) -> None:
        self.now += 1.0
        for sequence in self.decode.reserve_pending(self.now):
            self.block_ids[sequence.id] = list(sequence.block_ids)
            self.cached[sequence.id] = sequence.num_cached_tokens
            self.prefill.add(sequence.request, self.now)
        for half, executor in ((self.prefill, self.reader), (self.decode, self.writer)):
            batch = half.schedule(self.now)
            if batch is not None:
                half.complete(batch, executor.run(batch.chunks), self.now)
        self._transfer()
        for half in (self.prefill, self.decode):
            self.events += half.drain_events()
        for request_id in list(self.decode.reserved):  # it ended at the prefill half
            if request_id not in self.prefill.sequences:
                self.decode.drop(request_id)

    def _transfer(self) -> None:
        for request_id, sequence in list(self.prefill.handing_off.items()):
            left = self.on_the_wire.setdefault(request_id, self.lag)
            self.on_the_wire[request_id] = left - 1
            if left > 0:
                continue
            for p in range(self.cached[request_id], len(sequence.request.prompt_ids)):
                source = (sequence.block_ids[p // BLOCK], p % BLOCK)
                target = (self.block_ids[request_id][p // BLOCK], p % BLOCK)
                self.writer.slots[target] = self.reader.slots[source]
            self.decode.commit(request_id, sequence.output_ids[-1])
            self.prefill.handed_off(request_id)
            del self.on_the_wire[request_id]

    def drain(self) -> dict[str, list[int]]:
        while self.prefill.has_work or self.decode.has_work:
            self.turn()
            assert self.now < 3000, "this does not come to an end"
        for half in (self.prefill, self.decode):
            assert half.allocator.num_used_blocks == 0
        outputs: dict[str, list[int]] = {}
        for event in self.events:
            if event.kind == "token":
                outputs.setdefault(event.request_id, []).append(int(str(event.data["token_id"])))
        return outputs


def request(name: str, prompt: list[int], max_tokens: int = 4, **more: float) -> Request:
    return Request(name, tuple(prompt), SamplingParams(max_tokens), **more)  # type: ignore[arg-type]


prompts = st.lists(
    st.tuples(st.lists(st.integers(1, 3), min_size=1, max_size=13), st.integers(1, 9)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(prompts, st.integers(6, 20), st.integers(1, 4), st.integers(0, 3), st.integers(3, 20))
def test_any_load_is_answered_rightly(
    asked: list[tuple[list[int], int]], num_blocks: int, running: int, lag: int, budget: int
) -> None:
    """Prompts of few different tokens share prefixes; few blocks bring back-pressure."""
    requests = [request(f"r{n}", prompt, tokens) for n, (prompt, tokens) in enumerate(asked)]
    pair = Pair(num_blocks, Limits(running, budget), lag)
    for each in requests:
        pair.submit(each)
    assert pair.drain() == {r.id: answer(r) for r in requests}
    ends = [e.request_id for e in pair.events if e.kind in TERMINAL_KINDS]
    assert sorted(ends) == sorted(r.id for r in requests)
    reasons = {(e.worker, e.data["reason"]) for e in pair.events if e.kind == "prefill_started"}
    assert reasons <= {("p", "prompt"), ("d", "preempted")}


def test_reservations_are_made_in_order_and_only_where_there_is_room() -> None:
    half = DecodeOnly("d", BlockAllocator(8, BLOCK), Limits(max_running=9))
    for name, size in (("a", 12), ("b", 12), ("c", 1)):
        half.request_reservation(request(name, [ord(name)] * size))
    assert [s.id for s in half.reserve_pending(0.0)] == ["a", "b"]
    assert [s.id for s in half.reserve_pending(0.0)] == []  # "c" needs a block, and growth for two
    half.drop("a")
    assert [s.id for s in half.reserve_pending(0.0)] == ["c"]
    assert half.allocator.num_used_blocks == 4


def test_a_reservation_holds_a_slot() -> None:
    half = DecodeOnly("d", BlockAllocator(64, BLOCK), Limits(max_running=2))
    for n in range(3):
        half.request_reservation(request(f"r{n}", [n + 1]))
    assert len(half.reserve_pending(0.0)) == 2


def test_what_gave_way_goes_before_new_reservations() -> None:
    half = DecodeOnly("d", BlockAllocator(64, BLOCK))
    half.add(request("old", [1] * 5), 0.0, reason="preempted")
    half.request_reservation(request("new", [2]))
    assert half.reserve_pending(0.0) == []
    half.schedule(0.0)
    assert [s.id for s in half.reserve_pending(0.0)] == ["new"]


@pytest.mark.parametrize("act", ["cancel", "expire"])
def test_nothing_ends_while_others_write_its_blocks(act: str) -> None:
    half = DecodeOnly("d", BlockAllocator(8, BLOCK))
    half.request_reservation(request("r", [1] * 5, deadline_s=1.0))
    half.reserve_pending(0.0)
    if act == "cancel":
        assert not half.cancel("r", 0.5)
    else:
        half.schedule(2.0)
    assert "r" in half.reserved and half.allocator.num_used_blocks == 2
    half.commit("r", 7)
    half.schedule(2.0)
    (end,) = [e for e in half.drain_events() if e.kind in TERMINAL_KINDS]
    assert (end.kind, end.data["reason"], end.data["output_tokens"]) == ("cancelled", "deadline", 1)
    assert half.allocator.num_used_blocks == 0 and not half.has_work


def test_a_pending_request_can_end_at_once() -> None:
    half = DecodeOnly("d", BlockAllocator(2, BLOCK))
    half.request_reservation(request("r", [1] * 5, deadline_s=1.0))
    half.request_reservation(request("s", [1] * 5))
    assert half.cancel("s", 0.0) and not half.cancel("s", 0.0)
    half.schedule(1.0)
    ends = [(e.request_id, e.data["reason"]) for e in half.drain_events()]
    assert ends == [("s", "cancelled"), ("r", "deadline")]
    assert not half.pending and not half.has_work


@pytest.mark.parametrize("token_id", [None, 7])
def test_a_recovered_request_is_read_here_and_says_so(token_id: int | None) -> None:
    half = DecodeOnly("d", BlockAllocator(8, BLOCK))
    half.request_reservation(request("r", [1] * 5, 3))
    half.reserve_pending(0.0)
    half.recover("r", token_id)
    batch = half.schedule(0.0)
    assert batch is not None and batch.num_prefill_tokens == (5 if token_id is None else 6)
    assert batch.chunks[0].token_ids == [1] * 5 + ([] if token_id is None else [7])
    (started,) = [e for e in half.drain_events() if e.kind == "prefill_started"]
    assert started.data["reason"] == "recovered"


def test_a_prefill_half_keeps_its_blocks_until_they_are_sent() -> None:
    half, executor = PrefillOnly("p", BlockAllocator(8, BLOCK)), Executor()
    half.add(request("r", [1] * 5, deadline_s=3.0), 0.0)
    batch = half.schedule(0.0)
    assert batch is not None
    half.complete(batch, executor.run(batch.chunks), 1.0)
    assert not half.running and not half.cancel("r", 1.0)
    assert half.schedule(4.0) is None and half.allocator.num_used_blocks == 2
    half.handed_off("r")
    assert half.allocator.num_used_blocks == 0 and not half.has_work


def drive(pair: Pair, until: Callable[[Pair], bool]) -> None:
    while not until(pair):
        pair.turn()


def test_a_prefix_that_the_decode_half_holds_needs_no_transfer() -> None:
    pair = Pair(16)
    pair.submit(request("a", [1] * 11))
    pair.drain()
    pair.submit(request("b", [1] * 11))
    drive(pair, lambda p: "b" in p.cached)
    assert pair.cached["b"] == 8
    assert pair.drain()["b"] == answer(request("b", [1] * 11))
