"""Streams: a worker's own, the one its copies run on, and what becomes of both without a GPU.

Only what `torch.cpu` has as well is used, so a CPU runs the same lines, where they do nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch

ON_CPU = (
    "streams do nothing on a CPU: the pools are threads that share its cores and Python's lock, "
    "so their steps hold each other up"
)


@contextmanager
def own_stream(
    device_name: str, sm_share: float | None = None, *, in_thread: bool = False
) -> Generator[tuple[str, ...]]:
    """Make `device_name` current and run the block on a stream of its own; yields remarks.

    `sm_share`, between 0 and 1, confines the stream to that part of a GPU's multiprocessors (SMs):
    the rest is then always free for other workers, which may use all of them.
    """
    device = torch.device(device_name)
    module = torch.get_device_module(device)
    module.set_device(device)
    remarks = [ON_CPU] if in_thread and device.type == "cpu" else []
    context = None
    if sm_share is not None:
        context, remark = confine(device, sm_share)
        remarks.append(remark)
    stream = context.Stream() if context is not None else module.Stream(device)
    with module.stream(stream):
        yield tuple(remarks)
        module.synchronize()  # before the context goes, and its stream with it


def confine(device: torch.device, sm_share: float) -> tuple[Any, str]:
    """A green context on `sm_share` of the device's SMs, or None, and a remark that says which.

    Each context that torch makes starts from the device's first SM, so two of them overlap. One for
    prefill is enough: the SMs beyond it can only be used by workers that are not confined.
    """
    if not 0 < sm_share < 1:
        raise ValueError(f"The share of SMs must lie between 0 and 1, not {sm_share}.")
    if device.type != "cuda":
        return None, f"no SMs to split on {device.type}: the share of {sm_share:.0%} is ignored"
    from torch.cuda.green_contexts import GreenContext  # in beta: any version may change it

    total = torch.cuda.get_device_properties(device).multi_processor_count
    wanted = max(1, round(total * sm_share))
    torch.empty(1, device=device)  # the device's own context must exist first
    try:
        context: Any = GreenContext.create(num_sms=wanted, device_id=torch.cuda.current_device())
        context.Stream()
    except (RuntimeError, AttributeError, TypeError) as refusal:
        return None, f"the SMs are shared by all: no green context here ({refusal})"
    return context, f"confined to {wanted} of {total} SMs, rounded up to what the GPU can split"


class CopyStream:
    """Copies that run beside the computation of `device`, each after what came before it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._module = torch.get_device_module(device)
        self._stream = self._module.Stream(device)

    @contextmanager
    def behind_compute(self) -> Generator[None]:
        """Work in this block starts when all work given to the current stream so far is done."""
        self._stream.wait_stream(self._module.current_stream(self.device))
        with self._module.stream(self._stream):
            yield

    def mark(self) -> Any:
        """An event that is done when everything on this stream so far is."""
        event = self._module.Event()
        event.record(self._stream)
        return event


def is_done(event: Any) -> bool:
    """Without waiting where the device can tell; else after waiting."""
    if hasattr(event, "query"):
        return event.query()
    event.synchronize()
    return True


def compute_mark(device: torch.device) -> Any:
    """An event that is done when all work given to the current stream of `device` so far is."""
    module = torch.get_device_module(device)
    event = module.Event()
    event.record(module.current_stream(device))
    return event
