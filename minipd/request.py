"""What a user asks for (`Request`) and where its answer stands (`Sequence`).

Free of torch and numpy: schedulers, simulator and metrics share these objects with the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeGuard

FinishReason = Literal["eos", "length", "stop", "cancelled", "deadline", "failed"]
PrefillReason = Literal["prompt", "local", "preempted", "recovered"]

MAX_SEED = 2**63 - 1


class RequestError(ValueError):
    """A request refused at the door; the message is one sentence that says what to change."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How output tokens are drawn and when to stop.

    `temperature` 0 is greedy. `top_k` 0 keeps the whole vocabulary. `max_tokens` counts output
    tokens, the first one (sampled by prefill) included. Random draws depend only on `seed` and the
    token's position, never on what else is in the batch.
    """

    max_tokens: int = 64
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        for name in ("max_tokens", "top_k", "seed"):
            self._require(name, is_whole_number(getattr(self, name)), "a whole number")
        for name in ("temperature", "top_p"):
            self._require(name, is_number(getattr(self, name)), "a number")
        self._require("max_tokens", self.max_tokens >= 1, "at least 1 output token")
        self._require("temperature", 0.0 <= self.temperature <= 100.0, "0 (greedy) up to 100")
        self._require("top_k", self.top_k >= 0, "0 (whole vocabulary) or more")
        self._require("top_p", 0.0 < self.top_p <= 1.0, "more than 0 and at most 1")
        self._require("seed", 0 <= self.seed <= MAX_SEED, "a whole number from 0 to 2**63 - 1")
        wanted = "a tuple of non-empty strings, like stop=('###',)"
        self._require("stop", _is_tuple_of_texts(self.stop), wanted)
        self._require("ignore_eos", type(self.ignore_eos) is bool, "True or False")

    def _require(self, name: str, is_right: bool, wanted: str) -> None:
        if not is_right:
            raise RequestError(f"{name} is {shown(getattr(self, name))}; use {wanted}.")


def is_whole_number(value: object) -> TypeGuard[int]:
    """An int; True and False are ints to Python, but never meant as a count or a token id."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, float) or is_whole_number(value)


def shown(value: object) -> str:
    """A value as a message may show it: on one line, however large it is."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no int of more than 4,300 digits
        return "a number of thousands of digits"
    text = " ".join(text.split())
    return text if len(text) <= 80 else f"{text[:80]}..."


def _is_tuple_of_texts(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(v, str) and v for v in value)


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt as token ids. Times are seconds on the run's shared monotonic clock."""

    id: str
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams = SamplingParams()
    arrival_s: float = 0.0
    deadline_s: float | None = None

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_ids)

    @property
    def max_total_tokens(self) -> int:
        return len(self.prompt_ids) + self.sampling.max_tokens


def validate(request: Request, *, vocab_size: int, max_context: int, cache_tokens: int) -> None:
    """Refuse a request that could never finish; raises `RequestError` with one clear sentence.

    `max_context` is the model's limit and `cache_tokens` what the whole KV cache can hold, both in
    tokens. The last sampled token needs no place in the cache, since it is never read again.
    """
    if not request.prompt_ids:
        raise RequestError(f"Request {request.id!r} has an empty prompt; send at least one token.")
    for token_id in request.prompt_ids:
        if not (is_whole_number(token_id) and 0 <= token_id < vocab_size):
            raise RequestError(
                f"Request {request.id!r} has token id {shown(token_id)}; this model's ids are "
                f"whole numbers from 0 to {vocab_size - 1}."
            )
    if request.max_total_tokens > max_context:
        raise RequestError(
            f"Request {request.id!r} needs {request.num_prompt_tokens} prompt + "
            f"{shown(request.sampling.max_tokens)} output tokens, over the context of "
            f"{max_context}; shorten the prompt or lower max_tokens."
        )
    deadline = request.deadline_s
    if deadline is not None and not (is_number(deadline) and deadline == deadline):  # NaN is not
        raise RequestError(f"Request {request.id!r} has a deadline that is no time; leave it out.")
    if request.max_total_tokens - 1 > cache_tokens:
        raise RequestError(
            f"Request {request.id!r} needs KV for {request.max_total_tokens - 1} tokens, over the "
            f"{cache_tokens} that the whole cache holds; shorten it or give the cache more blocks."
        )


@dataclass(slots=True, eq=False)
class Sequence:
    """A request on its way through one worker. Owned by that worker's scheduler.

    Invariant: tokens `[0, num_cached_tokens)` have their keys and values in `block_ids`, in order;
    while decoding, exactly one token, the last, is not cached yet.
    """

    request: Request
    output_ids: list[int] = field(default_factory=list[int])
    block_ids: list[int] = field(default_factory=list[int])
    block_hashes: list[bytes] = field(default_factory=list[bytes])  # names of its full blocks
    num_cached_tokens: int = 0
    is_prefilling: bool = True  # again after a preemption, until the next token is sampled
    finish_reason: FinishReason | None = None
    prefill_reason: PrefillReason = "prompt"

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def num_tokens(self) -> int:
        return len(self.request.prompt_ids) + len(self.output_ids)

    @property
    def num_uncached_tokens(self) -> int:
        return self.num_tokens - self.num_cached_tokens

    @property
    def is_decoding(self) -> bool:
        return not self.is_prefilling

    def token_ids(self, start: int, stop: int) -> list[int]:
        """Token ids `[start, stop)` of prompt followed by output; copies no more than that."""
        num_prompt = len(self.request.prompt_ids)
        if start >= num_prompt:
            return self.output_ids[start - num_prompt : stop - num_prompt]
        return [*self.request.prompt_ids[start:stop], *self.output_ids[: max(0, stop - num_prompt)]]
