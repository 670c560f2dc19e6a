"""Who gets a ticket, and the books of all tickets: routed, parked, ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from minipd.pools import messages as m
from minipd.pools.placing import Members
from minipd.pools.roles import RoleChanges
from minipd.pools.tickets import Ticket
from minipd.request import Request
from minipd.sched.prefix_router import PrefixAware
from minipd.sched.router import Route, Router
from minipd.timeline import Event, EventKind, Value

HOLDS_KV = ("prefill_finished", "committed", "finished")  # its worker has the prompt in its cache


class Dispatcher:
    """The half of the coordinator that knows workers by their loads, and no message from them."""

    def __init__(
        self, router: Router, clock: Callable[[], float], emit: Callable[[Event], None]
    ) -> None:
        self.router = router
        self.prefixes = router if isinstance(router, PrefixAware) else None
        self.clock = clock
        self.emit = emit
        self.members = Members()
        self.tickets: dict[str, Ticket] = {}  # of requests that no worker has ended
        self._parked: deque[Ticket] = deque()
        self._draining: dict[str, Ticket] = {}  # ended on a prefill worker that still sends
        self._timed: dict[str, Ticket] = {}  # those of `tickets` that have a deadline
        self.roles = RoleChanges(self.members, self._held, clock, self._tell)

    def _open(self, request: Request) -> Ticket:
        assert request.id not in self.tickets, f"request id {request.id!r} is in use"
        ticket = self.tickets[request.id] = Ticket(request)
        if request.deadline_s is not None:
            self._timed[request.id] = ticket
        self.emit(ticket.arrived)
        return ticket

    def _place(self, ticket: Ticket) -> None:
        """Route a ticket, park it until there is a worker to take it, or end it."""
        roster = self.members.roster
        ending = roster.why_end(ticket)
        if ending is not None:
            self._end(ticket, *ending)
        elif not roster.writers:
            ticket.state = "parked"
            self._parked.append(ticket)
        else:
            if self.prefixes is not None:
                loads = [member.load for member in self.members.values()]
                self.prefixes.look_up(ticket.request, ticket.output_ids, loads)
            self._dispatch(ticket, roster.route(ticket, self.router))

    def _dispatch(self, ticket: Ticket, route: Route) -> None:
        request, writer = ticket.request, self.members[route.decode]
        reader = self.members[route.prefill] if route.prefill is not None else None
        told = {"choice": route.choice, "decode": writer.name, "reason": route.reason}
        self._tell("routed", (reader or writer).name, request.id, **told)
        ticket.attempts += 1
        ticket.writer, ticket.reader = writer, reader
        writer.load.num_running += 1
        ticket.join_queue(reader or writer, spared=(reader or writer).load.cached_tokens)
        outputs = tuple(ticket.output_ids)
        ticket.num_sent_outputs = len(outputs)
        if reader is not None:
            ticket.state = "reserving"
            writer.send(m.Reserve(request, outputs))
            return
        ticket.state = "running"
        writer.send(m.Submit(request, outputs, ticket.local_reason(writer.role)))

    def _learn(self, event: Event, ticket: Ticket) -> None:
        """A prompt was read, received or answered: its worker holds its KV now."""
        if self.prefixes is not None and event.kind in HOLDS_KV:
            outputs = ticket.output_ids if event.kind == "finished" else ()
            names = self.prefixes.names_of(ticket.request, outputs)
            self.prefixes.known.add(event.worker, names)

    def _place_anew(self, ticket: Ticket) -> None:
        """Its workers hold nothing for it any more, or will let go before they read on."""
        ticket.leave_books()
        ticket.writer = None
        self._place(ticket)

    def _place_parked(self) -> None:
        parked, self._parked = self._parked, deque()
        for ticket in parked:
            self._place(ticket)

    def _forget(self, ticket: Ticket) -> None:
        ticket.leave_books()
        del self.tickets[ticket.request.id]
        self._timed.pop(ticket.request.id, None)
        if ticket in self._parked:
            self._parked.remove(ticket)

    def _end(self, ticket: Ticket, kind: EventKind, reason: str) -> None:
        """A terminal event of the coordinator's own, for a request that no worker holds."""
        self._forget(ticket)
        self._tell_end(ticket, kind, reason)

    def _tell_end(self, ticket: Ticket, kind: EventKind, reason: str) -> None:
        if not ticket.has_ended:
            tokens = len(ticket.output_ids)
            self._tell(kind, "", ticket.request.id, reason=reason, output_tokens=tokens)
        ticket.has_ended = True

    def _held(self) -> list[Ticket]:
        """Every ticket that a worker may hold or be sending something for."""
        return [*self.tickets.values(), *self._draining.values()]

    def _tell(self, kind: EventKind, worker: str, request_id: str = "", **data: Value) -> None:
        self.emit(Event(self.clock(), kind, worker, request_id, data))
