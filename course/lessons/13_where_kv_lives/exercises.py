# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercises 13: Where KV lives
#
# Four functions to write. Replace the line that raises `NotImplementedError`, run the cell, then
# run the check below it. A check that fails opens a hint; run it again after a change, and the next
# hint opens if the same question fails again.
#
# In a terminal, `minipd check 13` checks the saved notebook.

# %%
from minipd.lab import check
from minipd.lab.shared_beginnings import BLOCK, Held, synthetic_rows

# %% [markdown]
# ## Exercise 1: A report with one of two averages
#
# **Minutes:** 15. **Difficulty:** easy (a conclusion to examine).
#
# A report says: *"Our prefix cache finds X % of the prompts again, so it spares X % of the prefill
# work."* You have the log: for each request its prompt tokens and how many of them were found.
#
# Return two things: which average the claimed share is, `"tokens"` (found tokens over all tokens),
# `"requests"` (mean over the requests of each one's share) or `"neither"`; and the share of the prefill
# work that was *really* spared. Work is what is read; take every token for equal. A claim is meant
# if it is within half a percentage point, `0.005`. If both averages are that near, say `"tokens"`.


# %% tags=["exercise", "exercise-1"]
def audit_hits(log: list[tuple[int, int]], claimed: float) -> tuple[str, float]:
    """Which average `claimed` is, and the share of the work spared; `log` holds (prompt, found)."""
    ### BEGIN SOLUTION
    weighted = sum(found for _, found in log) / sum(prompt for prompt, _ in log)
    each = sum(found / prompt for prompt, found in log) / len(log)
    for name, average in (("tokens", weighted), ("requests", each)):
        if abs(average - claimed) <= 0.005:
            return name, weighted
    return "neither", weighted
    ### END SOLUTION


# %% tags=["check", "exercise-1"]
check("13.1", audit_hits)

# %% [markdown]
# ## Exercise 2: From which length is it worth fetching?
#
# **Minutes:** 15. **Difficulty:** medium.
#
# The keys and values of a text lie on another server. Fetching them takes a fixed latency, and then
# the bytes of every token through a link whose rate the data sheet gives in *gigabits* per second.
# Reading the text again takes the same time for every token.
#
# Return the length in tokens at which both take equally long: from there on fetching is faster. It need
# not be a whole number; do not round. If fetching is never faster, however long the text, return
# `math.inf`.


# %% tags=["exercise", "exercise-2"]
def fetch_from(
    latency_s: float,
    gigabits_per_s: float,
    kv_bytes_per_token: float,
    prefill_tokens_per_s: float,
) -> float:
    """The length in tokens from which fetching beats reading again; infinite if none does."""
    import math

    ### BEGIN SOLUTION
    fetch_s = kv_bytes_per_token / (gigabits_per_s * 1e9 / 8)
    saved_s = 1 / prefill_tokens_per_s - fetch_s
    return latency_s / saved_s if saved_s > 0 else math.inf
    ### END SOLUTION


# %% tags=["check", "exercise-2"]
check("13.2", fetch_from)

# %% [markdown]
# ## Exercise 3: In which order to forget
#
# **Minutes:** 25. **Difficulty:** hard.
#
# A cache must give up `needed` blocks. `held` tells three things for each block, by name:
# `held[name].parent`, the name of the block before it (`None` at the beginning of a text);
# `held[name].last_used`, when it was last used (a larger number is later); and `held[name].users`, how
# many requests use it right now. Several blocks may have the same parent: texts that begin alike and
# then part.
#
# Return the names in the order in which to forget them. Three rules:
#
# - a block in use stays;
# - a block goes only after *all* of its children have gone (or it would leave a child without its
#   parent, which nobody could ever find again);
# - among the blocks that may go, the one used longest ago goes first.
#
# When a last child has gone, its parent may be the next. If fewer than `needed` can go, return
# those. Leave `held` as it is.


# %% tags=["exercise", "exercise-3"]
def forget(held: dict[str, Held], needed: int) -> list[str]:
    """Names of up to `needed` blocks in the order in which they are forgotten."""
    ### BEGIN SOLUTION
    left, gone = dict(held), []
    while len(gone) < needed:
        parents = {block.parent for block in left.values()}
        free = [n for n, block in left.items() if block.users == 0 and n not in parents]
        if not free:
            break
        oldest = min(free, key=lambda name: left[name].last_used)
        gone.append(oldest)
        del left[oldest]
    return gone
    ### END SOLUTION


# %% tags=["check", "exercise-3"]
check("13.3", forget)

# %% [markdown]
# ## Exercise 4: Route, and perhaps move
#
# **Minutes:** 20. **Difficulty:** hard.
#
# A prompt arrives, and each worker is known by a pair: how many seconds of work stand in its queue,
# and how many of the prompt's first tokens it holds (always fewer than the prompt has). Reading a
# token takes `read_s` seconds. A worker may also *fetch* what another worker holds: each token that
# it lacks up to where the best holder's beginning ends takes `fetch_s`; what nobody holds must be read.
# The fetch, too, begins when the worker's queue is done, and reading begins after it.
#
# For each worker there are thus two ways: read all that it lacks, or fetch first and read the rest.
# Return the index of the worker that has the prompt's first token soonest (the first one is `0`), and how
# many seconds from now that is. Of workers that are equally soon take the first one.


# %% tags=["exercise", "exercise-4"]
def route(
    prompt_tokens: int, workers: list[tuple[float, int]], read_s: float, fetch_s: float
) -> tuple[int, float]:
    """The worker, and the seconds until it is done; `workers` holds (queue in seconds, held)."""
    ### BEGIN SOLUTION
    most = max(held for _, held in workers)
    rest = (prompt_tokens - most) * read_s

    def seconds(number: int) -> float:
        queue_s, held = workers[number]
        return queue_s + rest + (most - held) * min(read_s, fetch_s)

    soonest = min(range(len(workers)), key=seconds)
    return soonest, seconds(soonest)
    ### END SOLUTION


# %% tags=["check", "exercise-4"]
check("13.4", route)

# %% [markdown]
# ## Try it
#
# The report of exercise 1, for the trace of the lesson: what would its author have written?

# %% tags=["try"]
first_times, log = set(), []
for row in synthetic_rows(1000):
    text, length = row.segments[0]
    log.append((row.prompt_tokens, length // BLOCK * BLOCK if text in first_times else 0))
    first_times.add(text)

# %% tags=["try"]
claim = sum(found / prompt for prompt, found in log) / len(log)
try:
    which, spared = audit_hits(log, claim)
    print(f"The report claims {claim:.1%}: the average over {which}. Spared are {spared:.1%}.")
except NotImplementedError:
    print("This cell needs your audit_hits: solve Exercise 1, then run it again.")
