"""What this computer is, and what may disturb a measurement on it. Torch only to list devices."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any

import psutil

from minipd.measure import hardware

NO_PINNING = (
    f"{platform.system()} cannot bind a process to chosen cores: its threads may wander, also "
    "between fast and slow cores, so runs scatter more; take results as indicative."
)


MAX_CPU = 65_535  # far beyond any machine, so that a slip of the hand is told at once


class MachineError(ValueError):
    """A request that this machine cannot fulfil; the message says what it can."""


@dataclass(frozen=True, slots=True)
class Device:
    """One place where tensors can live. Memory in bytes; `free` when it was asked."""

    name: str
    description: str
    memory_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """This computer at one moment. None means that the system does not tell."""

    system: str
    cpu: str
    logical_cores: int
    physical_cores: int
    usable_cpus: list[int]
    smt_siblings: list[list[int]]
    cpu_limit: float | None
    last_level_cache_bytes: int | None
    memory_bytes: int
    available_bytes: int
    memory_limit_bytes: int | None
    can_pin: bool
    on_battery: bool | None
    load_average: list[float]
    python: str
    torch: str | None
    devices: list[Device] = field(default_factory=list[Device])

    @property
    def usable_cores(self) -> int:
        """Cores worth one thread each: physical, allowed to this process, within its quota."""
        cores = min(self.physical_cores, len(self.usable_cpus) or self.physical_cores)
        return max(1, min(cores, int(self.cpu_limit) if self.cpu_limit else cores))

    @property
    def summary(self) -> str:
        """One line for tables: processor and usable cores."""
        cpu = self.cpu.replace("(R)", "").replace("(TM)", "").replace(" Processor", "")
        cores = f"{self.usable_cores} core{'s' if self.usable_cores > 1 else ''}"
        return f"{cpu}, {cores}, {self.memory_bytes / 2**30:.0f} GiB"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def describe_machine() -> Machine:
    """Ask the system; nothing here fails when the system does not answer."""
    memory, limit = psutil.virtual_memory(), hardware.memory_limit_bytes()
    logical = psutil.cpu_count() or 1
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return Machine(
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=hardware.cpu_name(),
        logical_cores=logical,
        physical_cores=psutil.cpu_count(logical=False) or logical,
        usable_cpus=usable_cpus(),
        smt_siblings=hardware.smt_siblings(),
        cpu_limit=hardware.cpu_limit(),
        last_level_cache_bytes=hardware.last_level_cache_bytes(),
        memory_bytes=memory.total,
        available_bytes=available_memory_bytes(),
        memory_limit_bytes=limit if limit and limit < memory.total else None,
        can_pin=can_pin(),
        on_battery=None if battery is None else battery.power_plugged is False,
        load_average=list(psutil.getloadavg()),
        python=platform.python_version(),
        torch=_version_of("torch"),
        devices=_devices(),
    )


def available_memory_bytes() -> int:
    """Memory that a new tensor can take: the system's, or what the container's limit leaves."""
    available, limit = psutil.virtual_memory().available, hardware.memory_limit_bytes()
    if not limit:
        return available
    return min(available, max(0, limit - psutil.Process().memory_info().rss))


def can_pin() -> bool:
    """Can this process be bound to chosen cores? Linux and Windows yes, macOS no."""
    return hasattr(psutil.Process, "cpu_affinity")


def usable_cpus() -> list[int]:
    """Numbers of the logical cores that this process may run on."""
    if can_pin():
        return sorted(psutil.Process().cpu_affinity() or [])
    return list(range(psutil.cpu_count() or 1))


def parse_cpus(text: str) -> list[int]:
    """`"0,2-3"` to `[0, 2, 3]`; raises `MachineError` when it is not such a list."""
    cpus: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not _is_number(first) or not (_is_number(last) or "-" not in part):
            raise MachineError(f"{text[:40]!r} is not a list of cores; write it like 0 or 0,2-3.")
        start, stop = int(first), int(last or first)
        if max(start, stop) > MAX_CPU:
            raise MachineError(
                f"{part[:40]!r} goes beyond core {MAX_CPU}; choose from {usable_cpus()}."
            )
        if stop < start:
            raise MachineError(f"{part!r} is not a range of cores; write the lower number first.")
        cpus.update(range(start, stop + 1))
    return sorted(cpus)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 20


def pin_to(cpus: Sequence[int]) -> str | None:
    """Bind this process, threads already running included, to the given logical cores.

    Returns None when done, or one sentence on what is weaker where the system cannot pin. Raises
    `MachineError` for cores that do not exist or that this process may not use.
    """
    if not can_pin():
        return NO_PINNING
    wanted, process = sorted(set(cpus)), psutil.Process()
    existing = set(range(psutil.cpu_count() or 1))
    if not wanted or not set(wanted) <= existing:
        raise MachineError(f"Cores {wanted} are not all here; choose from {sorted(existing)}.")
    try:
        process.cpu_affinity(wanted)
        if sys.platform == "linux":  # there, affinity belongs to a thread: move all of them
            for thread in process.threads():
                os.sched_setaffinity(thread.id, wanted)
    except (OSError, ValueError, psutil.Error) as error:
        raise MachineError(
            f"The system refused to pin to cores {wanted} ({error}); choose from {usable_cpus()}."
        ) from error
    return None


@contextmanager
def pinned(cpus: Sequence[int] | None) -> Generator[str | None]:
    """Pin inside the block and free the process after it; yields `pin_to`'s sentence or None."""
    if cpus is None:
        yield None
        return
    before = usable_cpus()
    try:
        yield pin_to(cpus)
    finally:
        if can_pin():
            pin_to(before)


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _devices() -> list[Device]:
    try:
        import torch
    except (ImportError, OSError):  # the latter where one of its own libraries is broken
        return []
    memory = psutil.virtual_memory().total
    found = [Device("cpu", hardware.cpu_name(), memory, available_memory_bytes())]
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        free, total = torch.cuda.mem_get_info(index)
        found.append(Device(f"cuda:{index}", torch.cuda.get_device_name(index), total, free))
    return found
