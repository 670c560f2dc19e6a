"""A worker takes on another role while requests run: it drains, switches and resumes.

Draining, it is given nothing new. What it has not begun goes to others at once; what it has begun
ends there or, after a while, goes on elsewhere, with the tokens that are out. Only when nobody
reads from its store, writes into it or waits for it does it get its new scheduler, over an empty
cache: so it needs no new epoch, and its weights, its memory and its links stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import get_args

from minipd.pools import messages as m
from minipd.pools.placing import Members
from minipd.pools.tickets import Member, RoleChange, Ticket


class RoleChanges:
    """All changes that are under way. `held` lists the tickets that any worker may hold."""

    def __init__(
        self,
        members: Members,
        held: Callable[[], Iterable[Ticket]],
        clock: Callable[[], float],
        tell: Callable[..., None],
    ) -> None:
        self.members, self.held = members, held
        self.clock, self.tell = clock, tell

    @property
    def are_under_way(self) -> bool:
        return any(x.change is not None for x in self.members.values())

    def why_not(self, name: str, role: m.Role) -> str | None:
        """None when the worker may take on this role now, else one sentence."""
        member = self.members.get(name)
        if member is None or not member.is_ready:
            return f"{name!r} cannot change its role: it is no worker, or not ready at the moment."
        if role not in get_args(m.Role):
            return f"There is no role {role!r}; use one of {', '.join(get_args(m.Role))}."
        others = [x.next_role for x in self.members.values() if x is not member]
        if role == "prefill" and set(others) <= {"prefill"}:
            return f"{name} must go on writing: no other worker does; give another that role first."
        return None

    def begin(
        self, name: str, order: m.Configure, patience_s: float, reason: str = "asked for"
    ) -> None:
        """From here on nothing is routed to it; what still runs after `patience_s` moves on."""
        member, now = self.members[name], self.clock()
        if member.role == order.role:
            return
        member.is_ready, member.change = False, RoleChange(order, now, now + patience_s)
        self.members.changed()
        told = {"role": member.role, "to": order.role, "epoch": member.epoch, "reason": reason}
        self.tell("worker_draining", name, **told)

    def tend(self) -> None:
        """Have others take what can be moved, and switch every worker that holds nothing."""
        for member in self.members.values():
            if member.change is None or member.role == member.change.order.role:
                continue  # it drains no more
            held = [x for x in self.held() if x.is_held_by(member)]
            if not held:
                self._switch(member, member.change)
            is_patient = self.clock() < member.change.hand_over_s
            for ticket in held:
                _move(ticket, member, is_patient)

    def end(self, member: Member, change: RoleChange) -> None:
        """The worker has its new scheduler and its links: requests may come again."""
        member.change = None
        paused_s = self.clock() - change.began_s
        told = {"role": member.role, "epoch": member.epoch, "paused_s": paused_s}
        self.tell("worker_resumed", member.name, **told)

    def _switch(self, member: Member, change: RoleChange) -> None:
        member.role = change.order.role
        drained_s = self.clock() - change.began_s
        told = {"role": member.role, "epoch": member.epoch, "drained_s": drained_s}
        self.tell("role_changed", member.name, **told)
        member.send(change.order)


def _move(ticket: Ticket, member: Member, is_patient: bool) -> None:
    """Have it let go of by its worker, if that has not begun or took too long; then it is placed
    anew. A prefill worker ends what waits and ignores the rest: such a hand-off is finished first,
    since nobody else may have the blocks that it is writing."""
    if ticket.state == "prefilling" and ticket.reader is not None:
        ticket.state, ticket.attempts = "recalled", ticket.attempts - 1
        ticket.reader.send(m.Cancel(ticket.request.id))
    elif ticket.state == "reserving" or (ticket.state == "running" and not is_patient):
        ticket.attempts -= ticket.state == "reserving"
        ticket.state = "moving"
        member.send(m.Cancel(ticket.request.id))
