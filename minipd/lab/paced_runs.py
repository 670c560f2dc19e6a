"""Paced runs for lesson 09: several at once, and the sweep's claims tried with real workers.

Paced workers are threads here: schedulers, messages and the bytes of each hand-off are real, steps
take what they took on this machine, tokens are made up (`minipd.pools.paced`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event, Thread

from minipd.lab.goodput_sweep import (
    CHUNK_TOKENS,
    LIMITS,
    MODES,
    Swept,
    goodputs,
    traffic,
    winner,
)
from minipd.measure.contest import requests_of
from minipd.measure.metrics import run_metrics
from minipd.measure.rows import TraceRow
from minipd.measure.slo import SLO
from minipd.model.load import LoadedModel, load
from minipd.pools.cluster import Cluster, Run
from minipd.pools.links.emulated import Network
from minipd.pools.paced import Pace
from minipd.pools.setup import Mode, Setup

STAND_IN = "tiny"  # its small KV travels where the lesson's model would need gigabytes
BLOCK_SIZE, ROOM = 16, 1600  # blocks per worker where memory is not the subject
STOOD_STILL_S = 0.5


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison; `lesson` says what the timeline shows."""

    name: str
    rows: tuple[TraceRow, ...]
    lesson: str
    num_prefill: int = 1
    num_decode: int = 1
    num_blocks: int = ROOM
    network: Network | None = None


def paced_run(pace: Pace, mode: Mode, case: Case, stand_in: LoadedModel | None = None) -> Run:
    """Serve a case's rows on paced workers in threads of this process."""
    model = stand_in or load(STAND_IN)
    setup = Setup(
        model=str(model.folder),
        mode=mode,
        num_prefill=case.num_prefill,
        num_decode=case.num_decode,
        pool="threads",
        num_blocks=case.num_blocks,
        block_size=BLOCK_SIZE,
        limits=LIMITS,
        chunk_tokens=CHUNK_TOKENS,
        network=case.network,
        prefix_reuse=False,
        pace=pace,
    )
    with Cluster(setup) as cluster:
        return cluster.run(requests_of(case.rows, model.config, model.eos_ids))


def all_at_once(wanted: Sequence[tuple[Pace, Mode, Case]]) -> list[Run]:
    """Workers that only sleep do not disturb each other, so all runs share the time.

    If the computer stood still meanwhile (another program, a closed lid), once more.
    """
    model, runs = load(STAND_IN), list[Run]()
    for _ in range(2):
        with ThreadPoolExecutor(len(wanted)) as pool, Watchman() as watchman:
            begun = [pool.submit(paced_run, pace, mode, case, model) for pace, mode, case in wanted]
            runs = [one.result() for one in begun]
        if watchman.longest_s < STOOD_STILL_S:
            break
        print(f"The computer stood still for {watchman.longest_s:.1f} s: such times mean nothing.")
    return runs


class Watchman(Thread):
    """Notices when this process is not allowed to run: it oversleeps."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.longest_s, self._over = 0.0, Event()

    def __enter__(self) -> Watchman:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            self._over.wait(0.02)
            self.longest_s = max(self.longest_s, time.monotonic() - began - 0.02)


@dataclass(frozen=True, slots=True)
class Claim:
    """A winner and its nearest rival, to be compared at one rate (requests/s, both workers)."""

    reader: str
    slo: SLO
    best: Mode
    rival: Mode
    rate: float

    @property
    def both(self) -> tuple[Mode, Mode]:
        return self.best, self.rival


def claims(swept: Swept, objectives: Mapping[str, SLO]) -> list[Claim]:
    """One for each clear winner, at its goodput: the rival should be past its own there."""
    found: list[Claim] = []
    for reader, slo in objectives.items():
        by_mode = goodputs(swept, slo)
        first, second, *_ = sorted(MODES, key=lambda mode: -by_mode[mode])
        if winner(by_mode) == first:
            found.append(Claim(reader, slo, first, second, by_mode[first]))
    return found


def try_claims(
    pace: Pace, found: Sequence[Claim], seed: int = 3, count: int = 60, seconds: float = 18.0
) -> dict[str, list[object]]:
    """Both modes of every claim on paced workers, with requests that the sweep did not see.

    A run that would last longer than `seconds` is played in fast motion: its steps, its arrivals
    and its limits are all divided by the same number, which the table tells.
    """
    motions = [max(1.0, count / one.rate / seconds) for one in found]
    wanted: list[tuple[Pace, Mode, Case]] = []
    for one, motion in zip(found, motions):
        case = Case(one.reader, tuple(traffic(one.rate * motion, count, seed)), "")
        wanted.append((faster(pace, motion), one.best, case))
        wanted.append((faster(pace, motion), one.rival, case))
    runs = iter(all_at_once(wanted))
    shares = [
        [_good(next(runs), one.slo, motion) for _ in one.both]
        for one, motion in zip(found, motions)
    ]
    return {
        "reader": [one.reader for one in found],
        "requests/s": [one.rate for one in found],
        "fast motion": [f"{motion:.1f} times" for motion in motions],
        "winner of the sweep": [f"{x.best}: {a:.0%} good" for x, (a, _) in zip(found, shares)],
        "next best": [f"{x.rival}: {b:.0%} good" for x, (_, b) in zip(found, shares)],
        "same winner": ["yes" if a > b else "no" for a, b in shares],
    }


def faster(pace: Pace, motion: float) -> Pace:
    """The same machine in fast motion: every step takes a `motion`-th of its time."""
    return Pace(
        tuple((tokens, seconds / motion) for tokens, seconds in pace.prefill),
        tuple((sequences, seconds / motion) for sequences, seconds in pace.decode),
        pace.per_context_token_s / motion,
    )


def _good(run: Run, slo: SLO, motion: float) -> float:
    assert slo.ttft_s is not None and slo.itl_p99_s is not None, "three_objectives sets both"
    limits = SLO(ttft_s=slo.ttft_s / motion, itl_p99_s=slo.itl_p99_s / motion)
    requests = run_metrics(run.timeline).requests
    return sum(limits.met_by(request) for request in requests) / len(requests)
