"""What `minipd simulate` was asked for, and the requests of its runs. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from minipd.fleet.fleet import FleetError
from minipd.fleet.sources import Reshaping, Source, equal_requests, from_file
from minipd.measure.arrivals import ArrivalProcess
from minipd.measure.names import no_such
from minipd.measure.workloads import KINDS, Workload


@dataclass(frozen=True, slots=True)
class PoolAsked:
    """One pool's hardware: a device's name, and how a worker is spread over several of them."""

    gpu: str = "H100"
    tp: int = 1
    pp: int = 1
    ep: int = 1


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of `minipd simulate`, as given."""

    modes: tuple[str, ...] = ("disaggregated",)
    model: str = "Llama-3.1-8B"
    prefill: PoolAsked = PoolAsked()
    decode: PoolAsked = PoolAsked()
    num_prefill: int = 1
    num_decode: int = 1
    trace: Path | None = None
    reshaping: Reshaping = Reshaping()
    skip_bad_lines: bool = False
    workload: str = "chat"
    isl: int | None = None
    osl: int | None = None
    num_requests: int = 1000
    rate_per_s: float = 1.0
    arrivals: str = "poisson"
    cv: float = 1.0
    seed: int = 0
    ttft_s: float | None = None
    tpot_s: float | None = None
    link: str = "auto"
    trunk_bytes_per_s: float = math.inf
    router: str = "default"
    local_tokens: int = 1000
    max_running: int = 256
    max_batch_tokens: int = 2048
    chunk_tokens: int = 512
    kv_tokens: int | None = None
    prefix_reuse: bool = False
    fail: tuple[str, ...] = ()
    mean_failure_s: float | None = None
    down_s: float = 60.0
    rebalance: bool = False

    @property
    def has_slo(self) -> bool:
        return self.ttft_s is not None or self.tpot_s is not None


def source_of(asked: Asked) -> Source:
    """The requests of one run: make a new source for each."""
    if asked.trace is not None:
        return from_file(asked.trace, asked.reshaping, skip_bad=asked.skip_bad_lines)
    arrivals = cast(
        ArrivalProcess, known_name("arrivals", asked.arrivals, get_args(ArrivalProcess))
    )
    if asked.isl is not None or asked.osl is not None:
        if asked.isl is None or asked.osl is None:
            raise FleetError("Equal requests need both --isl and --osl.")
        return equal_requests(
            asked.num_requests,
            asked.isl,
            asked.osl,
            asked.rate_per_s,
            arrivals=arrivals,
            cv=asked.cv,
            seed=asked.seed,
        )
    kind = known_name("workload", asked.workload, KINDS)
    rows = Workload(kind, asked.rate_per_s, arrivals, asked.cv).generate(
        asked.num_requests, asked.seed
    )
    return Source(rows, len(rows), kind, [])


def known_name(what: str, name: str, known: Sequence[str]) -> str:
    if name not in known:
        raise FleetError(no_such(what, name, known))
    return name
