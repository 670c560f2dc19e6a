"""Routes requests to workers, passes hand-offs on, and gathers what happened. No model, no KV.

For each request it keeps a ticket: who reads it, who writes it, how far it has come. A worker that
dies takes no request with it: its tickets go to others, with the tokens that were already out.
"""

from __future__ import annotations

from dataclasses import replace

from minipd.pools import messages as m
from minipd.pools.dispatch import Dispatcher
from minipd.pools.placing import reader_of
from minipd.pools.tickets import Member, Ticket
from minipd.request import FinishReason, Request
from minipd.timeline import TERMINAL_KINDS, Event, Value

GRACE_S = 1.0  # after a deadline: a worker that has not ended the request by then may be hung


class Coordinator(Dispatcher):
    """`emit` receives every event. Workers join with `admit_member` and go with `member_died`."""

    @property
    def is_busy(self) -> bool:
        """Is any worker holding or still sending something for a request, or changing its role?"""
        return bool(self.tickets or self._draining) or self.roles.are_under_way

    def tend(self) -> None:
        """Do what time and the last messages have made due: call it after every round of them."""
        self._expire()
        self.roles.tend()

    # -- workers ------------------------------------------------------------------------------

    def admit_member(self, member: Member) -> None:
        """A worker that is being started; requests may wait for it."""
        self.members[member.name] = member

    def member_ready(self, name: str) -> None:
        member = self.members[name]
        member.is_ready = True
        self.members.changed()
        if self.prefixes is not None:
            self.prefixes.known.forget(name)
            member.send(m.TellForgotten())
        if member.change is not None:
            self.roles.end(member, member.change)
        else:
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
        if self.prefixes is not None:
            self.prefixes.known.forget(name)
        self.members[name] = successor or dead  # it keeps its place in the order
        if successor is None:
            del self.members[name]
        self._tell("worker_died", name, reason=reason, epoch=dead.epoch)
        for ticket in list(self.tickets.values()):
            if ticket.writer is dead:
                self._lost_writer(ticket)
            elif ticket.reader is dead and ticket.state == "prefilling":
                self._hand_over(ticket, m.Recover(ticket.request.id, ticket.published_token))
        for ticket in self._held():
            if ticket.reader is dead:
                self._let_go(ticket.request.id)
        self._place_parked()

    # -- requests -----------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """Take a validated request; it ends in exactly one terminal event."""
        ticket = self._open(request)
        if request.id in self._draining:  # the id's former owner is still on the link
            ticket.state = "recalled"
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

    def _expire(self) -> None:
        """End what is parked beyond its deadline, and what no worker has ended long after it."""
        now = self.clock()
        for ticket in list(self._timed.values()):
            late_s = now - (ticket.request.deadline_s or 0.0)
            if late_s >= 0.0 and ticket.state == "parked":
                self._end(ticket, "cancelled", "deadline")
            elif late_s >= GRACE_S and not ticket.has_ended:
                self._tell_end(ticket, "cancelled", "deadline")
                self.cancel(ticket.request.id, "deadline")

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
            case m.Forgotten() if self.prefixes is not None:
                self.prefixes.known.remove(message.worker, message.names)
            case _:
                pass  # for the cluster that started the worker

    def _record(self, event: Event) -> None:
        ticket = self.tickets.get(event.request_id)
        if ticket is None:
            if event.kind not in TERMINAL_KINDS:  # those it has had already
                self.emit(event)
            return
        if self.prefixes is not None:
            self._learn(event, ticket)
        if event.kind == "prefill_finished":
            ticket.leave_queue()
        elif event.kind == "token":
            ticket.output_ids.append(int(str(event.data["token_id"])))
        elif event.kind == "handoff_finished" and self._is_dead(ticket.writer):
            told: dict[str, Value] = {"target": event.data["target"], "reason": "its target died"}
            event = replace(event, kind="handoff_failed", data=told)
        elif event.kind in TERMINAL_KINDS:
            if self._goes_on(ticket, event):
                return
            if ticket.state in ("prefilling", "recalled"):
                self._draining[event.request_id] = ticket
            self._forget(ticket)
        if not ticket.has_ended:
            self.emit(event)

    def _goes_on(self, ticket: Ticket, event: Event) -> bool:
        """Was it only an attempt that ended? One that moves is placed anew."""
        if event.kind != "cancelled" or ticket.state not in ("recalled", "moving"):
            return False
        if ticket.state == "moving":
            self._place_anew(ticket)
        return True

    def _is_dead(self, member: Member | None) -> bool:
        """It was there, and no more in this life; one that drains is not dead."""
        return member is not None and self.members.get(member.name) is not member

    def _reserved(self, message: m.Reserved) -> None:
        ticket = self.tickets.get(message.request_id)
        if ticket is None or ticket.writer is None or ticket.state not in ("reserving", "moving"):
            return
        if ticket.state == "moving" or ticket.cancel_reason is not None:
            ticket.writer.send(m.Drop(message.request_id))
            self._place_anew(ticket)
            return
        reader = reader_of(ticket, self.members)
        if reader is not ticket.reader:
            ticket.leave_queue()
        if reader is None:
            self._hand_over(ticket, m.Recover(message.request_id))
            return
        if reader is not ticket.reader:
            ticket.join_queue(reader)
        ticket.state, ticket.reader = "prefilling", reader
        reader.send(ticket.prefill_order(ticket.writer, message))

    def _prefilled(self, request_id: str, order: m.Commit | m.Recover) -> None:
        ticket = self.tickets.get(request_id)
        if ticket is None or ticket.writer is None:
            return  # it was of an earlier request of this id
        if self._is_dead(ticket.writer):
            self._place(ticket)
        else:
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
        """Its prefill worker will write nothing more: free the reservation, place it anew."""
        ended = self._draining.pop(request_id, None)
        if ended is not None and ended.writer is not None:
            ended.writer.send(m.Drop(request_id))
        ticket = self.tickets.get(request_id)
        if ticket is not None and ticket.state == "recalled":
            if ticket.writer is not None:
                ticket.writer.send(m.Drop(request_id))
            self._place_anew(ticket)

    def _lost_writer(self, ticket: Ticket) -> None:
        """Start over elsewhere, once nobody writes for the lost reservation any more."""
        ticket.leave_books()
        ticket.deaths += 1
        is_read = ticket.state in ("prefilling", "recalled") and not self._is_dead(ticket.reader)
        if is_read and ticket.reader is not None:
            ticket.state = "recalled"
            ticket.reader.send(m.Cancel(ticket.request.id, "cancelled"))
        else:
            self._place(ticket)
