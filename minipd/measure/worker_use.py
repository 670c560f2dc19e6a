"""What each worker did with its time, and on whose behalf it prefilled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from minipd.measure.ordering import count, number, text
from minipd.timeline import Event

# Reasons a worker of each role may have for prefilling; a decode worker needs a special one.
_DECODE_REASONS = frozenset({"local", "preempted", "recovered"})
_ANY_REASON = _DECODE_REASONS | {"prompt"}


@dataclass(slots=True)
class Stay:
    """A worker's time in one role, from `since_s` to its next stay, and how long it was busy."""

    role: str
    since_s: float = float("-inf")
    busy_s: float = 0.0


@dataclass(slots=True)
class WorkerUse:
    """One worker's totals. Seconds are the sum of its steps; tokens are those it computed.

    `unreasoned_prefill_tokens` must be 0: prompt tokens it computed without having announced a
    prefill with an allowed reason (on a decode worker: local, preempted or recovered). This is the
    silent re-prefill that real deployments suffer from (facts section 3, rows 3 and 24).
    """

    worker: str
    role: str = "both"  # the last one
    stays: list[Stay] = field(default_factory=lambda: [Stay("both")])
    busy_s: float = 0.0
    prefill_busy_s: float = 0.0
    decode_busy_s: float = 0.0
    steps: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    prefill_tokens_by_reason: dict[str, int] = field(default_factory=dict[str, int])
    cached_tokens: int = 0  # whose KV was there already: not computed, or (reserved) not sent
    reserved_tokens: int = 0  # of those, on a decode worker that waits for the rest
    fetched_tokens: dict[str, int] = field(default_factory=dict[str, int])  # of those, by tier
    _is_told: bool = False
    _allowed_tokens: int = 0
    _refused_tokens: int = 0

    def feed(self, event: Event, role: str) -> None:
        """`role` is the worker's at the time of the event."""
        self.role = role
        is_told = event.kind in ("role_changed", "worker_started")
        if is_told and self._is_told and role != self.stays[-1].role:
            self.stays.append(Stay(role, event.t_s))
        self._is_told |= is_told
        self.stays[-1].role = role  # it may only now have become known
        if event.kind == "prefill_started":
            self._announce(count(event, "tokens"), text(event, "reason"))
            self.cached_tokens += count(event, "cached_tokens")
        elif event.kind == "reserved":
            self.cached_tokens += count(event, "cached_tokens")
            self.reserved_tokens += count(event, "cached_tokens")
        elif event.kind == "kv_fetched":
            tier, tokens = text(event, "tier"), count(event, "tokens")
            self.fetched_tokens[tier] = self.fetched_tokens.get(tier, 0) + tokens
        elif event.kind == "step":
            self._step(event)

    def _announce(self, tokens: int, reason: str) -> None:
        name = reason or "none"
        by_reason = self.prefill_tokens_by_reason
        by_reason[name] = by_reason.get(name, 0) + tokens
        if reason in (_DECODE_REASONS if self.role == "decode" else _ANY_REASON):
            self._allowed_tokens += tokens
        else:
            self._refused_tokens += tokens

    def _step(self, event: Event) -> None:
        """A step that holds both phases counts as prefill time: prefill is what sets its length."""
        duration_s = event.t_s - number(event, "start_s", event.t_s)
        tokens = count(event, "prefill_tokens")
        self.steps += 1
        self.busy_s += duration_s
        self.stays[-1].busy_s += duration_s
        self.prefill_tokens += tokens
        self.decode_tokens += count(event, "decode_seqs")
        if tokens:
            self.prefill_busy_s += duration_s
        else:
            self.decode_busy_s += duration_s

    @property
    def tokens_by_place(self) -> dict[str, int]:
        """Prompt tokens by where their KV came from: computed, found on the device, or a tier."""
        device = self.cached_tokens - sum(self.fetched_tokens.values())
        found = {"computed": self.prefill_tokens, "device": max(0, device)}
        return found | {tier: self.fetched_tokens.get(tier, 0) for tier in ("host", "disk")}

    @property
    def unreasoned_prefill_tokens(self) -> int:
        return max(self._refused_tokens, self.prefill_tokens - self._allowed_tokens)

    def busy_share(self, window_s: float) -> float:
        return self.busy_s / window_s if window_s > 0.0 else 0.0


def pool_shares(workers: Iterable[WorkerUse], start_s: float, end_s: float) -> dict[str, float]:
    """Busy share of each pool: busy time over the time that workers spent in it.

    A worker that changed its role counts in each pool for as long as it belonged there, from the
    change on; the time in which it drained still belongs to the old one.
    """
    busy_s: dict[str, float] = {}
    there_s: dict[str, float] = {}
    for worker in workers:
        ends = [*(stay.since_s for stay in worker.stays[1:]), end_s]
        for stay, until_s in zip(worker.stays, ends, strict=True):
            span_s = min(until_s, end_s) - max(stay.since_s, start_s)
            busy_s[stay.role] = busy_s.get(stay.role, 0.0) + stay.busy_s
            there_s[stay.role] = there_s.get(stay.role, 0.0) + max(0.0, span_s)
    return {r: busy_s[r] / there_s[r] if there_s[r] else 0.0 for r in sorted(busy_s)}
