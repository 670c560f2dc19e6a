"""The KV store's slots, and how many blocks fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minipd.cache.allocator import CacheSizeError
from minipd.cache.store import (
    RESERVE_BYTES,
    RESERVE_SHARE,
    CacheTooSmallError,
    KVLayout,
    KVStore,
    fit_num_blocks,
    slots_of,
)
from minipd.model.config import ModelConfig

CONFIG = ModelConfig("LlamaForCausalLM", 2, 4, 2, 8, 32, 64, 100, max_context=64)
PER_TOKEN = CONFIG.kv_bytes_per_token(4)


@given(st.permutations(range(6)), st.integers(1, 4), st.data())
def test_slots_against_the_definition(table: list[int], size: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, 6 * size - 1))
    stop = data.draw(st.integers(start + 1, 6 * size))
    slow = [table[t // size] * size + t % size for t in range(start, stop)]
    fast = slots_of(table, start, stop, size)
    assert [int(slot) for slot in fast] == slow
    blocks = table[start // size : (stop - 1) // size + 1]
    is_run = blocks == list(range(blocks[0], blocks[0] + len(blocks)))
    assert isinstance(fast, range) == is_run


def test_what_is_written_is_read_and_nothing_else_moves() -> None:
    layout = KVLayout.of(CONFIG, num_blocks=5, block_size=4, dtype=torch.float32)
    store = KVStore(layout)
    slots = [17, 18, 3, 0]
    k, v = torch.randn(2, 4, 2, 8)
    store.write(1, torch.tensor(slots), k, v)
    keys, values = store.read(1, torch.tensor(slots))
    assert torch.equal(keys, k.permute(1, 2, 0)) and torch.equal(values, v.transpose(0, 1))
    keys, values = store.read(1, range(17, 19))
    assert torch.equal(keys, k[:2].permute(1, 2, 0))
    assert torch.equal(values, v[:2].transpose(0, 1))
    assert keys.data_ptr() == store.keys[1][4, 1].data_ptr(), "a run is read in place"
    assert int(store.buffer.count_nonzero()) == k.numel() + v.numel()
    assert not store.buffer[0].any()


def test_bytes_are_counted_right() -> None:
    layout = KVLayout.of(CONFIG, num_blocks=5, block_size=4, dtype=torch.float16)
    store = KVStore(layout)
    assert layout.total_bytes == store.buffer.nbytes == 5 * 4 * CONFIG.kv_bytes_per_token(2)
    assert layout.block_bytes == store.keys[0][0].nbytes


def test_a_buffer_from_outside_must_fit() -> None:
    layout = KVLayout.of(CONFIG, num_blocks=5, block_size=4, dtype=torch.float32)
    buffer = torch.zeros(layout.shape)
    row = torch.ones(1, 2, 8)
    KVStore(layout, buffer=buffer).write(0, torch.tensor([0]), row, row)
    assert buffer[0, :, 0, 0].all(), "the store writes into the buffer it was given"
    with pytest.raises(AssertionError, match="a store needs"):
        KVStore(layout, buffer=torch.zeros(1))


def memory_for(tokens: int) -> int:
    return int((RESERVE_BYTES + tokens * PER_TOKEN) / (1 - RESERVE_SHARE)) + 1


def test_no_more_blocks_than_fit_or_were_asked_for() -> None:
    assert fit_num_blocks(CONFIG, 16, torch.float32, memory_for(640), 10_000) == 40
    assert fit_num_blocks(CONFIG, 16, torch.float32, memory_for(640), 320) == 20
    assert fit_num_blocks(CONFIG, 16, torch.float32, memory_for(10_000), 321) == 21
    assert fit_num_blocks(CONFIG, 16, torch.float16, memory_for(640), 10_000) == 80


def test_the_least_is_one_context_or_what_was_asked_for() -> None:
    assert fit_num_blocks(CONFIG, 16, torch.float32, memory_for(64), 10_000) == 4
    assert fit_num_blocks(CONFIG, 16, torch.float32, memory_for(16), 16) == 1
    with pytest.raises(CacheTooSmallError):
        fit_num_blocks(CONFIG, 16, torch.float32, memory_for(48), 10_000)


def test_the_error_says_how_much_is_missing() -> None:
    big = ModelConfig("LlamaForCausalLM", 32, 32, 32, 128, 4096, 64, 100, max_context=4096)
    needed_mib = 4096 * big.kv_bytes_per_token(4) // 2**20  # 4096 MiB
    free = int((RESERVE_BYTES + 1000 * 2**20) / (1 - RESERVE_SHARE))
    with pytest.raises(CacheTooSmallError, match=f"{needed_mib} MiB and {needed_mib - 1000} MiB"):
        fit_num_blocks(big, 16, torch.float32, free, 100_000)
    with pytest.raises(CacheTooSmallError, match=r"4096 MiB and \d+ MiB are missing"):
        fit_num_blocks(big, 16, torch.float32, 0, 100_000)


def test_a_cache_larger_than_memory_is_refused_before_it_is_made() -> None:
    layout = KVLayout.of(CONFIG, 10**9, 16, torch.float32)
    with pytest.raises(CacheTooSmallError, match=r"1000000000 blocks of 16 tokens needs \d+ MiB"):
        KVStore(layout)


@pytest.mark.parametrize("sizes", [(0, 4), (4, 1.5), (True, 4), ("4", 4), (4, None)], ids=str)
def test_a_layout_has_whole_numbers(sizes: tuple[Any, Any]) -> None:
    with pytest.raises(CacheSizeError, match="two whole numbers from 1"):
        KVLayout.of(CONFIG, *sizes, torch.float32)


@pytest.mark.parametrize(
    ("block_size", "max_tokens"), [(0, 100), (16, 0), (-1, 10), (1.5, 10), ("a", 10), (True, 10)]
)
def test_nothing_is_not_a_cache(block_size: Any, max_tokens: int) -> None:
    with pytest.raises(ValueError, match="is none"):
        fit_num_blocks(CONFIG, block_size, torch.float32, 2**40, max_tokens)
