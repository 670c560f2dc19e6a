# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercises 08: The price of moving
#
# Three functions. The third one is of a new kind: nothing is wrong with the code of the benchmark that
# you are shown, only with what it concludes.
#
# A check that fails says which question your answer did not pass, and opens a hint; run it again
# after a change, and the next hint opens if the same question fails again.
#
# In a terminal, `minipd check 08` checks the saved notebook.

# %%
import math
import statistics

from minipd.lab import check, predict

# %% [markdown]
# ## Exercise 1: Fit a link
#
# **Minutes:** 20. **Difficulty:** easy.
#
# You get the raw samples of a link: pairs of bytes and seconds, several for each size, in the order
# in which they were taken. Now and then something disturbed the machine, so a few samples took far
# too long. Describe the link by `time = latency + bytes / bandwidth`.
#
# - Take one time for each size that a single disturbed sample cannot move.
# - Put a straight line through these points. (`statistics.linear_regression(x, y)` returns slope and
#   intercept; any other sound way is fine, too.)
#
# Return the latency in seconds and the bandwidth in bytes per second.


# %% tags=["exercise", "exercise-1"]
def fit(samples: list[tuple[int, float]]) -> tuple[float, float]:
    """Latency (s) and bandwidth (bytes/s) from samples of (bytes, seconds)."""
    ### BEGIN SOLUTION
    sizes = sorted({num_bytes for num_bytes, _ in samples})
    typical = [statistics.median(t for n, t in samples if n == size) for size in sizes]
    per_byte, at_zero = statistics.linear_regression(sizes, typical)
    return at_zero, 1 / per_byte
    ### END SOLUTION


# %% tags=["check", "exercise-1"]
check("08.1", fit)

# %% [markdown]
# ## Exercise 2: From which length does remote pay?
#
# **Minutes:** 30. **Difficulty:** medium.
#
# A simple version of the lesson's scale. The whole trip is exposed (as with a connector that sends
# after the prefill), nobody waits for half a step, and reading n tokens takes n times as long as
# reading one.
#
# - Added, to the new reader: the latency, and the time that the prompt's keys and values travel.
# - Spared, to *each* running chat: the time of reading the prompt, less one step.
#
# The model has `layers` layers, each with `query_heads` query heads and `kv_heads` KV heads of
# `head_size` numbers, stored with `bytes_per_value` bytes each. The link is given as its data sheet
# gives it, in gigabits per second, and giga stands for a thousand million.
#
# Return the prompt length, in tokens, at which both sides are equal (a fraction is fine), or
# `math.inf` if remote never pays, however long the prompt.


# %% tags=["exercise", "exercise-2"]
def break_even(
    layers: int,
    query_heads: int,
    kv_heads: int,
    head_size: int,
    bytes_per_value: int,
    gigabits_per_s: float,
    latency_s: float,
    prefill_tokens_per_s: float,
    step_s: float,
    chats: int,
) -> float:
    """The prompt length (tokens) from which a remote prefill pays, or math.inf."""
    ### BEGIN SOLUTION
    kv_bytes = 2 * layers * kv_heads * head_size * bytes_per_value
    trip_per_token = kv_bytes * 8 / (gigabits_per_s * 1e9)
    gain_per_token = chats / prefill_tokens_per_s - trip_per_token
    if gain_per_token <= 0:
        return math.inf
    return (latency_s + chats * step_s) / gain_per_token
    ### END SOLUTION


# %% tags=["check", "exercise-2"]
check("08.2", break_even)

# %% [markdown]
# ## Exercise 3: "Remote prefill costs nothing"
#
# **Minutes:** 20. **Difficulty:** hard, because the code is easy.
#
# A report compares two ways of serving and concludes that remote prefill costs nothing. You get both of
# its runs, each as a dictionary:
#
# - `"gpus"`: how many GPUs it used;
# - `"rate_counts"`: `"all"` if its rate is that of all GPUs together, `"per GPU"` if it is divided
#   already;
# - `"prompt_tokens"` and `"computed_tokens"`: tokens of all prompts, and how many of them were really
#   computed (the others were found in a cache);
# - `"clock_starts"`: `"arrival"`, or a later moment such as `"prefill done"`.
#
# The two runs are named `colocated` and `split`. Return the *set* of reasons why their comparison
# does not support the conclusion:
#
# - `"cached prompts"`: in at least one run, prompts were not computed, so that there was nothing to
#   read elsewhere, nothing to move, or both;
# - `"prefill untimed"`: a run's clock starts after the arrival;
# - `"not per GPU"`: the two rates do not belong to the same number of GPUs. If a rate is divided
#   already, it belongs to one.
#
# A fair comparison gives the empty set. Up to one token in a hundred from a cache is fair: every
# prompt begins with the same few words.


# %% tags=["exercise", "exercise-3"]
def unfair(colocated: dict[str, object], split: dict[str, object]) -> set[str]:
    """Why a comparison of the two runs does not show that remote prefill costs nothing."""
    ### BEGIN SOLUTION
    found, runs = set(), (colocated, split)
    if any(run["computed_tokens"] < 0.99 * run["prompt_tokens"] for run in runs):
        found.add("cached prompts")
    if any(run["clock_starts"] != "arrival" for run in runs):
        found.add("prefill untimed")
    counted = [1 if run["rate_counts"] == "per GPU" else run["gpus"] for run in runs]
    if counted[0] != counted[1]:
        found.add("not per GPU")
    return found
    ### END SOLUTION


# %% tags=["check", "exercise-3"]
check("08.3", unfair)

# %% [markdown]
# ## Try it: the two servers of the lesson
#
# Feed your `break_even` with the team's model, its cable, and a GPU that reads 2,048 tokens in 205 ms
# [llama8b-transfer]. How many chats does it take until remote pays for a prompt of that length?

# %% tags=["try"]
predict(
    "08.chats",
    "How many running chats until remote pays for the team's typical prompt?",
    unit="chats",
    brackets=[1.5, 2.5, 4.5, 9],
)

# %% tags=["try"]
from minipd.lab.break_even import chats_needed

chats_needed(break_even, "08.chats")
