"""What a simulated fleet consists of: workers of two kinds, a way of serving, a network.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from minipd.cache.allocator import BlockAllocator
from minipd.fleet.kvpool import CountedBlocks, SharedBlocks, Tier
from minipd.fleet.network import Network
from minipd.fleet.timers import Timer
from minipd.fleet.under_way import Costs
from minipd.pools import messages as m
from minipd.sched.limits import Limits
from minipd.sched.router import NEED_READERS, AlwaysRemote, RoundRobin, Router

Mode = Literal["colocated", "decode_first", "chunked", "disaggregated"]
COLOCATED_POLICY: dict[Mode, m.Policy] = {
    "colocated": "prefill_first",
    "decode_first": "decode_first",
    "chunked": "chunked",
}


class FleetError(ValueError):
    """A fleet that cannot serve, or a workload that it cannot take; says what to change."""


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """A worker's hardware: how long its steps take, the tokens of KV that it holds, and the devices
    that it is made of (for figures per device)."""

    timer: Timer
    kv_tokens: int
    num_devices: int = 1
    tier: Callable[[], Tier] | None = None  # for what its own memory forgets


@dataclass(frozen=True, slots=True)
class Fleet:
    """`num_prefill` + `num_decode` workers in the split, all of them both otherwise; the first
    `num_prefill` are of the kind `prefill`. Bytes are per token of KV over a whole replica.

    `max_context` 0 sets no limit. `max_batch_tokens` of `limits` is what a prefill step reads,
    `chunk_tokens` the budget of a step that also decodes.
    """

    prefill: WorkerKind
    decode: WorkerKind
    mode: Mode = "disaggregated"
    num_prefill: int = 1
    num_decode: int = 1
    limits: Limits = Limits(max_running=256, max_batch_tokens=2048)
    chunk_tokens: int = 512
    block_size: int = 16
    kv_bytes_per_token: float = 0.0
    num_layers: int = 1
    max_context: int = 0
    network: Network = Network()
    costs: Costs = Costs()
    prefix_reuse: bool = False
    router: Callable[[], Router] | None = None
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if min(self.num_prefill, self.num_decode) < 0 or self.num_workers < 1:
            raise FleetError("A fleet needs at least 1 worker; give whole numbers from 0.")
        if self.mode == "disaggregated" and min(self.num_prefill, self.num_decode) < 1:
            raise FleetError("A split needs at least 1 prefill and 1 decode worker.")
        if min(self.chunk_tokens, self.block_size) < 1:
            raise FleetError("Chunks and blocks need at least 1 token.")
        for kind in self.kinds:
            if kind.kv_tokens < self.block_size:
                raise FleetError(
                    f"A worker with room for {kind.kv_tokens} tokens of KV has not one block of "
                    f"{self.block_size}; give it more memory."
                )

    @property
    def num_workers(self) -> int:
        return self.num_prefill + self.num_decode

    @property
    def num_devices(self) -> int:
        first, second = self.prefill.num_devices, self.decode.num_devices
        return self.num_prefill * first + self.num_decode * second

    @property
    def kinds(self) -> list[WorkerKind]:
        """The kinds of which there is a worker."""
        counted = ((self.prefill, self.num_prefill), (self.decode, self.num_decode))
        return [kind for kind, number in counted if number]

    def kind(self, index: int) -> WorkerKind:
        return self.prefill if index < self.num_prefill else self.decode

    def order(self, index: int) -> m.Configure:
        """What worker `index` begins as: prefill workers come first."""
        if self.mode != "disaggregated":
            return self.order_as("both")
        return self.order_as("prefill" if index < self.num_prefill else "decode")

    def order_as(self, role: m.Role) -> m.Configure:
        """The scheduler and the limits of a role: as in `minipd.pools.setup`."""
        if role == "prefill":
            return m.Configure(role, "prefill_only", self.limits, self.prefix_reuse)
        policy = "decode_only" if role == "decode" else COLOCATED_POLICY.get(self.mode, "chunked")
        shares_steps = policy in ("decode_only", "chunked")
        budget = self.chunk_tokens if shares_steps else self.limits.max_batch_tokens
        limits = replace(self.limits, max_batch_tokens=budget)
        return m.Configure(role, policy, limits, self.prefix_reuse)

    def allocator(self, index: int, names: Callable[[str], list[bytes]]) -> BlockAllocator:
        """An empty cache for worker `index`."""
        kind = self.kind(index)
        num_blocks = kind.kv_tokens // self.block_size
        if not self.prefix_reuse:
            return CountedBlocks(num_blocks, self.block_size)
        tier = kind.tier() if kind.tier is not None else None
        return SharedBlocks(num_blocks, self.block_size, names, tier)

    def make_router(self) -> Router:
        router = self.router() if self.router is not None else None
        if self.mode == "disaggregated":
            return router or AlwaysRemote()
        if isinstance(router, NEED_READERS):
            kind = type(router).__name__
            raise FleetError(f"{kind} needs a prefill pool; {self.mode!r} has none.")
        return router or RoundRobin()

    def why_refuse(self, prompt_tokens: int, output_tokens: int) -> str | None:
        """None, or why no worker could ever finish such a request."""
        total = prompt_tokens + output_tokens
        if self.max_context and total > self.max_context:
            return f"is longer than the model's context of {self.max_context} tokens"
        smallest = min(kind.kv_tokens // self.block_size for kind in self.kinds) * self.block_size
        if total - 1 > smallest:
            return f"needs more KV than the {smallest} tokens that a worker holds"
        return None
