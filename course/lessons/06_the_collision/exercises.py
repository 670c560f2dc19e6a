# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercises 06: The collision
#
# Three functions to write. Replace the line that raises `NotImplementedError`, run the cell, then
# run the check below it. A check that fails says which question your answer did not pass, shows
# what your function returned, and opens a hint; run it again after a change, and the next hint
# opens if the same question fails again. In a terminal, `minipd check 06` checks the saved
# notebook.

# %%
import statistics

from minipd.lab import check

# %% [markdown]
# ## Exercise 1: What a document costs each reader
#
# **Minutes:** 10. **Difficulty:** easy.
#
# A server that reads first gets a prompt of `prompt_tokens`, of which `cached_tokens` are in its
# cache already (lesson 05). It reads `prefill_tok_s` tokens per second. It is writing for `readers`
# people at once, `decode_tok_s` tokens per second for all of them *together* (lesson 04).
#
# Return how many tokens *each* reader loses while the prompt is read. Do not round.


# %% tags=["exercise", "exercise-1"]
def tokens_lost(
    prompt_tokens: int,
    cached_tokens: int,
    prefill_tok_s: float,
    decode_tok_s: float,
    readers: int,
) -> float:
    """Tokens that one reader would have got during the reading."""
    ### BEGIN SOLUTION
    frozen_s = (prompt_tokens - cached_tokens) / prefill_tok_s
    return frozen_s * decode_tok_s / readers
    ### END SOLUTION


# %% tags=["check", "exercise-1"]
check("06.1", tokens_lost)

# %% [markdown]
# ## Exercise 2: Charge every stall to its cause
#
# **Minutes:** 25. **Difficulty:** medium.
#
# You get what happened on one server. `token_s` holds for each reader the times at which tokens
# appeared, in order. `reads` holds what the server read: name, start and end of each reading.
#
# A *stall* is a gap between two tokens of one reader that is longer than `k` times the usual gap.
# The usual gap is the median over all gaps of all readers together.
#
# Return one `(reader, start, end, cause)` for each stall, in the order in which they began. The cause
# is the name of the reading that shares most time with the stall, or `""` if no reading shares any.


# %% tags=["exercise", "exercise-2"]
def charge_stalls(
    token_s: dict[str, list[float]], reads: list[tuple[str, float, float]], k: float
) -> list[tuple[str, float, float, str]]:
    """All stalls, each with the reading that filled most of it."""
    ### BEGIN SOLUTION
    gaps = [
        (who, start, end) for who, times in token_s.items() for start, end in zip(times, times[1:])
    ]
    usual = statistics.median(end - start for _, start, end in gaps)
    found: list[tuple[str, float, float, str]] = []
    for who, start, end in sorted(gaps, key=lambda gap: gap[1]):
        if end - start <= k * usual:
            continue
        shared = {name: min(end, until) - max(start, since) for name, since, until in reads}
        culprit = max(shared, key=lambda name: shared[name], default="")
        found.append((who, start, end, culprit if shared.get(culprit, 0.0) > 0 else ""))
    return found
    ### END SOLUTION


# %% tags=["check", "exercise-2"]
check("06.2", charge_stalls)

# %% [markdown]
# ## Exercise 3: One step under a token budget
#
# **Minutes:** 25. **Difficulty:** hard.
#
# The heart of chunked prefill. A server is writing `num_writing` answers, one token of the budget
# each, and they come first. `prompts` are those that are not read to their end, in order of arrival:
# name, tokens read so far, and tokens in all. Every prompt has at least one token left.
#
# What is left of the `budget` goes to the prompts, first come, first served; several may take part
# in one step. If the answers alone fill the budget, one token is read all the same, so that reading
# cannot starve.
#
# Return one `(name, start, stop, wants_token)` for each prompt that takes part: it runs the tokens
# from `start` up to, not including, `stop`. `wants_token` says whether the next token is to be
# sampled after this piece. Leave the list that you were given as it is.


# %% tags=["exercise", "exercise-3"]
def next_step(
    num_writing: int, prompts: list[tuple[str, int, int]], budget: int
) -> list[tuple[str, int, int, bool]]:
    """The pieces of prompts in the next step."""
    ### BEGIN SOLUTION
    room = max(1, budget - num_writing)
    pieces: list[tuple[str, int, int, bool]] = []
    for name, done, total in prompts:
        stop = min(total, done + room)
        if stop > done:
            pieces.append((name, done, stop, stop == total))
            room -= stop - done
    return pieces
    ### END SOLUTION


# %% tags=["check", "exercise-3"]
check("06.3", next_step)

# %% [markdown]
# ## Try it on your own machine
#
# Your `tokens_lost`, fed with two speeds of this machine: what does a document of a thousand
# tokens cost a reader here, and what does it cost when half of it is cached?

# %% tags=["try"]
from minipd.lab.reading_in_pieces import document_price

document_price(tokens_lost)
