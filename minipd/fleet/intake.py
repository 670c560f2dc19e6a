"""Rows of a trace become requests, one at a time, and what can never be served is left out.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from minipd.fleet.fleet import Fleet, FleetError
from minipd.fleet.kvpool import block_names
from minipd.measure.rows import TraceRow
from minipd.request import Request, SamplingParams


class Intake:
    """Remembers of each request under way what its prompt shares with others, and no more."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.rows: Iterator[tuple[int, TraceRow]] = iter(())
        self.is_over = False
        self.why_refused: dict[str, int] = {}
        self._why_refuse = lru_cache(maxsize=1024)(fleet.why_refuse)
        self._sharing: dict[str, TraceRow] = {}
        self._names: dict[str, list[bytes]] = {}

    def next_after(self, now_s: float) -> Request | None:
        """The next request that can be served; None at the end. Raises `FleetError`."""
        for index, row in self.rows:
            why = self._why_refuse(row.prompt_tokens, row.output_tokens)
            if why is not None:
                self.why_refused[why] = self.why_refused.get(why, 0) + 1
                continue
            if not now_s <= row.arrival_s < float("inf"):
                raise FleetError(
                    f"Request {index} arrives at {row.arrival_s} s, after one at {now_s} s; put "
                    "the rows in order of arrival."
                )
            return self._request(index, row)
        self.is_over = True
        return None

    def _request(self, index: int, row: TraceRow) -> Request:
        name = f"{row.kind or 'request'}-{index:03d}"
        if self.fleet.prefix_reuse:
            self._sharing[name] = row
        prompt, sampling = _prompt_of(row.prompt_tokens), _answer_of(row.output_tokens)
        return Request(name, prompt, sampling, row.arrival_s)

    def names_of(self, request_id: str) -> list[bytes]:
        """Names of the request's shareable blocks, worked out once."""
        if request_id not in self._names:
            row = self._sharing[request_id]
            self._names[request_id] = block_names(row, self.fleet.block_size)
        return self._names[request_id]

    def forget(self, request_id: str) -> None:
        self._sharing.pop(request_id, None)
        self._names.pop(request_id, None)

    def notes(self) -> list[str]:
        return [f"{n} request(s) left out: each {why}." for why, n in self.why_refused.items()]


@lru_cache(maxsize=16)
def _prompt_of(tokens: int) -> tuple[int, ...]:
    """Of unknown tokens; prompts of one length share them."""
    return (0,) * tokens


@lru_cache(maxsize=1024)
def _answer_of(tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=tokens, ignore_eos=True)
