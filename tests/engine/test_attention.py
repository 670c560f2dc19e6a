"""A whole prompt's attention in blocks: the same as SDPA, and each prompt of a batch its own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from minipd.cache.store import KVLayout, KVStore
from minipd.engine.attention import BLOCKED_LENGTHS, GatherAttention, PromptInBlocks
from minipd.engine.batch import Chunk
from minipd.request import SamplingParams

HEADS = [(9, 3, 64), (4, 4, 16), (8, 1, 32)]


def qkv(num_tokens: int, heads: tuple[int, int, int], seed: int = 0) -> tuple[Tensor, ...]:
    """q (T, H, D), and k and v (T, K, D) as the decoder makes them: views of one tensor."""
    (num_heads, num_kv_heads, size), generator = heads, torch.Generator().manual_seed(seed)
    rows = torch.randn(num_tokens, num_heads + 2 * num_kv_heads, size, generator=generator)
    q, k, v = rows.split((num_heads, num_kv_heads, num_kv_heads), dim=1)
    return q.contiguous(), k, v


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (x.transpose(0, 1)[None].double() for x in (q, k, v))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return mixed[0].transpose(0, 1).float()  # (T, H, D)


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("length", [BLOCKED_LENGTHS[0], 159, 160, 161, 512, BLOCKED_LENGTHS[-1]])
def test_blocks_are_causal_attention(length: int, heads: tuple[int, int, int]) -> None:
    in_blocks = PromptInBlocks(qkv(length, heads)[0], heads[1])
    for layer in range(2):  # the second call finds what the first one left
        rows = qkv(length, heads, seed=layer)
        torch.testing.assert_close(in_blocks(*rows), causal(*rows), rtol=0, atol=2e-6)


def test_prompts_of_one_length_in_a_batch_do_not_share_their_answers() -> None:
    heads, lengths, size = HEADS[0], [200, 200, 130], 16
    parts = [qkv(length, heads, seed) for seed, length in enumerate(lengths)]
    num_blocks = [-(-length // size) for length in lengths]
    store = KVStore(KVLayout(1, sum(num_blocks), size, heads[1], heads[2], torch.float32))
    chunks = [
        Chunk(str(n), [0] * length, 0, list(range(first, first + count)), SamplingParams())
        for n, (length, count) in enumerate(zip(lengths, num_blocks, strict=True))
        for first in [sum(num_blocks[:n])]
    ]
    q, k, v = (torch.cat(rows) for rows in zip(*parts, strict=True))
    mixed = GatherAttention(store, chunks)(0, q, k, v)
    for own, rows in zip(mixed.split(lengths), parts, strict=True):
        torch.testing.assert_close(own, causal(*rows), rtol=0, atol=2e-6)
