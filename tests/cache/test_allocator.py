"""The block allocator against an obvious slow model: a dictionary of what each slot holds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minipd.cache.allocator import BlockAllocator, hash_block
from minipd.request import Request, Sequence

P = 4  # block size of most tests


def sequence(tokens: list[int], name: str = "s") -> Sequence:
    return Sequence(Request(name, tuple(tokens)))


def run(allocator: BlockAllocator, s: Sequence, stop: int | None = None) -> None:
    """Pretend that the sequence's tokens up to `stop` were computed."""
    s.num_cached_tokens = stop if stop is not None else s.num_tokens
    allocator.publish(s)


class Books:
    """Allocator, live sequences, and the text that was written to every slot."""

    def __init__(self, num_blocks: int, block_size: int, **options: bool) -> None:
        self.allocator = BlockAllocator(num_blocks, block_size, **options)
        self.live: list[Sequence] = []
        self.slots: dict[tuple[int, int], list[int]] = {}
        self.num_hits = 0

    def text(self, s: Sequence) -> list[int]:
        return [*s.request.prompt_ids, *s.output_ids]

    def admit(self, tokens: list[int]) -> None:
        s = sequence(tokens, f"s{len(self.live)}")
        prefix, a = self.allocator.find_prefix(s), self.allocator
        used = {b for other in self.live for b in other.block_ids}
        needed = a.blocks_for(s.num_tokens) - len(prefix)
        room = a.num_blocks - len(used | set(prefix)) >= needed
        assert a.can_admit(s) == room
        if not room:
            return
        a.admit(s)
        self.num_hits += len(prefix)
        assert s.num_cached_tokens == len(prefix) * a.block_size < s.num_tokens
        self.live.append(s)

    def compute(self, s: Sequence, count: int) -> None:
        """Write `count` more tokens, as an executor would, then publish."""
        size, text = self.allocator.block_size, self.text(s)
        stop = min(s.num_cached_tokens + count, s.num_tokens)
        for position in range(s.num_cached_tokens, stop):
            block_id = s.block_ids[position // size]
            assert self.allocator.references(block_id) == 1, "a shared block was written"
            self.slots[block_id, position % size] = text[: position + 1]
        run(self.allocator, s, stop)

    def grow(self, s: Sequence, token: int) -> None:
        if self.allocator.can_grow(s, s.num_tokens + 1):
            s.output_ids.append(token)
            self.allocator.grow(s, s.num_tokens)

    def release(self, s: Sequence) -> None:
        self.live.remove(s)
        self.allocator.release(s)
        assert s.block_ids == [] and s.num_cached_tokens == 0

    def check(self) -> None:
        a = self.allocator
        owned = [b for s in self.live for b in s.block_ids]
        assert [a.references(b) for b in range(a.num_blocks)] == [
            owned.count(b) for b in range(a.num_blocks)
        ]
        assert a.num_used_blocks == len(set(owned)) == a.num_blocks - a.num_free_blocks
        for s in self.live:
            assert len(set(s.block_ids)) == len(s.block_ids) == a.blocks_for(s.num_tokens)
            for position in range(s.num_cached_tokens):
                slot = (s.block_ids[position // a.block_size], position % a.block_size)
                assert self.slots[slot] == self.text(s)[: position + 1], "KV of another text"


operation = st.one_of(
    st.tuples(st.just("admit"), st.integers(0, 2), st.integers(1, 14)),
    st.tuples(st.just("compute"), st.integers(0, 9), st.integers(1, 9)),
    st.tuples(st.just("grow"), st.integers(0, 9), st.integers(0, 1)),
    st.tuples(st.just("release"), st.integers(0, 9), st.just(0)),
)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 10),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
    st.lists(operation, max_size=40),
)
def test_random_histories_keep_the_books(
    num_blocks: int, size: int, reuse: bool, runs: bool, history: list[tuple[str, int, int]]
) -> None:
    books = Books(num_blocks, size, prefix_reuse=reuse, prefer_runs=runs)
    for action, which, value in history:
        if action == "admit":
            books.admit(([0, 0, 0, 0, which] * 3)[:value])  # many common beginnings
        elif books.live:
            s = books.live[which % len(books.live)]
            if action == "compute":
                books.compute(s, value)
            elif action == "grow":
                books.grow(s, value)
            else:
                books.release(s)
        books.check()
    assert reuse or books.num_hits == 0
    for s in list(books.live):
        books.release(s)
    assert books.allocator.num_used_blocks == 0
    whole = sequence([7] * (num_blocks * size))
    assert books.allocator.can_admit(whole), "every block can be had again"


@pytest.mark.parametrize(
    ("length", "expected"), [(1, 0), (3, 0), (4, 0), (5, 1), (8, 1), (9, 2), (12, 2), (13, 3)]
)
def test_a_cached_prompt_keeps_one_token_to_run(length: int, expected: int) -> None:
    """A 100 % prefix hit would leave nothing to sample from."""
    a = BlockAllocator(20, P)
    first, again = sequence(list(range(length))), sequence(list(range(length)))
    a.admit(first)
    run(a, first)
    a.admit(again)
    assert again.num_cached_tokens == expected * P
    assert again.block_ids[:expected] == first.block_ids[:expected]
    assert not set(again.block_ids[expected:]) & set(first.block_ids)


def test_equal_blocks_after_unlike_beginnings_are_not_shared() -> None:
    a = BlockAllocator(20, P)
    first = sequence([1, 1, 1, 1, 5, 5, 5, 5, 9])
    a.admit(first)
    run(a, first)
    other = sequence([2, 2, 2, 2, 5, 5, 5, 5, 9])
    assert a.find_prefix(other) == []
    assert hash_block(b"x", [1]) != hash_block(b"y", [1])
    assert hash_block(b"", [1, 23]) != hash_block(b"", [12, 3])


def test_only_computed_blocks_can_be_found() -> None:
    a = BlockAllocator(20, P)
    first, later = sequence([3] * 12), sequence([3] * 12)
    a.admit(first)
    assert a.find_prefix(later) == [], "two identical prompts at once: nothing to share yet"
    run(a, first, 7)
    assert a.find_prefix(later) == first.block_ids[:1]


def test_a_preempted_sequence_finds_its_own_blocks_again() -> None:
    a = BlockAllocator(20, P)
    s = sequence([3] * 6)
    a.admit(s)
    run(a, s)
    s.output_ids += [4, 5, 6]
    a.grow(s, s.num_tokens)
    run(a, s, 8)
    a.release(s)
    a.admit(s)
    assert s.num_cached_tokens == 8 and len(s.block_ids) == 3


def test_an_idle_prefix_does_not_count_twice() -> None:
    """Reused idle blocks leave the free list, so they cannot serve as new ones as well."""
    a = BlockAllocator(3, P)
    first = sequence([1] * 9)
    a.admit(first)
    run(a, first)
    a.release(first)
    assert a.can_admit(sequence([1] * 12))
    assert not a.can_admit(sequence([1] * 13))


def test_without_runs_the_oldest_contents_go_first() -> None:
    a = BlockAllocator(4, P, prefer_runs=False)
    texts = [[n] * 5 for n in (1, 2)]
    for text in texts:  # each fills one block and begins another
        s = sequence(text)
        a.admit(s)
        run(a, s)
        a.release(s)
    for n in (7, 8, 9):
        a.admit(sequence([n] * 4, f"other {n}"))
    assert a.find_prefix(sequence(texts[0])) == [], "the oldest was overwritten"
    assert len(a.find_prefix(sequence(texts[1]))) == 1, "the youngest was kept"


def test_runs_lie_one_after_another_where_they_can() -> None:
    a = BlockAllocator(32, P)
    left, right = sequence([1] * P, "left"), sequence([2] * P, "right")
    a.admit(left)
    a.admit(right)
    for s in (left, right):
        a.grow(s, 6 * P)
        assert s.block_ids == list(range(s.block_ids[0], s.block_ids[0] + 6))


@pytest.mark.parametrize("sizes", [(0, 16), (4, 0), (-1, 16)])
def test_a_cache_without_blocks_is_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="needs blocks"):
        BlockAllocator(*sizes)


def test_misuse_is_caught() -> None:
    a = BlockAllocator(2, P)
    s = sequence([1] * 8)
    a.admit(s)
    with pytest.raises(AssertionError, match="already owns"):
        a.admit(s)
    with pytest.raises(AssertionError, match="can_grow"):
        a.grow(s, 9)
    table = s.block_ids
    a.release(s)
    s.block_ids = table
    with pytest.raises(AssertionError, match="given back twice"):
        a.release(s)
