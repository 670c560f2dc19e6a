"""transformers as the engine to compare with, driven as lightly as its public API allows.

It gets our checkpoint's folder, dtype and thread count; prefill keeps one row of logits; decode is
a bare loop over its forward pass. `generate` is not used: its bookkeeping would slow it unfairly.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import torch

from minipd.measure.stopwatch import no_garbage_collection, seconds
from minipd.model.load import LoadedModel


class PeerError(RuntimeError):
    """The engine to compare with cannot run; the message says what to do."""


class TransformersEngine:
    """The same weights in transformers, with its SDPA attention and its default growing cache."""

    name = "transformers"

    def __init__(self, model: LoadedModel) -> None:
        weights = model.decoder.head
        self._device = weights.device
        self.version = metadata.version("transformers")
        self._model: Any = _load(model, weights.dtype).to(self._device).eval()
        parameters = inspect.signature(self._model.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"

    def prefill(self, token_ids: list[int]) -> float:
        ids = torch.tensor([token_ids], device=self._device)  # (1, T)
        return self._timed(self._empty_cache(), [ids])

    def decode(self, token_ids: list[int], num_sequences: int = 1) -> float:
        return sum(self.decode_in_parts(token_ids, num_sequences, len(token_ids)))

    def decode_in_parts(
        self, token_ids: list[int], num_sequences: int, passes: int
    ) -> Iterator[float]:
        rows = [token_ids[n:] + token_ids[:n] for n in range(num_sequences)]  # as ours are fed
        ids = torch.tensor(rows, device=self._device)  # (B, steps)
        cache, columns = self._empty_cache(), list(ids.split(1, dim=1))  # steps x (B, 1)
        for start in range(0, len(columns), passes):
            yield self._timed(cache, columns[start : start + passes])

    def _empty_cache(self) -> Any:
        from transformers import DynamicCache

        return DynamicCache(config=self._model.config)

    @torch.inference_mode()
    def _timed(self, cache: Any, passes: list[torch.Tensor]) -> float:
        options: dict[str, Any] = {self._cache_name: cache, "use_cache": True, "logits_to_keep": 1}

        def run() -> None:
            for part in passes:
                self._model(part, **options)

        with no_garbage_collection():
            return seconds(run, self._device)


def _load(model: LoadedModel, dtype: torch.dtype) -> Any:
    import transformers
    from transformers.utils import logging

    auto: Any = transformers.AutoModelForCausalLM
    logging.disable_progress_bar()
    try:
        return auto.from_pretrained(
            model.folder, dtype=dtype, attn_implementation="sdpa", local_files_only=True
        )
    except (OSError, ValueError) as error:
        raise PeerError(
            f"transformers cannot open {model.folder} ({error}); run bench without --vs."
        ) from error
    finally:
        logging.enable_progress_bar()
