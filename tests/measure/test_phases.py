"""The numerators of MFU and MBU, and what the two engines really run while the clock does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from minipd.engine.batch import Chunk
from minipd.engine.executor import Executor
from minipd.fleet.formulas import expected_touched
from minipd.measure import counts, phases
from minipd.measure.peer import TransformersEngine
from minipd.measure.phases import MinipdEngine, random_tokens
from minipd.model.config import ModelConfig
from minipd.model.decoder import Decoder
from minipd.model.load import LoadedModel, load
from minipd.request import SamplingParams


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return load("tiny")


def config(tied: bool = True) -> ModelConfig:
    return ModelConfig(
        architecture="LlamaForCausalLM",
        num_layers=3,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        hidden_size=32,
        ffn_size=48,
        vocab_size=96,
        max_context=4096,
        tie_word_embeddings=tied,
    )


# --- counts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_prefill_flops_are_those_of_every_matrix_and_every_visible_pair(tied: bool) -> None:
    """The obvious count: two per weight and token, and a loop over all pairs of tokens."""
    c, num_tokens = config(tied), 48
    matrices = {n: p.numel() for n, p in Decoder(c).named_parameters() if p.dim() > 1}
    rows = {"head": 1, "embed": 0}
    products = sum(2 * size * rows.get(name, num_tokens) for name, size in matrices.items())
    pairs = sum(1 for query in range(num_tokens) for key in range(num_tokens) if key <= query)
    attention = pairs * c.num_layers * c.num_heads * 2 * (2 * c.head_dim)
    assert counts.prefill_flops(c, num_tokens) == products + attention


def test_a_prompt_in_two_chunks_is_the_same_work_plus_one_more_head() -> None:
    c = config()
    head = 2 * c.hidden_size * c.vocab_size
    whole = counts.prefill_flops(c, 100)
    parts = counts.prefill_flops(c, 60) + counts.prefill_flops(c, 40, start=60)
    assert parts == whole + head


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("size", [1, 16])
def test_weights_are_read_once_per_step_whatever_the_batch(tied: bool, size: int) -> None:
    decoder = Decoder(config(tied))
    stored = {name: p.numel() * 4 for name, p in decoder.named_parameters()}
    row = 0 if tied else config().hidden_size * 4
    expected = sum(n for name, n in stored.items() if name != "embed") + size * row
    assert counts.weight_bytes(config(tied), 4, size) == expected


def test_decode_also_reads_the_kv_of_every_sequence() -> None:
    c = config()
    kv = 2 * c.num_layers * c.num_kv_heads * c.head_dim * 2
    assert counts.decode_bytes(c, 2, 4, 10.0) == counts.weight_bytes(c, 2, 4) + 4 * 10 * kv


def test_one_decode_step_is_a_prefill_of_one_token() -> None:
    assert counts.decode_flops(config(), 1, 8) == counts.prefill_flops(config(), 1, start=7)
    assert counts.decode_flops(config(), 5, 8) == 5 * counts.decode_flops(config(), 1, 8)


def test_the_mean_context_counts_each_step() -> None:
    assert counts.mean_context(128) == sum(range(1, 129)) / 128
    assert counts.mean_context(3, depth=10) == (11 + 12 + 13) / 3


# --- what is timed ----------------------------------------------------------------------------


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[list[Chunk]]:
    """Every call of the executor, in order; the calls still run."""
    seen: list[list[Chunk]] = []
    forward = Executor.forward

    def spy(self: Executor, chunks: list[Chunk]) -> torch.Tensor:
        seen.append(list(chunks))
        return forward(self, chunks)

    monkeypatch.setattr(Executor, "forward", spy)
    return seen


def test_pp512_is_one_pass_that_wants_one_row(tiny: LoadedModel, passes: list[list[Chunk]]) -> None:
    tokens = random_tokens(tiny.config.vocab_size, 512)
    assert MinipdEngine(tiny, 512, 1).prefill(tokens) > 0
    ((chunk,),) = passes
    assert (chunk.token_ids, chunk.start) == (tokens, 0)
    assert chunk.sampling is not None
    assert len(chunk.block_ids) * phases.BLOCK_SIZE >= 512


def test_tg128_is_128_single_tokens_from_depth_0(
    tiny: LoadedModel, passes: list[list[Chunk]]
) -> None:
    tokens = random_tokens(tiny.config.vocab_size, 128)
    MinipdEngine(tiny, 512, 4).decode(tokens, 4)
    assert len(passes) == 128
    for depth, chunks in enumerate(passes):
        ids = [tokens[(depth + sequence) % 128] for sequence in range(4)]
        assert [(c.token_ids, c.start) for c in chunks] == [([one], depth) for one in ids]
        assert all(c.sampling is not None for c in chunks)
    owned = [set(chunk.block_ids) for chunk in passes[-1]]
    assert len(set.union(*owned)) == sum(map(len, owned)), "sequences never share a block"


def test_a_token_computes_with_its_own_experts_and_a_step_reads_all_that_were_chosen() -> None:
    model = load("tiny-moe")
    c, one = model.config, 3 * 64 * 32  # weights of one expert
    shared = sum(
        p.numel() for n, p in model.decoder.named_parameters() if p.dim() == 2 and n != "embed"
    )
    head = model.decoder.head.numel()
    assert c.num_matmul_parameters == shared + head + 4 * 8 * one
    assert counts.decode_flops(c, 1, 0) == 2 * c.num_matmul_parameters
    assert counts.weight_bytes(c, 4, 3, 20.5) - counts.weight_bytes(c, 4, 3) == 4 * 4 * 12.5 * one
    everything = sum(p.numel() for n, p in model.decoder.named_parameters() if n != "embed")
    assert counts.weight_bytes(c, 4, 2, 128) == 4 * (everything + 2 * 64)
    assert counts.decode_bytes(c, 4, 2, 0, 128) == counts.weight_bytes(c, 4, 2, 128)


def test_experts_are_counted_over_the_very_passes_that_are_timed() -> None:
    """Sequences that all said the same would read 8 experts, however many they are."""
    moe = load("tiny-moe")
    engine, tokens = MinipdEngine(moe, 64, 16), random_tokens(moe.config.vocab_size, 64)
    assert engine.experts_read(tokens, 1) == 8
    assert expected_touched(128, 8, 8) < engine.experts_read(tokens, 16) < 128


def test_tokens_are_the_same_each_time_and_in_the_vocabulary() -> None:
    tokens = random_tokens(50, 500)
    assert tokens == random_tokens(50, 500)
    assert set(tokens) <= set(range(50)) and len(set(tokens)) > 40


def test_the_peer_runs_the_same_weights(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its logits are ours, after a prefill and after each token of a decode."""
    seen: list[torch.Tensor] = []
    engine = TransformersEngine(tiny)
    forward = engine._model.forward

    def spy(*args: Any, **kwargs: Any) -> Any:
        out = forward(*args, **kwargs)
        seen.append(out.logits)
        return out

    monkeypatch.setattr(engine._model, "forward", spy)
    tokens = random_tokens(tiny.config.vocab_size, 24)
    engine.prefill(tokens)
    engine.decode(tokens)
    assert [tuple(logits.shape[:2]) for logits in seen] == [(1, 1)] * 25, "one row of logits each"
    executor = Executor(tiny, 2)
    ours = executor.forward([Chunk("a", tokens, 0, [0, 1], SamplingParams())])
    torch.testing.assert_close(seen[0][0], ours, atol=1e-3, rtol=0)
    torch.testing.assert_close(seen[-1][0], ours, atol=1e-3, rtol=0)


def test_the_peer_is_given_a_fresh_cache_each_time(tiny: LoadedModel) -> None:
    engine = TransformersEngine(tiny)
    caches: list[Any] = []
    lengths: list[int] = []

    def hook(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        caches.append(kwargs[engine._cache_name])
        lengths.append(caches[-1].get_seq_length())

    handle = engine._model.register_forward_pre_hook(hook, with_kwargs=True)
    engine.decode([1, 2, 3])
    engine.prefill([1, 2, 3])
    handle.remove()
    assert lengths == [0, 1, 2, 0]
    assert caches[0] is caches[2] and caches[2] is not caches[3]
