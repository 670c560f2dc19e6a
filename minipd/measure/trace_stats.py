"""Describing a trace in numbers: how often, how long, how much of it a perfect cache would save."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from minipd.measure.quantiles import percentile
from minipd.measure.rows import TraceRow


@dataclass(frozen=True, slots=True)
class LengthStats:
    """Tokens per request."""

    mean: float
    p50: float
    p90: float
    max: int

    @classmethod
    def of(cls, lengths: Sequence[int]) -> LengthStats:
        return cls(fmean(lengths), percentile(lengths, 50), percentile(lengths, 90), max(lengths))


@dataclass(frozen=True, slots=True)
class PrefixHits:
    """What an infinite cache would have found, in three averages that papers mix up.

    `token_weighted`: cached tokens over all prompt tokens. `per_request`: mean over requests of
    each one's cached share. `segments`: fully cached segments over all segments (for Mooncake
    rows: blocks). Facts section 5: Mooncake's synthetic trace has 65.1, 43.2 and 64.0 %.
    """

    token_weighted: float
    per_request: float
    segments: float


@dataclass(frozen=True, slots=True)
class TraceStats:
    """A trace at a glance. `rate_per_s` is requests over the span from first to last arrival;
    `inter_arrival_cv` the standard deviation of the gaps over their mean (1: Poisson)."""

    requests: int
    span_s: float
    rate_per_s: float
    inter_arrival_cv: float
    prompt: LengthStats
    output: LengthStats
    prefix_hits: PrefixHits


def describe(rows: Sequence[TraceRow]) -> TraceStats:
    """Statistics of a non-empty trace in order of arrival."""
    if not rows:
        raise ValueError("There are no rows to describe; read or generate a trace first.")
    span_s = rows[-1].arrival_s - rows[0].arrival_s
    gaps_s = [later.arrival_s - row.arrival_s for row, later in zip(rows, rows[1:], strict=False)]
    return TraceStats(
        requests=len(rows),
        span_s=span_s,
        rate_per_s=len(rows) / span_s if span_s else math.nan,
        inter_arrival_cv=pstdev(gaps_s) / fmean(gaps_s) if span_s else math.nan,
        prompt=LengthStats.of([row.prompt_tokens for row in rows]),
        output=LengthStats.of([row.output_tokens for row in rows]),
        prefix_hits=prefix_hits(rows),
    )


class PrefixIndex:
    """Remembers every prefix ever seen, as a tree of segments; never forgets (infinite cache)."""

    def __init__(self) -> None:
        self._longest: dict[tuple[int, str], int] = {}  # (node, stream) -> tokens seen
        self._nodes: dict[tuple[int, str, int], int] = {}  # (node, stream, tokens) -> node

    def visit(self, row: TraceRow) -> tuple[int, int]:
        """Prompt tokens and whole segments already seen; then remembers this row's prefix."""
        node = hit_tokens = hit_segments = 0
        matching = True
        for stream, tokens in row.segments:
            seen = self._longest.get((node, stream), 0)
            if matching:
                hit_tokens += min(tokens, seen)
                hit_segments += seen >= tokens
            self._longest[node, stream] = max(tokens, seen)
            matching = matching and (node, stream, tokens) in self._nodes
            node = self._nodes.setdefault((node, stream, tokens), len(self._nodes) + 1)
        return hit_tokens, hit_segments


def prefix_hits(rows: Iterable[TraceRow]) -> PrefixHits:
    """Hits of an infinite cache over the rows in their order, cold at the start."""
    index = PrefixIndex()
    shares: list[float] = []
    tokens = hit_tokens = segments = hit_segments = 0
    for row in rows:
        hit, whole = index.visit(row)
        shares.append(hit / row.prompt_tokens)
        tokens, hit_tokens = tokens + row.prompt_tokens, hit_tokens + hit
        segments, hit_segments = segments + len(row.segments), hit_segments + whole
    return PrefixHits(
        hit_tokens / tokens if tokens else 0.0,
        fmean(shares) if shares else 0.0,
        hit_segments / segments if segments else 0.0,
    )


def table(stats: TraceStats) -> list[tuple[str, str]]:
    """Name and printed value of each statistic, for a terminal or a notebook."""
    prompt, output, hits = stats.prompt, stats.output, stats.prefix_hits
    return [
        ("requests", f"{stats.requests}"),
        ("span", f"{stats.span_s:.0f} s"),
        ("rate", f"{stats.rate_per_s:.2f} requests/s"),
        ("inter-arrival CV", f"{stats.inter_arrival_cv:.2f}"),
        ("prompt tokens mean / p50 / p90 / max", _lengths(prompt)),
        ("output tokens mean / p50 / p90 / max", _lengths(output)),
        ("prefix hits, token-weighted", f"{hits.token_weighted:.1%}"),
        ("prefix hits, mean per request", f"{hits.per_request:.1%}"),
    ]


def _lengths(stats: LengthStats) -> str:
    return f"{stats.mean:.1f} / {stats.p50:.0f} / {stats.p90:.0f} / {stats.max}"
