"""Service-level objectives: what counts as a good answer, and what follows from counting them.

Definitions as in facts section 4. An objective is met when the value is at most the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from minipd.measure.quantiles import percentile
from minipd.measure.requests import RequestMetrics

OneTokenRule = Literal["passes", "fails"]


class SLOError(ValueError):
    """Limits that no answer can be held against; the message says what to write."""


@dataclass(frozen=True, slots=True)
class SLO:
    """Limits in seconds; None sets none.

    `one_token`: what an answer of one token, which has no TPOT, does to a TPOT limit. vLLM counts
    its TPOT as 0 ("passes"), AIPerf gives it no value ("fails").
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    itl_p99_s: float | None = None
    e2e_s: float | None = None
    one_token: OneTokenRule = "passes"

    def __post_init__(self) -> None:
        for name in ("ttft_s", "tpot_s", "itl_p99_s", "e2e_s"):
            limit = getattr(self, name)
            if limit is not None and not 0.0 < limit < float("inf"):
                raise SLOError(f"The SLO {name} is {limit}; use seconds above 0.")

    def met_by(self, request: RequestMetrics) -> bool:
        """Whether a finished request met every limit; one that did not finish never does."""
        if request.outcome != "finished" or request.ttft_s is None or request.e2e_s is None:
            return False
        if self.ttft_s is not None and request.ttft_s > self.ttft_s:
            return False
        if self.e2e_s is not None and request.e2e_s > self.e2e_s:
            return False
        return self._tokens_met(request)

    def _tokens_met(self, request: RequestMetrics) -> bool:
        if self.tpot_s is not None and request.tpot_s is None and self.one_token == "fails":
            return False
        if self.tpot_s is not None and (request.tpot_s or 0.0) > self.tpot_s:
            return False
        if self.itl_p99_s is None or not request.itl_s:
            return True
        return percentile(request.itl_s, 99) <= self.itl_p99_s


def highest_good_rate(sweep: Iterable[tuple[float, float]], target: float = 0.9) -> float | None:
    """DistServe's goodput from a sweep of (request rate, attainment): the highest good rate.

    Rates above the first one that misses the target do not count, even if a noisy one passes again.
    Divide by the number of workers to compare (facts 2.1). None: not even the lowest rate passed.
    """
    best: float | None = None
    for rate, attainment in sorted(sweep):
        if attainment < target:
            break
        best = rate
    return best


# Splitwise (ISCA'24): slowdown against an unloaded machine allowed at P50, P90 and P99.
SPLITWISE_LIMITS: dict[str, tuple[float, float, float]] = {
    "ttft": (2.0, 3.0, 6.0),
    "tbt": (1.25, 1.5, 5.0),
    "e2e": (1.25, 1.5, 5.0),
}


def splitwise_met(slowdowns: Mapping[str, list[float]]) -> bool:
    """Splitwise's objective: all nine percentiles of the slowdowns (`ttft`, `tbt`, `e2e`) hold."""
    return all(
        percentile(slowdowns[name], p) <= limit
        for name, limits in SPLITWISE_LIMITS.items()
        for p, limit in zip((50, 90, 99), limits, strict=True)
    )


def seconds_of(text: str) -> float:
    """Seconds from `0.5`, `0.5s` or `500ms`, whatever their size; raises `ValueError`."""
    word = text.strip().lower()
    unit = 1e-3 if word.endswith("ms") else 1.0
    return float(word.removesuffix("ms").removesuffix("s")) * unit
