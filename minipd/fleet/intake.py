"""Rows of a trace become requests, one at a time, and what can never be served is left out.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator

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
        self._sharing: dict[str, TraceRow] = {}
        self._names: dict[str, list[bytes]] = {}

    def next_after(self, now_s: float) -> Request | None:
        """The next request that can be served; None at the end. Raises `FleetError`."""
        for index, row in self.rows:
            why = self.fleet.why_refuse(row.prompt_tokens, row.output_tokens)
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
        sampling = SamplingParams(max_tokens=row.output_tokens, ignore_eos=True)
        return Request(name, (0,) * row.prompt_tokens, sampling, row.arrival_s)

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
