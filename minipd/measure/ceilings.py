"""The two ceilings of a device: how fast it multiplies matrices and how fast it reads memory.

Every MFU and MBU in the course is a share of these two, measured here and never looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from minipd.measure import hardware
from minipd.measure.machine import available_memory_bytes
from minipd.measure.stats import Samples
from minipd.measure.stopwatch import kernel_seconds, num_threads

PRODUCT_SIZES = (1024, 2048, 4096)
LONGEST_PRODUCT_S = 4.0
SAMPLE_S = 0.5  # about as long as what a sample stands beside, so that both meet the same machine
MIN_READ_BYTES = 512 * 10**6
CACHE_MULTIPLE = 8
ROW_LENGTH = 4096
Rates = Callable[[Callable[[], object]], list[float]]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class CeilingError(RuntimeError):
    """A ceiling that this device cannot show, for example a dtype it does not compute in."""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Samples per shape, in FLOP/s and byte/s. A ceiling is the best sample: what was reached.

    Rule: results are indicative when the middle half of the samples that set a ceiling spans more
    than 10 % of their median, or when `NoiseMeter` saw other work on the machine.
    """

    device: str
    dtype: str
    threads: int
    products: dict[str, Samples]
    reads: dict[str, Samples]
    read_bytes: int
    read_bytes_reason: str
    noise_remark: str | None

    @property
    def flops(self) -> float:
        """Multiply and add count as two; the best of all products, FLOP/s."""
        return self.best_product.best

    @property
    def read_bytes_per_s(self) -> float:
        return self.best_read.best

    @property
    def best_product(self) -> Samples:
        return max(self.products.values(), key=lambda samples: samples.best)

    @property
    def best_read(self) -> Samples:
        return max(self.reads.values(), key=lambda samples: samples.best)

    @property
    def ridge_flops_per_byte(self) -> float:
        """Work per byte read at which both ceilings bind at once (the roofline's corner)."""
        return self.flops / self.read_bytes_per_s

    @property
    def indicative_reason(self) -> str | None:
        reasons = [
            f"{name} spread by {samples.spread:.0%}"
            for name, samples in (("products", self.best_product), ("reads", self.best_read))
            if samples.is_indicative
        ]
        return "; ".join(reasons + ([self.noise_remark] if self.noise_remark else [])) or None

    @property
    def indicative(self) -> bool:
        return self.indicative_reason is not None

    def to_dict(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "dtype": self.dtype,
            "threads": self.threads,
            "flops": self.flops,
            "read_bytes_per_s": self.read_bytes_per_s,
            "ridge_flops_per_byte": self.ridge_flops_per_byte,
            "indicative": self.indicative,
            "indicative_reason": self.indicative_reason,
            "products": {name: samples.to_dict() for name, samples in self.products.items()},
            "reads": {name: samples.to_dict() for name, samples in self.reads.items()},
            "read_bytes": self.read_bytes,
            "read_bytes_reason": self.read_bytes_reason,
        }


def measure_ceilings(
    device: str = "cpu",
    dtype: str = "float32",
    threads: int = 1,
    quick: bool = False,
    at_least: int = 2,
) -> Ceilings:
    """Measure both ceilings; `quick` takes fewer samples, of the same shapes and sizes, but
    `at_least` so many of each however long they take."""
    where, kind = torch.device(device), torch_dtype(dtype)
    read_bytes, reason = choose_read_bytes(where)
    repeats, limit_s = (3, 0.5) if quick else (7, 2.0)
    meter = hardware.NoiseMeter()
    rates = partial(
        _rates, device=where, repeats=repeats, limit_s=limit_s, at_least=max(1, at_least)
    )
    with num_threads(threads), torch.inference_mode():
        try:
            products = dict(_measure_products(where, kind, rates))
            reads = dict(_measure_reads(where, kind, rates, read_bytes))
        except RuntimeError as error:
            raise CeilingError(f"{dtype} does not run on {device} here: {error}") from error
    remark = meter.read().remark
    return Ceilings(device, dtype, threads, products, reads, read_bytes, reason, remark)


def torch_dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise CeilingError(f"The dtype {name!r} is unknown here; use one of {', '.join(DTYPES)}.")
    return DTYPES[name]


def choose_read_bytes(device: torch.device) -> tuple[int, str]:
    """How many bytes to read so that no cache can hold them, and why it is that many."""
    on_cpu = device.type == "cpu"
    free = available_memory_bytes() if on_cpu else torch.cuda.mem_get_info(device)[0]
    cache = hardware.last_level_cache_bytes() if on_cpu else None
    return _choose_read_bytes(cache, free)


def _choose_read_bytes(cache_bytes: int | None, free_bytes: int) -> tuple[int, str]:
    size, reason = MIN_READ_BYTES, "512 MB, far more than usual caches hold"
    if cache_bytes and cache_bytes * CACHE_MULTIPLE > size:
        size = cache_bytes * CACHE_MULTIPLE
        reason = (
            f"8 times the {cache_bytes / 2**20:.0f} MiB of cache that the system reports "
            "(a virtual machine may report one that it shares with others)"
        )
    if size > free_bytes // 4:
        size, reason = free_bytes // 4, f"a quarter of free memory, instead of {reason}"
    return size, reason


def _measure_products(
    device: torch.device, dtype: torch.dtype, rates: Rates
) -> Iterator[tuple[str, Samples]]:
    """Square products of growing size; stops growing where the next would take too long."""
    for size in PRODUCT_SIZES:
        runs_per_s = rates(_product(size, device, dtype))
        samples = Samples(tuple(2.0 * size**3 * rate for rate in runs_per_s))
        yield str(size), samples
        if 2.0 * (2 * size) ** 3 / samples.median > LONGEST_PRODUCT_S:
            return


def _product(size: int, device: torch.device, dtype: torch.dtype) -> Callable[[], Tensor]:
    a = torch.randn(size, size, device=device).to(dtype)  # (size, size)
    b, out = a.T.contiguous(), torch.empty_like(a)  # (size, size) each
    return lambda: torch.mm(a, b, out=out)


def _measure_reads(
    device: torch.device, dtype: torch.dtype, rates: Rates, read_bytes: int
) -> Iterator[tuple[str, Samples]]:
    """Three ways to read a large matrix once: both matrix-vector products, and its sum."""
    num_bytes, ways = _reads(device, dtype, read_bytes)
    for name, way in ways.items():
        yield name, Samples(tuple(num_bytes * rate for rate in rates(way)))


def _reads(
    device: torch.device, dtype: torch.dtype, read_bytes: int
) -> tuple[int, dict[str, Callable[[], Tensor]]]:
    """The bytes that each way reads, and the ways."""
    rows = max(1, read_bytes // (ROW_LENGTH * dtype.itemsize))
    matrix = torch.ones(rows, ROW_LENGTH, device=device, dtype=dtype)  # (rows, ROW_LENGTH)
    across = torch.ones(ROW_LENGTH, device=device, dtype=dtype)  # (ROW_LENGTH,)
    down = torch.ones(rows, device=device, dtype=dtype)  # (rows,)
    return matrix.numel() * dtype.itemsize, {
        "matrix_vector": lambda: torch.mv(matrix, across),
        "vector_matrix": lambda: torch.mv(matrix.T, down),
        "sum": lambda: torch.sum(matrix),
    }


class Beside:
    """Both ceilings, sampled once at a time beside what they bound: a machine's speed may change
    within seconds. `ceilings` is a measurement of the same device and dtype: products that it left
    out as too long are left out here, too, and of its ways to read the best one is taken."""

    def __init__(self, ceilings: Ceilings) -> None:
        self._device, dtype = torch.device(ceilings.device), torch_dtype(ceilings.dtype)
        self._products: dict[str, tuple[float, Callable[[], object]]] = {}
        for size in ceilings.products:
            flops = 2.0 * int(size) ** 3
            number = max(1, round(SAMPLE_S * ceilings.flops / flops))
            action = partial(_repeat, _product(int(size), self._device, dtype), number)
            self._products[size] = (number * flops, action)
        num_bytes, ways = _reads(self._device, dtype, ceilings.read_bytes)
        best = max(ceilings.reads, key=lambda name: ceilings.reads[name].best)
        self._read = (float(num_bytes), ways[best])

    def flops(self) -> dict[str, float]:
        """FLOP/s of each size, over one product or as many as fill about `SAMPLE_S`."""
        return {size: self._rate(*way) for size, way in self._products.items()}

    def read_bytes_per_s(self) -> float:
        """One reading, byte/s."""
        return self._rate(*self._read)

    @torch.inference_mode()
    def _rate(self, work: float, action: Callable[[], object]) -> float:
        return work / max(kernel_seconds(action, self._device), 1e-9)


def _repeat(action: Callable[[], object], number: int) -> None:
    for _ in range(number):
        action()


def _rates(
    action: Callable[[], object],
    device: torch.device,
    repeats: int,
    limit_s: float,
    at_least: int = 2,
) -> list[float]:
    """Runs per second, after one run that is not counted; long runs only `at_least` times."""
    action()
    durations: list[float] = []
    while len(durations) < at_least or (len(durations) < repeats and sum(durations) < limit_s):
        durations.append(max(kernel_seconds(action, device), 1e-9))
    return [1.0 / duration for duration in durations]
