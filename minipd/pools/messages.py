"""What coordinator and workers say to each other: small picklable values, never tensors.

A hand-off in messages: `Reserve` to the decode worker, which answers `Reserved`; `Prefill` to the
prefill worker, which writes the KV through its link and answers `HandedOff` with the manifest; the
coordinator passes the manifest on as `Commit`; the decode worker verifies it and decodes.
"""

from __future__ import annotations

from typing import Any, Literal

from minipd.request import FinishReason, PrefillReason, Request
from minipd.sched.limits import Limits
from minipd.timeline import Event
from minipd.values import value

Role = Literal["prefill", "decode", "both"]
Policy = Literal["prefill_first", "decode_first", "chunked", "prefill_only", "decode_only"]


@value
class Manifest:
    """What was written where, by whom, and what must be found there.

    `layout` names block size, KV heads, head size, layers and dtype; `digests` holds one digest of
    the keys and one of the values per layer, over tokens `[first_token, num_tokens)`. Sampling and
    stop strings stand in the request that the decode worker already has; the text of the answer so
    far follows from the request's output ids and `token_id`.
    """

    request_id: str
    source: str
    source_epoch: int
    target: str
    target_epoch: int
    fingerprint: str
    layout: str
    block_ids: tuple[int, ...]
    first_token: int
    num_tokens: int
    digests: tuple[int, ...]
    num_bytes: int
    token_id: int


# -- to a worker ------------------------------------------------------------------------------


@value
class Configure:
    """Take on a role with an empty scheduler; only an idle worker may be asked."""

    role: Role
    policy: Policy
    limits: Limits
    prefix_reuse: bool = True


@value
class Connect:
    """Another worker's store, and the epoch it belongs to."""

    name: str
    epoch: int
    registration: Any


@value
class Submit:
    """Run both phases here; `reason` says why the prompt is read on this worker."""

    request: Request
    output_ids: tuple[int, ...] = ()
    reason: PrefillReason = "local"


@value
class Reserve:
    request: Request
    output_ids: tuple[int, ...] = ()


@value
class Prefill:
    """Read a prompt; write its KV, but for the first `cached_tokens`, into the target's blocks."""

    request: Request
    target: str
    target_epoch: int
    block_ids: tuple[int, ...]
    cached_tokens: int
    output_ids: tuple[int, ...] = ()
    reason: PrefillReason = "prompt"


@value
class Commit:
    manifest: Manifest


@value
class Recover:
    """The hand-off will not come: read the prompt of this reservation yourself."""

    request_id: str
    token_id: int | None = None


@value
class Drop:
    """Forget a reservation: the request has ended, or will be answered elsewhere."""

    request_id: str


@value
class Cancel:
    request_id: str
    reason: FinishReason = "cancelled"


@value
class Audit:
    """Ask for the books: how many blocks are in use."""


@value
class TellForgotten:
    """From now on, say which cached blocks are forgotten; holds until the next `Configure`."""


@value
class Stop:
    """Leave the loop."""


ToWorker = (
    Configure
    | Connect
    | Submit
    | Reserve
    | Prefill
    | Commit
    | Recover
    | Drop
    | Cancel
    | Audit
    | TellForgotten
    | Stop
)


# -- from a worker ----------------------------------------------------------------------------


@value
class Started:
    """Ready: what it can hold, and how others may write into its store."""

    num_blocks: int
    block_size: int
    max_context: int
    vocab_size: int
    fingerprint: str
    notes: tuple[str, ...]
    registration: Any


@value
class Configured:
    """The answer to `Configure`."""


@value
class Audited:
    used_blocks: int
    num_sequences: int


@value
class Happened:
    events: tuple[Event, ...]


@value
class Forgotten:
    """Names of blocks that this worker no longer holds anywhere."""

    worker: str
    names: tuple[bytes, ...]


@value
class Reserved:
    request_id: str
    block_ids: tuple[int, ...]
    cached_tokens: int


@value
class HandedOff:
    manifest: Manifest


@value
class HandOffFailed:
    """The KV did not arrive; `token_id` is the first token, which has been published."""

    request_id: str
    token_id: int
    reason: str


@value
class Refused:
    """A manifest did not match what was found; the worker reads the prompt itself."""

    request_id: str
    reason: str


@value
class Drained:
    """The request ended on the prefill worker, and nothing more will be written for it."""

    request_id: str


@value
class Crashed:
    """The worker's own last words."""

    reason: str


FromWorker = (
    Started
    | Configured
    | Audited
    | Happened
    | Forgotten
    | Reserved
    | HandedOff
    | HandOffFailed
    | Refused
    | Drained
    | Crashed
)
