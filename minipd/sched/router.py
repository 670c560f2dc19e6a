"""Where one request goes: which worker writes its answer, and who reads its prompt.

Policies are plain functions of what the coordinator knows at that moment, so that the simulator can
ask the same ones. Each answer carries its reason for the timeline.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal, Protocol

from minipd.values import value


@dataclass(slots=True)
class WorkerLoad:
    """What is under way on one worker, by the coordinator's own books."""

    name: str
    queued_prefill_tokens: int = 0
    num_waiting_prefills: int = 0
    num_running: int = 0
    cached_tokens: int = 0  # of the prompt being routed, where the router asks for it


@value
class Route:
    """`prefill` is None where the decode worker reads the prompt itself (`choice` is "local")."""

    decode: str
    prefill: str | None
    reason: str

    @property
    def choice(self) -> Literal["local", "remote"]:
        return "local" if self.prefill is None else "remote"


class Router(Protocol):
    """`num_uncached_tokens` is the prompt without what a prefix cache would spare."""

    def route(
        self, num_uncached_tokens: int, prefill: list[WorkerLoad], decode: list[WorkerLoad]
    ) -> Route: ...


_RUNNING = attrgetter("num_running")
_QUEUED = attrgetter("queued_prefill_tokens", "num_running")


def least_running(loads: list[WorkerLoad]) -> WorkerLoad:
    """Of those that write the fewest answers the one with the shortest queue, then the first."""
    first = min(loads, key=_RUNNING)  # a fleet has hundreds: mostly its first answer will do
    if first.queued_prefill_tokens <= 0:
        return first
    return shortest_queue([load for load in loads if load.num_running == first.num_running])


def shortest_queue(loads: list[WorkerLoad]) -> WorkerLoad:
    """Join the shortest queue, counted in prompt tokens (Splitwise, arXiv:2311.18677)."""
    return min(loads, key=_QUEUED)


@dataclass(slots=True)
class AlwaysRemote:
    """Every prompt is read in the prefill pool."""

    def route(
        self, num_uncached_tokens: int, prefill: list[WorkerLoad], decode: list[WorkerLoad]
    ) -> Route:
        return Route(least_running(decode).name, shortest_queue(prefill).name, "always remote")


@dataclass(slots=True)
class NeverRemote:
    """Every prompt is read where its answer is written: the worker with least unread prompt."""

    def route(
        self, num_uncached_tokens: int, prefill: list[WorkerLoad], decode: list[WorkerLoad]
    ) -> Route:
        return Route(shortest_queue(decode).name, None, "never remote")


@dataclass(slots=True)
class RoundRobin:
    """Both phases on one worker, each worker in its turn."""

    turn: int = 0

    def route(
        self, num_uncached_tokens: int, prefill: list[WorkerLoad], decode: list[WorkerLoad]
    ) -> Route:
        self.turn += 1
        return Route(decode[(self.turn - 1) % len(decode)].name, None, "round robin")


@dataclass(slots=True)
class LengthAware:
    """Both phases on one worker; prompts of at least `long_tokens` keep to the last worker."""

    long_tokens: int = 256
    short_turn: RoundRobin = field(default_factory=RoundRobin)

    def route(
        self, num_uncached_tokens: int, prefill: list[WorkerLoad], decode: list[WorkerLoad]
    ) -> Route:
        if num_uncached_tokens >= self.long_tokens or len(decode) == 1:
            return Route(decode[-1].name, None, f"{num_uncached_tokens} tokens: long")
        short = self.short_turn.route(num_uncached_tokens, prefill, decode[:-1])
        return Route(short.decode, None, f"{num_uncached_tokens} tokens: short")


@dataclass(slots=True)
class Threshold:
    """Remote if the uncached prompt is long and the prefill queue is not (NVIDIA Dynamo's rule,
    docs/architecture/disagg_serving.md; its defaults are 1000 tokens and 2 requests)."""

    max_local_prefill_tokens: int = 1000
    max_prefill_queue: int = 2

    def route(
        self, num_uncached_tokens: int, prefill: list[WorkerLoad], decode: list[WorkerLoad]
    ) -> Route:
        writer, reader = least_running(decode), shortest_queue(prefill)
        if num_uncached_tokens <= self.max_local_prefill_tokens:
            return Route(writer.name, None, f"{num_uncached_tokens} tokens: short enough")
        if reader.num_waiting_prefills >= self.max_prefill_queue:
            return Route(writer.name, None, f"{reader.num_waiting_prefills} prefills wait already")
        return Route(writer.name, reader.name, f"{num_uncached_tokens} tokens: long")


@dataclass(slots=True)
class CostBased:
    """The cheaper of two sums of seconds that users wait.

    Remote costs the new user the prefill queue, the prefill and the exposed part of the transfer.
    Local costs the new user the local queue and prefill, and each running answer a stall as long as
    that prefill. Speeds are measured: prefill in tokens/s, KV in bytes/token, the link's latency in
    seconds and bandwidth in bytes/s; of a layer-wise transfer about one layer's share is exposed.
    """

    prefill_tokens_per_s: float
    kv_bytes_per_token: int
    link_latency_s: float = 0.0
    link_bytes_per_s: float = float("inf")
    exposed_share: float = 1.0

    def route(
        self, num_uncached_tokens: int, prefill: list[WorkerLoad], decode: list[WorkerLoad]
    ) -> Route:
        writer, reader = least_running(decode), shortest_queue(prefill)
        own_s = num_uncached_tokens / self.prefill_tokens_per_s
        wire_s = num_uncached_tokens * self.kv_bytes_per_token / self.link_bytes_per_s
        remote_s = (
            reader.queued_prefill_tokens / self.prefill_tokens_per_s
            + max(own_s, wire_s)
            + self.link_latency_s
            + self.exposed_share * min(own_s, wire_s)
        )
        local_s = writer.queued_prefill_tokens / self.prefill_tokens_per_s + own_s
        local_s += writer.num_running * own_s
        reason = f"remote {remote_s:.3f} s, local {local_s:.3f} s of waiting"
        return Route(writer.name, reader.name if remote_s < local_s else None, reason)


NEED_READERS = (AlwaysRemote, Threshold, CostBased)  # routers that ask for a prefill worker
