"""A split fleet that keeps KV below its GPUs' memory: what that costs in memory, network and GPUs.

Llama-3.1-8B on H100s in the simulator, whose schedulers, allocators and router are the engine's.
Bytes, seconds; GB and TB are decimal.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from minipd.fleet.calibrate import factors_for
from minipd.fleet.configs import find_model
from minipd.fleet.fleet import Fleet, WorkerKind
from minipd.fleet.gpus import find_device
from minipd.fleet.kvpool import Tier, kv_tokens
from minipd.fleet.network import Network
from minipd.fleet.simulate import simulate
from minipd.fleet.steps import StepModel
from minipd.fleet.timers import ModelTimer
from minipd.fleet.work import Parallel
from minipd.lab.idle_session import HOST_BYTES_PER_S, HOST_USD
from minipd.lab.shared_beginnings import BLOCK
from minipd.measure.rows import TraceRow
from minipd.sched.limits import Limits

MODEL, GPU = "Llama-3.1-8B", "h100_sxm"
NETWORK_BYTES_PER_S, HANDOFF_S = 50e9, 0.38e-3  # 400 Gb/s for each GPU; facts C6
SLOW_BYTES_PER_S = 3.125e9  # 25 Gb/s
UNLIMITED = 1e15  # bytes/s of the trunk: finite, so that what crosses it is counted


class Shelf:
    """A tier for the simulator: blocks by name, the one used longest ago goes first.

    `fetch` brings back as long a beginning as is there; a copy stays. A shelf may serve one worker
    or, given to several, all of them.
    """

    def __init__(self, room: int, block_s: float) -> None:
        self.room, self.block_s = room, block_s
        self.names: OrderedDict[bytes, None] = OrderedDict()
        self.num_kept = self.num_fetched = self.most_held = 0

    def keep(self, name: bytes) -> None:
        self.num_kept += name not in self.names
        self._use(name)
        if len(self.names) > self.room:
            self.names.popitem(last=False)
        self.most_held = max(self.most_held, len(self.names))

    def fetch(self, names: list[bytes]) -> tuple[int, float]:
        count = 0
        while count < len(names) and names[count] in self.names:
            count += 1
        for name in reversed(names[:count]):  # of a chain, the end must be forgotten first
            self._use(name)
        self.num_fetched += count
        return count, count * self.block_s

    def _use(self, name: bytes) -> None:
        self.names[name] = None
        self.names.move_to_end(name)


@dataclass(frozen=True, slots=True)
class Keeping:
    """One way to keep KV: GB of host memory at each prefill and at each decode worker, or GB of one
    store that all prefill workers reach over the network."""

    name: str
    gb_at_prefill: float = 0.0
    gb_at_decode: float = 0.0
    gb_shared: float = 0.0
    store_bytes_per_s: float = NETWORK_BYTES_PER_S


FORGET = Keeping("forget")
AT_PREFILL = Keeping("memory at each prefill worker", gb_at_prefill=200.0)
SHARED = Keeping("one store, 400 Gb/s", gb_shared=400.0)
SLOW_STORE = Keeping("one store, 25 Gb/s", gb_shared=400.0, store_bytes_per_s=SLOW_BYTES_PER_S)
AT_DECODE = Keeping("memory at the decode worker", gb_at_decode=800.0)
BOTH = Keeping("memory at both", gb_at_prefill=200.0, gb_at_decode=800.0)
WAYS = (FORGET, AT_PREFILL, SHARED, SLOW_STORE, AT_DECODE, BOTH)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run: waits in seconds, tokens read, GB of memory, bytes over the network."""

    keeping: Keeping
    ttft_p50_s: float
    ttft_p90_s: float
    tokens_read: int
    memory_gb: float
    handoff_bytes: float
    store_bytes: float
    seconds: float

    @property
    def network_tb_per_hour(self) -> float:
        return (self.handoff_bytes + self.store_bytes) / 1e12 * 3600 / self.seconds

    @property
    def memory_usd_per_hour(self) -> float:
        return self.memory_gb * HOST_USD


@dataclass(slots=True)
class _Shelves:
    """Makes a worker's shelf and remembers it."""

    block_bytes: float
    made: list[Shelf] = field(default_factory=list[Shelf])

    def each(self, gigabytes: float, bytes_per_s: float) -> Callable[[], Tier] | None:
        """A shelf of its own for each worker; None where nothing is kept."""

        def make() -> Tier:
            room = int(gigabytes * 1e9 / self.block_bytes)
            self.made.append(Shelf(room, self.block_bytes / bytes_per_s))
            return self.made[-1]

        return make if gigabytes else None

    def one(self, gigabytes: float, bytes_per_s: float) -> Callable[[], Tier] | None:
        """The same shelf for all."""
        make = self.each(gigabytes, bytes_per_s)
        if make is None:
            return None
        shared = make()
        return lambda: shared

    @property
    def held_gb(self) -> float:
        return sum(shelf.most_held for shelf in self.made) * self.block_bytes / 1e9


def serve(
    keeping: Keeping, rows: Sequence[TraceRow], num_prefill: int = 2, num_decode: int = 1
) -> Outcome:
    """Serve the trace on `num_prefill` + `num_decode` H100s with 400 Gb/s between them."""
    model, device = find_model(MODEL), find_device(GPU)
    per_token = model.kv_bytes_per_token()
    store, host = _Shelves(BLOCK * per_token), _Shelves(BLOCK * per_token)
    shared = store.one(keeping.gb_shared, keeping.store_bytes_per_s)
    room = kv_tokens(model, device.memory_bytes, Parallel())

    def kind(tier: Callable[[], Tier] | None) -> WorkerKind:
        steps = StepModel(model, device, factors_for(device), Parallel())
        return WorkerKind(ModelTimer(steps), room, 1, tier)

    fleet = Fleet(
        prefill=kind(shared or host.each(keeping.gb_at_prefill, HOST_BYTES_PER_S)),
        decode=kind(host.each(keeping.gb_at_decode, HOST_BYTES_PER_S)),
        num_prefill=num_prefill,
        num_decode=num_decode,
        limits=Limits(256, 16_384),
        block_size=BLOCK,
        kv_bytes_per_token=per_token,
        num_layers=model.num_layers,
        network=Network(HANDOFF_S, NETWORK_BYTES_PER_S, UNLIMITED),
        prefix_reuse=True,
    )
    result = simulate(fleet, rows)
    ttft = result.summary.latency["ttft_s"]
    assert ttft is not None, "every request got a first token"
    moved = sum(shelf.num_kept + shelf.num_fetched for shelf in store.made)
    return Outcome(
        keeping,
        ttft.p50,
        ttft.p90,
        sum(worker.prefill_tokens for worker in result.summary.workers),
        store.held_gb + host.held_gb,
        result.trunk_busy_s * UNLIMITED,
        moved * store.block_bytes,
        result.summary.duration_s,
    )


def outcome_table(outcomes: Iterable[Outcome]) -> dict[str, list[object]]:
    """One line for each way of keeping."""
    made = list(outcomes)
    return {
        "kept": [one.keeping.name for one in made],
        "first token, median (s)": [f"{one.ttft_p50_s:.2f}" for one in made],
        "90th percentile (s)": [f"{one.ttft_p90_s:.2f}" for one in made],
        "million tokens read": [f"{one.tokens_read / 1e6:.1f}" for one in made],
        "memory filled (GB)": [f"{one.memory_gb:,.0f}" for one in made],
        "hand-offs (TB)": [f"{one.handoff_bytes / 1e12:.2f}" for one in made],
        "store traffic (TB)": [f"{one.store_bytes / 1e12:.2f}" for one in made],
    }


def usd_per_gb(usd_per_hour: float, tb_per_hour: float) -> float:
    """What a gigabyte costs on wires that are rented by the hour and carry so much."""
    return usd_per_hour / (1e3 * tb_per_hour)


def price_where_they_meet(without: Outcome, with_memory: Outcome) -> float:
    """USD per GB of network from which the memory that saves the traffic is the cheaper one."""
    saved = 1e3 * (without.network_tb_per_hour - with_memory.network_tb_per_hour)
    assert saved > 0, "the memory must save some traffic"
    return (with_memory.memory_usd_per_hour - without.memory_usd_per_hour) / saved
