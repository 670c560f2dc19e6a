# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercises 02: The KV cache
#
# Three functions to write. Replace the line that raises `NotImplementedError`, run the cell, then
# run the check below it. A check that fails says which question your answer did not pass, shows
# what your function returned, and opens a hint; run it again after a change, and the next hint
# opens if the same question fails again. There are three hints for each: a nudge, the concept, and
# nearly the code.
#
# In a terminal, `minipd check 02` checks the saved notebook.

# %%
import torch

from minipd.lab import check, predict

# %% [markdown]
# ## Exercise 1: How many bytes do these notes take?
#
# **Minutes:** 10. **Difficulty:** easy.
#
# A published simulator of serving systems computes the size of a KV cache as twice the tokens,
# times the hidden size, times the layers, times the bytes of a number. For Llama-2-70B that is 8
# times too much [splitwise-kv-size], so everything that it says about memory and about moving KV
# is wrong for this model. (The hidden size of such a model is its query heads times the size of a
# head.)
#
# Write the function that it should have had. It gets what a model's configuration file says, and
# returns bytes.


# %% tags=["exercise", "exercise-1"]
def kv_bytes(
    tokens: int,
    layers: int,
    query_heads: int,
    kv_heads: int,
    head_dim: int,
    bytes_per_value: int,
) -> int:
    """Bytes that the keys and values of `tokens` tokens take in all layers."""
    ### BEGIN SOLUTION
    numbers_per_token_and_layer = 2 * kv_heads * head_dim
    return tokens * layers * numbers_per_token_and_layer * bytes_per_value
    ### END SOLUTION


# %% tags=["check", "exercise-1"]
check("02.1", kv_bytes)

# %% [markdown]
# ## Exercise 2: Add lines to the note-pad
#
# **Minutes:** 20. **Difficulty:** medium.
#
# This is one layer of a note-pad: `keys` and `values` are tensors with a row for every token that
# they may ever hold. The first `length` rows are in use. `k` and `v` hold the rows of one or more
# new tokens.
#
# Write the new rows behind those in use, *into the tensors that were handed in* (a copy of
# everything for each token would cost more than it saves). Return three things: all keys so far,
# all values so far, and the new length. "So far" means the rows in use, old and new, and no others.
#
# If the new rows do not fit, raise a `ValueError` with a sentence that says so, and leave the pad
# as it was: an engine that loses a token in silence writes nonsense.


# %% tags=["exercise", "exercise-2"]
def note(
    keys: torch.Tensor,  # (room, K, D)
    values: torch.Tensor,  # (room, K, D)
    length: int,
    k: torch.Tensor,  # (new tokens, K, D)
    v: torch.Tensor,  # (new tokens, K, D)
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Write `k` and `v` behind the first `length` rows; keys and values so far, and how many."""
    ### BEGIN SOLUTION
    new_length = length + len(k)
    if new_length > len(keys):
        raise ValueError(f"There is room for {len(keys)} tokens, not for {new_length}.")
    keys[length:new_length] = k
    values[length:new_length] = v
    return keys[:new_length], values[:new_length], new_length
    ### END SOLUTION


# %% tags=["check", "exercise-2"]
check("02.2", note)

# %% [markdown]
# ## Exercise 3: How many users fit?
#
# **Minutes:** 20. **Difficulty:** medium.
#
# A box has `memory_bytes`. The model's weights take `weight_bytes`, and `reserve_bytes` must stay
# free. Every user has a conversation of `tokens_per_user` tokens. The engine gives each of them
# whole blocks of `block_size` tokens, as many as are needed to hold the conversation.
#
# Return for how many users there is room: a whole number. (Leave out the extra block that our
# engine keeps free for each of them; other engines have other rules.)


# %% tags=["exercise", "exercise-3"]
def users_that_fit(
    memory_bytes: int,
    weight_bytes: int,
    reserve_bytes: int,
    kv_bytes_per_token: int,
    tokens_per_user: int,
    block_size: int,
) -> int:
    """Users whose whole conversations fit at the same time."""
    ### BEGIN SOLUTION
    room_for_notes = max(0, memory_bytes - weight_bytes - reserve_bytes)
    blocks_per_user = -(-tokens_per_user // block_size)
    return room_for_notes // (blocks_per_user * block_size * kv_bytes_per_token)
    ### END SOLUTION


# %% tags=["check", "exercise-3"]
check("02.3", users_that_fit)

# %% [markdown]
# ## Try it on real models
#
# Your functions together size a box with a forty-eight-gigabyte card, for users with about two
# thousand tokens each. Predict first.

# %% tags=["try"]
predict(
    "02.sharing",
    "How many times as many users does it hold with Qwen2.5-7B as with Llama-2-7B?",
    unit="times",
    brackets=[1, 2, 4, 8, 16],
)

# %% tags=["try"]
from minipd.lab.kv_sizes import try_box

try_box(kv_bytes, users_that_fit, "02.sharing")
