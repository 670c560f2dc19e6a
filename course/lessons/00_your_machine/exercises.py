# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercises 00: Your machine
#
# Two functions to write. Replace the line that raises `NotImplementedError`, run the cell, then run
# the check below it. A check that fails says which question your answer did not pass, shows what
# your function returned, and opens a hint; run it again after a change, and the next hint opens if
# the same question fails again. There are three hints for each: a nudge, the concept, and nearly
# the code.
#
# In a terminal, `minipd check 00` checks the saved notebook.

# %%
import statistics

from minipd.lab import check, predict

# %% [markdown]
# ## Exercise 1: An honest rate from raw samples
#
# **Minutes:** 15. **Difficulty:** easy.
#
# Somebody hands you the raw samples of a benchmark: how many tokens each run wrote, and how many
# seconds it took. The first run is a warm-up. The runs differ in length.
#
# Return two numbers:
#
# - the *rate* in tokens per second over all counted runs together;
# - the *spread* of the single counted runs' rates, as this course always counts it: the width of
#   their middle half as a share of their median (so it has no unit). Python finds the edges of the
#   middle half and the median between them:
#   `lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")`.
#
# Leave the two lists as they were: somebody still needs them.


# %% tags=["exercise", "exercise-1"]
def honest_rate(tokens: list[int], seconds: list[float]) -> tuple[float, float]:
    """Rate in tokens/s over all runs but the first, and the spread of the runs' rates."""
    ### BEGIN SOLUTION
    counted = list(zip(tokens[1:], seconds[1:]))
    run_rates = [count / duration for count, duration in counted]
    total_rate = sum(tokens[1:]) / sum(seconds[1:])
    first_quarter, half, third_quarter = statistics.quantiles(run_rates, n=4, method="inclusive")
    return total_rate, (third_quarter - first_quarter) / half
    ### END SOLUTION


# %% tags=["check", "exercise-1"]
check("00.1", honest_rate)

# %% [markdown]
# ## Exercise 2: How long is one step of decode?
#
# **Minutes:** 15. **Difficulty:** medium.
#
# Predict one step of decode from the two ceilings of a machine. The step writes one token for each
# of `sequences` answers at once. While the processor multiplies, the next weights are already on
# their way, so reading and arithmetic overlap. You may leave out everything but the weights.
#
# Return the time in seconds and what sets it: `"memory"` (the reading ceiling) or `"arithmetic"`;
# where both take the same time, either will do.


# %% tags=["exercise", "exercise-2"]
def step_time(
    parameters: int,
    bytes_per_value: int,
    sequences: int,
    flops_per_s: float,
    bytes_per_s: float,
) -> tuple[float, str]:
    """Seconds of one decode step for `sequences` answers, and its limit."""
    ### BEGIN SOLUTION
    fetching = parameters * bytes_per_value / bytes_per_s
    computing = 2 * parameters * sequences / flops_per_s
    return max(fetching, computing), "memory" if fetching >= computing else "arithmetic"
    ### END SOLUTION


# %% tags=["check", "exercise-2"]
check("00.2", step_time)

# %% [markdown]
# ## Try it on your own machine
#
# Feed your `step_time` with the ceilings of this machine. More and more sequences share a step: at
# how many does decode stop being limited by memory? Predict first; lesson 04 measures whether the
# formula is right.

# %% tags=["try"]
predict(
    "00.crossing",
    "From how many sequences at once is decode limited by arithmetic here?",
    unit="sequences",
    brackets=[2, 5, 10, 20, 50, 100],
)

# %% tags=["try"]
from minipd.lab.own_machine import crossing

crossing(step_time, "00.crossing")
