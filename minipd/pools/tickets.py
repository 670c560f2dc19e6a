"""The coordinator's books: a ticket for each request, a member for each worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from minipd.pools import messages as m
from minipd.request import FinishReason, PrefillReason, Request
from minipd.sched.router import WorkerLoad
from minipd.timeline import Event, Value

# `recalled` waits for its prefill worker to let go of it, `moving` for its decode worker; then it
# is placed anew.
State = Literal["parked", "reserving", "prefilling", "running", "recalled", "moving"]


@dataclass(slots=True, eq=False)
class RoleChange:
    """What a draining worker becomes, and from when on its running answers are moved elsewhere."""

    order: m.Configure
    began_s: float
    hand_over_s: float


@dataclass(slots=True, eq=False)
class Member:
    """One life of a worker as the coordinator sees it; `is_ready` between its start and its end."""

    name: str
    epoch: int
    role: m.Role
    send: Callable[[m.ToWorker], None]
    load: WorkerLoad = field(init=False)
    is_ready: bool = False
    change: RoleChange | None = None

    @property
    def next_role(self) -> m.Role:
        return self.change.order.role if self.change is not None else self.role

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
    has_ended: bool = False  # told already, though a worker that does not answer still holds it
    attempts: int = 0
    deaths: int = 0  # of workers that were writing it
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

    def is_held_by(self, member: Member) -> bool:
        """Does the worker hold blocks for it, or write into those of another?"""
        if self.writer is member and self.state != "parked":
            return True
        return self.reader is member and self.state in ("prefilling", "recalled")

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

    def join_queue(self, reader: Member, spared: int = 0) -> None:
        """Wait to be read there, but for `spared` tokens that it holds already."""
        self._queue, self._queued_tokens = reader.load, max(0, self.num_tokens - spared)
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
