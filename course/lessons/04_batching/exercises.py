# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercises 04: Batching
#
# Three functions to write. Replace the line that raises `NotImplementedError`, run the cell, then
# run the check below it. A check that fails says which question your answer did not pass, shows
# what your function returned, and opens a hint; run it again after a change, and the next hint
# opens if the same question fails again. In a terminal, `minipd check 04` checks the saved
# notebook.

# %%
from minipd.lab import check

# %% [markdown]
# ## Exercise 1: What static batching wastes
#
# **Minutes:** 10. **Difficulty:** easy.
#
# A server with `slots` places in its batch takes requests in the order of the list, as many as it
# has slots, and runs steps until the longest of them is done. Only then it takes the next group.
# `lengths` are the tokens that each request wants.
#
# A *place* is one slot in one step. Return the share of all places that wrote a wanted token: a
# number from `0` to `1`. A slot that nobody sits in (the last group may be small) counts as a
# place, too.


# %% tags=["exercise", "exercise-1"]
def occupancy(lengths: list[int], slots: int) -> float:
    """Share of slots times steps in which static batching writes a wanted token."""
    ### BEGIN SOLUTION
    starts = range(0, len(lengths), slots)
    num_steps = sum(max(lengths[start : start + slots]) for start in starts)
    return sum(lengths) / (num_steps * slots)
    ### END SOLUTION


# %% tags=["check", "exercise-1"]
check("04.1", occupancy)

# %% [markdown]
# ## Exercise 2: One decision between two steps
#
# **Minutes:** 20. **Difficulty:** medium.
#
# The heart of continuous batching. It is called after every step. Each request is a pair of its
# name and the number of tokens that it still wants: `("A", 3)`. Both lists are in the order of
# arrival, the oldest first.
#
# - Whoever wants no more tokens leaves.
# - Whoever waits joins while there is a free slot: first come, first served.
#
# Somebody may have lowered `slots` meanwhile; then more run than there are slots, and nobody joins
# until enough have left.
#
# Return two new lists, `(running, waiting)`; leave those that were handed in as they were.


# %% tags=["exercise", "exercise-2"]
def between_steps(
    running: list[tuple[str, int]], waiting: list[tuple[str, int]], slots: int
) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Who runs in the next step, and who still waits."""
    ### BEGIN SOLUTION
    staying = [(name, left) for name, left in running if left > 0]
    num_free = max(0, slots - len(staying))
    return staying + waiting[:num_free], waiting[num_free:]
    ### END SOLUTION


# %% tags=["check", "exercise-2"]
check("04.2", between_steps)

# %% [markdown]
# ## Exercise 3: As many slots as patience allows
#
# **Minutes:** 15. **Difficulty:** medium.
#
# Somebody measured how long a step of decode takes: `step_s` gives seconds for each number of
# sequences, for example `{1: 0.05, 4: 0.09}`. The readers accept at most `limit_s` seconds for a
# token (exactly the limit is still accepted).
#
# Return the largest measured number of sequences within the limit, and the machine's throughput
# with it in tokens per second. Return `None` where even the smallest number is over the limit. Do
# not count on any order of the table.


# %% tags=["exercise", "exercise-3"]
def most_sequences(step_s: dict[int, float], limit_s: float) -> tuple[int, float] | None:
    """The most sequences within the limit on TPOT, and the throughput with them in tokens/s."""
    ### BEGIN SOLUTION
    allowed = [size for size, seconds in step_s.items() if seconds <= limit_s]
    if not allowed:
        return None
    chosen = max(allowed)
    return chosen, chosen / step_s[chosen]
    ### END SOLUTION


# %% tags=["check", "exercise-3"]
check("04.3", most_sequences)

# %% [markdown]
# ## Try it on your own machine
#
# How many slots should a server on *this* machine have, if a reader accepts to wait twice as long
# for a token as alone? And three times? The cell measures steps for a few numbers of sequences and
# asks your function.

# %% tags=["try"]
from minipd.lab.batching import choose_slots

choose_slots(most_sequences)
