# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercises 09: Goodput
#
# Three functions to write. Replace the line that raises `NotImplementedError`, run the cell, then
# run the check below it. A check that fails says which question your answer did not pass, shows
# what your function returned, and opens a hint; run it again after a change, and the next hint
# opens if the same question fails again. In a terminal, `minipd check 09` checks the saved
# notebook.

# %%
from typing import Any

from minipd.lab import check

# %% [markdown]
# ## Exercise 1: Two numbers that go by one name
#
# **Minutes:** 15. **Difficulty:** easy.
#
# A client wrote down one answer as a list of *chunks*: for each chunk the time at which it came, in
# seconds since the request was sent, and the number of tokens in it.
#
# Return a pair:
#
# - the TPOT in seconds: all the time after the first chunk, over all the tokens after the first one;
#   or `None` for an answer of a single token, which has none;
# - the list of ITL samples in seconds *as vLLM's benchmark counts them*: one for each chunk after
#   the first, whatever it brings.
#
# The first chunk always brings exactly one token.


# %% tags=["exercise", "exercise-1"]
def token_times(chunks: list[tuple[float, int]]) -> tuple[float | None, list[float]]:
    """TPOT of an answer (None for one token) and its gaps between chunks, in seconds."""
    ### BEGIN SOLUTION
    moments = [moment for moment, _ in chunks]
    between = [after - before for before, after in zip(moments, moments[1:])]
    num_tokens = sum(count for _, count in chunks)
    if num_tokens < 2:
        return None, between
    return (moments[-1] - moments[0]) / (num_tokens - 1), between
    ### END SOLUTION


# %% tags=["check", "exercise-1"]
check("09.1", token_times)

# %% [markdown]
# ## Exercise 2: Goodput from raw records
#
# **Minutes:** 20. **Difficulty:** medium.
#
# A load test was run at several request rates. `runs` gives for each rate (requests per second, all
# workers together) the records of its requests. A record looks like one of these:
#
# ```python
# {"ttft_s": 0.31, "gaps_s": [0.05, 0.06, 0.21]}
# {"ttft_s": 0.28, "gaps_s": []}  # an answer of one token
# {"ttft_s": None, "gaps_s": []}  # failed: it never got a token
# ```
#
# A request is *good* if its first token came within `ttft_s` seconds and none of its gaps is longer
# than `gap_s` seconds; exactly the limit is still good. An answer of one token has no gap to
# complain about. A failed request is not good, and it counts.
#
# Return the goodput **per worker**: the highest rate at which the share of good requests is at
# least `target`, divided by `workers`. Rates above the first one that misses the target do not
# count, even if a later one is lucky. Return `0.0` if the lowest rate misses it. Do not count on
# any order in `runs`.


# %% tags=["exercise", "exercise-2"]
def goodput_per_worker(
    runs: dict[float, list[dict[str, Any]]],
    ttft_s: float,
    gap_s: float,
    workers: int,
    target: float = 0.9,
) -> float:
    """Highest request rate per worker with enough good requests."""
    ### BEGIN SOLUTION
    reached = 0.0
    for rate, records in sorted(runs.items()):
        started = [r for r in records if r["ttft_s"] is not None and r["ttft_s"] <= ttft_s]
        num_good = sum(all(gap <= gap_s for gap in r["gaps_s"]) for r in started)
        if num_good < target * len(records):
            break
        reached = rate
    return reached / workers
    ### END SOLUTION


# %% tags=["check", "exercise-2"]
check("09.2", goodput_per_worker)

# %% [markdown]
# ## Exercise 3: The detective
#
# **Minutes:** 20. **Difficulty:** medium.
#
# Somebody compares two ways of serving. The report has two sides, and each side has these facts:
#
# | fact | meaning |
# |---|---|
# | `gpus` | how many GPUs it used |
# | `per_gpu` | whether its result was divided by that number |
# | `sent_tokens` | prompt tokens that the clients sent |
# | `read_tokens` | prompt tokens that the server really had to read |
# | `warm_up_ends_s` | when its last warm-up run was over |
# | `first_arrival_s` | when the first counted request was sent |
# | `clock_starts_s` | when the stopwatch of the result was started |
#
# Return the set of rules that the comparison breaks, out of these four names:
#
# - `"unequal GPUs"`: the two results belong to different numbers of GPUs (a result per GPU belongs
#   to one);
# - `"cached prompts"`: on some side, fewer prompt tokens were read than sent;
# - `"prefill untimed"`: on some side, the stopwatch started after the first counted request had
#   been sent;
# - `"warm-up counted"`: on some side, the stopwatch started before the warm-up was over.
#
# A fair comparison gives the empty set.


# %% tags=["exercise", "exercise-3"]
def broken_rules(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    """Names of the rules that a reported comparison breaks."""
    ### BEGIN SOLUTION
    found: set[str] = set()
    counted = [1 if report["per_gpu"] else report["gpus"] for report in (one, other)]
    if counted[0] != counted[1]:
        found.add("unequal GPUs")
    for report in (one, other):
        if report["read_tokens"] < report["sent_tokens"]:
            found.add("cached prompts")
        if report["clock_starts_s"] > report["first_arrival_s"]:
            found.add("prefill untimed")
        if report["clock_starts_s"] < report["warm_up_ends_s"]:
            found.add("warm-up counted")
    return found
    ### END SOLUTION


# %% tags=["check", "exercise-3"]
check("09.3", broken_rules)

# %% [markdown]
# ## Try it on your own machine
#
# The cell measures this machine's steps, serves some traffic colocated at four rates on the clock
# that jumps, and asks *your* goodput function, once with two workers and, by mistake, with one.
# Which mistake of the lesson is that?

# %% tags=["try"]
from minipd.lab.goodput_sweep import try_goodput

try_goodput(goodput_per_worker)
