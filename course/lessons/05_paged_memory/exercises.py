# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercises 05: Why blocks?
#
# You are the new engineer of a small engine. It passed all of its tests, and its users report
# crashes and strange answers. Four functions are under suspicion. Each of them is shown with its
# faults, together with a *property test* that catches them: it says what must always hold, tries
# hundreds of small cases and shows the smallest one that fails.
#
# For each exercise: read the broken function, run the hunt, understand the case it found, then
# write a correct function in place of the line that raises `NotImplementedError`, and run the
# check. A check that fails opens a hint; run it again after a change and the next hint opens.
#
# In a terminal, `minipd check 05` checks the saved notebook.

# %%
from hypothesis import strategies as st

from minipd.cache.allocator import hash_block
from minipd.lab import check
from minipd.lab.hunting import Books, hunt, named_blocks, two_answers
from minipd.request import Sequence

small = st.integers(min_value=1, max_value=6)

# %% [markdown]
# `hunt(property, function, ...)` hands random cases to `hypothesis`, a library that makes them
# small. `st.integers(...)` says which numbers it may try.

# %% [markdown]
# ## Exercise 1: A prompt exactly as long as its blocks
#
# **Minutes:** 10. **Difficulty:** easy.
#
# How many blocks does a sequence need *in addition* to those it owns, so that `num_tokens` tokens
# in all have a place? It may own more than it needs already; nobody takes them away here. The
# prompt may need many blocks at once. Users report that short prompts are turned away although a
# block is free, now and then.


# %% tags=["exercise"]
def broken_blocks_to_add(num_tokens: int, blocks_owned: int, block_size: int) -> int:
    needed = num_tokens // block_size + 1
    return needed - blocks_owned


# %% [markdown]
# The property: after two rounds (a prompt, then some more tokens), all tokens have a place and no
# whole block stays empty.


# %%
def no_token_homeless_no_block_idle(blocks_to_add, tokens, more, block_size):
    owned = blocks_to_add(tokens, 0, block_size)
    owned += blocks_to_add(tokens + more, owned, block_size)
    assert tokens + more <= owned * block_size, "a token has no place"
    assert owned * block_size - (tokens + more) < block_size, "a whole block stays empty"


# %% tags=["try"]
cases = {"tokens": st.integers(1, 20), "more": st.integers(0, 9), "block_size": small}
hunt(no_token_homeless_no_block_idle, broken_blocks_to_add, **cases)

# %% [markdown]
# Your turn.


# %% tags=["exercise", "exercise-1"]
def blocks_to_add(num_tokens: int, blocks_owned: int, block_size: int) -> int:
    """Blocks still missing so that `num_tokens` tokens in all have a place; never below 0."""
    ### BEGIN SOLUTION
    rounded_up = (num_tokens + block_size - 1) // block_size
    return max(rounded_up - blocks_owned, 0)
    ### END SOLUTION


# %% tags=["check", "exercise-1"]
check("05.1", blocks_to_add)

# %% tags=["try"]
hunt(no_token_homeless_no_block_idle, blocks_to_add, **cases)

# %% [markdown]
# ## Exercise 2: A prompt that is cached to its last token
#
# **Minutes:** 20. **Difficulty:** medium.
#
# Which blocks can a new prompt reuse? `by_name` holds the id of every full block that is still in
# the cache, by its name. The name of a block is `hash_block(name of the block before, its tokens)`;
# the first block of a text has `b""` before it. Return the ids of the blocks that hold the prompt's
# beginning, in order, as many as possible, with two things to mind:
#
# - at least one token must be left to run, since only a token that is run yields a next one;
# - blocks disappear one at a time, so a block may be gone while a later one of the same text is
#   not.
#
# Users report crashes when somebody sends the same question twice, and, more rarely, answers that
# fit another question. The function has two faults.


# %% tags=["exercise"]
def broken_reusable_blocks(
    token_ids: list[int], block_size: int, by_name: dict[bytes, int]
) -> list[int]:
    found, name = [], b""
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        name = hash_block(name, token_ids[start : start + block_size])
        if name in by_name:
            found.append(by_name[name])
    return found


# %% [markdown]
# The property: somebody has sent the same prompt before, and one of its blocks (number `lost`) was
# overwritten since. What is found must be blocks `0, 1, 2, ...` without a gap, and leave a token.
# (`named_blocks` names all full blocks of a prompt and numbers them in order.)


# %%
def a_beginning_without_gaps(reusable_blocks, prompt, lost, block_size):
    cached = {name: n for name, n in named_blocks(prompt, block_size).items() if n != lost}
    found = reusable_blocks(prompt, block_size, cached)
    assert found == list(range(len(found))), f"blocks {found} stand in each other's places"
    assert len(found) * block_size < len(prompt), "no token is left to run"


# %% tags=["try"]
prompts = st.lists(st.integers(0, 2), min_size=1, max_size=12)
texts = {"prompt": prompts, "lost": st.integers(0, 12), "block_size": small}
hunt(a_beginning_without_gaps, broken_reusable_blocks, **texts)

# %% [markdown]
# This test finds one fault at a time: mend one and run it again, and it shows you the other.


# %% tags=["exercise", "exercise-2"]
def reusable_blocks(token_ids: list[int], block_size: int, by_name: dict[bytes, int]) -> list[int]:
    """Ids of the cached blocks that hold the prompt's beginning; at least one token is left."""
    ### BEGIN SOLUTION
    reused: list[int] = []
    parent = b""
    for number in range((len(token_ids) - 1) // block_size):
        own_tokens = token_ids[number * block_size :][:block_size]
        parent = hash_block(parent, own_tokens)
        if parent not in by_name:
            break
        reused += [by_name[parent]]
    return reused
    ### END SOLUTION


# %% tags=["check", "exercise-2"]
check("05.2", reusable_blocks)

# %% tags=["try"]
hunt(a_beginning_without_gaps, reusable_blocks, **texts)

# %% [markdown]
# ## Exercise 3: Preempt, then read again
#
# **Minutes:** 20. **Difficulty:** medium.
#
# The memory is full and `sequence` must give its place to others. `books` has the lists `running`
# and `waiting` (both of sequences, the next one to be served first), `users` (how many running
# sequences use each block) and `free` (ids of blocks that nobody uses). After `preempt(books,
# sequence)`:
#
# - the sequence does not run; it waits, *before* all others, since it was here first;
# - it owns no block, and its books say that nothing of it is cached, so that all of it is read
#   again; `is_prefilling` is true from now on;
# - the words that it has written are kept: its reader has seen them;
# - its blocks have one user less each, and those without a user are free.
#
# The attributes of a sequence are those of the engine: `block_ids`, `num_cached_tokens`,
# `output_ids`, `is_prefilling`. Users report crashes, corrupted answers, and answers that never
# come back. Three faults.


# %% tags=["exercise"]
def broken_preempt(books: Books, sequence: Sequence) -> None:
    books.running.remove(sequence)
    books.waiting.append(sequence)
    for block_id in sequence.block_ids:
        books.users[block_id] -= 1
        books.free.append(block_id)
    sequence.block_ids, sequence.is_prefilling = [], True


# %% [markdown]
# The property, on two answers that share the beginning of their prompts:


# %%
def nothing_is_believed_and_nothing_stolen(preempt, shared, own):
    books, sequence, other = two_answers(shared, own, written=3)
    preempt(books, sequence)
    stolen = set(books.free) & set(other.block_ids)
    assert not stolen, f"blocks {stolen} are free, and somebody still reads them"
    assert sequence.num_cached_tokens == 0, "it believes that tokens are cached, and has no block"
    assert books.waiting[0] is sequence, "others were let in first"


# %% tags=["try"]
shapes = {"shared": st.integers(0, 4), "own": st.integers(1, 4)}
hunt(nothing_is_believed_and_nothing_stolen, broken_preempt, **shapes)


# %% tags=["exercise", "exercise-3"]
def preempt(books: Books, sequence: Sequence) -> None:
    """Take a running sequence's blocks and make it the first to be read again."""
    ### BEGIN SOLUTION
    books.running[:] = [one for one in books.running if one is not sequence]
    books.waiting.insert(0, sequence)
    given_up, sequence.block_ids = sequence.block_ids, []
    for block in given_up:
        books.users[block] -= 1
    books.free += [block for block in given_up if books.users[block] == 0]
    sequence.num_cached_tokens, sequence.is_prefilling = 0, True
    ### END SOLUTION


# %% tags=["check", "exercise-3"]
check("05.3", preempt)

# %% tags=["try"]
hunt(nothing_is_believed_and_nothing_stolen, preempt, **shapes)

# %% [markdown]
# ## Exercise 4: A prompt read in pieces
#
# **Minutes:** 20. **Difficulty:** hard.
#
# A long prompt can be read in pieces, with steps of writing in between (lesson 06 is about why). A
# piece runs the tokens `start .. stop - 1` of a sequence whose block table is `block_ids`. Return
# two lists:
#
# - the *rows* of the memory where those tokens go, in order: row `block_id * block_size + offset`;
# - the ids of the blocks that this piece has *filled up*, in order: each can now be given its name
#   and be shared, but not before all of its places are taken, and each is reported once.
#
# All went well as long as pieces were a whole number of blocks. Since somebody made them shorter,
# answers to long prompts are odd, and then other people's answers as well. Two faults.


# %% tags=["exercise"]
def broken_run_piece(
    block_ids: list[int], start: int, stop: int, block_size: int
) -> tuple[list[int], list[int]]:
    rows = []
    for place in range(stop - start):
        block_id = block_ids[(start + place) // block_size]
        rows.append(block_id * block_size + place % block_size)
    last = -(-stop // block_size)
    return rows, block_ids[start // block_size : last]


# %% [markdown]
# The property: reading in two pieces must do the same as reading in one go, and no block is shared
# before it is full.


# %%
def cutting_changes_nothing(run_piece, first, second, block_size):
    table = list(range(30, 0, -1))
    at_once, _ = run_piece(table, 0, first + second, block_size)
    rows_1, full_1 = run_piece(table, 0, first, block_size)
    rows_2, full_2 = run_piece(table, first, first + second, block_size)
    assert rows_1 + rows_2 == at_once, "a token was put into another one's place"
    whole_blocks = (first + second) // block_size
    assert full_1 + full_2 == table[:whole_blocks], "a block was shared too early, or twice"


# %% tags=["try"]
pieces = {"first": st.integers(1, 12), "second": st.integers(1, 12), "block_size": small}
hunt(cutting_changes_nothing, broken_run_piece, **pieces)


# %% tags=["exercise", "exercise-4"]
def run_piece(
    block_ids: list[int], start: int, stop: int, block_size: int
) -> tuple[list[int], list[int]]:
    """Rows of tokens `start .. stop - 1`, and the blocks that are full from now on."""
    ### BEGIN SOLUTION
    homes = [divmod(token, block_size) for token in range(start, stop)]
    slots = [block_ids[index] * block_size + offset for index, offset in homes]
    return slots, block_ids[start // block_size : stop // block_size]
    ### END SOLUTION


# %% tags=["check", "exercise-4"]
check("05.4", run_piece)

# %% tags=["try"]
hunt(cutting_changes_nothing, run_piece, **pieces)
