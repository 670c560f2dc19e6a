"""One way of serving: which workers there are, what each of them does, and where it runs."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Literal

import psutil

from minipd.cache.tier_sizes import TierSizes
from minipd.pools import messages as m
from minipd.pools.links.choose import LinkKind
from minipd.pools.links.emulated import Network
from minipd.pools.paced import Pace
from minipd.sched.limits import Limits

Mode = Literal["colocated", "decode_first", "chunked", "disaggregated"]
PoolKind = Literal["processes", "threads"]
COLOCATED_POLICY: dict[Mode, m.Policy] = {
    "colocated": "prefill_first",
    "decode_first": "decode_first",
    "chunked": "chunked",
}


@dataclass(frozen=True, slots=True)
class Setup:
    """One way of serving: `num_prefill` + `num_decode` workers in the split, all of them `both`
    otherwise. `cpus[i]` are the cores of worker i, or empty to leave all unpinned."""

    model: str = "smollm2-135m"
    mode: Mode = "disaggregated"
    num_prefill: int = 1
    num_decode: int = 1
    pool: PoolKind = "processes"
    devices: tuple[str, ...] = ("cpu",)
    dtype: str = "float32"
    num_blocks: int = 1024
    block_size: int = 16
    limits: Limits = Limits()
    chunk_tokens: int = 64  # a step's token budget when prefill and decode share it
    cpus: tuple[tuple[int, ...], ...] = ()
    threads: int = 1
    link: LinkKind = "direct"
    network: Network | None = None  # emulated on top of `link`
    prefill_sm_share: float | None = None  # of a GPU's multiprocessors; the rest is decode's alone
    deterministic: bool = False
    prefix_reuse: bool = True
    pace: Pace | None = None
    tiers: TierSizes = TierSizes()  # of each worker; on disk each has a folder of its own

    def __post_init__(self) -> None:
        if min(self.num_prefill, self.num_decode) < 1:
            raise ValueError("A setup needs at least 1 prefill and 1 decode worker.")
        if self.cpus and len(self.cpus) != self.num_workers:
            raise ValueError(
                f"There are {self.num_workers} workers but cores for {len(self.cpus)}; give each "
                "worker its cores, or leave `cpus` empty."
            )

    @property
    def num_workers(self) -> int:
        return self.num_prefill + self.num_decode

    def configure(self, index: int) -> m.Configure:
        """What worker `index` begins as: prefill workers come first."""
        if self.mode != "disaggregated":
            return self.configure_as("both")
        return self.configure_as("prefill" if index < self.num_prefill else "decode")

    def configure_as(self, role: m.Role) -> m.Configure:
        """The scheduler and the limits that a role has in this setup."""
        reuse = self.prefix_reuse and not self.deterministic
        if role == "prefill":
            return m.Configure(role, "prefill_only", self.limits, reuse)
        policy = "decode_only" if role == "decode" else COLOCATED_POLICY.get(self.mode, "chunked")
        shares_steps = policy in ("decode_only", "chunked")
        budget = self.chunk_tokens if shares_steps else self.limits.max_batch_tokens
        return m.Configure(role, policy, replace(self.limits, max_batch_tokens=budget), reuse)

    @property
    def caveats(self) -> list[str]:
        """What measurements of this setup cannot show on this machine, one sentence each."""
        found: list[str] = []
        pinned = [core for cores in self.cpus for core in cores]
        num_cores = len(set(pinned)) if pinned else os.cpu_count() or 1
        if self.pool == "processes" and self.pace is None and num_cores < self.num_workers:
            found.append(
                f"{self.num_workers} workers share {num_cores} core(s), so that each slows the "
                "others down: tokens and hand-offs are real, but times cannot show what a split "
                "gains"
            )
        if self.cpus and not hasattr(psutil.Process, "cpu_affinity"):
            found.append(
                "this system cannot pin workers to cores, so that their times vary more from run "
                "to run"
            )
        return found
