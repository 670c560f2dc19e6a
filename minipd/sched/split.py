"""One phase per worker: the two halves of a disaggregated pair.

Between them a sequence changes hands: the decode half reserves blocks, the prefill half computes
and sends, the decode half commits. While blocks are being written from outside they are nobody
else's to free, so neither half lets a request end in that time; the coordinator ends it after.
`DecodeOnly` can still read a prompt itself, and then says why.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from minipd.request import FinishReason, Request, Sequence
from minipd.sched.base import Scheduler
from minipd.sched.colocated import Chunked


class PrefillOnly(Scheduler):
    """Reads prompts, first come first served, and keeps each one's KV until it has been sent."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.handing_off: dict[str, Sequence] = {}

    def add(self, request: Request, now: float, **begun: Any) -> Sequence:
        """One that came earlier, and was placed anew since, takes its turn before the others."""
        is_late = bool(self.waiting) and self.waiting[-1].request.arrival_s > request.arrival_s
        sequence = super().add(request, now, **begun)
        if is_late:
            self.waiting = deque(sorted(self.waiting, key=lambda s: s.request.arrival_s))
        return sequence

    def pick(self, now: float) -> list[tuple[Sequence, int]]:
        return self.admit_prompts(now, self.limits.max_batch_tokens)

    def prefill_done(self, sequence: Sequence, now: float) -> None:
        self.running.remove(sequence)
        self.handing_off[sequence.id] = sequence

    def handed_off(self, request_id: str) -> None:
        """The KV has arrived elsewhere: give its blocks here back."""
        self.allocator.release(self.handing_off.pop(request_id))
        del self.sequences[request_id]

    def cancel(self, request_id: str, now: float, reason: FinishReason = "cancelled") -> bool:
        if request_id in self.handing_off:
            return False
        return super().cancel(request_id, now, reason)


class DecodeOnly(Chunked):
    """Writes answers; `limits.max_batch_tokens` bounds what it reads itself in one step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pending: deque[Sequence] = deque()  # want a reservation; own no blocks yet
        self.reserved: dict[str, Sequence] = {}  # own blocks that a prefill worker writes

    # -- before the hand-off ------------------------------------------------------------------

    def request_reservation(self, request: Request, output_ids: tuple[int, ...] = ()) -> None:
        sequence = Sequence(request, list(output_ids))
        self.sequences[request.id] = sequence
        self.watch_deadline(request)
        self.pending.append(sequence)

    def reserve_pending(self, now: float) -> list[Sequence]:
        """Reservations that can be made now, oldest first; what is cached here need not be sent."""
        made: list[Sequence] = []
        while self.pending and not self.waiting and self.can_admit(self.pending[0]):
            sequence = self.pending.popleft()
            self.allocator.admit(sequence)
            self.reserved[sequence.id] = sequence
            blocks, cached = len(sequence.block_ids), sequence.num_cached_tokens
            self.emit(now, "reserved", sequence, blocks=blocks, cached_tokens=cached)
            made.append(sequence)
        return made

    def can_admit(self, sequence: Sequence) -> bool:
        holding = len(self.running) + len(self.reserved)
        spare = holding * self.allocator.block_size
        if holding >= self.limits.max_running:
            return False
        return self.allocator.can_admit(sequence, sequence.num_tokens + spare)

    def holders(self) -> list[Sequence]:
        return [*self.running, *self.reserved.values()]

    def wait_again(self, sequence: Sequence) -> None:
        if self.reserved.pop(sequence.id, None) is None:
            super().wait_again(sequence)
            return
        self.allocator.release(sequence)
        self.pending.appendleft(sequence)

    # -- after it -----------------------------------------------------------------------------

    def commit(self, request_id: str, token_id: int) -> None:
        """The KV is here and verified: the sequence joins the running batch after `token_id`."""
        sequence = self.reserved.pop(request_id)
        sequence.num_cached_tokens = sequence.num_tokens
        self.allocator.publish(sequence)
        sequence.output_ids.append(token_id)
        sequence.is_prefilling = False
        self.watch_deadline(sequence.request)  # it may have passed while the blocks were written
        self.running.append(sequence)

    def recover(self, request_id: str, token_id: int | None = None) -> None:
        """The hand-off failed: read the prompt here, and the token already published, if any."""
        sequence = self.reserved.pop(request_id)
        self.allocator.release(sequence)
        if token_id is not None:
            sequence.output_ids.append(token_id)
        sequence.prefill_reason = "recovered"
        self.watch_deadline(sequence.request)
        self.waiting.append(sequence)

    def drop(self, request_id: str) -> None:
        """Forget a reservation whose request ended elsewhere."""
        self.allocator.release(self.reserved.pop(request_id))
        del self.sequences[request_id]

    def cancel(self, request_id: str, now: float, reason: FinishReason = "cancelled") -> bool:
        if request_id in self.reserved:
            return False
        return super().cancel(request_id, now, reason)

    def finish(self, sequence: Sequence, reason: FinishReason, now: float) -> None:
        self.reserved.pop(sequence.id, None)
        if sequence in self.pending:
            self.pending.remove(sequence)
        super().finish(sequence, reason, now)
