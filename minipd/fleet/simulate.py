"""Serving on a clock that jumps: the real coordinator, routers and schedulers on simulated workers.

    result = simulate(fleet, rows, slo=SLO(ttft_s=0.5, tpot_s=0.05))

Only three things are not the engine's: steps take what a timer says, KV travels over wires, and
tokens are not computed. So what is decided is what the engine would decide, and what differs is
how long things take. The same rows give the same result every time, to the last digit. Memory does
not grow with the number of rows. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from minipd.fleet.events import Agenda, few_collections
from minipd.fleet.failures import Failure, check_failures
from minipd.fleet.fleet import Fleet, FleetError
from minipd.fleet.intake import Intake
from minipd.fleet.network import Wires
from minipd.fleet.sim_result import SimResult
from minipd.fleet.tally import Tally
from minipd.fleet.worker import SimWorker
from minipd.measure.metrics import RunMetrics
from minipd.measure.rows import TraceRow
from minipd.measure.slo import SLO
from minipd.pools import messages as m
from minipd.pools.controller import Controller
from minipd.pools.coordinator import Coordinator
from minipd.pools.tickets import Member
from minipd.request import Request
from minipd.sched.prefix_router import PrefixAware
from minipd.sched.router import Router
from minipd.timeline import TERMINAL_KINDS, Event

__all__ = ["SimResult", "Simulation", "simulate"]


class Simulation:
    """One run over one fleet; make a new one for the next.

    With `on_event` or a `controller` every step is taken by itself and tells all its events, as in
    the engine; without, equal decode steps are taken at once, some ten times faster, with the same
    result. `on_end` is called with the number of requests that have ended.
    """

    def __init__(
        self,
        fleet: Fleet,
        *,
        slo: SLO | None = None,
        failures: Iterable[Failure] = (),
        controller: Controller | None = None,
        on_event: Callable[[Event], None] | None = None,
        on_end: Callable[[int], None] | None = None,
        skip_ahead: bool = True,
    ) -> None:
        self.fleet, self.controller = fleet, controller
        self.on_event, self.on_end = on_event, on_end
        self.agenda = Agenda()
        self.wires = Wires(fleet.network, fleet.num_layers)
        tells_all = controller is not None or on_event is not None or not skip_ahead
        self._tally = None if tells_all else Tally(slo)
        self.metrics = self._tally or RunMetrics(slo, exact=False)
        self.coordinator = Coordinator(self._router(), self.agenda.clock, self._emit)
        self.workers: dict[str, SimWorker] = {}
        self.intake = Intake(fleet)
        self._num_ended = 0
        for index in range(fleet.num_workers):
            self._start(index, epoch=0)
        for failure in check_failures(failures, fleet.num_workers):
            self.agenda.at(failure.at_s, self._fail, failure)

    def run(self, rows: Iterable[TraceRow]) -> SimResult:
        """Serve the rows, which must come in order of arrival, until nothing is left to do."""
        self.intake.rows = enumerate(rows)
        self._arrive(None)
        if self.controller is not None:
            self._look(None)
        with few_collections():
            self.agenda.run(self._tend if self.controller is not None else None)
        return self._result()

    def _result(self) -> SimResult:
        summary = self.metrics.result()
        if not summary.arrived:
            reasons = "; ".join(f"each {why}" for why in self.intake.why_refused)
            raise FleetError(f"No request could be served: {reasons or 'there are none'}.")
        notes = [*self.fleet.notes, *self.intake.notes()]
        if summary.unfinished:
            notes.append(f"{summary.unfinished} request(s) wait for workers that never came back.")
        used = [w.scheduler.allocator.num_used_blocks for w in self.workers.values()]
        return SimResult(
            summary=summary,
            num_workers=self.fleet.num_workers,
            num_devices=self.fleet.num_devices,
            refused=sum(self.intake.why_refused.values()),
            leaked_blocks=0 if summary.unfinished else sum(used),
            trunk_busy_s=self.wires.trunk.busy_s,
            notes=notes,
        )

    def _router(self) -> Router:
        """A fresh one; one that goes by prefixes reads their names from the trace."""
        router, reuse = self.fleet.make_router(), self.fleet.prefix_reuse
        if isinstance(router, PrefixAware):
            router.block_size = self.fleet.block_size
            router.names = lambda request, _: self.intake.names_of(request.id) if reuse else []
        return router

    # -- requests -----------------------------------------------------------------------------

    def _arrive(self, request: Request | None) -> None:
        """Hand in the request that has arrived, and wait for the next one."""
        if request is not None:
            self.coordinator.submit(request)
        following = self.intake.next_after(self.agenda.now)
        if following is not None:
            self.agenda.at(following.arrival_s, self._arrive, following)

    def _emit(self, event: Event) -> None:
        self.metrics.feed(event)
        if self.controller is not None:
            self.controller.watch.feed(event)
        if self.on_event is not None:
            self.on_event(event)
        if event.kind in TERMINAL_KINDS:
            self.intake.forget(event.request_id)
            self._num_ended += 1
            if self.on_end is not None:
                self.on_end(self._num_ended)

    # -- workers ------------------------------------------------------------------------------

    def _start(self, index: int, epoch: int, order: m.Configure | None = None) -> Member:
        """A worker with an empty cache; from its first life on it is ready at once."""
        fleet, name, order = self.fleet, f"worker-{index}", order or self.fleet.order(index)
        worker = SimWorker(
            name,
            epoch,
            fleet.kind(index).timer,
            fleet.costs,
            self.agenda,
            self.wires,
            fleet.kv_bytes_per_token,
            partial(fleet.allocator, index, self.intake.names_of),
            self._told if not fleet.costs.message_s else self._told_later,
            self._tally,
        )
        worker.configure(order)
        self.workers[name] = worker
        member = Member(name, epoch, order.role, self._carry(worker))
        if epoch == 0:
            self.coordinator.admit_member(member)
            self.coordinator.member_ready(name)
        return member

    def _carry(self, worker: SimWorker) -> Callable[[m.ToWorker], None]:
        """How the coordinator's messages reach a worker."""
        if not self.fleet.costs.message_s:
            return worker.send
        delay_s = self.fleet.costs.message_s
        return lambda message: self.agenda.at(self.agenda.now + delay_s, worker.send, message)

    def _told_later(self, name: str, message: m.FromWorker) -> None:
        time_s = self.agenda.now + self.fleet.costs.message_s
        self.agenda.at(time_s, lambda _: self._told(name, message))

    def _told(self, name: str, message: m.FromWorker) -> None:
        if isinstance(message, m.Configured):
            self.coordinator.member_ready(name)
        else:
            self.coordinator.handle(message)

    def _fail(self, failure: Failure) -> None:
        """The worker is gone with its cache; after a while another life of it may come."""
        name = f"worker-{failure.worker}"
        worker, member = self.workers[name], self.coordinator.members.get(name)
        if worker.is_dead or member is None or not member.is_ready:
            return  # it is down already, or changing its role
        worker.stop()
        self.agenda.at(self.agenda.now + self.fleet.costs.message_s, self._lost, failure)

    def _lost(self, failure: Failure) -> None:
        """The coordinator hears of it, after the worker's last messages."""
        name = f"worker-{failure.worker}"
        worker, member = self.workers[name], self.coordinator.members[name]
        for sequence in worker.scheduler.sequences.values():
            ticket = self.coordinator.tickets.get(sequence.id)
            if ticket is not None and ticket.writer is member and sequence.is_decoding:
                ticket.output_ids[:] = sequence.output_ids  # tokens that had no event of their own
                if self._tally is not None:
                    self._tally.left(sequence.id, name)
        successor = None
        if failure.back_s is not None:
            order = self.fleet.order_as(member.role)
            successor = self._start(failure.worker, worker.epoch + 1, order)
            self.agenda.at(max(failure.back_s, self.agenda.now), self._back, name)
        self.coordinator.member_died(name, "it failed", successor)

    def _back(self, name: str) -> None:
        self.coordinator.member_ready(name)

    # -- re-balancing -------------------------------------------------------------------------

    def _look(self, _: object) -> None:
        controller = self.controller
        assert controller is not None, "only a controlled fleet is looked at"
        controller.act(self.coordinator, self._change_role)
        self.coordinator.tend()
        if not self.intake.is_over or self.coordinator.is_busy:
            self.agenda.at(self.agenda.now + controller.interval_s, self._look)

    def _tend(self) -> None:
        if self.coordinator.roles.are_under_way:
            self.coordinator.tend()

    def _change_role(self, name: str, role: m.Role, patience_s: float, reason: str) -> None:
        roles = self.coordinator.roles
        if roles.why_not(name, role) is None:
            roles.begin(name, self.fleet.order_as(role), patience_s, reason)


def simulate(
    fleet: Fleet,
    rows: Iterable[TraceRow],
    *,
    slo: SLO | None = None,
    failures: Iterable[Failure] = (),
    controller: Controller | None = None,
    on_event: Callable[[Event], None] | None = None,
    on_end: Callable[[int], None] | None = None,
) -> SimResult:
    """Serve `rows` on `fleet`; see `Simulation`. Raises `FleetError`."""
    simulation = Simulation(
        fleet,
        slo=slo,
        failures=failures,
        controller=controller,
        on_event=on_event,
        on_end=on_end,
    )
    return simulation.run(rows)
