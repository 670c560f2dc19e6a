# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercises 10: How many of each
#
# Three functions to write. Replace the line that raises `NotImplementedError`, run the cell, then
# run the check below it. A check that fails opens a hint; run it again after a change, and the next
# hint opens if the same question fails again.
#
# In a terminal, `minipd check 10` checks the saved notebook.

# %%
from minipd.lab import check

# %% [markdown]
# ## Exercise 1: Match the rates
#
# **Minutes:** 10. **Difficulty:** easy.
#
# You have `workers` servers to split. One prefill worker reads `reads_per_s` requests per second;
# one decode worker writes `together` answers at once, `tokens` tokens each, with a step of `step_s`
# seconds. The first token of each answer comes out of prefill, so decode owes `tokens - 1`.
#
# Each pool needs at least one worker. Return the best split as a pair: prefill workers, decode
# workers. If two splits serve the same rate, take the one with more decode workers.


# %% tags=["exercise", "exercise-1"]
def best_split(
    workers: int, reads_per_s: float, together: int, step_s: float, tokens: int
) -> tuple[int, int]:
    """Prefill and decode workers, together `workers`, that serve the highest request rate."""
    ### BEGIN SOLUTION
    finishes_per_s = together / (step_s * (tokens - 1))

    def served(readers: int) -> tuple[float, int]:
        return min(readers * reads_per_s, (workers - readers) * finishes_per_s), -readers

    chosen = max(range(1, workers), key=served)
    return chosen, workers - chosen
    ### END SOLUTION


# %% tags=["check", "exercise-1"]
check("10.1", best_split)

# %% [markdown]
# ## Exercise 2: How many readers for a promise?
#
# **Minutes:** 10. **Difficulty:** medium.
#
# Requests come at random, `rate_per_s` (above zero) of them per second, and one worker reads a
# prompt in `read_s` seconds. A router deals them out at random, so that each of `x` workers gets an
# equal share. The mean time to first token of one worker that gets $R$ requests per second is
# $D + R D^2 / (2 (1 - R D))$, as long as $R D < 1$; otherwise its queue grows for ever.
#
# Return the smallest number of prefill workers, however large, that keeps the *mean* time to first
# token at or under `limit_s`. If no number can (because reading alone takes as long as the limit or
# longer), return `None`. Think of that case first: a loop that stops only at a number that is good
# enough never stops there.


# %% tags=["exercise", "exercise-2"]
def readers_needed(rate_per_s: float, read_s: float, limit_s: float) -> int | None:
    """The fewest prefill workers whose mean TTFT keeps the limit; None if none ever do."""
    ### BEGIN SOLUTION
    if read_s >= limit_s:
        return None
    count = 1
    while True:
        share = rate_per_s / count
        busy = share * read_s
        if busy < 1 and read_s + share * read_s**2 / (2 * (1 - busy)) <= limit_s:
            return count
        count += 1
    ### END SOLUTION


# %% tags=["check", "exercise-2"]
check("10.2", readers_needed)

# %% [markdown]
# ## Exercise 3: Which pool do agents load?
#
# **Minutes:** 15. **Difficulty:** hard (a conclusion to examine).
#
# A report says: *"Agents write long chains of thought, so decode is the bottleneck."* Another says:
# *"Nearly all tokens of agents are read, so prefill is."* Neither has asked how long anything takes,
# or what was read before.
#
# One request reads `prompt_tokens`, of which the share `cached_share` stands in a KV cache already
# and is not read again, and writes `output_tokens`. One prefill worker reads `prefill_tok_s` tokens
# per second. One decode worker writes `together` answers at once, with a step of `step_s` seconds.
#
# Return two things: the pool that the request keeps busy longer, `"prefill"` or `"decode"`, and the
# P:D ratio that matches both: how many prefill workers for each decode worker. (The first token
# comes out of prefill.)


# %% tags=["exercise", "exercise-3"]
def busier_pool(
    prompt_tokens: int,
    cached_share: float,
    output_tokens: int,
    prefill_tok_s: float,
    together: int,
    step_s: float,
) -> tuple[str, float]:
    """The pool with more work in seconds, and prefill workers for each decode worker."""
    ### BEGIN SOLUTION
    reading_s = prompt_tokens * (1 - cached_share) / prefill_tok_s
    writing_s = (output_tokens - 1) * step_s / together
    return ("prefill" if reading_s > writing_s else "decode"), reading_s / writing_s
    ### END SOLUTION


# %% tags=["check", "exercise-3"]
check("10.3", busier_pool)

# %% [markdown]
# ## Try it
#
# The same agent twice: once every turn reads the whole conversation again, once nine tenths of it
# stand in a cache.

# %% tags=["try"]
try:
    for cached_share in (0.0, 0.9):
        pool, ratio = busier_pool(8000, cached_share, 300, 4000.0, 16, 0.03)
        print(f"{cached_share:.0%} cached: {pool} is busier, {ratio:.1f} readers for each writer")
except NotImplementedError:
    print("This cell needs your busier_pool: solve Exercise 3, then run it again.")
