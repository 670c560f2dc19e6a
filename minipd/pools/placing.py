"""Where a ticket goes, given the workers that there are: nothing is changed here, only answered."""

from __future__ import annotations

from collections.abc import Iterable

from minipd.pools.messages import Role
from minipd.pools.tickets import Member, Ticket
from minipd.sched.router import Route, Router, least_running
from minipd.timeline import EventKind

MAX_ATTEMPTS = 3


class Roster:
    """The workers of one moment: those that are `ready`, and the roles of those `coming`."""

    def __init__(self, members: Iterable[Member]) -> None:
        everyone = list(members)
        ready = [x for x in everyone if x.is_ready]
        self.readers = [x for x in ready if x.role == "prefill"]
        self.writers = [x for x in ready if x.role != "prefill"]
        self.coming: set[Role] = {x.role for x in everyone if not x.is_ready}

    @property
    def is_split(self) -> bool:
        return not any(x.role == "both" for x in self.writers)

    def why_end(self, ticket: Ticket) -> tuple[EventKind, str] | None:
        """The terminal event and its reason, for a ticket that no worker shall have any more."""
        if ticket.cancel_reason is not None:
            return "cancelled", ticket.cancel_reason
        if ticket.attempts >= MAX_ATTEMPTS:
            return "failed", f"its worker died {MAX_ATTEMPTS} times"
        if not self.writers and not self.coming & {"decode", "both"}:
            return "failed", "no decode worker is left, and none can be restarted"
        return None

    @property
    def must_wait(self) -> bool:
        """Is a worker on its way without whom nothing should begin?"""
        return not self.writers or (self.is_split and not self.readers and "prefill" in self.coming)

    def route(self, ticket: Ticket, router: Router) -> Route:
        readers, writers = [x.load for x in self.readers], [x.load for x in self.writers]
        if self.is_split and not readers:
            return Route(least_running(writers).name, None, "no prefill worker is left")
        return router.route(ticket.num_tokens, readers, writers)
