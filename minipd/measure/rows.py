"""A trace is a list of rows: when a request came, how long it was, what prefix it shares.

Traces hold lengths, never text. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

MAX_TOKENS = 10_000_000  # of one prompt or answer
MAX_SECONDS = 10 * 366 * 86_400.0  # ten years: what is later was meant otherwise


class TraceError(ValueError):
    """A trace that cannot be used; the message says where and what is wrong."""


class Segment(NamedTuple):
    """The first `tokens` tokens of the named stream. Equal streams give equal tokens."""

    stream: str
    tokens: int


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of a trace: arrival in seconds from the trace's start, lengths in tokens.

    The prompt is `segments` one after another, then tokens of its own up to `prompt_tokens`. Rows
    that begin with the same segments share that prefix: one document, a system prompt, the earlier
    turns of a conversation, or the hashed blocks of a Mooncake row.
    """

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    kind: str = ""
    segments: tuple[Segment, ...] = ()

    @property
    def shareable_tokens(self) -> int:
        return sum(segment.tokens for segment in self.segments)


@dataclass(slots=True)
class Changes:
    """What `reshape` did to a trace; said in every report so that nothing is lost silently."""

    rows: int = 0
    time_factor: float = 1.0
    length_factor: float = 1.0
    prompts_capped: int = 0
    outputs_capped: int = 0
    prompt_tokens_cut: int = 0
    output_tokens_cut: int = 0
    max_prompt_tokens: int | None = None
    max_output_tokens: int | None = None

    def sentences(self) -> list[str]:
        told: list[str] = []
        if self.time_factor != 1.0:
            told.append(f"Arrival times were multiplied by {self.time_factor:g}.")
        if self.length_factor != 1.0:
            told.append(f"Lengths were multiplied by {self.length_factor:g}.")
        if self.prompts_capped:
            told.append(
                f"{self.prompts_capped} of {self.rows} prompts were cut to "
                f"{self.max_prompt_tokens} tokens ({self.prompt_tokens_cut} tokens dropped)."
            )
        if self.outputs_capped:
            told.append(
                f"{self.outputs_capped} of {self.rows} outputs were cut to "
                f"{self.max_output_tokens} tokens ({self.output_tokens_cut} tokens dropped)."
            )
        return told


def reshape(
    rows: Iterable[TraceRow],
    *,
    time_factor: float = 1.0,
    length_factor: float = 1.0,
    max_prompt_tokens: int | None = None,
    max_output_tokens: int | None = None,
) -> tuple[list[TraceRow], Changes]:
    """Fit a trace to a smaller machine: stretch its times, shrink its lengths, cap what is left.

    `time_factor` 10 makes arrivals ten times rarer. Lengths are multiplied first (never below one
    token), then capped. Shared prefixes shrink with their prompts. Raises `TraceError`.
    """
    for name, factor in (("time_factor", time_factor), ("length_factor", length_factor)):
        if not 0.0 < factor < float("inf"):
            raise TraceError(f"{name} is {factor}; use a number above 0 (1 changes nothing).")
    for name, cap in (("prompt", max_prompt_tokens), ("output", max_output_tokens)):
        if cap is not None and cap < 1:
            raise TraceError(f"The cap on {name} tokens is {cap}; use 1 or more, or none.")
    changes = Changes(
        time_factor=time_factor,
        length_factor=length_factor,
        max_prompt_tokens=max_prompt_tokens,
        max_output_tokens=max_output_tokens,
    )
    return [_reshape_row(row, changes) for row in rows], changes


def _reshape_row(row: TraceRow, changes: Changes) -> TraceRow:
    prompt = _scaled(row.prompt_tokens, changes.length_factor)
    output = _scaled(row.output_tokens, changes.length_factor)
    if row.arrival_s * changes.time_factor > MAX_SECONDS:
        raise TraceError(
            f"Multiplied by {changes.time_factor:g}, arrivals come over ten years after the start; "
            "choose a smaller time factor."
        )
    kept_prompt = min(prompt, changes.max_prompt_tokens or prompt)
    kept_output = min(output, changes.max_output_tokens or output)
    changes.rows += 1
    changes.prompts_capped += kept_prompt < prompt
    changes.outputs_capped += kept_output < output
    changes.prompt_tokens_cut += prompt - kept_prompt
    changes.output_tokens_cut += output - kept_output
    return replace(
        row,
        arrival_s=row.arrival_s * changes.time_factor,
        prompt_tokens=kept_prompt,
        output_tokens=kept_output,
        segments=_fit_segments(row.segments, changes.length_factor, kept_prompt),
    )


def _scaled(tokens: int, factor: float) -> int:
    if tokens * factor > MAX_TOKENS:
        raise TraceError(
            f"{tokens} tokens multiplied by {factor:g} are over the limit of {MAX_TOKENS}; choose "
            "a smaller length factor."
        )
    return max(1, round(tokens * factor))


def _fit_segments(
    segments: tuple[Segment, ...], factor: float, prompt_tokens: int
) -> tuple[Segment, ...]:
    """Shrink segments by `factor` and drop what no longer fits into the prompt.

    Ends are rounded, not lengths, so that many small segments do not drift from the prompt.
    """
    fitted: list[Segment] = []
    original_end = start = 0
    for stream, tokens in segments:
        original_end += tokens
        end = min(round(original_end * factor), prompt_tokens)
        if end > start:
            fitted.append(Segment(stream, end - start))
        start = end
    return tuple(fitted)


@dataclass(slots=True)
class Trace:
    """Rows in order of arrival, where they came from, and every note a report must repeat."""

    rows: list[TraceRow]
    source: str
    format: str
    notes: list[str] = field(default_factory=list[str])
