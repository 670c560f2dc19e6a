"""Schedulers run by a scripted executor that knows the one right answer to everything.

Its "model" is a function of the whole text so far, its "KV" a copy of that text: it notices a block
that is overwritten, shared wrongly or read before it is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minipd.cache.allocator import BlockAllocator
from minipd.engine.batch import Chunk
from minipd.request import Request, SamplingParams, Sequence
from minipd.sched.base import Scheduler
from minipd.sched.colocated import Chunked, DecodeFirst, PrefillFirst
from minipd.sched.limits import Limits
from minipd.timeline import TERMINAL_KINDS, Event

EOS = 0
POLICIES: list[type[Scheduler]] = [PrefillFirst, DecodeFirst, Chunked]
all_policies = pytest.mark.parametrize("policy", POLICIES)


def next_token(text: list[int]) -> int:
    return Random(str(text)).randrange(12)  # 0 ends the answer


def slow_answer(request: Request) -> list[int]:
    """The answer by definition: one token after another, nothing shared, nothing cached."""
    output: list[int] = []
    while len(output) < request.sampling.max_tokens:
        output.append(next_token([*request.prompt_ids, *output]))
        if output[-1] == EOS and not request.sampling.ignore_eos:
            break
    return output


class ScriptedExecutor:
    """Runs chunks on a dictionary of slots and refuses to attend to anything but the right past."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.slots: dict[tuple[int, int], list[int]] = {}

    def run(self, chunks: list[Chunk]) -> list[int]:
        assert chunks, "an empty batch"
        assert len({c.request_id for c in chunks}) == len(chunks), "one chunk per sequence"
        texts = [self._read_and_write(chunk) for chunk in chunks]
        return [next_token(t) for t, c in zip(texts, chunks) if c.sampling is not None]

    def _read_and_write(self, chunk: Chunk) -> list[int]:
        assert chunk.token_ids, "an empty chunk"
        text = self.slots[self._slot(chunk, chunk.start - 1)] if chunk.start else []
        for position in range(chunk.start):
            assert self.slots[self._slot(chunk, position)] == text[: position + 1]
        for offset, token in enumerate(chunk.token_ids):
            text = [*text, token]
            self.slots[self._slot(chunk, chunk.start + offset)] = text
        return text

    def _slot(self, chunk: Chunk, position: int) -> tuple[int, int]:
        return chunk.block_ids[position // self.block_size], position % self.block_size


def check_invariants(scheduler: Scheduler) -> None:
    allocator = scheduler.allocator
    assert len(scheduler.running) <= scheduler.limits.max_running
    assert not any(s.block_ids or s.num_cached_tokens for s in scheduler.waiting)
    assert all(s.block_ids for s in scheduler.running)
    everyone = [*scheduler.waiting, *scheduler.running]
    assert {s.id for s in everyone} == set(scheduler.sequences) and len(set(everyone)) == len(
        everyone
    )
    for s in scheduler.running:
        assert s.num_cached_tokens < s.num_tokens <= len(s.block_ids) * allocator.block_size + 1
        if s.is_decoding:
            assert s.num_uncached_tokens == 1
    owned = [b for s in scheduler.running for b in s.block_ids]
    assert sum(allocator.references(b) for b in range(allocator.num_blocks)) == len(owned)
    assert allocator.num_used_blocks == len(set(owned))


def turn(scheduler: Scheduler, executor: ScriptedExecutor, now: float) -> list[Event]:
    """One step, as `Worker.step` takes it, with the books checked at each point."""
    batch = scheduler.schedule(now)
    check_invariants(scheduler)
    if batch is not None:
        rows = sum(len(c.token_ids) for c in batch.chunks)
        assert rows == batch.num_prefill_tokens + batch.num_decode_seqs
        if isinstance(scheduler, Chunked):
            budget = max(scheduler.limits.max_batch_tokens, batch.num_decode_seqs + 1)
            assert rows <= budget
        scheduler.complete(batch, executor.run(batch.chunks), now + 0.5)
    check_invariants(scheduler)
    return scheduler.drain_events()


def drain(scheduler: Scheduler, executor: ScriptedExecutor, start: float = 0.0) -> list[Event]:
    events: list[Event] = []
    now = start
    while scheduler.has_work:
        events += turn(scheduler, executor, now)
        now += 1.0
        assert now - start < 3000, "the scheduler makes no progress"
    return events


def build(
    policy: type[Scheduler], num_blocks: int = 20, size: int = 4, reuse: bool = True, **limits: int
) -> tuple[Scheduler, ScriptedExecutor]:
    allocator = BlockAllocator(num_blocks, size, prefix_reuse=reuse)
    eos = frozenset({EOS})
    return policy("w", allocator, Limits(**limits), eos), ScriptedExecutor(size)


def request(
    name: str, prompt: list[int], max_tokens: int = 6, deadline_s: float | None = None, **more: bool
) -> Request:
    sampling = SamplingParams(max_tokens, **more)  # type: ignore[arg-type]
    return Request(name, tuple(prompt), sampling, deadline_s=deadline_s)


@settings(max_examples=100, deadline=None)
@given(
    policy=st.sampled_from(POLICIES),
    size=st.integers(1, 5),
    num_blocks=st.integers(6, 14),
    reuse=st.booleans(),
    max_running=st.integers(1, 6),
    budget=st.integers(1, 20),
    seed=st.integers(0, 10**6),
)
@example(PrefillFirst, 1, 6, True, 6, 20, 3)
def test_random_runs(
    policy: type[Scheduler],
    size: int,
    num_blocks: int,
    reuse: bool,
    max_running: int,
    budget: int,
    seed: int,
) -> None:
    """Random arrivals, cancels and deadlines: right answers, one end each, nothing left behind."""
    random = Random(seed)
    scheduler, executor = build(
        policy, num_blocks, size, reuse, max_running=max_running, max_batch_tokens=budget
    )
    sequences: dict[str, Sequence] = {}
    events: list[Event] = []
    now = 0.0
    while len(sequences) < 12 or scheduler.has_work:
        if len(sequences) < 12 and random.random() < 0.6:
            length = random.randint(1, num_blocks * size - 1)
            prompt = ([1] * 6 + [2, random.randint(1, 2)] * length)[:length]
            room = num_blocks * size + 1 - length
            deadline_s = now + 5 if random.random() < 0.1 else None
            name, max_tokens = f"r{len(sequences)}", random.randint(1, min(9, room))
            asked = request(name, prompt, max_tokens, deadline_s)
            sequences[asked.id] = scheduler.add(asked, now)
        if sequences and random.random() < 0.05:
            scheduler.cancel(random.choice(list(sequences)), now)
        events += turn(scheduler, executor, now)
        now += 1.0
        assert now < 3000, "the scheduler makes no progress"
    assert scheduler.allocator.num_used_blocks == 0
    for name, sequence in sequences.items():
        right = slow_answer(sequence.request)
        early = sequence.finish_reason in ("cancelled", "deadline")
        assert sequence.output_ids == (right[: len(sequence.output_ids)] if early else right)
        kinds = [e.kind for e in events if e.request_id == name]
        assert sum(kind in TERMINAL_KINDS for kind in kinds) == 1
        assert kinds[-1] in TERMINAL_KINDS, "nothing happens after the end"
        told = [e.data for e in events if e.request_id == name and e.kind == "token"]
        assert [t["token_id"] for t in told] == sequence.output_ids
        assert [t["index"] for t in told] == list(range(len(told)))


@all_policies
@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 9])
def test_edges_of_a_block(policy: type[Scheduler], length: int) -> None:
    """Prompt of one block exactly, and one more or less; then the same again, cached."""
    scheduler, executor = build(policy, max_batch_tokens=4)
    answers = []
    for name in ("first", "again"):
        asked = request(name, [1] * length)
        answers.append(scheduler.add(asked, 0.0))
        drain(scheduler, executor)
    assert answers[0].output_ids == answers[1].output_ids == slow_answer(answers[0].request)


@all_policies
def test_nothing_to_do_is_no_batch(policy: type[Scheduler]) -> None:
    scheduler, executor = build(policy)
    assert scheduler.schedule(0.0) is None and not scheduler.has_work
    scheduler.add(request("late", [1] * 4, deadline_s=1.0), 0.0)
    assert scheduler.schedule(1.0) is None, "its deadline left nothing to run"
    assert [e.kind for e in scheduler.drain_events()] == ["cancelled"]
    assert not scheduler.has_work and not scheduler.cancel("late", 2.0)
    assert executor.slots == {}


@all_policies
def test_a_full_cache_preempts_and_reads_again(policy: type[Scheduler]) -> None:
    scheduler, executor = build(policy, num_blocks=6, size=2)
    asked = [request(f"r{i}", [i + 1, 9], 8, ignore_eos=True) for i in range(3)]
    sequences = [scheduler.add(r, 0.0) for r in asked]
    events = drain(scheduler, executor)
    assert [s.output_ids for s in sequences] == [slow_answer(r) for r in asked]
    assert any(e.kind == "preempted" for e in events)
    reasons = [e.data["reason"] for e in events if e.kind == "prefill_started"]
    assert reasons.count("preempted") == sum(e.kind == "preempted" for e in events)


@all_policies
def test_a_step_that_fails_can_be_taken_again(policy: type[Scheduler]) -> None:
    """Ctrl-C inside a step that admitted a prompt must not leave it waiting for ever."""
    scheduler, executor = build(policy, max_batch_tokens=4)
    sequence = scheduler.add(request("r", [1] * 7), 0.0)
    assert scheduler.schedule(0.0) is not None  # and then the executor raised
    drain(scheduler, executor)
    assert sequence.output_ids == slow_answer(sequence.request)


@all_policies
def test_first_come_first_served(policy: type[Scheduler]) -> None:
    scheduler, executor = build(policy, num_blocks=8, max_running=2)
    for i in range(6):
        scheduler.add(request(f"r{i}", [i + 1] * 5, 3), float(i))
    started = [e.request_id for e in drain(scheduler, executor) if e.kind == "prefill_started"]
    assert list(dict.fromkeys(started)) == [f"r{i}" for i in range(6)]


def test_the_policies_differ_as_they_say() -> None:
    def first_steps(policy: type[Scheduler]) -> list[tuple[int, int]]:
        scheduler, executor = build(policy, max_batch_tokens=4, reuse=False)
        scheduler.finish_check = lambda s: "stop" if len(s.output_ids) > 5 else None
        scheduler.eos_ids = frozenset()
        scheduler.add(request("old", [3] * 4, 9), 0.0)
        turn(scheduler, executor, 0.0)
        scheduler.add(request("new", [2] * 6, 9), 1.0)
        steps = [e for t in (1, 2, 3) for e in turn(scheduler, executor, t) if e.kind == "step"]
        return [(int(s.data["prefill_tokens"]), int(s.data["decode_seqs"])) for s in steps]  # type: ignore[arg-type]

    assert first_steps(PrefillFirst) == [(6, 0), (0, 2), (0, 2)]
    assert first_steps(DecodeFirst) == [(0, 1), (0, 1), (0, 1)]
    assert first_steps(Chunked) == [(3, 1), (3, 1), (0, 2)]


def test_two_identical_prompts_at_once_share_nothing_yet() -> None:
    scheduler, executor = build(PrefillFirst)
    twins = [scheduler.add(request(name, [1] * 9), 0.0) for name in ("a", "b")]
    batch = scheduler.schedule(0.0)
    assert batch is not None and batch.num_prefill_tokens == 18
    assert not set(twins[0].block_ids) & set(twins[1].block_ids)
    scheduler.complete(batch, executor.run(batch.chunks), 1.0)
    drain(scheduler, executor)
    assert twins[0].output_ids == twins[1].output_ids


@pytest.mark.parametrize("limits", [{"max_running": 0}, {"max_batch_tokens": 0}], ids=str)
def test_limits_that_run_nothing_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="never run anything"):
        Limits(**limits)


def stop_after(count: int) -> Callable[[Sequence], str | None]:
    return lambda sequence: "stop" if len(sequence.output_ids) == count else None


@all_policies
def test_why_an_answer_ends(policy: type[Scheduler]) -> None:
    prompts = [p for p in ([n] * 3 for n in range(1, 40)) if EOS in slow_answer(request("", p, 6))]
    to_eos = prompts[0]
    expected = slow_answer(request("", to_eos, 6))
    for params, check, reason in [
        (SamplingParams(6), None, "eos"),
        (SamplingParams(len(expected)), None, "eos"),
        (SamplingParams(6, ignore_eos=True), None, "length"),
        (SamplingParams(6, ignore_eos=True), stop_after(6), "stop"),
        (SamplingParams(1, ignore_eos=True), None, "length"),
    ]:
        scheduler, executor = build(policy)
        scheduler.finish_check = check  # type: ignore[assignment]
        sequence = scheduler.add(Request("r", tuple(to_eos), params), 0.0)
        drain(scheduler, executor)
        assert sequence.finish_reason == reason


def test_a_deadline_belongs_to_one_request_only() -> None:
    """A later request of the same id has its own deadline, or none; ended ones are forgotten."""
    scheduler = PrefillFirst("w", BlockAllocator(8, 4))
    for number in range(500):
        request = Request("same", (1, 2), SamplingParams(max_tokens=1), deadline_s=1000.0 + number)
        scheduler.add(request, 0.0)
        assert scheduler.cancel("same", 0.0)
    assert len(scheduler._deadlines) < 100
    scheduler.add(Request("same", (1, 2), SamplingParams(max_tokens=5)), 0.0)
    scheduler.schedule(1e9)
    assert "same" in scheduler.sequences
