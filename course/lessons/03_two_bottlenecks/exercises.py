# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercises 03: Two bottlenecks
#
# Three functions to write, from easy to hard. Replace the line that raises `NotImplementedError`,
# run the cell, then run the check below it. A check that fails says which question your answer did
# not pass, and opens a hint; run it again after a change, and the next hint opens if the same
# question fails again.
#
# In a terminal, `minipd check 03` checks the saved notebook.

# %%
from minipd.lab import check, predict

# %% [markdown]
# ## Exercise 1: Which side of the corner?
#
# **Minutes:** 10. **Difficulty:** easy.
#
# A pass sends `tokens` tokens through a dense model with `weights` weights of `bytes_per_value`
# bytes each. Count nothing but the weights.
#
# Return two things:
#
# - the arithmetic intensity of the pass: the operations (FLOP) done with each byte read;
# - what limits it, `"memory"` or `"arithmetic"`, on a machine whose corner lies at `corner` FLOP
#   per byte. Exactly at the corner, say `"arithmetic"`.


# %% tags=["exercise", "exercise-1"]
def side_of_the_corner(
    weights: int, bytes_per_value: int, tokens: int, corner: float
) -> tuple[float, str]:
    """Intensity of one pass in FLOP per byte, and its limit."""
    ### BEGIN SOLUTION
    operations = 2 * weights * tokens
    num_bytes_read = weights * bytes_per_value
    per_byte = operations / num_bytes_read
    return per_byte, "arithmetic" if per_byte >= corner else "memory"
    ### END SOLUTION


# %% tags=["check", "exercise-1"]
check("03.1", side_of_the_corner)

# %% [markdown]
# ## Exercise 2: Two shares from one stopwatch
#
# **Minutes:** 20. **Difficulty:** medium.
#
# Somebody timed one pass and hands you the raw numbers: how many tokens went through together, and
# how many *milliseconds* it took. Return its MFU and its MBU, as shares (one half is `0.5`).
#
# Beware of one table: of the `parameters`, `table_parameters` are the embedding, from which a pass
# only looks up one row for each token. Those rows are so few that you may leave the table out
# altogether: it is neither multiplied nor read. Count nothing but the other weights.


# %% tags=["exercise", "exercise-2"]
def two_shares(
    parameters: int,
    table_parameters: int,
    bytes_per_value: int,
    tokens: int,
    milliseconds: float,
    flops_per_s: float,
    bytes_per_s: float,
) -> tuple[float, float]:
    """MFU and MBU of one pass; the ceilings are in FLOP/s and bytes/s."""
    ### BEGIN SOLUTION
    matrix_weights = parameters - table_parameters
    duration_s = milliseconds / 1000
    achieved_flops = 2 * matrix_weights * tokens / duration_s
    achieved_reading = matrix_weights * bytes_per_value / duration_s
    return achieved_flops / flops_per_s, achieved_reading / bytes_per_s
    ### END SOLUTION


# %% tags=["check", "exercise-2"]
check("03.2", two_shares)

# %% [markdown]
# ## Exercise 3: What would the new machine gain?
#
# **Minutes:** 20. **Difficulty:** hard.
#
# Two machines, each given as a pair `(flops_per_s, bytes_per_s)`, and one pass: `flops` operations
# and `num_bytes` bytes to read. How many times as fast is the pass on the new machine, if both
# attain what their rooflines allow?
#
# A pass may be limited by one thing on the old machine and by the other on the new one.


# %% tags=["exercise", "exercise-3"]
def speed_up(
    old: tuple[float, float], new: tuple[float, float], flops: float, num_bytes: float
) -> float:
    """How many times as fast the pass is on `new`, 1.0 where nothing changes."""

    ### BEGIN SOLUTION
    def least_seconds(machine: tuple[float, float]) -> float:
        peak_flops, peak_reading = machine
        return max(flops / peak_flops, num_bytes / peak_reading)

    return least_seconds(old) / least_seconds(new)
    ### END SOLUTION


# %% tags=["check", "exercise-3"]
check("03.3", speed_up)

# %% [markdown]
# ## Try it: from this machine to a GPU
#
# Your `speed_up` with the ceilings of this machine as the old one, and an H100 as the new one. The
# model is that of the lesson, with weights of four bytes here and of two bytes there. Which of the
# two phases gains more? Predict first.

# %% tags=["try"]
predict(
    "03.gains-more",
    "Which phase gains more from an H100: a step of decode or a pass of 512 tokens?",
    choices=["the step of decode", "the pass of 512 tokens", "both gain the same"],
)

# %% tags=["try"]
from minipd.lab.roofline import upgrade

upgrade(speed_up, "03.gains-more")
