"""The CUDA path without CUDA: a plain stand-in for the kernel, then the same classes."""

from __future__ import annotations

from random import Random

import pytest
import torch
from torch import Tensor
from torch.nn.attention import varlen

from minipd.cache.store import KVLayout, KVStore
from minipd.engine.attention import GatherAttention
from minipd.engine.batch import Chunk
from minipd.engine.executor import Executor
from minipd.engine.graphs import BATCH_SIZES, DecodeGraphs
from minipd.engine.paged import PagedAttention, PagedInputs, _trial_error, why_not_paged
from minipd.model.load import LoadedModel
from minipd.request import SamplingParams

P = 4
WANTED = SamplingParams()


def plain_varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> Tensor:
    """The documented meaning of `varlen_attn` over pages, one query row and head at a time."""
    assert cu_seq_k is None and seqused_k is not None and block_table is not None
    assert window_size == (-1, 0), "causal, aligned to the end of the sequence"
    assert cu_seq_q.dtype == seqused_k.dtype == block_table.dtype == torch.int32
    group = query.shape[1] // key.shape[2]
    assert enable_gqa or group == 1
    assert int(cu_seq_q[-1]) == len(query)
    out = torch.empty_like(query)
    for i, length in enumerate(seqused_k.tolist()):
        first, end = int(cu_seq_q[i]), int(cu_seq_q[i + 1])
        assert end - first <= max_q and length <= max_k
        pages = block_table[i].long()
        keys = key[pages].flatten(0, 1).repeat_interleave(group, dim=1)
        values = value[pages].flatten(0, 1).repeat_interleave(group, dim=1)
        for row in range(first, end):
            seen = length - (end - row) + 1
            scores = torch.einsum("hd,shd->hs", query[row], keys[:seen]) / query.shape[-1] ** 0.5
            out[row] = torch.einsum("hs,shd->hd", scores.softmax(-1), values[:seen])
    return out


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen, "varlen_attn", plain_varlen_attn)


def chunk(name: str, count: int, start: int, blocks: list[int], wanted: bool = True) -> Chunk:
    ids = Random(name).choices(range(4, 500), k=count)
    return Chunk(name, ids, start, blocks, WANTED if wanted else None)


MIXED = [
    chunk("whole prompt", 6, 0, [9, 2]),
    chunk("later chunk", 5, 3, [0, 7, 8]),
    chunk("decode", 1, 10, [4, 5, 11]),
    chunk("first token", 1, 0, [3]),
    chunk("exactly full", 4, 4, [13, 6], wanted=False),
]
DECODES = [c for c in MIXED if len(c.token_ids) == 1] + [chunk("other", 1, 2, [12])]


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("deterministic", [False, True])
def test_paged_against_gather(padding: int, deterministic: bool) -> None:
    layout = KVLayout(2, 16, P, 2, 8, torch.float32)
    past = torch.randn(layout.shape)
    stores = [KVStore(layout, buffer=past.clone()) for _ in range(2)]
    rows = sum(len(c.token_ids) for c in MIXED) + padding
    q, k, v = torch.randn(rows, 4, 8), torch.randn(rows, 2, 8), torch.randn(rows, 2, 8)
    inputs = PagedInputs(stores[0], MIXED)
    paged = PagedAttention(stores[0], inputs, deterministic=deterministic)(1, q, k, v)
    gathered = GatherAttention(stores[1], MIXED)(1, q, k, v)
    torch.testing.assert_close(paged, gathered)
    assert paged.shape == q.shape and not paged[rows - padding :].any()
    assert torch.equal(stores[0].buffer, stores[1].buffer)


def paged_executor(model: LoadedModel, deterministic: bool = False) -> Executor:
    executor = Executor(model, 16, P, deterministic=deterministic)
    executor.why_not_paged = None
    executor.graphs = DecodeGraphs(model.decoder, executor.store)
    return executor


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("chunks", [MIXED, DECODES, DECODES[:1]], ids=["mixed", "decodes", "one"])
def test_the_whole_model_on_both_paths(
    tiny: LoadedModel, chunks: list[Chunk], deterministic: bool
) -> None:
    gather = Executor(tiny, 16, P, deterministic=deterministic)
    paged = paged_executor(tiny, deterministic)
    past = torch.randn(gather.store.buffer.shape)
    for executor in (gather, paged):
        executor.store.buffer.copy_(past)
    expected, got = gather.forward(chunks), paged.forward(chunks)
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(paged.store.buffer, gather.store.buffer, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_decode_graphs_pad_and_are_used_again(tiny: LoadedModel, count: int) -> None:
    """The second run has other sequences of other lengths in the same tensors."""
    gather, paged = Executor(tiny, 16, P), paged_executor(tiny)
    assert paged.graphs is not None
    for turn in range(2):
        chunks = [
            chunk(f"{i}", 1, 3 * i + turn, [3 * i + turn, 3 * i + 1 - turn, 3 * i + 2])
            for i in range(count)
        ]
        assert paged.graphs.can_run(chunks)
        got, expected = paged.forward(chunks).clone(), gather.forward(chunks)
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(paged.store.buffer, gather.store.buffer, atol=1e-5, rtol=1e-5)
    assert len(paged.graphs._steps) == 1


def test_what_graphs_leave_to_others(tiny: LoadedModel) -> None:
    graphs = DecodeGraphs(tiny.decoder, KVStore(KVLayout.of(tiny.config, 16, P, torch.float32)))
    assert not graphs.can_run(MIXED)
    assert not graphs.can_run([chunk("silent", 1, 0, [0], wanted=False)])
    assert not graphs.can_run([DECODES[0]] * (BATCH_SIZES[-1] + 1))
    assert graphs.can_run([DECODES[0]] * BATCH_SIZES[-1])


def test_layers_are_told_of_even_for_a_prompt_of_one_token(tiny: LoadedModel) -> None:
    """A graph cannot call back between layers, so it must not run where someone listens."""
    paged, told = paged_executor(tiny), []
    paged.on_layer = lambda layer, chunks: told.append(layer)
    paged.forward([chunk("first token", 1, 0, [3])])
    assert told == list(range(tiny.config.num_layers))


def test_the_trial_call_compares_both_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = KVLayout(2, 16, 16, 2, 8, torch.float32)
    assert _trial_error(layout, 4, torch.device("cpu")) < 1e-5
    monkeypatch.setattr(varlen, "varlen_attn", lambda q, *rest, **more: torch.zeros_like(q))
    assert _trial_error(layout, 4, torch.device("cpu")) > 0.1
    reason = why_not_paged(layout, 4, torch.device("cpu"))
    assert reason is not None and "CUDA" in reason
