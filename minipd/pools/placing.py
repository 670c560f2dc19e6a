"""Where a ticket goes, given the workers that there are: nothing is changed here, only answered."""

from __future__ import annotations

from collections.abc import Iterable

from minipd.pools.messages import Role
from minipd.pools.tickets import Member, Ticket
from minipd.sched.router import NEED_READERS, Route, Router, least_running, shortest_queue
from minipd.timeline import EventKind

MAX_DEATHS = 3  # of workers that wrote one answer: it may be what kills them


class Roster:
    """The workers of one moment: those that are `ready`, and the roles of those `coming`."""

    def __init__(self, members: Iterable[Member]) -> None:
        everyone = list(members)
        ready = [x for x in everyone if x.is_ready]
        self.readers = [x.load for x in ready if x.role == "prefill"]
        self.writers = [x.load for x in ready if x.role != "prefill"]
        self.coming: set[Role] = {x.next_role for x in everyone if not x.is_ready}
        self._with_both = {x.name for x in ready if x.role == "both"}

    def why_end(self, ticket: Ticket) -> tuple[EventKind, str] | None:
        """The terminal event and its reason, for a ticket that no worker shall have any more."""
        if ticket.cancel_reason is not None:
            return "cancelled", ticket.cancel_reason
        if ticket.deaths >= MAX_DEATHS:
            return "failed", f"its worker died {MAX_DEATHS} times"
        if not self.writers and not self.coming & {"decode", "both"}:
            return "failed", "no decode worker is left, and none can be restarted"
        return None

    def route(self, ticket: Ticket, router: Router) -> Route:
        """Where to; a worker that has both roles always reads for itself."""
        if not self.readers and isinstance(router, NEED_READERS):
            return Route(least_running(self.writers).name, None, "no prefill worker is ready")
        route = router.route(ticket.num_tokens, self.readers, self.writers)
        if route.prefill is not None and route.decode in self._with_both:
            return Route(route.decode, None, "its worker has both roles")
        return route


class Members(dict[str, Member]):
    """All workers by name. A fleet has hundreds and every request asks for the roster, so that it
    is made anew only after something has `changed`: who is there, who is ready, or a role.
    """

    _roster: Roster | None = None

    def __setitem__(self, name: str, member: Member) -> None:
        super().__setitem__(name, member)
        self.changed()

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self.changed()

    def changed(self) -> None:
        self._roster = None

    @property
    def roster(self) -> Roster:
        if self._roster is None:
            self._roster = Roster(self.values())
        return self._roster


def reader_of(ticket: Ticket, members: Members) -> Member | None:
    """The prefill worker it was routed to, another where that one is gone, or None."""
    if ticket.reader is not None and ticket.reader.is_ready and ticket.reader.role == "prefill":
        return ticket.reader
    readers = members.roster.readers
    return members[shortest_queue(readers).name] if readers else None
