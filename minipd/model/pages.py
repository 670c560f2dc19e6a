"""Memory for a model's weights, in large pages where the system offers them.

A decode step reads every weight once, so each page of them has to be looked up once per step. With
pages of 2 MiB instead of 4 KiB there are 512 times fewer: decode gained about 7 % on the machine of
benchmarks/RESULTS.md, with one sequence as with sixteen.
"""

from __future__ import annotations

import math
import mmap
from contextlib import suppress

import torch
from torch import Tensor

PAGE_BYTES = 2 << 20
ALIGNMENT_BYTES = 64  # a cache line


class WeightMemory:
    """Hands out uninitialised tensors from one anonymous mapping of `num_bytes`.

    The mapping lives as long as any of its tensors. On devices other than the CPU, and on systems
    without large pages (Linux calls them transparent huge pages), torch allocates as usual.
    """

    def __init__(self, num_bytes: int, device: torch.device) -> None:
        self.device = device
        self._buffer = _large_pages(num_bytes) if device.type == "cpu" else None  # (bytes,)
        self._used = 0

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The next tensor; an ordinary one when the mapping is full."""
        num_bytes = math.prod(shape) * dtype.itemsize
        if self._buffer is None or self._used + num_bytes > len(self._buffer):
            return torch.empty(shape, dtype=dtype, device=self.device)
        taken = self._buffer[self._used : self._used + num_bytes]  # (num_bytes,)
        self._used += -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return taken.view(dtype).view(shape)


def _large_pages(num_bytes: int) -> Tensor | None:
    """At least `num_bytes` bytes that begin at a large page, or None where there are none."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    with suppress(OSError):
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        mapping = mmap.mmap(-1, num_bytes + 2 * PAGE_BYTES, flags=private)
        mapping.madvise(mmap.MADV_HUGEPAGE)
        whole = torch.frombuffer(mapping, dtype=torch.uint8)  # (bytes,); keeps the mapping alive
        return whole[-whole.data_ptr() % PAGE_BYTES :]
    return None
