"""From the options of `minipd simulate` to a fleet and its failures. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast, get_args

from minipd.fleet.calibrate import factors_for
from minipd.fleet.configs import find_model
from minipd.fleet.failures import Failure, random_failures
from minipd.fleet.fleet import Fleet, FleetError, Mode, WorkerKind
from minipd.fleet.gpus import find_device, load_links
from minipd.fleet.kvpool import kv_tokens
from minipd.fleet.models import Model
from minipd.fleet.network import Network
from minipd.fleet.simulate_asked import Asked, PoolAsked, known_name
from minipd.fleet.sources import Source
from minipd.fleet.steps import StepModel
from minipd.fleet.timers import ModelTimer, Read
from minipd.fleet.work import Parallel
from minipd.measure.names import no_such
from minipd.sched.limits import Limits
from minipd.sched.prefix_router import PrefixAware
from minipd.sched.router import (
    AlwaysRemote,
    LengthAware,
    NeverRemote,
    RoundRobin,
    Router,
    Threshold,
)

MODES: tuple[str, ...] = get_args(Mode)
HANDOFF_S = 0.38e-3  # fixed part of a hand-off, fitted to Mooncake's table (facts C6)
MOONCAKE_BLOCK, OWN_BLOCK = 512, 16
MAX_WORKERS = 20_000


def fleet_of(asked: Asked, mode: str) -> Fleet:
    """Raises `ConfigError`, `DeviceError`, `CapacityError` or `FleetError`, each with a remedy."""
    _check(asked)
    model = find_model(asked.model)
    prefill, decode = (_kind(asked, pool, model) for pool in (asked.prefill, asked.decode))
    split = mode == "disaggregated"
    fleet = Fleet(
        prefill=prefill,
        decode=decode,
        mode=cast(Mode, known_name("mode", mode, MODES)),
        num_prefill=asked.num_prefill,
        num_decode=asked.num_decode,
        limits=Limits(asked.max_running, asked.max_batch_tokens),
        chunk_tokens=asked.chunk_tokens,
        block_size=_block_size(asked),
        kv_bytes_per_token=model.kv_bytes_per_token(),
        num_layers=model.num_layers,
        max_context=model.max_context,
        network=_network(asked) if split else Network(),
        prefix_reuse=asked.prefix_reuse,
        router=_router(asked),
    )
    _check_slo(asked, fleet.kinds)
    return fleet


def _check(asked: Asked) -> None:
    if asked.num_prefill + asked.num_decode > MAX_WORKERS:
        raise FleetError(f"A simulated fleet has at most {MAX_WORKERS} workers.")
    if asked.rebalance and (asked.ttft_s is None or asked.tpot_s is None):
        raise FleetError("--rebalance keeps two limits: give both --ttft and --tpot, in seconds.")
    if asked.rebalance and set(asked.modes) != {"disaggregated"}:
        raise FleetError("--rebalance moves workers between two pools: use --mode disaggregated.")


def _check_slo(asked: Asked, kinds: list[WorkerKind]) -> None:
    """No worker could keep a limit below the time of one token: a slip of units, most likely."""
    timers = [kind.timer for kind in kinds]
    read_s = min(timer.seconds([Read(1, 0)], 0, 0) for timer in timers)
    write_s = min(timer.decode_line(1, 1).first_s for timer in timers)
    for name, limit_s, least_s, what in (
        ("--ttft", asked.ttft_s, read_s, "reading one token"),
        ("--tpot", asked.tpot_s, write_s, "one decode step"),
    ):
        if limit_s is not None and 0.0 < limit_s < least_s:
            raise FleetError(
                f"{name} is {limit_s:g} s, but {what} of {asked.model} takes {least_s:.2g} s here; "
                "give more seconds, or faster devices."
            )


def _kind(asked: Asked, pool: PoolAsked, model: Model) -> WorkerKind:
    parallel = Parallel(pool.tp, pool.pp, pool.ep)
    device = find_device(pool.gpu)
    room = asked.kv_tokens
    if room is None:
        room = kv_tokens(model, device.memory_bytes, parallel)
    steps = StepModel(model, device, factors_for(device), parallel)
    return WorkerKind(ModelTimer(steps), room, parallel.devices)


def _block_size(asked: Asked) -> int:
    """The engine's, but Mooncake's own blocks where prefixes are told by their hashes."""
    is_hashed = asked.prefix_reuse and asked.trace is not None and asked.trace.suffix == ".jsonl"
    return MOONCAKE_BLOCK if is_hashed else OWN_BLOCK


def _network(asked: Asked) -> Network:
    """Each device has a wire of its own, or its part of its node's; the narrower side decides."""
    wires = min(asked.prefill.tp * asked.prefill.pp, asked.decode.tp * asked.decode.pp)
    links = load_links()
    if asked.link == "auto":
        devices = [find_device(pool.gpu) for pool in (asked.prefill, asked.decode)]
        rate = min(device.network_bytes_per_s for device in devices)
    elif asked.link in links:
        rate = links[asked.link].bytes_per_s_per_device
    else:
        try:
            rate = float(asked.link)
        except ValueError:
            raise FleetError(
                no_such("link", asked.link, ["auto", *links]) + " Or give bytes/s."
            ) from None
    return Network(HANDOFF_S, rate * wires, asked.trunk_bytes_per_s)


def _router(asked: Asked) -> Callable[[], Router] | None:
    known: dict[str, Callable[[], Router] | None] = {
        "default": None,
        "remote": AlwaysRemote,
        "local": NeverRemote,
        "round_robin": RoundRobin,
        "threshold": lambda: Threshold(asked.local_tokens),
        "length": lambda: LengthAware(asked.local_tokens + 1),
        "prefix": PrefixAware,
    }
    return known[known_name("router", asked.router, list(known))]


def failures_of(asked: Asked, source: Source) -> list[Failure]:
    """`W@T` or `W@T+D`: worker W fails at T seconds and is back after D; and random ones."""
    found: list[Failure] = []
    for text in asked.fail:
        worker, _, when = text.partition("@")
        at, _, down = when.partition("+")
        try:
            at_s, down_s = float(at), float(down) if down else asked.down_s
            found.append(Failure(int(worker), at_s, at_s + down_s if down_s < math.inf else None))
        except ValueError:
            raise FleetError(
                f"--fail {text[:40]!r} is no failure; write WORKER@SECONDS or WORKER@SECONDS+DOWN, "
                "like 3@120+60."
            ) from None
    if asked.mean_failure_s is not None:
        num, mean_s = asked.num_prefill + asked.num_decode, asked.mean_failure_s
        found += random_failures(num, mean_s, asked.down_s, _last_s(asked, source), asked.seed)
    return found


def _last_s(asked: Asked, source: Source) -> float:
    """When the last request comes, or about then."""
    if isinstance(source.rows, list):
        return source.rows[-1].arrival_s
    if source.count is None:
        raise FleetError("Random failures need an end: use only the first rows, with --limit.")
    return source.count / asked.rate_per_s
