"""Who owns which block of the KV cache. Ids and counts only: no tensors, no torch.

A block holds `block_size` tokens. A sequence owns a list of block ids, its block table. Full blocks
carry a hash of all tokens up to their end, so that a later prompt with the same beginning can share
them. A block nobody uses keeps its hash until it is needed for something else, oldest first; then a
tier below the device may take it in (`minipd.cache.books`) and bring it back.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b

from minipd.cache.books import TierBooks
from minipd.cache.sizes import CacheSizeError as CacheSizeError
from minipd.cache.sizes import check_sizes as check_sizes
from minipd.request import Sequence


def hash_block(parent: bytes, token_ids: list[int]) -> bytes:
    """Name of a full block: its tokens and, through `parent`, every token before them."""
    text = ",".join(map(str, token_ids))
    return blake2b(parent + text.encode(), digest_size=16).digest()


class BlockAllocator:
    """Gives blocks to sequences and takes them back; questions and actions come in pairs.

    `prefix_reuse` shares full blocks between prompts that begin alike. `prefer_runs` places the
    blocks of a sequence one after another where it can, so that a CPU reads them in place. With
    `books`, their moves must be carried out before the next step runs.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        prefix_reuse: bool = True,
        prefer_runs: bool = True,
        books: TierBooks | None = None,
    ) -> None:
        check_sizes(num_blocks, block_size)
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.prefix_reuse = prefix_reuse
        self.prefer_runs = prefer_runs
        self.books = books
        self.forgotten: list[bytes] | None = None  # names that are nowhere now, if one asks
        self._references = [0] * num_blocks
        self._hashes: list[bytes | None] = [None] * num_blocks
        self._by_hash: dict[bytes, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))

    @property
    def num_free_blocks(self) -> int:
        return len(self._free)

    @property
    def num_used_blocks(self) -> int:
        return self.num_blocks - len(self._free)

    @property
    def capacity_tokens(self) -> int:
        return self.num_blocks * self.block_size

    def references(self, block_id: int) -> int:
        return self._references[block_id]

    def holds(self, name: bytes) -> bool:
        """Is it here, or in a tier below?"""
        in_tier = self.books is not None and self.books.tier_of(name) is not None
        return in_tier or name in self._by_hash

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    # -- a sequence that enters ---------------------------------------------------------------

    def find_prefix(self, sequence: Sequence) -> list[int]:
        """Blocks that already hold the sequence's first tokens; at least one token is left over.

        One must be left because only a token that is run yields logits: a prompt that is cached to
        its very last token would have nothing to sample from.
        """
        if not self.prefix_reuse:
            return []
        found: list[int] = []
        for index in range((sequence.num_tokens - 1) // self.block_size):
            block_id = self._by_hash.get(self._hash_of(sequence, index))
            if block_id is None:
                break
            found.append(block_id)
        return found

    def can_admit(self, sequence: Sequence, num_tokens: int | None = None) -> bool:
        """Is there room for the first `num_tokens` (default: all) tokens of a new sequence?"""
        prefix = self.find_prefix(sequence)
        idle = sum(self._references[block_id] == 0 for block_id in prefix)
        needed = self.blocks_for(num_tokens or sequence.num_tokens) - len(prefix)
        return needed <= self.num_free_blocks - idle

    def admit(self, sequence: Sequence, num_tokens: int | None = None) -> None:
        """Give a new sequence its shared prefix and own blocks for the rest."""
        assert not sequence.block_ids, f"{sequence.id} already owns blocks; release them first"
        prefix = self.find_prefix(sequence)
        for block_id in prefix:
            self._take(block_id)
        sequence.block_ids = prefix
        sequence.num_cached_tokens = len(prefix) * self.block_size
        if self.books is not None:
            self._fetch(sequence, self.books)
        self.grow(sequence, max(num_tokens or sequence.num_tokens, sequence.num_cached_tokens))

    def _fetch(self, sequence: Sequence, books: TierBooks) -> None:
        """Let blocks follow the prefix that tiers bring back; the last token is left over."""
        first, last = len(sequence.block_ids), (sequence.num_tokens - 1) // self.block_size
        names: list[bytes] = []
        for index in range(first, last if self.prefix_reuse else first):
            names.append(self._hash_of(sequence, index))
            if names[-1] not in self._by_hash and books.tier_of(names[-1]) is None:
                names.pop()
                break
        here = [self._by_hash.get(name) for name in names]
        count = books.num_worth_fetching(names, [block_id is not None for block_id in here])
        for block_id in here[:count]:
            if block_id is not None:
                self._take(block_id)
        books.hold(names)  # the evictions that follow must not displace them
        for block_id in here[:count]:
            sequence.block_ids.append(self._follower(sequence) if block_id is None else block_id)
        for index in range(count - 1, -1, -1):  # a chain's end makes way before its start
            if here[index] is None:
                block_id = sequence.block_ids[first + index]
                self._name(block_id, names[index])
                books.fetch(names[index], block_id, sequence.id)
        books.hold()
        sequence.num_cached_tokens += count * self.block_size

    # -- a sequence that grows ----------------------------------------------------------------

    def can_grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Could `sequence` hold KV for `num_tokens` tokens in all?"""
        return self.blocks_for(num_tokens) - len(sequence.block_ids) <= self.num_free_blocks

    def grow(self, sequence: Sequence, num_tokens: int) -> None:
        assert self.can_grow(sequence, num_tokens), "grow only when can_grow says so"
        missing = self.blocks_for(num_tokens) - len(sequence.block_ids)
        for _ in range(missing):
            sequence.block_ids.append(self._follower(sequence))

    def publish(self, sequence: Sequence) -> None:
        """Name the sequence's newly filled blocks, so that later prompts can share them."""
        if not self.prefix_reuse:
            return
        num_filled = sequence.num_cached_tokens // self.block_size
        for index in range(len(sequence.block_hashes), num_filled):
            self._hash_of(sequence, index)
        for index in range(num_filled - 1, -1, -1):
            block_id, name = sequence.block_ids[index], sequence.block_hashes[index]
            if self._hashes[block_id] is not None:
                break  # all earlier ones are named as well
            if name not in self._by_hash:
                self._name(block_id, name)

    def unfill(self, unfilled: dict[int, bytes]) -> set[int]:
        """Blocks without the KV they are named after; hands back those that still are so named."""
        bad = {b for b, name in unfilled.items() if self._hashes[b] == name}
        for block_id in bad:
            self._unname(block_id, unfilled[block_id])
            if block_id in self._free:
                self._free.move_to_end(block_id, last=False)
        return bad

    # -- a sequence that leaves ---------------------------------------------------------------

    def release(self, sequence: Sequence) -> None:
        """Take back every block; the sequence then holds no KV at all."""
        for block_id in reversed(sequence.block_ids):  # a chain's end is forgotten before its start
            self._references[block_id] -= 1
            assert self._references[block_id] >= 0, f"block {block_id} was given back twice"
            if self._references[block_id] == 0:
                self._free[block_id] = None
                if self._hashes[block_id] is None:
                    self._free.move_to_end(block_id, last=False)
        sequence.block_ids = []
        sequence.num_cached_tokens = 0

    # -- inside -------------------------------------------------------------------------------

    def _hash_of(self, sequence: Sequence, index: int) -> bytes:
        hashes = sequence.block_hashes
        while len(hashes) <= index:
            start = len(hashes) * self.block_size
            tokens = sequence.token_ids(start, start + self.block_size)
            hashes.append(hash_block(hashes[-1] if hashes else b"", tokens))
        return hashes[index]

    def _take(self, block_id: int) -> None:
        if self._references[block_id] == 0:
            del self._free[block_id]
        self._references[block_id] += 1

    def _follower(self, sequence: Sequence) -> int:
        return self._take_unused(sequence.block_ids[-1] if sequence.block_ids else None)

    def _take_unused(self, after: int | None) -> int:
        block_id = self._choose(after)
        self._take(block_id)
        name = self._hashes[block_id]
        if name is not None:  # its old contents are about to be overwritten
            self._unname(block_id, name)
            if self.books is not None and self.books.keep(name, block_id):
                return block_id
            if self.forgotten is not None:
                self.forgotten.append(name)
        return block_id

    def _name(self, block_id: int, name: bytes) -> None:
        self._hashes[block_id] = name
        self._by_hash[name] = block_id

    def _unname(self, block_id: int, name: bytes) -> None:
        del self._by_hash[name]
        self._hashes[block_id] = None

    def _choose(self, after: int | None) -> int:
        """Blank blocks first, in a run where that is wanted; then the one named longest ago."""
        oldest = next(iter(self._free))  # blank ones lie before named ones
        if not self.prefer_runs:
            return oldest
        follower = self.num_blocks if after is None else after + 1
        is_free = follower < self.num_blocks and self._references[follower] == 0
        if self._hashes[oldest] is not None:  # nothing is blank: something must be forgotten
            return follower if is_free else oldest
        if is_free and self._hashes[follower] is None:
            return follower
        return self._middle_of_longest_run()

    def _middle_of_longest_run(self) -> int:
        """Half-way into the longest blank stretch: the left neighbour can grow as well."""
        best_start, best_length, length = 0, 0, 0
        for block_id, references in enumerate(self._references):
            length = length + 1 if references == 0 and self._hashes[block_id] is None else 0
            if length > best_length:
                best_start, best_length = block_id - length + 1, length
        assert best_length > 0, "choose a block only when one is free"
        return best_start if best_start == 0 else best_start + best_length // 2
