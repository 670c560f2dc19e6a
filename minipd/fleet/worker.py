"""A worker of a simulated fleet: the real schedulers and the real messages, on a clock that jumps.

It does what a pool's worker does, in the same order; KV travels over wires instead of links.
"""

from __future__ import annotations

from collections.abc import Callable

from minipd.cache.allocator import BlockAllocator
from minipd.engine.batch import Batch
from minipd.fleet.events import Agenda
from minipd.fleet.kvpool import SharedBlocks
from minipd.fleet.network import Wires
from minipd.fleet.timers import Timer
from minipd.fleet.turns import Turning
from minipd.fleet.under_way import Costs, Observer, Step
from minipd.pools import messages as m
from minipd.request import Sequence
from minipd.sched.base import Scheduler
from minipd.sched.colocated import Chunked, DecodeFirst, PrefillFirst
from minipd.sched.split import DecodeOnly, PrefillOnly
from minipd.timeline import Event

POLICIES: dict[m.Policy, type[Scheduler]] = {
    "prefill_first": PrefillFirst,
    "decode_first": DecodeFirst,
    "chunked": Chunked,
    "prefill_only": PrefillOnly,
    "decode_only": DecodeOnly,
}


class SimWorker(Turning):
    """One life of a worker. `allocator` makes an empty cache, `report` carries its messages to the
    coordinator; a token of KV has `kv_bytes_per_token`."""

    def __init__(
        self,
        name: str,
        epoch: int,
        timer: Timer,
        costs: Costs,
        agenda: Agenda,
        wires: Wires,
        kv_bytes_per_token: float,
        allocator: Callable[[], BlockAllocator],
        report: Callable[[str, m.FromWorker], None],
        observer: Observer | None = None,
    ) -> None:
        super().__init__(name, timer, costs, agenda, observer)
        self.epoch, self.wires, self.kv_bytes_per_token = epoch, wires, kv_bytes_per_token
        self._allocator, self._report = allocator, report
        self._orders: dict[str, m.Prefill] = {}

    def configure(self, order: m.Configure) -> None:
        """A new scheduler over an empty cache."""
        policy = POLICIES[order.policy]
        self.scheduler = policy(self.name, self._allocator(), order.limits)

    def flush(self) -> None:
        outbox, self.outbox = self.outbox, []
        for message in outbox:
            self._report(self.name, message)

    # -- messages -----------------------------------------------------------------------------

    def handle(self, message: m.ToWorker) -> float:
        now, scheduler = self.agenda.now, self.scheduler
        match message:
            case m.Submit():
                outputs, reason = message.output_ids, message.reason
                scheduler.add(message.request, now, output_ids=outputs, reason=reason)
            case m.Prefill():
                self._orders[message.request.id] = message
                outputs, reason = message.output_ids, message.reason
                scheduler.add(message.request, now, output_ids=outputs, reason=reason)
            case m.Cancel():
                scheduler.cancel(message.request_id, now, message.reason)
                self._drain([message.request_id])
            case m.TellForgotten():
                blocks = scheduler.allocator
                if not (isinstance(blocks, SharedBlocks) and blocks.tier):  # a tier forgets nothing
                    blocks.forgotten = []
            case m.Configure():
                self.configure(message)
                self.outbox.append(m.Configured())
            case _ if isinstance(scheduler, DecodeOnly):
                return self._handle_as_decoder(scheduler, message)
            case _:
                pass
        return 0.0

    def _handle_as_decoder(self, scheduler: DecodeOnly, message: m.ToWorker) -> float:
        match message:
            case m.Reserve():
                scheduler.request_reservation(message.request, message.output_ids)
            case m.Commit() if message.manifest.request_id in scheduler.reserved:
                return self._commit(scheduler, message.manifest)
            case m.Recover() if message.request_id in scheduler.reserved:
                scheduler.recover(message.request_id, message.token_id)
            case m.Drop() if message.request_id in scheduler.reserved:
                scheduler.drop(message.request_id)
            case _:
                pass  # about a request that has ended here in the meantime
        return 0.0

    def _commit(self, scheduler: DecodeOnly, manifest: m.Manifest) -> float:
        """The sequence joins the next step; checking its KV comes first."""
        sequence = scheduler.reserved[manifest.request_id]
        scheduler.commit(manifest.request_id, manifest.token_id)
        if self.observer is not None:
            self.observer.joined(self.name, sequence.id)
        verify_s = self.costs.verify_s + manifest.num_bytes * self.costs.verify_s_per_byte
        told = {"bytes": manifest.num_bytes, "verify_s": verify_s}
        scheduler.emit(self.agenda.now + verify_s, "committed", sequence, **told)
        return verify_s

    def reserve(self) -> list[m.Reserved]:
        if not (isinstance(self.scheduler, DecodeOnly) and self.scheduler.pending):
            return []
        return [
            m.Reserved(s.id, tuple(s.block_ids), s.num_cached_tokens)
            for s in self.scheduler.reserve_pending(self.agenda.now)
        ]

    # -- hand-offs ----------------------------------------------------------------------------

    def extra_s(self, batch: Batch) -> float:
        if not (self.costs.copy_s_per_byte and self._orders):
            return 0.0
        orders = [self._orders.get(chunk.request_id) for chunk in batch.chunks]
        return self.costs.copy_s_per_byte * sum(self._bytes_of(x) for x in orders if x is not None)

    def _bytes_of(self, order: m.Prefill) -> int:
        """Whole blocks travel, but for those that the target holds already."""
        size = self.scheduler.allocator.block_size
        num_blocks = len(order.block_ids) - order.cached_tokens // size
        return round(num_blocks * size * self.kv_bytes_per_token)

    def after_step(self, step: Step, end_s: float) -> None:
        """Report, and send the KV of the prompts that were read; in a pipeline both come later."""
        self._tell_events()
        if not isinstance(self.scheduler, PrefillOnly):
            return
        read = [c.request_id for c in step.batch.chunks]
        told, self.outbox = self.outbox, []
        began = (step.batch.start_s, end_s)
        self._later(end_s, lambda: self._hand_off(told, read, began))

    def _later(self, time_s: float, act: Callable[[], None]) -> None:
        """Act at that time, if this life lasts so long; at once where it is now."""
        if time_s > self.agenda.now:
            self.agenda.at(time_s, lambda _: None if self.is_dead else act())
        else:
            act()

    def _hand_off(
        self, told: list[m.FromWorker], read: list[str], began: tuple[float, float]
    ) -> None:
        self.outbox += told
        self._drain(read)
        assert isinstance(self.scheduler, PrefillOnly), "only prefill workers hand off"
        for request_id in read:
            if request_id in self._orders:
                self._send(
                    self._orders.pop(request_id), self.scheduler.handing_off[request_id], began
                )
        self._tell_events()
        self.flush()

    def _drain(self, request_ids: list[str]) -> None:
        """Of those that have ended here nothing will be written any more."""
        for request_id in request_ids:
            if request_id in self._orders and request_id not in self.scheduler.sequences:
                del self._orders[request_id]
                self._tell_events()
                self.outbox.append(m.Drained(request_id))

    def _send(self, order: m.Prefill, sequence: Sequence, began: tuple[float, float]) -> None:
        num_bytes, (start_s, end_s) = self._bytes_of(order), began
        sent_s, copy_s = self.wires.send(self.name, order.target, num_bytes, start_s, end_s)
        told = {"target": order.target, "bytes": num_bytes}
        first_s = start_s + (end_s - start_s) / self.wires.num_layers
        self.scheduler.emit(first_s, "handoff_started", sequence, **told)
        told |= {"exposed_s": sent_s - end_s, "copy_s": copy_s}
        manifest = self._manifest(order, sequence, num_bytes)
        done = Event(sent_s, "handoff_finished", self.name, sequence.id, dict(told))
        self._later(sent_s, lambda: self._sent(manifest, done))

    def _sent(self, manifest: m.Manifest, done: Event) -> None:
        assert isinstance(self.scheduler, PrefillOnly), "only prefill workers hand off"
        self.scheduler.handed_off(manifest.request_id)
        self._tell_events()
        self.outbox += [m.Happened((done,)), m.HandedOff(manifest)]
        self.flush()
        if self.scheduler.waiting:
            self.wake()  # its blocks are free: a prompt may have waited for them

    def _manifest(self, order: m.Prefill, sequence: Sequence, num_bytes: int) -> m.Manifest:
        return m.Manifest(
            request_id=order.request.id,
            source=self.name,
            source_epoch=self.epoch,
            target=order.target,
            target_epoch=order.target_epoch,
            fingerprint="",
            layout="",
            block_ids=order.block_ids,
            first_token=order.cached_tokens,
            num_tokens=sequence.num_tokens - 1,
            digests=(),
            num_bytes=num_bytes,
            token_id=sequence.output_ids[-1],
        )
