"""Both ends of a hand-off: what the prefill worker sends, and what the decode worker accepts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from minipd.cache.store import KVLayout, KVStore
from minipd.engine.batch import Chunk
from minipd.pools import messages as m
from minipd.pools.links.base import BrokenTransfer, Link, LinkError, Transfer, Writer
from minipd.pools.links.digests import Digests
from minipd.request import Sequence
from minipd.sched.split import PrefillOnly
from minipd.timeline import Event, EventKind, Value


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells this worker, and this life of it, from every other."""

    name: str
    epoch: int
    fingerprint: str
    eos_ids: frozenset[int]


def layout_name(layout: KVLayout) -> str:
    """What two stores must share for blocks to fit; the number of blocks may differ."""
    return (
        f"{layout.num_layers} layers, {layout.block_size} tokens, {layout.num_kv_heads} KV heads "
        f"of {layout.head_dim}, {str(layout.dtype).removeprefix('torch.')}"
    )


@dataclass(slots=True, eq=False)
class Outgoing:
    """A prompt on its way out, layer by layer while the layers above are still running."""

    order: m.Prefill
    transfer: Transfer
    wanted: slice  # of the prompt's blocks: those that the target does not hold already
    prefilled_s: float = 0.0  # when the prefill ended; what comes later is exposed
    token_id: int | None = None

    def layer_done(self, layer: int, chunk: Chunk) -> None:
        """The prompt's KV of this layer is in the store: send what the target does not have."""
        assert chunk.sampling is not None, "a prefill worker runs a prompt to its end in one step"
        into = self.order.block_ids[self.wanted]
        self.transfer.write(layer, chunk.block_ids[self.wanted], into)


@dataclass(slots=True)
class Sender:
    """All hand-offs of one prefill worker; `events` are for the worker to report."""

    identity: Identity
    store: KVStore
    link: Link
    clock: Callable[[], float]
    events: list[Event] = field(default_factory=list[Event])
    peers: dict[str, m.Connect] = field(default_factory=dict[str, m.Connect])
    outgoing: dict[str, Outgoing] = field(default_factory=dict[str, Outgoing])
    _writers: dict[str, tuple[int, Writer]] = field(default_factory=dict[str, tuple[int, Writer]])

    def begin(self, order: m.Prefill) -> None:
        """Get ready to send; a target that cannot be reached shows when the prompt is read."""
        try:
            transfer = self._writer(order.target, order.target_epoch).begin()
        except (LinkError, OSError, RuntimeError, KeyError) as error:
            transfer = BrokenTransfer(f"no link to {order.target}: {error}")
        first = order.cached_tokens // self.store.layout.block_size
        wanted = slice(first, len(order.block_ids))
        self.outgoing[order.request.id] = Outgoing(order, transfer, wanted)

    def connect_peers(self) -> None:
        """Open all connections ahead of time; one that fails is tried again when it is needed."""
        for name, peer in self.peers.items():
            with contextlib.suppress(LinkError, OSError, RuntimeError):
                self._writer(name, peer.epoch)

    def _writer(self, target: str, epoch: int) -> Writer:
        """The connection to this life of the target, opened where it is not yet."""
        known = self._writers.get(target)
        if known is None or known[0] != epoch:
            if known is not None:
                known[1].close()
            writer = self.link.connect(self.store, self.peers[target].registration)
            known = self._writers[target] = (epoch, writer)
        return known[1]

    def layer_done(self, layer: int, chunks: Items[Chunk]) -> None:
        """The executor's hook: send this layer of every prompt that is being read."""
        for chunk in chunks:
            outgoing = self.outgoing.get(chunk.request_id)
            if outgoing is not None:
                if layer == 0:
                    self._note_start(outgoing)
                outgoing.layer_done(layer, chunk)

    def advance(self, scheduler: PrefillOnly) -> list[m.FromWorker]:
        """Move every hand-off on; what has ended is told, and its blocks here are given back."""
        told: list[m.FromWorker] = []
        for request_id, outgoing in list(self.outgoing.items()):
            is_over = request_id not in scheduler.sequences  # cancelled, or one token long
            if not is_over and request_id not in scheduler.handing_off:
                continue  # still being read
            if not is_over and outgoing.token_id is None:
                outgoing.token_id = scheduler.handing_off[request_id].output_ids[-1]
                outgoing.prefilled_s = self.clock()
            message = self._outcome(request_id, outgoing)
            if message is None:
                continue  # bytes are still on the wire
            told.append(message)
            del self.outgoing[request_id]
            if not is_over:
                self._note_end(outgoing, message)
                scheduler.handed_off(request_id)
        return told

    def _outcome(
        self, request_id: str, outgoing: Outgoing
    ) -> m.Drained | m.HandedOff | m.HandOffFailed | None:
        try:
            if not outgoing.transfer.poll():
                return None
        except LinkError as error:
            if outgoing.token_id is not None:
                return m.HandOffFailed(request_id, outgoing.token_id, str(error))
        if outgoing.token_id is None:
            return m.Drained(request_id)
        return m.HandedOff(self._manifest(outgoing, outgoing.token_id))

    def _manifest(self, outgoing: Outgoing, token_id: int) -> m.Manifest:
        order, me = outgoing.order, self.identity
        return m.Manifest(
            request_id=order.request.id,
            source=me.name,
            source_epoch=me.epoch,
            target=order.target,
            target_epoch=order.target_epoch,
            fingerprint=me.fingerprint,
            layout=layout_name(self.store.layout),
            block_ids=order.block_ids,
            first_token=order.cached_tokens,
            num_tokens=order.request.num_prompt_tokens + len(order.output_ids),
            digests=outgoing.transfer.digests(),
            num_bytes=outgoing.transfer.num_bytes,
            token_id=token_id,
        )

    def _note_start(self, outgoing: Outgoing) -> None:
        layout, order = self.store.layout, outgoing.order
        num_blocks = len(order.block_ids[outgoing.wanted])
        planned = 2 * layout.num_layers * num_blocks * layout.block_bytes
        self._note(outgoing, "handoff_started", target=order.target, bytes=planned)

    def _note_end(self, outgoing: Outgoing, message: m.FromWorker) -> None:
        if isinstance(message, m.HandOffFailed):
            to, reason = outgoing.order.target, message.reason
            return self._note(outgoing, "handoff_failed", target=to, reason=reason)
        self._note(
            outgoing,
            "handoff_finished",
            target=outgoing.order.target,
            bytes=outgoing.transfer.num_bytes,
            exposed_s=self.clock() - outgoing.prefilled_s,
            copy_s=outgoing.transfer.busy_s,
        )

    def _note(self, outgoing: Outgoing, kind: EventKind, **data: Value) -> None:
        request_id = outgoing.order.request.id
        self.events.append(Event(self.clock(), kind, self.identity.name, request_id, data))


@dataclass(frozen=True, slots=True)
class Receiver:
    """What a decode worker holds a manifest against."""

    identity: Identity
    store: KVStore

    def why_refuse(self, manifest: m.Manifest, sequence: Sequence) -> str | None:
        """None when the KV may be used, else the first thing that does not match."""
        me = self.identity
        expected = {
            "target": (manifest.target, me.name),
            "epoch": (manifest.target_epoch, me.epoch),
            "model": (manifest.fingerprint, me.fingerprint),
            "layout": (manifest.layout, layout_name(self.store.layout)),
            "blocks": (list(manifest.block_ids), sequence.block_ids),
            "cached tokens": (manifest.first_token, sequence.num_cached_tokens),
            "tokens": (manifest.num_tokens, sequence.num_tokens),
        }
        for what, (sent, held) in expected.items():
            if sent != held:
                return f"the {what} of the hand-off is {sent}, but here it is {held}"
        return self._why_refuse_bytes(manifest)

    def _why_refuse_bytes(self, manifest: m.Manifest) -> str | None:
        digests = Digests(self.store)
        written = manifest.block_ids[manifest.first_token // self.store.layout.block_size :]
        for layer in range(self.store.layout.num_layers):
            digests.add(layer, written)
        found = digests.result()
        if len(manifest.digests) != len(found):
            return f"{len(manifest.digests)} digests were sent for {len(found)} tensors"
        wrong = [i for i, pair in enumerate(zip(manifest.digests, found)) if pair[0] != pair[1]]
        if wrong:
            kind = "values" if wrong[0] % 2 else "keys"
            return f"the {kind} of layer {wrong[0] // 2} do not match their digest"
        return None
