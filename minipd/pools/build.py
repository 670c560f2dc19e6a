"""Inside a worker: from its specification to something that runs."""

from __future__ import annotations

import time

import torch

from minipd.cache.store import KVLayout
from minipd.cache.tiers import KVTiers
from minipd.engine.executor import Executor
from minipd.engine.text import StopWatcher
from minipd.model.load import load
from minipd.pools.handoff import Identity
from minipd.pools.messages import Started
from minipd.pools.paced import PacedExecutor
from minipd.pools.spawn import WorkerSpec
from minipd.pools.worker import PoolWorker


def build(spec: WorkerSpec) -> tuple[PoolWorker, Started]:
    """Load the weights, make the store where the link wants it, and say what is ready."""
    model = load(spec.model, spec.device, spec.dtype)
    weights = model.decoder.head
    layout = KVLayout.of(model.config, spec.num_blocks, spec.block_size, weights.dtype)
    store = spec.link.make_store(layout, weights.device, f"{spec.name}-{spec.epoch}")
    store.buffer.zero_()  # touch every page now, not during the first hand-off
    notes: list[str] = []
    if spec.pace is not None:
        executor = PacedExecutor(model.config, store, spec.pace)
        notes.append("paced: step times are replayed from a table, tokens are made up")
    else:
        executor = Executor(
            model, spec.num_blocks, spec.block_size, deterministic=spec.deterministic, store=store
        )
        _warm_up(executor)
    identity = Identity(spec.name, spec.epoch, model.fingerprint, model.eos_ids)
    tiers = None
    if spec.tiers:
        owner = model.fingerprint if spec.pace is None else f"paced-{model.fingerprint}"
        tiers = KVTiers(store, owner, spec.tiers, time.monotonic)
    stops = StopWatcher(model.tokenizer)
    worker = PoolWorker(identity, executor, spec.link, stops, time.monotonic, tiers)
    started = Started(
        num_blocks=spec.num_blocks,
        block_size=spec.block_size,
        max_context=model.config.max_context,
        vocab_size=model.config.vocab_size,
        fingerprint=model.fingerprint,
        notes=tuple(notes),
        registration=spec.link.expose(store),
    )
    return worker, started


def _warm_up(executor: Executor) -> None:
    """One prompt and one decode, so that no first-use cost lands in a measurement."""
    from minipd.engine.batch import Chunk
    from minipd.request import SamplingParams

    size = executor.store.layout.block_size
    tokens = min(64, size * executor.store.layout.num_blocks - 1)
    blocks = list(range(-(-(tokens + 1) // size)))
    executor.run([Chunk("warm-up", [0] * tokens, 0, blocks, SamplingParams())])
    executor.run([Chunk("warm-up", [0], tokens, blocks, SamplingParams())])
    executor.store.buffer.zero_()
    torch.get_device_module(executor.device).synchronize()
