"""Which blocks lie in which tier below the device, and which must be copied where: no tensors.

The allocator asks when it forgets a block and when a prompt comes whose beginning it does not hold.
Every answer is booked at once, and the copies that follow from it are noted down as moves, in
order; `minipd.cache.tiers` carries them out before the next step. Blocks go by their names (the
hash of all tokens up to their end). A tier keeps what it has given back, so that the same block is
never written twice; what was asked for longest ago makes way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Tier = Literal["host", "disk"]


@dataclass(frozen=True, slots=True)
class Place:
    """Block `index` of the device, or slot `index` of host memory; a file is found by its name."""

    where: Literal["device", "host", "disk"]
    index: int = -1


DISK = Place("disk")


@dataclass(frozen=True, slots=True)
class Move:
    """Copy the block `name` from `source` to `target`; None: delete it. `request_id` is who waits
    for it."""

    name: bytes
    source: Place
    target: Place | None
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """Keep, move or compute again: KV is moved where that takes less time than its prefill.

    Mooncake's rule (FAST '25): fetch if the bytes over the tier's bandwidth take less time than the
    prefill of the same tokens. Speeds are measured ones, in tokens/s and bytes/s; `latency_s` is
    paid once per fetch and tier. A prefill speed of 0 means that nobody measured: always fetch.
    """

    prefill_tokens_per_s: float = 0.0
    host_bytes_per_s: float = float("inf")
    disk_bytes_per_s: float = float("inf")
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        rates = (self.host_bytes_per_s, self.disk_bytes_per_s)
        if not (min(rates) > 0.0 and min(self.prefill_tokens_per_s, self.latency_s) >= 0.0):
            raise ValueError(
                "A fetch policy needs bandwidths above 0, and a prefill speed and a latency from 0."
            )

    def seconds(self, tier: Tier, num_bytes: int) -> float:
        """The copy of so many bytes, without the latency."""
        return num_bytes / (self.host_bytes_per_s if tier == "host" else self.disk_bytes_per_s)

    def is_worth_keeping(self, tier: Tier, num_bytes: int, num_tokens: int) -> bool:
        """Could it ever pay to fetch this back? If not, it need not be written down either."""
        speed = self.prefill_tokens_per_s
        return not speed or self.seconds(tier, num_bytes) < num_tokens / speed

    def num_worth_fetching(
        self, tiers: list[Tier | None], block_bytes: int, block_size: int
    ) -> int:
        """How many blocks, from the first on, to bring together so that most time is saved.

        `tiers[i]` is where block i lies; None where it is on the device and costs nothing.
        """
        if not self.prefill_tokens_per_s:
            return len(tiers)
        best, best_s, saved_s, paid = 0, 0.0, 0.0, set[Tier]()
        for count, tier in enumerate(tiers, 1):
            saved_s += block_size / self.prefill_tokens_per_s
            if tier is not None:
                saved_s -= self.seconds(tier, block_bytes)
                saved_s -= 0.0 if tier in paid else self.latency_s
                paid.add(tier)
            if saved_s > best_s:
                best, best_s = count, saved_s
        return best


ALWAYS = FetchPolicy()


@dataclass(slots=True)
class TierBooks:
    """`host_blocks` and `disk_blocks` are how many blocks of `block_bytes` each tier may hold."""

    host_blocks: int
    disk_blocks: int
    block_bytes: int
    block_size: int
    policy: FetchPolicy = ALWAYS
    moves: list[Move] = field(default_factory=list[Move])  # not carried out yet, in order
    lost: list[bytes] = field(default_factory=list[bytes])  # names that no tier holds any more
    _host: OrderedDict[bytes, int] = field(default_factory=OrderedDict[bytes, int])  # slots
    _disk: OrderedDict[bytes, None] = field(default_factory=OrderedDict[bytes, None])
    _free_slots: list[int] = field(init=False)
    _wanted: set[bytes] = field(default_factory=set[bytes])  # for the prompt being let in

    def __post_init__(self) -> None:
        self._free_slots = list(range(self.host_blocks))[::-1]

    def tier_of(self, name: bytes) -> Tier | None:
        return "host" if name in self._host else "disk" if name in self._disk else None

    def names(self, tier: Tier) -> list[bytes]:
        """What a tier holds, that which makes way first in front."""
        return list(self._host if tier == "host" else self._disk)

    # -- a block that the device forgets ------------------------------------------------------

    def keep(self, name: bytes, block_id: int) -> bool:
        """Take in what device block `block_id` holds; False where no tier does."""
        source = Place("device", block_id)
        if name in self._host:
            self._host.move_to_end(name)
            return True
        if self._is_worth_keeping("host") and (slot := self._free_slot()) is not None:
            self._host[name] = slot
            self._note(name, source, Place("host", slot))
            return True
        return self._file(name, source)

    def _is_worth_keeping(self, tier: Tier) -> bool:
        return self.policy.is_worth_keeping(tier, self.block_bytes, self.block_size)

    def _free_slot(self) -> int | None:
        """A slot of host memory: a free one, or that of the oldest block, which goes to disk."""
        if self._free_slots:
            return self._free_slots.pop()
        oldest = self._oldest(self._host)
        if oldest is None:
            return None
        slot = self._host[oldest]
        if not self._file(oldest, Place("host", slot)):
            self.lost.append(oldest)
        del self._host[oldest]
        return slot

    def _file(self, name: bytes, source: Place) -> bool:
        """Write a block to disk, unless it is there already."""
        if name in self._disk:
            self._disk.move_to_end(name)
            return True
        if not self._is_worth_keeping("disk") or self.disk_blocks < 1:
            return False
        if len(self._disk) >= self.disk_blocks:
            oldest = self._oldest(self._disk)
            if oldest is None:
                return False
            self._delete(oldest)
        self._disk[name] = None
        self._note(name, source, DISK)
        return True

    def _delete(self, name: bytes) -> None:
        del self._disk[name]
        self.moves.append(Move(name, DISK, None))
        if name not in self._host:
            self.lost.append(name)

    def _oldest(self, names: Iterable[bytes]) -> bytes | None:
        return next((name for name in names if name not in self._wanted), None)

    def _note(self, name: bytes, source: Place, target: Place, request_id: str = "") -> None:
        self.moves.append(Move(name, source, target, request_id))

    # -- a prompt whose beginning the device does not hold ------------------------------------

    def num_worth_fetching(self, names: list[bytes], is_here: list[bool]) -> int:
        """How many of these, from the first on, to bring together; some are on the device."""
        places = zip(names, is_here, strict=True)
        tiers: list[Tier | None] = [None if here else self.tier_of(x) for x, here in places]
        return self.policy.num_worth_fetching(tiers, self.block_bytes, self.block_size)

    def hold(self, names: Iterable[bytes] = ()) -> None:
        """Until the next call these do not make way for others."""
        self._wanted = set(names)

    def fetch(self, name: bytes, block_id: int, request_id: str) -> None:
        """Bring a block back into device block `block_id`; it stays in its tier as well."""
        slot = self._host.get(name)
        if slot is None:
            self._disk.move_to_end(name)
        else:
            self._host.move_to_end(name)
        source = DISK if slot is None else Place("host", slot)
        self._note(name, source, Place("device", block_id), request_id)

    # -- what the copies have shown -----------------------------------------------------------

    def take_moves(self) -> list[Move]:
        moves, self.moves = self.moves, []
        return moves

    def take_lost(self) -> list[bytes]:
        """Names that no tier holds any more; the device may."""
        lost, self.lost = self.lost, []
        return [name for name in dict.fromkeys(lost) if self.tier_of(name) is None]

    def found_on_disk(self, names: Iterable[bytes]) -> list[bytes]:
        """Files of an earlier run, oldest first; hands back those that are one too many."""
        known = list(names)
        first = max(0, len(known) - self.disk_blocks)
        self._disk.update(dict.fromkeys(known[first:]))
        return known[:first]

    def forget(self, name: bytes, tier: Tier) -> None:
        """It could not be written there, or not be read back."""
        if tier == "disk":
            self._disk.pop(name, None)
        elif name in self._host:
            self._free_slots.append(self._host.pop(name))
        if self.tier_of(name) is None:
            self.lost.append(name)
