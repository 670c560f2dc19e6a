# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercises 01: One token at a time
#
# Four functions to write, from easy to hard. Replace the line that raises `NotImplementedError`,
# run the cell, then run the check below it. A check that fails says which question your answer
# did not pass and opens a hint; run it again after a change, and the next hint opens if it stays.
#
# In a terminal, `minipd check 01` checks the saved notebook.

# %%
import statistics

import torch

from minipd.lab import check

# %% [markdown]
# ## Exercise 1: Read the clock
#
# **Minutes:** 10. **Difficulty:** easy.
#
# Somebody asked a question at the time `asked`. The tokens of the answer came at the times
# `arrivals` (at least four of them; all times in seconds, on one and the same clock).
#
# Return three numbers, in seconds: the time to first token, and p50 and p99 of the gaps between
# tokens. Python interpolates percentiles as this course does: `statistics.quantiles(values,
# n=100, method="inclusive")` gives a list that begins with p1.


# %% tags=["exercise", "exercise-1"]
def answer_waits(asked: float, arrivals: list[float]) -> tuple[float, float, float]:
    """Time to first token, p50 and p99 of the gaps between tokens, in seconds."""
    ### BEGIN SOLUTION
    between = [later - earlier for earlier, later in zip(arrivals, arrivals[1:])]
    hundredths = statistics.quantiles(between, n=100, method="inclusive")
    return arrivals[0] - asked, hundredths[49], hundredths[98]
    ### END SOLUTION


# %% tags=["check", "exercise-1"]
check("01.1", answer_waits)

# %% [markdown]
# ## Exercise 2: Count the work
#
# **Minutes:** 10. **Difficulty:** easy.
#
# A *token-pass* is one token going through the model once. To write an answer greedily, how many
# token-passes does it take:
#
# - without notes, when the whole text so far goes through the model for each new token;
# - with notes, when each token goes through the model once at most?
#
# The last token of the answer is chosen and shown, but nothing is computed from it any more.
# Return both counts, without notes first.


# %% tags=["exercise", "exercise-2"]
def token_passes(prompt_tokens: int, answer_tokens: int) -> tuple[int, int]:
    """Token-passes for an answer: without notes, and with notes about earlier tokens."""
    ### BEGIN SOLUTION
    lengths = range(prompt_tokens, prompt_tokens + answer_tokens)
    return sum(lengths), lengths[-1]
    ### END SOLUTION


# %% tags=["check", "exercise-2"]
check("01.2", token_passes)

# %% [markdown]
# ## Exercise 3: Which notes still hold?
#
# **Minutes:** 15. **Difficulty:** medium.
#
# You have kept the keys and values of one text, and now somebody sends another. For how many
# tokens of the new text may you use what you kept, instead of putting them through the model?
#
# Two things decide. A note holds only while nothing *before* it, and nothing of itself, has
# changed. And at least the new text's *last* token has to go through the model, because only a
# pass gives scores for the token that comes next. The new text has at least one token.


# %% tags=["exercise", "exercise-3"]
def reusable_notes(kept_ids: list[int], new_ids: list[int]) -> int:
    """How many tokens of the new text need not go through the model."""
    ### BEGIN SOLUTION
    may_hold = min(len(kept_ids), len(new_ids) - 1)
    for place in range(may_hold):
        if kept_ids[place] != new_ids[place]:
            return place
    return may_hold
    ### END SOLUTION


# %% tags=["check", "exercise-3"]
check("01.3", reusable_notes)

# %% [markdown]
# ## Exercise 4: Who looks at whom
#
# **Minutes:** 25. **Difficulty:** hard.
#
# Write the first three of the four steps of attention, for one head, as an engine needs them that
# has kept the keys of earlier tokens: `k` holds one row for each of the S tokens of a text, `q` one
# row for each of its *last* T tokens only. (T may be S: then all of them look.) Each row has D
# numbers.
#
# Return the shares, T rows of S numbers: how much each of the last T tokens takes from each token
# of the text, itself included. It takes nothing from later ones.
#
# Start with T equal to S, as in the lesson. Then ask yourself at which token of the text the last T
# begin.


# %% tags=["exercise", "exercise-4"]
def causal_shares(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Shares (T, S) of one attention head from queries (T, D) and keys (S, D)."""
    ### BEGIN SOLUTION
    num_queries, size = q.shape
    num_before = len(k) - num_queries  # tokens that have keys, but do not look any more
    fit = (q @ k.T) / size**0.5  # (T, S)
    future = torch.triu(torch.ones_like(fit), diagonal=num_before + 1).bool()  # (T, S)
    return torch.softmax(fit.masked_fill(future, float("-inf")), dim=1)  # (T, S)
    ### END SOLUTION


# %% tags=["check", "exercise-4"]
check("01.4", causal_shares)
