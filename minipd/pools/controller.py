"""Re-balances a cluster while it serves: looks at intervals, asks a policy, changes a role."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from minipd.pools.dispatch import Dispatcher
from minipd.pools.watch import Watch
from minipd.sched.rebalance import Move, Observation


class Policy(Protocol):
    def decide(self, seen: Observation) -> Move | None: ...


class Controller:
    """Give it to `Cluster.controller`. `moves` are those made so far.

    It looks every `interval_s`, over the last `window_s`, and only while no change is under way.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        interval_s: float = 0.5,
        window_s: float = 5.0,
        patience_s: float = math.inf,
    ) -> None:
        self.policy, self.interval_s, self.patience_s = policy, interval_s, patience_s
        self.watch = Watch(window_s)
        self.moves: list[Move] = []
        self._next_s = -math.inf

    def act(self, seen_by: Dispatcher, change_role: Callable[..., None]) -> None:
        now_s, members = seen_by.clock(), seen_by.members.values()
        if now_s < self._next_s or any(x.change is not None for x in members):
            return
        self._next_s = now_s + self.interval_s
        ready = [x for x in members if x.is_ready]
        prefill, decode = ([x.load for x in ready if x.role == r] for r in ("prefill", "decode"))
        move = self.policy.decide(self.watch.observe(now_s, prefill, decode))
        if move is not None:
            self.moves.append(move)
            change_role(move.worker, move.role, self.patience_s, move.reason)
