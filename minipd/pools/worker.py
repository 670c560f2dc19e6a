"""A worker of a pool: the engine's loop, with messages in, messages out, and KV through a link."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from typing import Protocol

from minipd.cache.allocator import BlockAllocator
from minipd.cache.store import KVStore
from minipd.cache.tiers import KVTiers
from minipd.engine.batch import Chunk
from minipd.engine.text import StopWatcher
from minipd.engine.worker import Worker
from minipd.pools import messages as m
from minipd.pools.handoff import Identity, Receiver, Sender
from minipd.pools.links.base import Link
from minipd.pools.streams import compute_mark
from minipd.sched.base import Scheduler
from minipd.sched.colocated import Chunked, DecodeFirst, PrefillFirst
from minipd.sched.prefix_router import forgotten_by
from minipd.sched.split import DecodeOnly, PrefillOnly
from minipd.timeline import TERMINAL_KINDS, Event

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


class PoolWorker:
    """Drive it with `handle` for each message, then `reserve`, then `turn`; empty its `outbox`."""

    def __init__(
        self,
        identity: Identity,
        executor: PoolExecutor,
        link: Link,
        stops: StopWatcher | None,
        clock: Callable[[], float],
        tiers: KVTiers | None = None,
    ) -> None:
        self.identity = identity
        self.executor = executor
        self.link = link
        self.stops = stops
        self.clock = clock
        self.tiers = tiers
        self.outbox: list[m.FromWorker] = []
        self.receiver = Receiver(identity, executor.store)
        self.sender = Sender(identity, executor.store, link, clock)
        self.configure(m.Configure("both", "prefill_first", m.Limits()))

    # -- messages in --------------------------------------------------------------------------

    def handle(self, message: m.ToWorker) -> None:
        match message:
            case m.Configure():
                assert not (self.scheduler.has_work or self.is_sending), "it is not idle"
                self.configure(message)
                self.outbox.append(m.Configured())
            case m.Connect():
                self.sender.peers[message.name] = message
                self._connect_peers()
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
                used = self.scheduler.allocator.num_used_blocks
                self.outbox.append(m.Audited(used, len(self.scheduler.sequences)))
            case m.TellForgotten():
                self.scheduler.allocator.forgotten = []
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
            case m.Drop() if message.request_id in scheduler.reserved:
                scheduler.drop(message.request_id)
            case _:
                pass  # about a request that has ended here in the meantime

    def configure(self, message: m.Configure) -> None:
        """A new scheduler over an empty cache and empty tiers; the weights and the store stay."""
        layout = self.executor.store.layout
        allocator = BlockAllocator(
            layout.num_blocks,
            layout.block_size,
            prefix_reuse=message.prefix_reuse,
            prefer_runs=self.executor.store.device.type == "cpu",
            books=self.tiers.new_books() if self.tiers is not None else None,
        )
        self.scheduler = POLICIES[message.policy](
            self.identity.name, allocator, message.limits, self.identity.eos_ids, self.stops
        )
        self.worker = Worker(self.executor, self.scheduler, self.clock, self.tiers)
        self._connect_peers()

    def _connect_peers(self) -> None:
        if isinstance(self.scheduler, PrefillOnly):
            self.sender.connect_peers()

    # -- one turn of the loop -----------------------------------------------------------------

    def reserve(self) -> None:
        """Make the reservations that fit. Send them before the turn: a prefill waits for each."""
        if isinstance(self.scheduler, DecodeOnly):
            reserved = self.scheduler.reserve_pending(self.clock())
            if reserved:  # what the blocks' last owner had running on them must be over
                compute_mark(self.executor.store.device).synchronize()
            if self.tiers is not None:
                self.worker.move_blocks(self.tiers, None)
                reserved = [s for s in reserved if s.id in self.scheduler.reserved]
            for sequence in reserved:
                self.outbox.append(
                    m.Reserved(sequence.id, tuple(sequence.block_ids), sequence.num_cached_tokens)
                )

    def turn(self) -> bool:
        """Run a step, move hand-offs on, report; True when something happened."""
        self.executor.on_layer = self.sender.layer_done if self.sender.outgoing else None
        events = self.worker.step()
        self.link.progress()
        if isinstance(self.scheduler, PrefillOnly):
            self.outbox.extend(self.sender.advance(self.scheduler))
        events += self.sender.events
        self.sender.events = []
        if events:  # in one message, ahead of the messages that follow from them
            self._forget_texts(events)
            self.outbox.insert(0, m.Happened(tuple(events)))
        if gone := forgotten_by(self.scheduler.allocator):
            self.outbox.insert(0, m.Forgotten(self.identity.name, gone))
        return bool(events)

    @property
    def is_sending(self) -> bool:
        return bool(self.sender.outgoing)

    def _forget_texts(self, events: list[Event]) -> None:
        for event in events:
            if self.stops and event.kind in (*TERMINAL_KINDS, "handoff_finished"):
                self.stops.forget(event.request_id)

    # -- hand-offs ----------------------------------------------------------------------------

    def _begin_prefill(self, order: m.Prefill) -> None:
        self.sender.begin(order)
        self.scheduler.add(
            order.request, self.clock(), output_ids=order.output_ids, reason=order.reason
        )

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
