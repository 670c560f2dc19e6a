"""How KV travels in a simulated fleet: wires that several transfers share.

A transfer leaves through its sender's wire, crosses a trunk if there is one, and comes in through
its receiver's wire. Each wire serves transfers first come, first served, so that a crowded one
delays what comes after. Standard library only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field


class NetworkError(ValueError):
    """A network on which no transfer would ever end."""


@dataclass(frozen=True, slots=True)
class Network:
    """`latency_s` per hand-off; `bytes_per_s` of each worker's own wire, one direction;
    `trunk_bytes_per_s` of the one wire that all share (infinite: none is short)."""

    latency_s: float = 0.0
    bytes_per_s: float = math.inf
    trunk_bytes_per_s: float = math.inf

    def __post_init__(self) -> None:
        if not (0.0 <= self.latency_s < math.inf):
            raise NetworkError(f"The link's latency is {self.latency_s} s; use 0 or more seconds.")
        if not (self.bytes_per_s >= 1.0 and self.trunk_bytes_per_s >= 1.0):
            raise NetworkError(
                f"The link carries {self.bytes_per_s} and the trunk {self.trunk_bytes_per_s} "
                "bytes/s; use numbers above 0, from 1 up."
            )


@dataclass(slots=True)
class Wire:
    """`free_s`: when its last transfer so far will have passed."""

    bytes_per_s: float
    free_s: float = 0.0
    busy_s: float = 0.0

    def carry(self, begin_s: float, num_bytes: float) -> None:
        own_s = num_bytes / self.bytes_per_s
        self.free_s, self.busy_s = begin_s + own_s, self.busy_s + own_s


@dataclass(slots=True)
class Wires:
    """All wires of a fleet, made when they are first used."""

    network: Network
    num_layers: int = 1
    _out: dict[str, Wire] = field(default_factory=dict[str, Wire])
    _in: dict[str, Wire] = field(default_factory=dict[str, Wire])
    trunk: Wire = field(init=False)

    def __post_init__(self) -> None:
        self.trunk = Wire(self.network.trunk_bytes_per_s)

    def send(
        self, sender: str, receiver: str, num_bytes: float, start_s: float, end_s: float
    ) -> tuple[float, float]:
        """When the last byte arrives, and the seconds that the wires were at it.

        The KV is computed from `start_s` to `end_s`, layer after layer: the first layer may leave
        after one layer's time, and the last one leaves when all is computed. Wires are taken in the
        order in which prefills end.
        """
        rate = self.network.bytes_per_s
        if sender not in self._out:
            self._out[sender] = Wire(rate)
        if receiver not in self._in:
            self._in[receiver] = Wire(rate)
        wires = one, two, three = self._out[sender], self.trunk, self._in[receiver]
        first_s = start_s + (end_s - start_s) / self.num_layers
        begin_s = max(first_s, one.free_s, two.free_s, three.free_s)
        slowest = min(rate, self.network.trunk_bytes_per_s)
        copy_s = num_bytes / slowest
        last_s = max(begin_s + copy_s, end_s + copy_s / self.num_layers)
        for wire in wires:
            wire.carry(begin_s, num_bytes)
        return last_s + self.network.latency_s, copy_s
