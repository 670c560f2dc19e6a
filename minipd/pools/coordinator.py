"""Routes requests to workers, passes hand-offs on, and gathers what happened. No model, no KV.

For each request it keeps a ticket: who reads it, who writes it, how far it has come. A worker that
dies takes no request with it: its tickets go to others, with the tokens that were already out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from minipd.pools import messages as m
from minipd.request import FinishReason, PrefillReason, Request
from minipd.sched.router import Route, Router, WorkerLoad, least_running
from minipd.timeline import TERMINAL_KINDS, Event, EventKind, Value

State = Literal["parked", "reserving", "prefilling", "running", "orphaned", "done"]
MAX_ATTEMPTS = 3


@dataclass(slots=True, eq=False)
class Ticket:
    """One request's way; `orphaned` waits for its old prefill worker to let go of it."""

    request: Request
    state: State = "parked"
    decode: str = ""
    prefill: str = ""
    output_ids: list[int] = field(default_factory=list[int])
    cancel_reason: FinishReason | None = None
    attempts: int = 0
    num_sent_outputs: int = 0  # how many of `output_ids` its workers were told at dispatch
    queued_on: str = ""  # whose prefill queue it is counted in

    @property
    def reason(self) -> PrefillReason:
        return "prompt" if self.attempts <= 1 else "recovered"


@dataclass(slots=True)
class Member:
    """A worker as the coordinator sees it."""

    name: str
    epoch: int
    role: m.Role
    send: Callable[[m.ToWorker], None]
    load: WorkerLoad
    is_ready: bool = False


class Coordinator:
    """`emit` receives every event. Workers join with `admit_member` and go with `member_died`."""

    def __init__(
        self, router: Router, clock: Callable[[], float], emit: Callable[[Event], None]
    ) -> None:
        self.router = router
        self.clock = clock
        self.emit = emit
        self.members: dict[str, Member] = {}
        self.tickets: dict[str, Ticket] = {}  # only those not done
        self.can_recruit = True  # False: a missing role will never be filled again
        self._parked: deque[Ticket] = deque()

    # -- workers ------------------------------------------------------------------------------

    def admit_member(
        self, name: str, epoch: int, role: m.Role, send: Callable[[m.ToWorker], None]
    ) -> None:
        self.members[name] = Member(name, epoch, role, send, WorkerLoad(name))

    def member_ready(self, name: str) -> None:
        member = self.members[name]
        member.is_ready = True
        self._tell("worker_started", name, role=member.role, epoch=member.epoch)
        self._place_parked()

    def member_died(self, name: str, reason: str) -> None:
        """Move everything that depended on it; call only after its last messages were handled."""
        member = self.members.pop(name)
        self._tell("worker_died", name, reason=reason, epoch=member.epoch)
        for ticket in list(self.tickets.values()):
            if ticket.decode == name:
                self._lost_decode(ticket)
            elif ticket.prefill == name and ticket.state in ("prefilling", "orphaned"):
                self._lost_prefill(ticket)

    def ready(self, *roles: m.Role) -> list[Member]:
        return [x for x in self.members.values() if x.is_ready and x.role in roles]

    # -- requests -----------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """Take a validated request; it ends in exactly one terminal event."""
        assert request.id not in self.tickets, f"request id {request.id!r} is in use"
        tokens, limit = request.num_prompt_tokens, request.sampling.max_tokens
        arrived = {"prompt_tokens": tokens, "max_tokens": limit}
        self.emit(Event(request.arrival_s, "arrived", "", request.id, {**arrived}))
        ticket = self.tickets[request.id] = Ticket(request)
        self._place(ticket)

    def cancel(self, request_id: str, reason: FinishReason = "cancelled") -> None:
        """Ask whoever holds the request to end it; a hand-off under way is finished first."""
        ticket = self.tickets.get(request_id)
        if ticket is None:
            return
        ticket.cancel_reason = reason
        if ticket.state == "parked":
            self._end(ticket, "cancelled", reason)
        for name in {ticket.decode, ticket.prefill if ticket.state == "prefilling" else ""}:
            if name in self.members:
                self.members[name].send(m.Cancel(request_id, reason))

    def expire_parked(self) -> None:
        """End parked requests whose deadline has passed, or which nobody will ever take."""
        for ticket in list(self._parked):
            deadline = ticket.request.deadline_s
            if deadline is not None and self.clock() >= deadline:
                self._end(ticket, "cancelled", "deadline")
            elif not self.can_recruit and not self.ready("decode", "both"):
                self._end(ticket, "failed", "no decode worker is left, and none can be restarted")

    # -- messages from workers ----------------------------------------------------------------

    def handle(self, name: str, message: m.FromWorker) -> None:
        match message:
            case m.Happened():
                for event in message.events:
                    self._record(event)
            case m.Reserved():
                self._reserved(message)
            case m.HandedOff():
                self._handed_off(message.manifest)
            case m.HandOffFailed():
                self._recover(message.request_id, message.token_id)
            case m.Drained():
                self._drained(message.request_id, name)
            case _:
                pass  # for the cluster that started the worker

    def _record(self, event: Event) -> None:
        ticket = self.tickets.get(event.request_id)
        if event.kind == "prefill_finished" and ticket is not None:
            self._leave_queue(ticket)
        if event.kind == "token" and ticket is not None:
            ticket.output_ids.append(int(str(event.data["token_id"])))
        if event.kind in TERMINAL_KINDS:
            if ticket is None:
                return  # it has had its terminal event already
            if ticket.state == "orphaned" and event.kind == "cancelled":
                return  # only the lost attempt ended
            self._forget(ticket)
        self.emit(event)

    def _reserved(self, message: m.Reserved) -> None:
        ticket = self.tickets.get(message.request_id)
        if ticket is None or ticket.state != "reserving":
            return
        writer = self.members[ticket.decode]
        if ticket.cancel_reason is not None:
            writer.send(m.Drop(message.request_id, ticket.cancel_reason))
            return
        if ticket.prefill not in self.members:
            self._leave_queue(ticket)
            ticket.state = "running"
            writer.send(m.Recover(message.request_id))
            return
        ticket.state = "prefilling"
        order = m.Prefill(
            request=ticket.request,
            target=writer.name,
            target_epoch=writer.epoch,
            block_ids=message.block_ids,
            cached_tokens=message.cached_tokens,
            output_ids=tuple(ticket.output_ids),
            reason=ticket.reason,
        )
        self.members[ticket.prefill].send(order)

    def _handed_off(self, manifest: m.Manifest) -> None:
        ticket = self.tickets.get(manifest.request_id)
        if ticket is None:
            return
        if ticket.state == "orphaned":
            self._place(ticket)
            return
        ticket.state = "running"
        writer = self.members[ticket.decode]
        writer.send(m.Commit(manifest))
        if ticket.cancel_reason is not None:
            writer.send(m.Cancel(manifest.request_id, ticket.cancel_reason))

    def _recover(self, request_id: str, token_id: int | None) -> None:
        """The decode worker reads the prompt of its reservation itself."""
        ticket = self.tickets.get(request_id)
        if ticket is None:
            return
        if ticket.state == "orphaned":
            self._place(ticket)
            return
        ticket.state = "running"
        writer = self.members[ticket.decode]
        writer.send(m.Recover(request_id, token_id))
        if ticket.cancel_reason is not None:
            writer.send(m.Cancel(request_id, ticket.cancel_reason))

    def _drained(self, request_id: str, prefill: str) -> None:
        """It ended on the prefill worker: the reservation is no longer written to."""
        ticket = self.tickets.get(request_id)
        if ticket is not None and ticket.state == "orphaned":
            self._place(ticket)
        for member in self.ready("decode"):
            member.send(m.Drop(request_id))

    # -- placing ------------------------------------------------------------------------------

    def _place(self, ticket: Ticket) -> None:
        """Route a ticket, or park it until there is a worker to take it."""
        readers, writers = self.ready("prefill"), self.ready("decode", "both")
        if ticket.cancel_reason is not None:
            self._end(ticket, "cancelled", ticket.cancel_reason)
            return
        if ticket.attempts >= MAX_ATTEMPTS:
            self._end(ticket, "failed", f"its worker died {MAX_ATTEMPTS} times")
            return
        if not writers or (not readers and writers[0].role == "decode" and self.can_recruit):
            ticket.state = "parked"
            self._parked.append(ticket)
            return
        tokens = ticket.request.num_prompt_tokens + len(ticket.output_ids)
        ticket.attempts += 1
        loads = [x.load for x in writers]
        if readers or writers[0].role == "both":
            route = self.router.route(tokens, [x.load for x in readers], loads)
        else:
            route = Route(least_running(loads).name, None, "no prefill worker is left")
        self._dispatch(ticket, route, tokens)

    def _dispatch(self, ticket: Ticket, route: Route, tokens: int) -> None:
        request, writer = ticket.request, self.members[route.decode]
        self._tell(
            "routed",
            route.prefill or route.decode,
            request.id,
            choice=route.choice,
            decode=route.decode,
            reason=route.reason,
        )
        ticket.decode, ticket.prefill = route.decode, route.prefill or ""
        writer.load.num_running += 1
        reader = self.members[route.prefill or route.decode]
        reader.load.queued_prefill_tokens += tokens
        reader.load.num_waiting_prefills += 1
        ticket.queued_on = reader.name
        outputs = tuple(ticket.output_ids)
        ticket.num_sent_outputs = len(outputs)
        if route.prefill is None:
            ticket.state = "running"
            local: PrefillReason = "prompt" if writer.role == "both" else "local"
            reason = local if ticket.attempts == 1 else "recovered"
            writer.send(m.Submit(request, outputs, reason))
        else:
            ticket.state = "reserving"
            writer.send(m.Reserve(request, outputs))

    def _place_parked(self) -> None:
        parked, self._parked = self._parked, deque()
        for ticket in parked:
            self._place(ticket)

    # -- losses -------------------------------------------------------------------------------

    def _lost_decode(self, ticket: Ticket) -> None:
        """Start over elsewhere, once nobody writes for the lost reservation any more."""
        self._leave_queue(ticket)
        ticket.decode = ""
        if ticket.state == "prefilling" and ticket.prefill in self.members:
            ticket.state = "orphaned"
            self.members[ticket.prefill].send(m.Cancel(ticket.request.id, "cancelled"))
        else:
            self._place(ticket)

    def _lost_prefill(self, ticket: Ticket) -> None:
        """The writer is gone, so its reservation is quiet: read the prompt where it lies."""
        self._leave_queue(ticket)
        if ticket.state == "orphaned":
            self._place(ticket)
        else:
            has_published = len(ticket.output_ids) > ticket.num_sent_outputs
            self._recover(ticket.request.id, ticket.output_ids[-1] if has_published else None)

    # -- books --------------------------------------------------------------------------------

    def _leave_queue(self, ticket: Ticket) -> None:
        member = self.members.get(ticket.queued_on)
        if member is not None:
            member.load.queued_prefill_tokens -= ticket.request.num_prompt_tokens + len(
                ticket.output_ids
            )
            member.load.num_waiting_prefills -= 1
        ticket.queued_on = ""

    def _forget(self, ticket: Ticket) -> None:
        self._leave_queue(ticket)
        if ticket.decode in self.members:
            self.members[ticket.decode].load.num_running -= 1
        ticket.state = "done"
        del self.tickets[ticket.request.id]
        if ticket in self._parked:
            self._parked.remove(ticket)

    def _end(self, ticket: Ticket, kind: EventKind, reason: str) -> None:
        """A terminal event of the coordinator's own, for a request that no worker holds."""
        self._forget(ticket)
        self._tell(kind, "", ticket.request.id, reason=reason, output_tokens=len(ticket.output_ids))

    def _tell(self, kind: EventKind, worker: str, request_id: str = "", **data: Value) -> None:
        self.emit(Event(self.clock(), kind, worker, request_id, data))
