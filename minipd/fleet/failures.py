"""When workers of a simulated fleet fail, and when they are back. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random


class FailureError(ValueError):
    """A failure that cannot happen in this fleet; the message says what to write."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Worker number `worker` is lost at `at_s` with its KV, and back, empty, at `back_s` (None:
    never)."""

    worker: int
    at_s: float
    back_s: float | None = None


def check_failures(failures: Iterable[Failure], num_workers: int) -> list[Failure]:
    """In order of time; raises `FailureError`."""
    found = list(failures)
    for failure in found:
        if not 0 <= failure.worker < num_workers:
            raise FailureError(
                f"Worker {failure.worker} cannot fail: there are workers 0 to {num_workers - 1}."
            )
        back_s = failure.at_s if failure.back_s is None else failure.back_s
        if not (0.0 <= failure.at_s < math.inf and failure.at_s <= back_s < math.inf):
            raise FailureError(
                f"Worker {failure.worker} fails at {failure.at_s} s and is back at "
                f"{failure.back_s} s; use seconds from 0 on, the second not before the first."
            )
    return sorted(found, key=lambda failure: (failure.at_s, failure.worker))


def random_failures(
    num_workers: int, mean_s: float, down_s: float, until_s: float, seed: int = 0
) -> list[Failure]:
    """Each worker fails after a time of mean `mean_s` (exponential), is down for `down_s`, and so
    on until `until_s`. The same seed gives the same failures."""
    if not (0.0 < mean_s < math.inf and 0.0 <= down_s < math.inf and until_s < math.inf):
        raise FailureError(
            f"Workers that fail every {mean_s} s for {down_s} s: use a number of seconds above 0, "
            "and one of 0 or more."
        )
    found: list[Failure] = []
    for worker in range(num_workers):
        rng = Random(f"minipd failures {seed} {worker}")
        now_s = rng.expovariate(1.0 / mean_s)
        while now_s < until_s:
            found.append(Failure(worker, now_s, now_s + down_s))
            now_s += down_s + rng.expovariate(1.0 / mean_s)
    return found
