"""Small questions to the operating system, each answered or None. Standard library and psutil."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

CPU_FOLDER = Path("/sys/devices/system/cpu")
CGROUP_FOLDER = Path("/sys/fs/cgroup")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def cpu_name() -> str:
    """The processor's name as its maker gives it, or at least its architecture."""
    if sys.platform == "darwin":
        return _sysctl("machdep.cpu.brand_string") or platform.machine()
    if sys.platform == "win32":
        return _windows_cpu_name() or platform.processor() or platform.machine()
    for line in (_read(Path("/proc/cpuinfo")) or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def last_level_cache_bytes() -> int | None:
    """Size of the largest data cache that core 0 reads through (often L3), in bytes."""
    if sys.platform == "darwin":
        sizes = (_sysctl(f"hw.{name}") for name in ("l3cachesize", "perflevel0.l2cachesize"))
        return next((int(size) for size in sizes if size and size != "0"), None)
    found: list[int] = []
    for folder in CPU_FOLDER.glob("cpu0/cache/index*"):
        size = parse_size(_read(folder / "size") or "")
        if size and (_read(folder / "type") or "") in ("Unified", "Data"):
            found.append(size)
    return max(found, default=None)


def parse_size(text: str) -> int | None:
    """Linux' cache sizes: `"307200K"` to bytes."""
    number, unit = (text[:-1], _UNITS.get(text[-1:])) if text[-1:] in _UNITS else (text, 1)
    return int(number) * (unit or 1) if number.isdecimal() else None


def smt_siblings() -> list[list[int]]:
    """Groups of logical cores that share one physical core; empty without SMT, or unknown."""
    groups: set[tuple[int, ...]] = set()
    for path in CPU_FOLDER.glob("cpu[0-9]*/topology/thread_siblings_list"):
        cpus = _cpu_list(_read(path) or "")
        if len(cpus) > 1:
            groups.add(tuple(cpus))
    return [list(group) for group in sorted(groups)]


def cpu_limit() -> float | None:
    """Cores' worth of time that a container may use (cgroup v2 or v1); None without a limit."""
    quota, _, period = (_read(CGROUP_FOLDER / "cpu.max") or "").partition(" ")
    if not period:
        quota = _read(CGROUP_FOLDER / "cpu/cpu.cfs_quota_us") or ""
        period = _read(CGROUP_FOLDER / "cpu/cpu.cfs_period_us") or ""
    limited = quota.isdecimal() and period.isdecimal() and int(period) > 0
    return int(quota) / int(period) if limited else None


def memory_limit_bytes() -> int | None:
    """Memory that a container may use (cgroup v2 or v1); None without a limit."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        text = _read(CGROUP_FOLDER / name) or ""
        if text.isdecimal() and int(text) < 2**60:  # v1 writes "no limit" as a huge number
            return int(text)
    return None


@dataclass(frozen=True, slots=True)
class Noise:
    """What else the machine did during a measurement, in cores' worth of work."""

    other_cores: float
    stolen_cores: float

    @property
    def remark(self) -> str | None:
        """One sentence when it was enough to disturb, else None."""
        if self.stolen_cores > 0.05:
            return f"the host took {self.stolen_cores:.2f} cores' time away from this computer"
        if self.other_cores > 0.25:
            return f"other programs kept {self.other_cores:.1f} cores busy"
        return None


class NoiseMeter:
    """Counts processor time that went elsewhere since it was made: to others than this process and
    those that it started (workers; on Windows only those that still run)."""

    def __init__(self) -> None:
        self._start = self._now()

    def read(self) -> Noise:
        then, now = self._start, self._now()
        elapsed = max(now[0] - then[0], 1e-9)
        busy, own, stolen = (b - a for a, b in zip(then[1:], now[1:], strict=True))
        return Noise(max(0.0, busy - own) / elapsed, max(0.0, stolen) / elapsed)

    @staticmethod
    def _now() -> tuple[float, float, float, float]:
        """Wall clock, all busy time, our own busy time, time stolen by the host; seconds."""
        total, process = psutil.cpu_times(), psutil.Process()
        own_s = _busy_s(process) + sum(map(_busy_s, process.children(recursive=True)))
        return time.perf_counter(), total.user + total.system, own_s, _stolen(total)


def _busy_s(process: psutil.Process) -> float:
    """Of the process, and of its children that have ended; 0 if it is ending itself."""
    try:
        spent = process.cpu_times()
    except psutil.Error:
        return 0.0
    ended = getattr(spent, "children_user", 0.0) + getattr(spent, "children_system", 0.0)
    return spent.user + spent.system + ended


def _stolen(total: object) -> float:
    return float(getattr(total, "steal", 0.0))


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _cpu_list(text: str) -> list[int]:
    """Linux' own notation, trusted: `"0-1,4"` to `[0, 1, 4]`."""
    cpus: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return cpus


def _sysctl(name: str) -> str | None:
    try:
        done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _windows_cpu_name() -> str | None:
    if sys.platform != "win32":
        return None
    import winreg

    path = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
    try:
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, path) as key:
            return str(winreg.QueryValueEx(key, "ProcessorNameString")[0]).strip()
    except OSError:
        return None
