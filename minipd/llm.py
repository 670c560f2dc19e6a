"""The three-line API: load a model, ask, read the answer.

>>> from minipd import LLM, SamplingParams
>>> llm = LLM("smollm2-135m")
>>> llm.generate(["The capital of Korea is"], SamplingParams(max_tokens=8))[0].text
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from minipd.cache.allocator import BlockAllocator
from minipd.cache.store import fit_num_blocks, free_bytes
from minipd.engine.executor import Executor
from minipd.engine.text import TextStream
from minipd.engine.worker import Worker
from minipd.model.load import LoadedModel, load
from minipd.request import (
    FinishReason,
    Request,
    RequestError,
    SamplingParams,
    Sequence,
    validate,
)
from minipd.sched.base import Limits, Scheduler
from minipd.sched.colocated import PrefillFirst
from minipd.timeline import Event

Prompt = str | list[int]
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
    """One worker in this process, both phases on it. `timeline` keeps every event since `clear`."""

    def __init__(
        self,
        model: str | LoadedModel = "smollm2-135m",
        *,
        device: str = "cpu",
        dtype: str = "float32",
        num_kv_blocks: int | None = None,
        block_size: int = 16,
        limits: Limits = Limits(),
        deterministic: bool = False,
        policy: type[Scheduler] = PrefillFirst,
    ) -> None:
        self.model = load(model, device, dtype) if isinstance(model, str) else model
        weights = self.model.decoder.head
        if num_kv_blocks is None:
            num_kv_blocks = fit_num_blocks(
                self.model.config,
                block_size,
                weights.dtype,
                free_bytes(weights.device),
                DEFAULT_CACHE_TOKENS,
            )
        allocator = BlockAllocator(
            num_kv_blocks,
            block_size,
            prefix_reuse=not deterministic,
            prefer_runs=weights.device.type == "cpu",
        )
        self.executor = Executor(self.model, num_kv_blocks, block_size, deterministic=deterministic)
        self.scheduler = policy("worker", allocator, limits, self.model.eos_ids, self._check_stop)
        self.worker = Worker(self.executor, self.scheduler, time.monotonic)
        self.timeline: list[Event] = []
        self._texts: dict[str, TextStream] = {}
        self._num_requests = 0

    def generate(
        self, prompts: Iterable[Prompt], params: SamplingParams = SamplingParams()
    ) -> list[Completion]:
        """Answers to all prompts, batched together, in the order asked."""
        sequences: list[Sequence] = []
        if isinstance(prompts, str):
            raise RequestError("generate takes a list of prompts; write generate([prompt]).")
        try:
            for prompt in prompts:
                sequences.append(self.submit(prompt, params))
            while any(s.finish_reason is None for s in sequences):
                self.step()
            return [self._completion(s) for s in sequences]
        finally:
            self._withdraw(sequences)

    def stream(self, prompt: Prompt, params: SamplingParams = SamplingParams()) -> Iterator[Piece]:
        """The answer token by token. Closing the iterator early cancels the request."""
        sequence = self.submit(prompt, params)
        text = self._texts[sequence.id]
        num_taken, reason = 0, None
        try:
            while sequence.finish_reason is None or num_taken < len(sequence.output_ids):
                if num_taken == len(sequence.output_ids):
                    self.step()
                    continue
                num_taken += 1  # other calls may have run this request several tokens ahead
                is_last = num_taken == len(sequence.output_ids)
                reason = sequence.finish_reason if is_last else None
                token_id = sequence.output_ids[num_taken - 1]
                yield Piece(text.take(final=reason is not None), token_id, reason)
            if reason is None:  # ended by a cancel or a deadline, between two tokens
                yield Piece(text.take(final=True), None, sequence.finish_reason)
        finally:
            self._withdraw([sequence])

    def submit(self, prompt: Prompt, params: SamplingParams = SamplingParams()) -> Sequence:
        """Validate and queue one request; `step` until its `finish_reason` is set."""
        request = Request(
            f"req-{self._num_requests}", tuple(self.token_ids(prompt)), params, time.monotonic()
        )
        validate(
            request,
            vocab_size=self.model.config.vocab_size,
            max_context=self.model.config.max_context,
            cache_tokens=self.scheduler.allocator.capacity_tokens,
        )
        self._num_requests += 1
        self._texts[request.id] = TextStream(self.model.tokenizer, params.stop)
        arrived = {"prompt_tokens": request.num_prompt_tokens, "max_tokens": params.max_tokens}
        self.timeline.append(Event(request.arrival_s, "arrived", "", request.id, {**arrived}))
        return self.scheduler.add(request, request.arrival_s)

    def step(self) -> list[Event]:
        """One turn of the loop; returns its events, which also join the timeline."""
        events = self.worker.step()
        self.timeline.extend(events)
        return events

    def token_ids(self, prompt: Prompt) -> list[int]:
        """Token ids of a text (as it stands), or the given ids unchanged."""
        if isinstance(prompt, str):
            return list(self.model.tokenizer.encode(prompt))
        if not hasattr(prompt, "__iter__"):
            raise RequestError(f"A prompt is a text or a list of token ids, not {prompt!r}.")
        return [_plain_int(token_id) for token_id in prompt]

    def chat_ids(self, user: str, system: str | None = None) -> list[int]:
        """Token ids of a question in the model's own chat format, ready for its answer."""
        messages = [{"role": "system", "content": system}] if system is not None else []
        messages.append({"role": "user", "content": user})
        text = self.model.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return list(self.model.tokenizer.encode(str(text), add_special_tokens=False))

    # -- inside -------------------------------------------------------------------------------

    def _check_stop(self, sequence: Sequence) -> FinishReason | None:
        return "stop" if self._texts[sequence.id].push(sequence.output_ids[-1]) else None

    def _completion(self, sequence: Sequence) -> Completion:
        assert sequence.finish_reason is not None, "a completion is made when the request has ended"
        text = self._texts[sequence.id]
        text.take(final=True)
        return Completion(sequence.id, text.text, sequence.output_ids, sequence.finish_reason)

    def _withdraw(self, sequences: list[Sequence]) -> None:
        """Leave nothing behind, also after Ctrl-C or a refused prompt."""
        for sequence in sequences:
            self.scheduler.cancel(sequence.id, time.monotonic())
            self._texts.pop(sequence.id, None)
        self.timeline.extend(self.scheduler.drain_events())


def _plain_int(token_id: Any) -> int:
    """The value itself, or the int inside a numpy or torch integer; nothing is rounded."""
    if isinstance(token_id, (bool, float)) or not hasattr(token_id, "__index__"):
        raise RequestError(f"{token_id!r} is no token id; a prompt is a text or a list of ints.")
    return int(token_id)
