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
        self.readers: list[Member] = []
        self.writers: list[Member] = []
        self.coming: set[Role] = set()
        for x in members:  # one pass: a fleet has hundreds, and every request asks
            if not x.is_ready:
                self.coming.add(x.next_role)
            elif x.role == "prefill":
                self.readers.append(x)
            else:
                self.writers.append(x)

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
        readers, writers = [x.load for x in self.readers], [x.load for x in self.writers]
        if not readers and isinstance(router, NEED_READERS):
            return Route(least_running(writers).name, None, "no prefill worker is ready")
        route = router.route(ticket.num_tokens, readers, writers)
        role = next(x.role for x in self.writers if x.name == route.decode)
        if role == "both" and route.prefill is not None:
            return Route(route.decode, None, "its worker has both roles")
        return route


def reader_of(ticket: Ticket, members: Iterable[Member]) -> Member | None:
    """The prefill worker it was routed to, another where that one is gone, or None."""
    if ticket.reader is not None and ticket.reader.is_ready and ticket.reader.role == "prefill":
        return ticket.reader
    readers = {x.load.name: x for x in Roster(members).readers}
    return readers[shortest_queue([x.load for x in readers.values()]).name] if readers else None
