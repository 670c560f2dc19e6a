"""The three-line API: load a model, ask, read the answer.

>>> from minipd import LLM, SamplingParams
>>> llm = LLM("smollm2-135m")
>>> llm.generate(["The capital of Korea is"], SamplingParams(max_tokens=8))[0].text
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from minipd.cache.allocator import BlockAllocator
from minipd.cache.books import ALWAYS, FetchPolicy
from minipd.cache.store import KVLayout, fit_num_blocks, free_bytes, require_room
from minipd.cache.tier_sizes import TierError, TierSizes
from minipd.cache.tiers import KVTiers
from minipd.engine.executor import Executor
from minipd.engine.text import TextStream
from minipd.engine.worker import Worker
from minipd.interrupts import held_back, let_through
from minipd.model.load import LoadedModel, load
from minipd.prompts import Prompt, chat_ids, prompt_list, token_ids
from minipd.request import (
    FinishReason,
    Request,
    RequestError,
    SamplingParams,
    Sequence,
    shown,
    validate,
)
from minipd.sched.base import Scheduler
from minipd.sched.colocated import PrefillFirst
from minipd.sched.limits import Limits
from minipd.timeline import Event

DEFAULT_CACHE_TOKENS = 32_768


@dataclass(frozen=True, slots=True)
class Completion:
    """A finished answer; `text` ends before any stop string."""

    request_id: str
    text: str
    token_ids: list[int]
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True)
class Piece:
    """A streamed token. `text` may be empty while a character or a stop string is incomplete."""

    text: str
    token_id: int | None
    finish_reason: FinishReason | None = None


class LLM:
    """One worker in this process, both phases on it. `timeline` keeps every event since `clear`.

    Threads may share one: they take turns step by step, and their requests run together. Ctrl-C
    leaves neither requests nor blocks behind: it is let in only while a step is computed.
    `host_kv_bytes` of host memory and the folder `disk_kv` keep KV that the cache has no room for;
    `fetch` says when it is worth bringing back (by default, always).
    """

    def __init__(
        self,
        model: str | Path | LoadedModel = "smollm2-135m",
        *,
        device: str = "cpu",
        dtype: str = "float32",
        num_kv_blocks: int | None = None,
        block_size: int = 16,
        limits: Limits = Limits(),
        deterministic: bool = False,
        policy: type[Scheduler] = PrefillFirst,
        host_kv_bytes: int = 0,
        disk_kv: str | Path | None = None,
        disk_kv_bytes: int | None = None,
        fetch: FetchPolicy = ALWAYS,
    ) -> None:
        sizes = TierSizes(host_kv_bytes, disk_kv, disk_kv_bytes, fetch)
        if sizes and deterministic:
            raise TierError(
                "deterministic=True reuses no KV, so that there is nothing to fetch: leave "
                "host_kv_bytes and disk_kv out."
            )
        is_loaded = isinstance(model, LoadedModel)
        self.model = model if is_loaded else load(model, device, dtype)
        weights = self.model.decoder.head
        free = free_bytes(weights.device)
        if num_kv_blocks is None:
            num_kv_blocks = fit_num_blocks(
                self.model.config, block_size, weights.dtype, free, DEFAULT_CACHE_TOKENS
            )
        layout = KVLayout.of(self.model.config, num_kv_blocks, block_size, weights.dtype)
        require_room(layout, weights.device)
        self.executor = Executor(self.model, num_kv_blocks, block_size, deterministic=deterministic)
        tiers = None
        if sizes:
            tiers = KVTiers(self.executor.store, self.model.fingerprint, sizes, time.monotonic)
        allocator = BlockAllocator(
            num_kv_blocks,
            block_size,
            prefix_reuse=not deterministic,
            prefer_runs=weights.device.type == "cpu",
            books=tiers.books if tiers is not None else None,
        )
        self.scheduler = policy("worker", allocator, limits, self.model.eos_ids, self._check_stop)
        self.worker = Worker(self.executor, self.scheduler, time.monotonic, tiers)
        self.timeline: list[Event] = []
        self._texts: dict[str, TextStream] = {}
        self._num_requests = 0
        self._lock = threading.RLock()

    def generate(
        self, prompts: Iterable[Prompt], params: SamplingParams = SamplingParams()
    ) -> list[Completion]:
        """Answers to all prompts, batched together, in the order asked."""
        prompts = prompt_list(prompts)
        asked: list[tuple[Sequence, TextStream]] = []
        with held_back():
            try:
                for prompt in prompts:
                    asked.append(self._enqueue(prompt, params))
                    with let_through():  # many long texts may take a while
                        pass
                while any(s.finish_reason is None for s, _ in asked):
                    self.step()
                return [_completion(sequence, text) for sequence, text in asked]
            finally:
                self._withdraw([sequence.id for sequence, _ in asked])

    def stream(self, prompt: Prompt, params: SamplingParams = SamplingParams()) -> Iterator[Piece]:
        """The answer token by token. Closing the iterator early cancels the request."""
        ids: list[str] = []
        try:
            with held_back():
                sequence, text = self._enqueue(prompt, params)
                ids.append(sequence.id)
            num_taken, piece = 0, None
            while piece is None or piece.finish_reason is None:
                with held_back():
                    piece = self._next_piece(sequence, text, num_taken)
                num_taken += 1
                yield piece
        finally:
            try:
                self._withdraw(ids)
            finally:  # once more: Ctrl-C may have come before it could be held back
                self._withdraw(ids)

    def submit(self, prompt: Prompt, params: SamplingParams = SamplingParams()) -> Sequence:
        """Validate and queue one request; `step` until its `finish_reason` is set."""
        ids: list[str] = []
        try:
            with held_back():
                sequence, _ = self._enqueue(prompt, params)
                ids.append(sequence.id)
            return sequence
        except BaseException:  # Ctrl-C came meanwhile: nobody would ever ask for this answer
            self._withdraw(ids)
            raise

    def step(self) -> list[Event]:
        """One turn of the loop; returns its events, which also join the timeline."""
        with held_back(), self._lock:
            events = self.worker.step()
            self.timeline.extend(events)
            if len(self._texts) > len(self.scheduler.sequences):  # some have ended
                self._texts = {
                    r: t for r, t in self._texts.items() if r in self.scheduler.sequences
                }
        return events

    def token_ids(self, prompt: Prompt) -> list[int]:
        """Token ids of a text (as it stands), or the given ids unchanged."""
        return token_ids(self.model.tokenizer, prompt)

    def chat_ids(self, user: str, system: str | None = None) -> list[int]:
        """Token ids of a question in the model's own chat format, ready for its answer."""
        return chat_ids(self.model.tokenizer, user, system)

    # -- inside -------------------------------------------------------------------------------

    def _enqueue(self, prompt: Prompt, params: SamplingParams) -> tuple[Sequence, TextStream]:
        if not isinstance(params, SamplingParams):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise RequestError(f"params is {shown(params)}; use SamplingParams(...).")
        with self._lock:
            name, now = f"req-{self._num_requests}", time.monotonic()
            request = Request(name, tuple(self.token_ids(prompt)), params, now)
            validate(
                request,
                vocab_size=self.model.config.vocab_size,
                max_context=self.model.config.max_context,
                cache_tokens=self.scheduler.allocator.capacity_tokens,
            )
            self._num_requests += 1
            text = self._texts[name] = TextStream(self.model.tokenizer, params.stop)
            arrived = {"prompt_tokens": request.num_prompt_tokens, "max_tokens": params.max_tokens}
            self.timeline.append(Event(now, "arrived", "", name, {**arrived}))
            return self.scheduler.add(request, now), text

    def _next_piece(self, sequence: Sequence, text: TextStream, num_taken: int) -> Piece:
        """Piece number `num_taken`; other calls may have run this request several tokens ahead."""
        with self._lock:
            while num_taken == len(sequence.output_ids) and sequence.finish_reason is None:
                self.step()
            if num_taken == len(sequence.output_ids):  # cancelled between two tokens
                return Piece(text.take(final=True), None, sequence.finish_reason)
            is_last = num_taken + 1 == len(sequence.output_ids)
            reason = sequence.finish_reason if is_last else None
            piece = text.take(final=reason is not None)
            return Piece(piece, sequence.output_ids[num_taken], reason)

    def _check_stop(self, sequence: Sequence) -> FinishReason | None:
        return "stop" if self._texts[sequence.id].push(sequence.output_ids[-1]) else None

    def _withdraw(self, ids: list[str]) -> None:
        """Leave nothing behind, also after Ctrl-C or a refused prompt."""
        with held_back(), self._lock:
            for name in ids:
                self.scheduler.cancel(name, time.monotonic())
                self._texts.pop(name, None)
            self.timeline.extend(self.scheduler.drain_events())


def _completion(sequence: Sequence, text: TextStream) -> Completion:
    assert sequence.finish_reason is not None, "a completion is made when the request has ended"
    text.take(final=True)
    return Completion(sequence.id, text.text, sequence.output_ids, sequence.finish_reason)
