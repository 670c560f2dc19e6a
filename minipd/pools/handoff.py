"""Both ends of a hand-off: what the prefill worker sends, and what the decode worker accepts."""

from __future__ import annotations

from dataclasses import dataclass

from minipd.cache.store import KVLayout, KVStore
from minipd.engine.batch import Chunk
from minipd.pools.links.base import Digests, Transfer
from minipd.pools.messages import Manifest, Prefill
from minipd.request import Sequence


def layout_name(layout: KVLayout) -> str:
    """What two stores must share for blocks to fit; the number of blocks may differ."""
    return (
        f"{layout.num_layers} layers, {layout.block_size} tokens, {layout.num_kv_heads} KV heads "
        f"of {layout.head_dim}, {str(layout.dtype).removeprefix('torch.')}"
    )


class Outgoing:
    """A prompt on its way out, layer by layer while the layers above are still running."""

    def __init__(self, order: Prefill, transfer: Transfer, block_size: int) -> None:
        self.order = order
        self.transfer = transfer
        self.prefilled_s = 0.0  # when the prefill ended; what comes later is exposed
        self.token_id = -1
        self._first_block = order.cached_tokens // block_size

    def layer_done(self, layer: int, chunk: Chunk) -> None:
        """The prompt's KV of this layer is in the store: send what the target does not have."""
        assert chunk.sampling is not None, "a prefill worker runs a prompt to its end in one step"
        wanted = slice(self._first_block, len(self.order.block_ids))
        self.transfer.write(layer, chunk.block_ids[wanted], self.order.block_ids[wanted])

    def manifest(self, worker: str, epoch: int, fingerprint: str, layout: str) -> Manifest:
        order = self.order
        return Manifest(
            request_id=order.request.id,
            source=worker,
            source_epoch=epoch,
            target=order.target,
            target_epoch=order.target_epoch,
            fingerprint=fingerprint,
            layout=layout,
            block_ids=order.block_ids,
            first_token=order.cached_tokens,
            num_tokens=order.request.num_prompt_tokens + len(order.output_ids),
            digests=self.transfer.digests(),
            num_bytes=self.transfer.num_bytes,
            token_id=self.token_id,
        )


@dataclass(frozen=True, slots=True)
class Receiver:
    """What a decode worker holds a manifest against."""

    name: str
    epoch: int
    fingerprint: str
    store: KVStore

    def why_refuse(self, manifest: Manifest, sequence: Sequence) -> str | None:
        """None when the KV may be used, else the first thing that does not match."""
        expected = {
            "target": (manifest.target, self.name),
            "epoch": (manifest.target_epoch, self.epoch),
            "model": (manifest.fingerprint, self.fingerprint),
            "layout": (manifest.layout, layout_name(self.store.layout)),
            "blocks": (list(manifest.block_ids), sequence.block_ids),
            "cached tokens": (manifest.first_token, sequence.num_cached_tokens),
            "tokens": (manifest.num_tokens, sequence.num_tokens),
        }
        for what, (sent, held) in expected.items():
            if sent != held:
                return f"the {what} of the hand-off is {sent}, but here it is {held}"
        return self._why_refuse_bytes(manifest)

    def _why_refuse_bytes(self, manifest: Manifest) -> str | None:
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
