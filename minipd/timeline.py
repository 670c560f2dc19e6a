"""The timeline: a list of stamped events, and the only source of every metric and picture.

Workers stamp their own events with `time.monotonic()`-like seconds on one clock shared by the run
(simulators use a virtual clock). Free of torch and numpy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Literal, get_args

from minipd.values import value

EventKind = Literal[
    "arrived",  # coordinator: data = prompt_tokens, max_tokens
    "routed",  # coordinator: choice ("local" or "remote"), target worker, reason
    "reserved",  # decode worker: blocks, cached_tokens (prefix already held there)
    "prefill_started",  # worker: tokens (all of this prefill), cached_tokens, reason
    "prefill_finished",  # worker: tokens, reason
    "token",  # worker: index (0 = first output token), token_id
    "handoff_started",  # prefill worker: target, bytes planned
    "handoff_finished",  # prefill worker: target, bytes, exposed_s, copy_s
    "handoff_failed",  # prefill worker: target, reason
    "committed",  # decode worker: bytes, verify_s
    "handoff_refused",  # decode worker: reason
    "kv_evicted",  # worker: tier it goes to (host, disk), tokens, bytes, seconds
    "kv_fetched",  # worker: tier it comes from, tokens, bytes, seconds; for this request
    "kv_lost",  # worker: tier that could not take or give it, tokens, reason
    "preempted",  # worker: cached_tokens given up
    "finished",  # terminal: reason eos | length | stop, output_tokens
    "cancelled",  # terminal: reason cancelled | deadline, output_tokens
    "failed",  # terminal: reason (one sentence)
    "step",  # worker, no request: start_s, prefill_tokens, decode_seqs, requests
    "worker_started",  # role, epoch
    "worker_died",  # reason, epoch
    "worker_draining",  # role, to (the next role), epoch, reason; it gets nothing new
    "role_changed",  # role, epoch, drained_s; it holds nothing and gets another scheduler
    "worker_resumed",  # role, epoch, paused_s since it began to drain
]
KINDS: frozenset[str] = frozenset(get_args(EventKind))
TERMINAL_KINDS: frozenset[str] = frozenset({"finished", "cancelled", "failed"})

Value = int | float | str | bool | list[str]


@value
class Event:
    """One thing that happened at `t_s`; an interval ends there and began at `data["start_s"]`."""

    t_s: float
    kind: EventKind
    worker: str = ""
    request_id: str = ""
    data: dict[str, Value] = field(default_factory=dict[str, Value])

    def to_json(self) -> str:
        return json.dumps(
            {"t_s": self.t_s, "kind": self.kind, "worker": self.worker}
            | ({"request_id": self.request_id} if self.request_id else {})
            | ({"data": self.data} if self.data else {})
        )


class TimelineError(ValueError):
    """A timeline file that cannot be read; the message names the line and what is wrong with it."""


def read_jsonl(lines: Iterable[str]) -> Iterator[Event]:
    """Events of a JSON-lines file; raises `TimelineError` naming the first bad line."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            raw = json.loads(line)
            event = Event(
                float(raw["t_s"]),
                raw["kind"],
                str(raw.get("worker", "")),
                str(raw.get("request_id", "")),
                dict(raw.get("data", {})),
            )
        except (json.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise TimelineError(f"Line {number} is not a timeline event ({error}).") from error
        if str(event.kind) not in KINDS:  # it may be anything that JSON can say
            raise TimelineError(f"Line {number} has the unknown event kind {event.kind!r}.")
        yield event
