"""What every batch scheduler shares: queues, admission, growth, preemption and the books.

A scheduler decides which chunks run next and on which blocks. It is plain Python: it reads no
clock and touches no tensor. Time and the executor's tokens come in as arguments, and everything
that happens goes out as timeline events; so the real engine and the simulator run the same object.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from minipd.cache.allocator import BlockAllocator
from minipd.engine.batch import Batch, chunk_of
from minipd.request import FinishReason, PrefillReason, Request, Sequence
from minipd.sched.deadlines import Deadlines
from minipd.sched.limits import Limits
from minipd.timeline import Event, EventKind, Value

ADMISSIONS = ("prefill_started", "reserved")
FinishCheck = Callable[[Sequence], FinishReason | None]


class Scheduler:
    """Base of all policies; a policy only says, in `pick`, which sequences run how many tokens.

    `finish_check` may end a sequence for a reason the scheduler cannot see (stop strings).
    Invariant: `waiting` sequences own no blocks, `running` ones do.
    """

    def __init__(
        self,
        worker: str,
        allocator: BlockAllocator,
        limits: Limits = Limits(),
        eos_ids: frozenset[int] = frozenset(),
        finish_check: FinishCheck | None = None,
    ) -> None:
        self.worker = worker
        self.allocator = allocator
        self.limits = limits
        self.eos_ids = eos_ids
        self.finish_check = finish_check
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.sequences: dict[str, Sequence] = {}
        self._events: list[Event] = []
        self._deadlines = Deadlines(self.sequences)

    # -- what a worker calls ------------------------------------------------------------------

    def add(
        self,
        request: Request,
        now: float,
        *,
        output_ids: tuple[int, ...] = (),
        reason: PrefillReason = "prompt",
    ) -> Sequence:
        """Queue a validated request; one that was begun elsewhere brings its `output_ids`."""
        assert request.id not in self.sequences, f"request {request.id!r} is already here"
        sequence = Sequence(request, list(output_ids), prefill_reason=reason)
        self.sequences[request.id] = sequence
        self.watch_deadline(request)
        self.waiting.append(sequence)
        return sequence

    def schedule(self, now: float) -> Batch | None:
        """The next step's batch, or None when nothing can run."""
        for request_id in self._deadlines.due(now):
            self.cancel(request_id, now, "deadline")
        picks = self.pick(now)
        if not picks:
            return None
        batch = Batch([chunk_of(sequence, count) for sequence, count in picks], now)
        for sequence, count in picks:
            if sequence.is_decoding:
                batch.num_decode_seqs += 1
            else:
                batch.num_prefill_tokens += count
        return batch

    def complete(self, batch: Batch, token_ids: list[int], now: float) -> None:
        """Book a step that ran: `token_ids` has one entry per chunk that wanted a token."""
        self._emit_step(batch, now)
        answers = iter(token_ids)
        for chunk in batch.chunks:
            sequence = self.sequences[chunk.request_id]
            filled = sequence.num_cached_tokens // self.allocator.block_size
            sequence.num_cached_tokens = chunk.stop
            if chunk.stop // self.allocator.block_size > filled:
                self.allocator.publish(sequence)
            if chunk.sampling is not None:
                self._append(sequence, next(answers), now)

    def cancel(self, request_id: str, now: float, reason: FinishReason = "cancelled") -> bool:
        """End a request early, wherever it stands; False when it is not here (any more)."""
        sequence = self.sequences.get(request_id)
        if sequence is not None:
            self.finish(sequence, reason, now)
        return sequence is not None

    def take_back(self, unfilled: dict[int, bytes], batch: Batch | None) -> Batch | None:
        """KV of these blocks did not come: who was to build on it is let in again, and not told."""
        bad = self.allocator.unfill(unfilled)
        for sequence in reversed(self.holders()):
            blocks = sequence.block_ids[: sequence.num_cached_tokens // self.allocator.block_size]
            if not bad.isdisjoint(blocks):
                self.wait_again(sequence)
                told = [e for e in self._events if e.kind in ADMISSIONS]
                self._events.remove(next(e for e in told if e.request_id == sequence.id))
        if batch is None:
            return None
        for chunk in list(batch.chunks):
            if not self.sequences[chunk.request_id].block_ids:
                batch.chunks.remove(chunk)
                batch.num_prefill_tokens -= len(chunk.token_ids)
        return batch if batch.chunks else None

    def holders(self) -> list[Sequence]:
        """Sequences that own blocks, the oldest first."""
        return self.running

    def wait_again(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.allocator.release(sequence)
        self.waiting.appendleft(sequence)

    def drain_events(self) -> list[Event]:
        """Hand over the events since the last call."""
        events, self._events = self._events, []
        return events

    @property
    def has_work(self) -> bool:
        return bool(self.sequences)

    # -- what a policy says and uses ------------------------------------------------------------

    def pick(self, now: float) -> list[tuple[Sequence, int]]:
        """Sequences of the next step and how many tokens each runs; blocks are already theirs."""
        raise NotImplementedError

    def can_admit(self, sequence: Sequence) -> bool:
        """A free slot, and blocks for the prompt beside one block of growth per running one."""
        if len(self.running) >= self.limits.max_running:
            return False
        spare = len(self.running) * self.allocator.block_size
        return self.allocator.can_admit(sequence, sequence.num_tokens + spare)

    def admit(self, now: float) -> Sequence:
        """Move the first waiting sequence to running, with its blocks."""
        sequence = self.waiting.popleft()
        self.allocator.admit(sequence)
        self.running.append(sequence)
        tokens, cached = sequence.num_uncached_tokens, sequence.num_cached_tokens
        told = {"tokens": tokens, "cached_tokens": cached, "reason": sequence.prefill_reason}
        self.emit(now, "prefill_started", sequence, **told)
        return sequence

    def admit_prompts(self, now: float, budget: int) -> list[tuple[Sequence, int]]:
        """Whole prompts, first come first served, up to `budget` tokens (the first one always)."""
        # Admitted earlier and still unread: the step that should have read them was interrupted.
        picks = [(s, s.num_uncached_tokens) for s in self.running if s.is_prefilling]
        budget -= sum(count for _, count in picks)
        while self.waiting and self.can_admit(self.waiting[0]):
            if picks and self.waiting[0].num_tokens > budget:
                break
            sequence = self.admit(now)
            picks.append((sequence, sequence.num_uncached_tokens))
            budget -= sequence.num_uncached_tokens
        return picks

    def pick_decodes(self, now: float) -> list[tuple[Sequence, int]]:
        """One token for every decoding sequence; the youngest give way when blocks run out."""
        picks: list[tuple[Sequence, int]] = []
        for sequence in list(self.running):
            if not sequence.is_decoding:  # reading its prompt, or just preempted
                continue
            while not self.allocator.can_grow(sequence, sequence.num_tokens):
                victim = self.running[-1]
                self.preempt(victim, now)
                if victim is sequence:
                    break
            if sequence.block_ids:
                self.allocator.grow(sequence, sequence.num_tokens)
                picks.append((sequence, 1))
        return picks

    def preempt(self, sequence: Sequence, now: float) -> None:
        """Give up a running sequence's KV; it will be computed again from its tokens."""
        self.emit(now, "preempted", sequence, cached_tokens=sequence.num_cached_tokens)
        self.running.remove(sequence)
        self.allocator.release(sequence)
        sequence.is_prefilling, sequence.prefill_reason = True, "preempted"
        self.waiting.appendleft(sequence)

    def finish(self, sequence: Sequence, reason: FinishReason, now: float) -> None:
        """The one terminal event: leave every queue and give the blocks back."""
        sequence.finish_reason = reason
        del self.sequences[sequence.id]
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        self.allocator.release(sequence)
        kind: EventKind = "cancelled" if reason in ("cancelled", "deadline") else "finished"
        if reason == "failed":
            kind = "failed"
        self.emit(now, kind, sequence, reason=reason, output_tokens=len(sequence.output_ids))

    def watch_deadline(self, request: Request) -> None:
        self._deadlines.watch(request)

    def emit(self, now: float, kind: EventKind, sequence: Sequence, **data: Value) -> None:
        self._events.append(Event(now, kind, self.worker, sequence.id, data))

    # -- inside -------------------------------------------------------------------------------

    def _append(self, sequence: Sequence, token_id: int, now: float) -> None:
        ends_prefill, sequence.is_prefilling = sequence.is_prefilling, False
        if ends_prefill:
            tokens, reason = sequence.num_tokens, sequence.prefill_reason
            self.emit(now, "prefill_finished", sequence, tokens=tokens, reason=reason)
        index = len(sequence.output_ids)
        sequence.output_ids.append(token_id)
        self.emit(now, "token", sequence, index=index, token_id=token_id)
        reason = self._finish_reason(sequence)
        if reason is not None:
            self.finish(sequence, reason, now)
        elif ends_prefill:
            self.prefill_done(sequence, now)

    def prefill_done(self, sequence: Sequence, now: float) -> None:
        """Called when a sequence has its first token and goes on; a split policy hands it off."""

    def _finish_reason(self, sequence: Sequence) -> FinishReason | None:
        sampling = sequence.request.sampling
        if sequence.output_ids[-1] in self.eos_ids and not sampling.ignore_eos:
            return "eos"
        reason = self.finish_check(sequence) if self.finish_check else None
        if reason is None and len(sequence.output_ids) >= sampling.max_tokens:
            return "length"
        return reason

    def _emit_step(self, batch: Batch, now: float) -> None:
        tokens, seqs = batch.num_prefill_tokens, batch.num_decode_seqs
        data: dict[str, Value] = {"start_s": batch.start_s, "prefill_tokens": tokens}
        data |= {"decode_seqs": seqs, "requests": [chunk.request_id for chunk in batch.chunks]}
        self._events.append(Event(now, "step", self.worker, "", data))
