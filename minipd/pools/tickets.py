"""The coordinator's books: a ticket for each request, a member for each worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from minipd.pools import messages as m
from minipd.request import FinishReason, PrefillReason, Request
from minipd.sched.router import WorkerLoad
from minipd.timeline import Event, Value

# `orphaned` waits for its old prefill worker to let go of it; then it is placed anew.
State = Literal["parked", "reserving", "prefilling", "running", "orphaned"]


@dataclass(slots=True, eq=False)
class Member:
    """One life of a worker as the coordinator sees it; `is_ready` between its start and its end."""

    name: str
    epoch: int
    role: m.Role
    send: Callable[[m.ToWorker], None]
    load: WorkerLoad = field(init=False)
    is_ready: bool = False

    def __post_init__(self) -> None:
        self.load = WorkerLoad(self.name)


@dataclass(slots=True, eq=False)
class Ticket:
    """One request's way. `writer` decodes it; `reader` prefills it, None where `writer` does."""

    request: Request
    state: State = "parked"
    writer: Member | None = None
    reader: Member | None = None
    output_ids: list[int] = field(default_factory=list[int])
    cancel_reason: FinishReason | None = None
    attempts: int = 0
    num_sent_outputs: int = 0  # how many of `output_ids` its workers were told at dispatch
    _queue: WorkerLoad | None = None  # whose prefill queue it is counted in, with how many tokens
    _queued_tokens: int = 0

    @property
    def arrived(self) -> Event:
        limit = self.request.sampling.max_tokens
        data: dict[str, Value] = {"prompt_tokens": self.num_tokens, "max_tokens": limit}
        return Event(self.request.arrival_s, "arrived", "", self.request.id, data)

    @property
    def num_tokens(self) -> int:
        return self.request.num_prompt_tokens + len(self.output_ids)

    @property
    def reason(self) -> PrefillReason:
        return "prompt" if self.attempts <= 1 else "recovered"

    @property
    def published_token(self) -> int | None:
        """The token that the prefill worker has published since dispatch, if any."""
        return self.output_ids[-1] if len(self.output_ids) > self.num_sent_outputs else None

    def local_reason(self, role: m.Role) -> PrefillReason:
        """Why a worker of this role reads the prompt itself, when the router says so."""
        return self.reason if role == "both" or self.attempts > 1 else "local"

    def prefill_order(self, target: Member, reserved: m.Reserved) -> m.Prefill:
        return m.Prefill(
            request=self.request,
            target=target.name,
            target_epoch=target.epoch,
            block_ids=reserved.block_ids,
            cached_tokens=reserved.cached_tokens,
            output_ids=tuple(self.output_ids),
            reason=self.reason,
        )

    def join_queue(self, reader: Member) -> None:
        self._queue, self._queued_tokens = reader.load, self.num_tokens
        reader.load.queued_prefill_tokens += self._queued_tokens
        reader.load.num_waiting_prefills += 1

    def leave_queue(self) -> None:
        if self._queue is not None:
            self._queue.queued_prefill_tokens -= self._queued_tokens
            self._queue.num_waiting_prefills -= 1
        self._queue = None

    def leave_books(self) -> None:
        """Count it nowhere any more; `writer` may still hold a reservation for it."""
        self.leave_queue()
        if self.writer is not None:
            self.writer.load.num_running -= 1
