"""What `minipd doctor` checks before it measures; each answer comes with its remedy.

Torch is imported only inside the check of devices, so that a broken torch is an answer too.
"""

from __future__ import annotations

import importlib
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from minipd.measure.machine import NO_PINNING, Machine
from minipd.paths import cache_dir

Status = Literal["OK", "NOTE", "FAIL"]
OLDEST_PYTHON = (3, 10)
MEMORY_NEEDED, MEMORY_COMFORT = 2 * 2**30, 4 * 2**30
DISK_NEEDED = 10**9  # the default model's download and its float32 weights, side by side
INSTALL = f"{Path(sys.executable).stem} -m pip install"
SHOWN_PACKAGES = ("torch", "transformers", "accelerate")


@dataclass(frozen=True, slots=True)
class Check:
    """One row: what was found, and what to do about it (empty when nothing is)."""

    name: str
    status: Status
    found: str
    remedy: str = ""


def run_checks(machine: Machine, noise_remark: str | None) -> list[Check]:
    """All checks in reading order. NOTE is worth knowing and no obstacle; FAIL is one."""
    return [
        check_python(),
        *check_packages(package_versions()),
        check_jupyterlab(),
        check_devices(machine),
        check_cores(machine),
        check_pinning(machine),
        check_memory(machine.available_bytes),
        *check_model_and_disk(),
        check_power(machine),
        check_quiet(noise_remark),
    ]


def check_python() -> Check:
    found = f"{platform.python_version()} ({platform.python_implementation()})"
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return Check("Python", "OK", found)
    wanted = ".".join(map(str, OLDEST_PYTHON))
    return Check("Python", "FAIL", found, f"Install Python {wanted} or newer.")


@dataclass(frozen=True, slots=True)
class Package:
    """A package that minipd needs; `found` is None when it is not installed."""

    name: str
    wanted: str
    found: str | None
    fits: bool


def package_versions() -> list[Package]:
    """Every requirement that minipd was installed with, and the version that is here."""
    try:
        from packaging.requirements import Requirement
    except ImportError:
        return [Package("packaging", "", None, False)]
    try:
        texts = metadata.requires("minipd") or []
    except metadata.PackageNotFoundError:
        return []
    needed = [Requirement(text) for text in texts]
    return [
        _package(item.name, item.specifier)
        for item in needed
        if item.marker is None or item.marker.evaluate({"extra": ""})
    ]


def _package(name: str, specifier: Any) -> Package:
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Package(name, str(specifier), None, False)
    return Package(name, str(specifier), found, specifier.contains(found, prereleases=True))


def check_packages(packages: list[Package]) -> list[Check]:
    if not packages:
        remedy = f"In the project's folder: {INSTALL} -e ."
        return [Check("packages", "NOTE", "minipd runs from a folder, not installed", remedy)]
    shown = [f"{p.name} {p.found}" for p in packages if p.name in SHOWN_PACKAGES and p.fits]
    bad = [p for p in packages if not p.fits]
    good = Check(
        "packages", "OK", f"{len(packages) - len(bad)} of {len(packages)}: {', '.join(shown)}"
    )
    return [good] * (len(bad) < len(packages)) + [
        Check(p.name, "FAIL", p.found or "missing", f'{INSTALL} "{p.name}{p.wanted}"') for p in bad
    ]


def check_jupyterlab() -> Check:
    try:
        return Check("JupyterLab", "OK", metadata.version("jupyterlab"))
    except metadata.PackageNotFoundError:
        return Check("JupyterLab", "FAIL", "missing", f"{INSTALL} jupyterlab")


def check_devices(machine: Machine) -> Check:
    try:
        torch: Any = importlib.import_module("torch")
    except Exception as error:  # a damaged torch fails in many ways, each of them the answer
        return Check("devices", "FAIL", f"torch does not start ({error})", f"{INSTALL} torch")
    try:
        for device in machine.devices:
            torch.ones(1, device=device.name).sum().item()
    except RuntimeError as error:
        remedy = "Use --device cpu, or update this device's driver."
        return Check("devices", "NOTE", f"a device does not answer ({error})", remedy)
    found = [f"{d.name}: {d.description}, {_gib(d.memory_bytes)}" for d in machine.devices]
    return Check("devices", "OK", "; ".join(found))


def check_cores(machine: Machine) -> Check:
    found = f"{machine.physical_cores} physical, {machine.logical_cores} logical"
    if machine.cpu_limit:
        found += f", {machine.cpu_limit:g} allowed by the container"
    if machine.smt_siblings:
        pairs = ", ".join("+".join(map(str, group)) for group in machine.smt_siblings[:4])
        found += f"; logical cores that share a physical one: {pairs}"
        found += " ..." if len(machine.smt_siblings) > 4 else ""
    if machine.usable_cores < 2:
        remedy = "Nothing to repair: the two pools will take turns on one core, and show less."
        return Check("cores", "NOTE", found, remedy)
    remedy = "Pin to cores of different pairs when comparing." if machine.smt_siblings else ""
    return Check("cores", "OK", found, remedy)


def check_pinning(machine: Machine) -> Check:
    if machine.can_pin:
        return Check("pinning", "OK", f"possible, cores {_ranges(machine.usable_cpus)}")
    return Check("pinning", "NOTE", "not possible", NO_PINNING)


def check_memory(available_bytes: int) -> Check:
    found = f"{_gib(available_bytes)} available"
    if available_bytes < MEMORY_NEEDED:
        return Check("memory", "FAIL", found, f"Close programs until {_gib(MEMORY_NEEDED)} are.")
    if available_bytes < MEMORY_COMFORT:
        return Check("memory", "NOTE", found, "Close what you do not need before measuring.")
    return Check("memory", "OK", found)


def check_model_and_disk() -> Iterator[Check]:
    """The default model, the disk it would need, and whether the cache can be written."""
    try:
        load: Any = importlib.import_module("minipd.model.load")
    except (ImportError, OSError) as error:
        yield Check("model", "NOTE", f"not looked for ({error})", "Repair the packages first.")
        return
    here = load.is_cached(load.DEFAULT)
    if here:
        yield Check("model", "OK", f"{load.DEFAULT} is on this computer")
    else:
        remedy = "minipd bench --repetitions 1 fetches it (about 100 MB, once)."
        yield Check("model", "NOTE", f"{load.DEFAULT} is not here yet", remedy)
    yield check_disk(cache_dir(), 0 if here else DISK_NEEDED)


def check_disk(folder: Path, needed_bytes: int) -> Check:
    place = next((p for p in (folder, *folder.parents) if p.is_dir()), Path.cwd())
    remedy = "Set MINIPD_CACHE to a folder that can be written and has a gigabyte free."
    try:
        free = shutil.disk_usage(place).free
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        return Check("disk", "FAIL", f"{folder} cannot be used ({error.strerror})", remedy)
    found = f"{_gib(free)} free for {folder}"
    return (
        Check("disk", "OK", found) if free >= needed_bytes else Check("disk", "FAIL", found, remedy)
    )


def check_power(machine: Machine) -> Check:
    if machine.on_battery:
        return Check("power", "NOTE", "on battery", "Plug in: a saving processor measures low.")
    unknown = machine.on_battery is None
    return Check("power", "OK", "no battery reported" if unknown else "plugged in")


def check_quiet(noise_remark: str | None) -> Check:
    if noise_remark:
        return Check("quiet", "NOTE", noise_remark, "Close other programs, or repeat later.")
    return Check("quiet", "OK", "nothing else is busy")


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"


def _ranges(cpus: list[int]) -> str:
    """`[0, 1, 2, 5]` to `"0-2,5"`, as `--pin` takes it."""
    parts: list[list[int]] = []
    for cpu in cpus:
        if parts and parts[-1][-1] == cpu - 1:
            parts[-1].append(cpu)
        else:
            parts.append([cpu])
    return ",".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)
