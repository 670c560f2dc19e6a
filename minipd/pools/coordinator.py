"""Routes requests to workers, passes hand-offs on, and gathers what happened. No model, no KV.

For each request it keeps a ticket: who reads it, who writes it, how far it has come. A worker that
dies takes no request with it: its tickets go to others, with the tokens that were already out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from minipd.pools import messages as m
from minipd.pools.placing import Roster
from minipd.pools.tickets import Member, Ticket
from minipd.request import FinishReason, Request
from minipd.sched.router import Route, Router, shortest_queue
from minipd.timeline import TERMINAL_KINDS, Event, EventKind, Value


class Coordinator:
    """`emit` receives every event. Workers join with `admit_member` and go with `member_died`."""

    def __init__(
        self, router: Router, clock: Callable[[], float], emit: Callable[[Event], None]
    ) -> None:
        self.router = router
        self.clock = clock
        self.emit = emit
        self.members: dict[str, Member] = {}
        self.tickets: dict[str, Ticket] = {}  # of requests that have not ended
        self._parked: deque[Ticket] = deque()
        self._draining: dict[str, Ticket] = {}  # ended on a prefill worker that still sends

    @property
    def is_busy(self) -> bool:
        """Is any worker holding, or still sending, something for a request?"""
        return bool(self.tickets or self._draining)

    # -- workers ------------------------------------------------------------------------------

    def admit_member(self, member: Member) -> None:
        """A worker that is being started; requests may wait for it."""
        self.members[member.name] = member

    def member_ready(self, name: str) -> None:
        self.members[name].is_ready = True
        self.announce(name)
        self._place_parked()

    def announce(self, *names: str) -> None:
        """Tell the timeline the roles of these workers, or of all that are ready."""
        for x in self.members.values():
            if x.is_ready and (not names or x.name in names):
                self._tell("worker_started", x.name, role=x.role, epoch=x.epoch)

    def member_died(self, name: str, reason: str, successor: Member | None = None) -> None:
        """Move what depended on it; only after its last messages, when it can write no more."""
        dead = self.members[name]
        dead.is_ready = False
        self.members[name] = successor or dead  # it keeps its place in the order
        if successor is None:
            del self.members[name]
        self._tell("worker_died", name, reason=reason, epoch=dead.epoch)
        for ticket in list(self.tickets.values()):
            if ticket.writer is dead:
                self._lost_writer(ticket)
            elif ticket.reader is dead and ticket.state == "prefilling":
                self._hand_over(ticket, m.Recover(ticket.request.id, ticket.published_token))
        for ticket in [*self.tickets.values(), *self._draining.values()]:
            if ticket.reader is dead:
                self._let_go(ticket.request.id)
        self._place_parked()

    # -- requests -----------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """Take a validated request; it ends in exactly one terminal event."""
        assert request.id not in self.tickets, f"request id {request.id!r} is in use"
        ticket = self.tickets[request.id] = Ticket(request)
        self.emit(ticket.arrived)
        if request.id in self._draining:  # the id's former owner is still on the link
            ticket.state = "orphaned"
            return
        self._place(ticket)

    def cancel(self, request_id: str, reason: FinishReason = "cancelled") -> None:
        """Ask whoever holds the request to end it; a hand-off under way is finished first."""
        ticket = self.tickets.get(request_id)
        if ticket is None:
            return
        ticket.cancel_reason = reason
        if ticket.state == "parked":
            self._end(ticket, "cancelled", reason)
            return
        for member in (ticket.writer, ticket.reader if ticket.state == "prefilling" else None):
            if member is not None:
                member.send(m.Cancel(request_id, reason))

    def expire_parked(self) -> None:
        """End parked requests whose deadline has passed."""
        for ticket in list(self._parked):
            deadline = ticket.request.deadline_s
            if deadline is not None and self.clock() >= deadline:
                self._end(ticket, "cancelled", "deadline")

    # -- messages from workers ----------------------------------------------------------------

    def handle(self, message: m.FromWorker) -> None:
        match message:
            case m.Happened():
                for event in message.events:
                    self._record(event)
            case m.Reserved():
                self._reserved(message)
            case m.HandedOff():
                self._prefilled(message.manifest.request_id, m.Commit(message.manifest))
            case m.HandOffFailed():
                recover = m.Recover(message.request_id, message.token_id)
                self._prefilled(message.request_id, recover)
            case m.Drained():
                self._let_go(message.request_id)
            case _:
                pass  # for the cluster that started the worker

    def _record(self, event: Event) -> None:
        ticket = self.tickets.get(event.request_id)
        if ticket is not None and event.kind == "prefill_finished":
            ticket.leave_queue()
        if ticket is not None and event.kind == "token":
            ticket.output_ids.append(int(str(event.data["token_id"])))
        if event.kind in TERMINAL_KINDS:
            if ticket is None:
                return  # it has had its terminal event already
            if ticket.state == "orphaned" and event.kind == "cancelled":
                return  # only the lost attempt ended
            if ticket.state in ("prefilling", "orphaned"):
                self._draining[event.request_id] = ticket
            self._forget(ticket)
        self.emit(event)

    def _reserved(self, message: m.Reserved) -> None:
        ticket = self.tickets.get(message.request_id)
        if ticket is None or ticket.writer is None or ticket.state != "reserving":
            return
        if ticket.cancel_reason is not None:
            ticket.writer.send(m.Drop(message.request_id, ticket.cancel_reason))
            return
        reader = self._reader(ticket)
        if reader is None:
            self._hand_over(ticket, m.Recover(message.request_id))
            return
        ticket.state, ticket.reader = "prefilling", reader
        reader.send(ticket.prefill_order(ticket.writer, message))

    def _reader(self, ticket: Ticket) -> Member | None:
        """The prefill worker it was routed to, or another where that one is gone."""
        if ticket.reader is not None and ticket.reader.is_ready:
            return ticket.reader
        ticket.leave_queue()
        others = Roster(self.members.values()).readers
        if not others:
            return None
        chosen = self.members[shortest_queue([x.load for x in others]).name]
        ticket.join_queue(chosen)
        return chosen

    def _prefilled(self, request_id: str, order: m.Commit | m.Recover) -> None:
        ticket = self.tickets.get(request_id)
        if ticket is not None and ticket.state == "orphaned":
            self._place(ticket)
        elif ticket is not None:
            self._hand_over(ticket, order)

    def _hand_over(self, ticket: Ticket, order: m.Commit | m.Recover) -> None:
        """Nobody writes into the reservation any more: the decode worker goes on."""
        assert ticket.writer is not None, "a hand-off ends at the worker that reserved for it"
        ticket.state = "running"
        ticket.leave_queue()
        ticket.writer.send(order)
        if ticket.cancel_reason is not None:
            ticket.writer.send(m.Cancel(ticket.request.id, ticket.cancel_reason))

    def _let_go(self, request_id: str) -> None:
        """Its prefill worker will write nothing more: free the reservation, place an orphan."""
        ended = self._draining.pop(request_id, None)
        if ended is not None and ended.writer is not None:
            ended.writer.send(m.Drop(request_id))
        ticket = self.tickets.get(request_id)
        if ticket is not None and ticket.state == "orphaned":
            self._place(ticket)

    # -- placing ------------------------------------------------------------------------------

    def _place(self, ticket: Ticket) -> None:
        """Route a ticket, park it until there is a worker to take it, or end it."""
        roster = Roster(self.members.values())
        ending = roster.why_end(ticket)
        if ending is not None:
            self._end(ticket, *ending)
        elif roster.must_wait:
            ticket.state = "parked"
            self._parked.append(ticket)
        else:
            self._dispatch(ticket, roster.route(ticket, self.router))

    def _dispatch(self, ticket: Ticket, route: Route) -> None:
        request, writer = ticket.request, self.members[route.decode]
        reader = self.members[route.prefill] if route.prefill is not None else None
        told = {"choice": route.choice, "decode": writer.name, "reason": route.reason}
        self._tell("routed", (reader or writer).name, request.id, **told)
        ticket.attempts += 1
        ticket.writer, ticket.reader = writer, reader
        writer.load.num_running += 1
        ticket.join_queue(reader or writer)
        outputs = tuple(ticket.output_ids)
        ticket.num_sent_outputs = len(outputs)
        if reader is not None:
            ticket.state = "reserving"
            writer.send(m.Reserve(request, outputs))
            return
        ticket.state = "running"
        writer.send(m.Submit(request, outputs, ticket.local_reason(writer.role)))

    def _place_parked(self) -> None:
        parked, self._parked = self._parked, deque()
        for ticket in parked:
            self._place(ticket)

    def _lost_writer(self, ticket: Ticket) -> None:
        """Start over elsewhere, once nobody writes for the lost reservation any more."""
        ticket.leave_books()
        if ticket.state == "prefilling" and ticket.reader is not None and ticket.reader.is_ready:
            ticket.state = "orphaned"
            ticket.reader.send(m.Cancel(ticket.request.id, "cancelled"))
        else:
            self._place(ticket)

    def _forget(self, ticket: Ticket) -> None:
        ticket.leave_books()
        del self.tickets[ticket.request.id]
        if ticket in self._parked:
            self._parked.remove(ticket)

    def _end(self, ticket: Ticket, kind: EventKind, reason: str) -> None:
        """A terminal event of the coordinator's own, for a request that no worker holds."""
        self._forget(ticket)
        self._tell(kind, "", ticket.request.id, reason=reason, output_tokens=len(ticket.output_ids))

    def _tell(self, kind: EventKind, worker: str, request_id: str = "", **data: Value) -> None:
        self.emit(Event(self.clock(), kind, worker, request_id, data))
