"""A worker of a pool: the engine's loop, with messages in, messages out, and KV through a link."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Protocol

from minipd.cache.allocator import BlockAllocator
from minipd.cache.store import KVStore
from minipd.engine.batch import Chunk
from minipd.engine.text import StopWatcher
from minipd.engine.worker import Worker
from minipd.pools import messages as m
from minipd.pools.handoff import Outgoing, Receiver, layout_name
from minipd.pools.links.base import Link, LinkError, Writer
from minipd.sched.base import Scheduler
from minipd.sched.colocated import Chunked, DecodeFirst, PrefillFirst
from minipd.sched.split import DecodeOnly, PrefillOnly
from minipd.timeline import TERMINAL_KINDS, Event, EventKind, Value

POLICIES: dict[m.Policy, type[Scheduler]] = {
    "prefill_first": PrefillFirst,
    "decode_first": DecodeFirst,
    "chunked": Chunked,
    "prefill_only": PrefillOnly,
    "decode_only": DecodeOnly,
}


class PoolExecutor(Protocol):
    """A real or a paced executor."""

    store: KVStore
    on_layer: Callable[[int, Items[Chunk]], None] | None

    def run(self, chunks: list[Chunk]) -> list[int]: ...


@dataclass(slots=True)
class Identity:
    """What tells this worker, and this life of it, from every other."""

    name: str
    epoch: int
    fingerprint: str
    eos_ids: frozenset[int]


class PoolWorker:
    """Drive it with `handle` for each message and `turn` for each step; read `outbox` after."""

    def __init__(
        self,
        identity: Identity,
        executor: PoolExecutor,
        link: Link,
        stops: StopWatcher | None,
        clock: Callable[[], float],
    ) -> None:
        self.identity = identity
        self.executor = executor
        self.link = link
        self.stops = stops
        self.clock = clock
        self.outbox: list[m.FromWorker] = []
        store = executor.store
        self.receiver = Receiver(identity.name, identity.epoch, identity.fingerprint, store)
        self._peers: dict[str, m.Connect] = {}
        self._writers: dict[str, tuple[int, Writer]] = {}
        self._outgoing: dict[str, Outgoing] = {}
        self._events: list[Event] = []
        self.configure(m.Configure("both", "prefill_first", m.Limits()))

    # -- messages in --------------------------------------------------------------------------

    def handle(self, message: m.ToWorker) -> None:
        match message:
            case m.Configure():
                self.configure(message)
                self.outbox.append(m.Configured())
            case m.Connect():
                self._peers[message.name] = message
            case m.Submit():
                self.scheduler.add(
                    message.request,
                    self.clock(),
                    output_ids=message.output_ids,
                    reason=message.reason,
                )
            case m.Prefill():
                self._begin_prefill(message)
            case m.Cancel():
                self.scheduler.cancel(message.request_id, self.clock(), message.reason)
            case m.Audit():
                used, known = (
                    self.scheduler.allocator.num_used_blocks,
                    len(self.scheduler.sequences),
                )
                self.outbox.append(m.Audited(used, known))
            case m.Stop():
                raise SystemExit(0)
            case _:
                self._handle_as_decoder(message)

    def _handle_as_decoder(self, message: m.ToWorker) -> None:
        scheduler = self.scheduler
        assert isinstance(scheduler, DecodeOnly), f"{message} is for a decode worker"
        match message:
            case m.Reserve():
                scheduler.request_reservation(message.request, message.output_ids)
            case m.Commit():
                self._commit(scheduler, message.manifest)
            case m.Recover() if message.request_id in scheduler.reserved:
                scheduler.recover(message.request_id, message.token_id)
            case m.Drop() if message.request_id in scheduler.reserved and message.reason:
                sequence = scheduler.reserved[message.request_id]
                scheduler.finish(sequence, message.reason, self.clock())
            case m.Drop() if message.request_id in scheduler.reserved:
                scheduler.drop(message.request_id)
            case _:
                pass  # about a request that has ended here in the meantime

    def configure(self, message: m.Configure) -> None:
        """A new scheduler over an empty cache; the weights and the store stay."""
        assert not self._outgoing, "only an idle worker can be configured"
        layout = self.executor.store.layout
        allocator = BlockAllocator(
            layout.num_blocks,
            layout.block_size,
            prefix_reuse=message.prefix_reuse,
            prefer_runs=self.executor.store.device.type == "cpu",
        )
        self.scheduler = POLICIES[message.policy](
            self.identity.name, allocator, message.limits, self.identity.eos_ids, self.stops
        )
        self.worker = Worker(self.executor, self.scheduler, self.clock)

    # -- one turn of the loop -----------------------------------------------------------------

    def turn(self) -> bool:
        """Reserve, run a step, move hand-offs on, report; True when something happened."""
        self._reserve_pending()
        self.executor.on_layer = self._layer_done if self._outgoing else None
        self._events.extend(self.worker.step())
        self._advance_handoffs()
        did_something = bool(self._events)
        self._report()
        return did_something

    @property
    def is_sending(self) -> bool:
        return bool(self._outgoing)

    def _report(self) -> None:
        """All events of this turn in one message, ahead of the messages that follow from them."""
        if self._events:
            self._forget_finished()
            self.outbox.insert(0, m.Happened(tuple(self._events)))
            self._events.clear()

    def _reserve_pending(self) -> None:
        if isinstance(self.scheduler, DecodeOnly):
            for sequence in self.scheduler.reserve_pending(self.clock()):
                self.outbox.append(
                    m.Reserved(sequence.id, tuple(sequence.block_ids), sequence.num_cached_tokens)
                )

    # -- sending ------------------------------------------------------------------------------

    def _begin_prefill(self, order: m.Prefill) -> None:
        writer = self._writer(order.target, order.target_epoch)
        block_size = self.executor.store.layout.block_size
        self._outgoing[order.request.id] = Outgoing(order, writer.begin(), block_size)
        self.scheduler.add(
            order.request, self.clock(), output_ids=order.output_ids, reason=order.reason
        )

    def _writer(self, target: str, epoch: int) -> Writer:
        """The connection to this life of the target, opened at its first use."""
        known = self._writers.get(target)
        if known is None or known[0] != epoch:
            peer = self._peers[target]
            known = (epoch, self.link.connect(self.executor.store, peer.registration))
            self._writers[target] = known
        return known[1]

    def _layer_done(self, layer: int, chunks: Items[Chunk]) -> None:
        for chunk in chunks:
            outgoing = self._outgoing.get(chunk.request_id)
            if outgoing is not None:
                if layer == 0:
                    self._note(outgoing, "handoff_started", target=outgoing.order.target)
                outgoing.layer_done(layer, chunk)

    def _advance_handoffs(self) -> None:
        scheduler = self.scheduler
        for request_id, outgoing in list(self._outgoing.items()):
            if request_id not in scheduler.sequences:  # ended here: cancelled, or one token long
                if outgoing.transfer.poll():
                    del self._outgoing[request_id]
                    self.outbox.append(m.Drained(request_id))
            elif isinstance(scheduler, PrefillOnly) and request_id in scheduler.handing_off:
                self._advance(scheduler, outgoing)

    def _advance(self, scheduler: PrefillOnly, outgoing: Outgoing) -> None:
        request_id = outgoing.order.request.id
        if outgoing.token_id < 0:
            outgoing.token_id = scheduler.handing_off[request_id].output_ids[-1]
            outgoing.prefilled_s = self.clock()
        try:
            arrived = outgoing.transfer.poll()
        except LinkError as error:
            failed = m.HandOffFailed(request_id, outgoing.token_id, str(error))
            self._end_handoff(scheduler, outgoing, failed)
            return
        if arrived:
            me = self.identity
            layout = layout_name(self.executor.store.layout)
            manifest = outgoing.manifest(me.name, me.epoch, me.fingerprint, layout)
            self._end_handoff(scheduler, outgoing, m.HandedOff(manifest))

    def _end_handoff(
        self, scheduler: PrefillOnly, outgoing: Outgoing, message: m.FromWorker
    ) -> None:
        transfer = outgoing.transfer
        self._note(
            outgoing,
            "handoff_finished",
            target=outgoing.order.target,
            bytes=transfer.num_bytes,
            exposed_s=self.clock() - outgoing.prefilled_s,
            copy_s=transfer.busy_s,
        )
        del self._outgoing[outgoing.order.request.id]
        scheduler.handed_off(outgoing.order.request.id)
        self.outbox.append(message)

    # -- receiving ----------------------------------------------------------------------------

    def _commit(self, scheduler: DecodeOnly, manifest: m.Manifest) -> None:
        """Verify, then decode; what does not verify is computed here instead."""
        sequence = scheduler.reserved.get(manifest.request_id)
        if sequence is None:
            return
        began = self.clock()
        reason = self.receiver.why_refuse(manifest, sequence)
        if reason is not None:
            scheduler.emit(self.clock(), "handoff_refused", sequence, reason=reason)
            scheduler.recover(manifest.request_id, manifest.token_id)
            self.outbox.append(m.Refused(manifest.request_id, reason))
            return
        scheduler.commit(manifest.request_id, manifest.token_id)
        now = self.clock()
        scheduler.emit(now, "committed", sequence, bytes=manifest.num_bytes, verify_s=now - began)

    def _note(self, outgoing: Outgoing, kind: EventKind, **data: Value) -> None:
        request_id = outgoing.order.request.id
        self._events.append(Event(self.clock(), kind, self.identity.name, request_id, data))

    def _forget_finished(self) -> None:
        for event in self._events:
            if self.stops and event.kind in (*TERMINAL_KINDS, "handoff_finished"):
                self.stops.forget(event.request_id)
