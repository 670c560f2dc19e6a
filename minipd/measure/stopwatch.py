"""The one place where time is taken. Torch is reached only through the device it is given."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import torch


def synchronize(device: torch.device) -> None:
    """Wait until `device` has done all work given to it; on a CPU it always has."""
    torch.get_device_module(device).synchronize()


def seconds(action: Callable[[], object], device: torch.device) -> float:
    """Wall-clock seconds of `action`, the device idle before and after.

    This is what a user waits for, launch costs included.
    """
    synchronize(device)
    start = time.perf_counter()
    action()
    synchronize(device)
    return time.perf_counter() - start


def kernel_seconds(action: Callable[[], object], device: torch.device) -> float:
    """Seconds that the device itself spends in `action`: its own events where it has them.

    For ceilings, which should not contain the cost of launching. `torch.cpu` has no timed events,
    and needs none: there the wall clock is the device's.
    """
    if device.type != "cuda":
        return seconds(action, device)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    synchronize(device)
    start.record()
    action()
    end.record()
    synchronize(device)
    return start.elapsed_time(end) / 1000.0


@contextmanager
def num_threads(count: int) -> Generator[None]:
    """Torch uses `count` threads inside the block, and what it used before after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def no_garbage_collection() -> Generator[None]:
    """Collect once, then not at all inside the block, so that no timed run pays for another's."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
