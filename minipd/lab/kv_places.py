"""Where keys and values can wait, and how fast they come back: timed here, reckoned for real GPUs.

Bytes, seconds, tokens; GB = 10^9 bytes.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from minipd.cache.store import KVLayout
from minipd.fleet.calibrate import factors_for
from minipd.fleet.configs import find_model
from minipd.fleet.formulas import reuse_threshold_bytes_per_s
from minipd.fleet.gpus import find_device
from minipd.fleet.steps import StepModel
from minipd.fleet.work import Parallel
from minipd.lab.link_trials import time_emulated
from minipd.model.config import ModelConfig
from minipd.pools.links.emulated import network

ROUNDS = 5


@dataclass(frozen=True, slots=True)
class WayBack:
    """Bringing `num_bytes` back from one place took `seconds`; `note` says what it really was."""

    place: str
    num_bytes: int
    seconds: float
    note: str = ""

    @property
    def bytes_per_s(self) -> float:
        return self.num_bytes / self.seconds


def from_memory(num_bytes: int) -> WayBack:
    """A copy from one place in memory to another; both ends were touched before."""
    source, target = torch.ones(2, num_bytes // 4)  # (2, values)
    times: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        target.copy_(source)
        times.append(time.perf_counter() - began)
    return WayBack("memory, copied", num_bytes, median(times))


def from_disk(num_bytes: int, folder: Path | None = None) -> WayBack:
    """A file read into memory that was touched before.

    Between writing and reading the system is asked to forget the file; where it cannot be asked, or
    does not listen, memory is measured once more, and the note says which case it may be.
    """
    target, times = bytearray(num_bytes), list[float]()
    can_forget = hasattr(os, "posix_fadvise")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "kv"
        path.write_bytes(os.urandom(1 << 20) * (-(-num_bytes // (1 << 20))))
        for _ in range(3):
            _forget(path, can_forget)
            began = time.perf_counter()
            with path.open("rb", buffering=0) as file:
                file.readinto(target)
            times.append(time.perf_counter() - began)
    note = "" if can_forget else "this system keeps files in memory: no disk was asked"
    return WayBack("disk, read", num_bytes, median(times), note)


def _forget(path: Path, can_forget: bool) -> None:
    """Make the next read come from the disk, as far as the system allows."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        if can_forget:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def from_elsewhere(config: ModelConfig, tokens: int, name: str) -> WayBack:
    """Over an emulated network (`minipd.pools.links.emulated`), in blocks of 16 tokens."""
    blocks = -(-tokens // 16)
    layout = KVLayout.of(config, blocks, 16, torch.float32)
    points = time_emulated(network(name), (blocks,), rounds=2, layout=layout)
    rate = network(name).bytes_per_s * 8 / 1e9
    return WayBack(
        f"another server, {rate:g} Gb/s", points[0][0], median(s for _, s in points), "emulated"
    )


def ways_back(config: ModelConfig, tokens: int) -> list[WayBack]:
    """Memory, disk and two networks, for the float32 KV of `tokens` tokens."""
    num_bytes = tokens * config.kv_bytes_per_token(4)
    elsewhere = [from_elsewhere(config, tokens, name) for name in ("eth10", "eth1")]
    return [from_memory(num_bytes), from_disk(num_bytes), *elsewhere]


def ways_table(
    ways: Sequence[WayBack], tokens: int, kv_bytes: int, tokens_per_s: float
) -> dict[str, list[object]]:
    """What a token costs from each place, and read again; and how much sooner it is there."""
    per_token = [way.seconds / tokens for way in ways]
    again_s = 1 / tokens_per_s
    return {
        "the token's keys and values": [*(way.place for way in ways), "nowhere: read again"],
        "ms per token": [f"{1e3 * s:.4f}" for s in [*per_token, again_s]],
        "tokens per s": [f"{1 / s:,.0f}" for s in [*per_token, again_s]],
        "GB per s": [*(f"{kv_bytes / s / 1e9:.2f}" for s in per_token), "-"],
        "times sooner": [*(f"{again_s / s:.1f}" for s in per_token), "1"],
        "note": [*(way.note for way in ways), ""],
    }


@dataclass(frozen=True, slots=True)
class Reader:
    """A machine that reads prompts: how fast, and how many bytes each token leaves behind."""

    name: str
    kv_bytes: float
    seconds: Mapping[int, float]  # by prompt tokens

    def needed_bytes_per_s(self, tokens: int) -> float:
        """A way back must be faster than this, or reading again is."""
        return tokens * self.kv_bytes / self.seconds[tokens]


LENGTHS = (1_024, 8_192, 32_768)
MACHINES = (
    ("Llama-3.1-8B", "l4", 1),
    ("Llama-3.1-8B", "a100_sxm", 1),
    ("Llama-3.1-8B", "h100_sxm", 1),
    ("Llama-3.1-8B", "b200_sxm", 1),
    ("Llama-3.1-8B", "h100_sxm", 8),
    ("Llama-3.1-70B", "h100_sxm", 8),
)


def reader_of(model: str, gpu: str, tp: int = 1, lengths: Sequence[int] = LENGTHS) -> Reader:
    """By the step-time model of docs/fleet.md; one replica over `tp` GPUs."""
    found, device = find_model(model), find_device(gpu)
    steps = StepModel(found, device, factors_for(device), Parallel(tp))
    name = f"{model}, {tp} x {device.name}"
    return Reader(name, found.kv_bytes_per_token(), {n: steps.prefill_s(n) for n in lengths})


def needed_table(kv_bytes: int, tokens_per_s: float, timed: int) -> dict[str, list[object]]:
    """GB/s that a way back needs, by the length of the prefix: on this machine, where one of
    `timed` tokens was read, and on GPUs."""
    readers = [reader_of(*machine) for machine in MACHINES]
    here = f"{kv_bytes * tokens_per_s / 1e9:.2f}"
    names = ["this machine", *(reader.name for reader in readers)]
    table: dict[str, list[object]] = {"reader": list(names)}
    table[f"GB/s, {timed:,} tokens"] = [here, *("-" for _ in readers)]
    for tokens in LENGTHS:
        rates = [f"{reader.needed_bytes_per_s(tokens) / 1e9:.1f}" for reader in readers]
        table[f"{tokens:,} tokens"] = ["-", *rates]
    return table


def mooncake_thresholds(prefix_tokens: int = 8192) -> dict[str, float]:
    """Mooncake's own formula on its two machines, GB/s; FLOP/s as data sheets promise them."""
    machines = {"8 A800": 8 * 312e12, "8 H800": 8 * 989.5e12}
    return {n: reuse_threshold_bytes_per_s(prefix_tokens, g) / 1e9 for n, g in machines.items()}
