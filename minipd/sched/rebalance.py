"""When a worker should change sides: the policy behind live re-balancing.

It is asked at intervals with what was seen since, and answers with one move or none. It reads no
clock: the time is part of what was seen, so that the simulator can ask the same object.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from minipd.sched.router import WorkerLoad, least_running, shortest_queue

Side = Literal["prefill", "decode"]


class RebalanceError(ValueError):
    """Settings with which no worker would ever move, or one would at every look."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The last seconds of a split cluster. Times in seconds; None where there was nothing.

    `ttft_s`: 90th percentile of the first tokens that came, and of the waits of those that still
    wait. `tpot_s`: mean gap between tokens. `prefill_busy`: share of their time that prefill
    workers spent in steps. `waiting_for_place`: requests for which no decode worker has made a
    reservation yet; `waiting_for_reader`: those with one that no prefill worker has begun to read.
    """

    now_s: float
    prefill: list[WorkerLoad]
    decode: list[WorkerLoad]
    ttft_s: float | None = None
    tpot_s: float | None = None
    prefill_busy: float = 0.0
    waiting_for_place: int = 0
    waiting_for_reader: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    worker: str
    role: Side
    reason: str


@dataclass(slots=True)
class Rebalancer:
    """Moves one worker to the pool that misses its limit, if the other pool can spare it.

    `ttft_s` and `tpot_s` are the limits (the SLO). A late first token alone does not say who is
    short: requests wait for a reader, or, with all places of the decode pool taken, for a place.
    Three things keep workers where they are: the same need must be seen at `confirm` looks in a
    row, `cooldown_s` must have passed since the last move, and the pool that gives must stay
    below `spare` of its own limit afterwards. The last worker of a role never moves.
    `decode_growth`: the share of a decode step that grows with its batch (0: all of it is reading
    weights; 1: twice the batch takes twice as long).
    """

    ttft_s: float
    tpot_s: float
    confirm: int = 3
    cooldown_s: float = 5.0
    spare: float = 0.9
    decode_growth: float = 0.5
    _needs: Side | None = None
    _num_looks: int = 0
    _moved_s: float = field(default=float("-inf"))

    def __post_init__(self) -> None:
        if not (self.ttft_s > 0 and self.tpot_s > 0 and self.confirm >= 1 and 0 < self.spare <= 1):
            raise RebalanceError(
                "Re-balancing needs limits for TTFT and TPOT above 0 seconds, at least 1 look to "
                "confirm, and a spare share above 0 and up to 1."
            )

    def decide(self, seen: Observation) -> Move | None:
        """Ask once per interval: every look counts towards `confirm`."""
        needs = self._who_is_short(seen)
        self._num_looks = self._num_looks + 1 if needs is not None and needs == self._needs else 1
        self._needs = needs
        if needs is None or self._num_looks < self.confirm or not self._can_spare(needs, seen):
            return None
        if seen.now_s - self._moved_s < self.cooldown_s:
            return None
        self._moved_s, self._num_looks = seen.now_s, 0
        giver = least_running(seen.decode) if needs == "prefill" else shortest_queue(seen.prefill)
        return Move(giver.name, needs, self._why(needs, seen))

    def _who_is_short(self, seen: Observation) -> Side | None:
        """Nobody, too, where both are: taking from either would not help."""
        is_late = seen.ttft_s is not None and seen.ttft_s > self.ttft_s
        prefill = is_late and seen.waiting_for_reader > seen.waiting_for_place
        decode = seen.tpot_s is not None and seen.tpot_s > self.tpot_s
        decode = decode or (is_late and seen.waiting_for_place > seen.waiting_for_reader)
        if prefill == decode:
            return None
        return "prefill" if prefill else "decode"

    def _can_spare(self, needs: Side, seen: Observation) -> bool:
        """Would the other pool still keep its limit, its load spread over one worker less?"""
        num_left = len(seen.decode if needs == "prefill" else seen.prefill) - 1
        if num_left < 1:
            return False
        if needs == "decode":
            busy = seen.prefill_busy * (1 + 1 / num_left)
            return busy <= self.spare and seen.waiting_for_reader <= num_left
        tpot_s = (seen.tpot_s or 0.0) * (1 + self.decode_growth / num_left)
        return tpot_s <= self.spare * self.tpot_s and seen.waiting_for_place == 0

    def _why(self, needs: Side, seen: Observation) -> str:
        ttft, tpot = (f"{t:.3f} s" if t is not None else "-" for t in (seen.ttft_s, seen.tpot_s))
        return (
            f"{needs} is short: TTFT {ttft}, TPOT {tpot}, {seen.waiting_for_reader} wait for a "
            f"reader, {seen.waiting_for_place} for a place, prefill busy {seen.prefill_busy:.0%}"
        )
