"""The hardware table: what a device promises, where the figure comes from, and what it costs.

All figures live in `data/gpus.json`, each device with its sources, their date and what is
unverified. FLOP/s are dense (no structured sparsity), links count one direction, prices are
assumptions meant to be edited: give `load_devices` your own file of the same form. Promises are not
rates that programs reach; what share they reach is the business of `minipd.fleet.factors`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from minipd.fleet.json_files import read_json
from minipd.fleet.near import nearest

Status = Literal["available", "announced", "withdrawn", "measured", "unlisted"]

GPUS_PER_NODE = 8  # share one adapter of a link that is counted per node


class DeviceError(ValueError):
    """A device that is not in the table, or a table that cannot be read."""


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator. FLOP/s per number format, bytes/s, bytes, USD per hour.

    `tile_units` is how many tiles of a matrix product run at once (streaming multiprocessors; None
    where that is unknown). `link_devices` share the fast link; beyond them traffic takes the
    network.
    """

    key: str
    name: str
    flops: Mapping[str, float]
    bytes_per_s: float
    memory_bytes: float
    tile_units: int | None
    link_bytes_per_s: float
    link_devices: int
    network_bytes_per_s: float
    usd_per_hour: float = 0.0
    status: Status = "available"
    source: str = ""
    date: str = ""
    price_source: str = ""
    notes: str = ""
    link_kind: str = ""
    network_kind: str = ""
    aliases: tuple[str, ...] = field(default=())

    def flops_for(self, arithmetic: str) -> float:
        """FLOP/s of a number format; a device without fp8 computes it in bf16, and so on up."""
        wider = {"fp4": "fp8", "fp8": "bf16", "bf16": "float32"}
        kind: str | None = arithmetic
        while kind is not None:
            if kind in self.flops:
                return self.flops[kind]
            kind = wider.get(kind)
        raise DeviceError(
            f"{self.name} has no rate for {arithmetic}; it has {', '.join(self.flops)}."
        )

    def priced(self, usd_per_hour: float) -> Device:
        """The same device at another price."""
        return replace(self, usd_per_hour=usd_per_hour, price_source="given by the user")


def this_machine(
    flops: float, bytes_per_s: float, memory_bytes: float = 0.0, *, dtype: str = "float32"
) -> Device:
    """A device from the two ceilings that `minipd doctor` and `bench` measure."""
    if not (0.0 < flops < math.inf and 0.0 < bytes_per_s < math.inf):
        raise DeviceError(
            "Both ceilings must be above 0; take them from `minipd bench --json FILE`."
        )
    kind = {"bfloat16": "bf16", "float16": "bf16"}.get(dtype, dtype)
    return Device(
        key="this_machine",
        name="this machine",
        flops={kind: flops},
        bytes_per_s=bytes_per_s,
        memory_bytes=memory_bytes,
        tile_units=None,
        link_bytes_per_s=bytes_per_s,
        link_devices=1,
        network_bytes_per_s=125e6,
        status="measured",
        source="ceilings measured on this machine",
    )


def unlisted(key: str) -> Device:
    """A stand-in for a device that is not in the table, with an H100's ceilings.

    Only good for fitting: factors relative to wrong ceilings still give right times, but mean
    nothing.
    """
    return replace(
        find_device("h100_sxm"), key=key, name=f"{key} (not in the table)", status="unlisted"
    )


def load_devices(path: Path | None = None) -> dict[str, Device]:
    """The packaged table, or one of the same form at `path`."""
    if path is None:
        return _packaged()
    try:
        raw: Any = read_json(path)
        return {key: _device(key, entry) for key, entry in raw["devices"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DeviceError(
            f"{path} is no hardware table ({error}); copy the form of fleet/data/gpus.json."
        ) from None


@cache
def _packaged() -> dict[str, Device]:
    raw = json.loads(files("minipd.fleet").joinpath("data/gpus.json").read_text("utf-8"))
    return {key: _device(key, entry) for key, entry in raw["devices"].items()}


def _device(key: str, entry: Mapping[str, Any]) -> Device:
    return Device(
        key=key,
        name=entry["name"],
        flops=entry["flops"],
        bytes_per_s=entry["bytes_per_s"],
        memory_bytes=entry["memory_bytes"],
        tile_units=entry["tile_units"],
        link_bytes_per_s=entry["link"]["bytes_per_s"],
        link_devices=entry["link"]["devices"],
        network_bytes_per_s=entry["network"]["bytes_per_s"],
        usd_per_hour=entry["usd_per_hour"],
        status=entry["status"],
        source=entry["source"],
        date=entry["date"],
        price_source=entry["price_source"],
        notes=entry["notes"],
        link_kind=entry["link"]["kind"],
        network_kind=entry["network"]["kind"],
        aliases=tuple(entry["aliases"]),
    )


@dataclass(frozen=True, slots=True)
class Link:
    """A link that a fleet pays for: bytes/s one way, USD per device and hour."""

    key: str
    name: str
    bytes_per_s: float
    usd_per_device_hour: float
    source: str

    @property
    def bytes_per_s_per_device(self) -> float:
        """What one device gets when all of its node use the link at once."""
        return self.bytes_per_s / (GPUS_PER_NODE if "per node" in self.name else 1)


@cache
def load_links() -> dict[str, Link]:
    raw = json.loads(files("minipd.fleet").joinpath("data/gpus.json").read_text("utf-8"))
    return {key: Link(key=key, **entry) for key, entry in raw["links"].items()}


def find_device(name: str, devices: Mapping[str, Device] | None = None) -> Device:
    """A device by key or alias, in any case; raises `DeviceError` with the nearest name."""
    table = load_devices() if devices is None else devices
    word = _plain(name)
    for key, device in table.items():
        if word in (_plain(key), *map(_plain, device.aliases)):
            return device
    near = nearest(name, list(table), _plain)
    guess = f"the nearest is {near}; known are" if near else "known are"
    raise DeviceError(f"The device {name[:60]!r} is unknown; {guess} {', '.join(table)}.")


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")
