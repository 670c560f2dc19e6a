# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercises 12: Fleets and audits
#
# Four functions to write, each of them an audit. Replace the line that raises `NotImplementedError`,
# run the cell, then run the check below it. A check that fails opens a hint; run it again after a
# change, and the next hint opens if the same question fails again.
#
# In a terminal, `minipd check 12` checks the saved notebook.

# %%
from minipd.lab import check

# %% [markdown]
# ## Exercise 1: A unit is not a fleet
#
# **Minutes:** 10. **Difficulty:** easy.
#
# A company publishes how many tokens its service reads and writes in a day, and how many tokens per
# second one node of each pool does. How many nodes of each pool are busy, on average?
#
# Return three numbers: prefill nodes, decode nodes, and how many decode nodes there are for each
# prefill node. They are averages, so leave them as they come out; do not round.


# %% tags=["exercise", "exercise-1"]
def fleet_ratio(
    read_per_day: float, written_per_day: float, reads_tok_s: float, writes_tok_s: float
) -> tuple[float, float, float]:
    """Average prefill nodes, decode nodes, and decode nodes for each prefill node."""
    ### BEGIN SOLUTION
    day_s = 24 * 60 * 60
    prefill = read_per_day / (reads_tok_s * day_s)
    decode = written_per_day / (writes_tok_s * day_s)
    return prefill, decode, decode / prefill
    ### END SOLUTION


# %% tags=["check", "exercise-1"]
check("12.1", fleet_ratio)

# %% [markdown]
# ## Exercise 2: Who is billed?
#
# **Minutes:** 15. **Difficulty:** medium.
#
# A report states the price of a million output tokens. Its prefill pool of `prefill_gpus` reads
# `reads_tok_s` tokens per second in all; its decode pool of `decode_gpus` writes `writes_tok_s` in all
# when it is full. Each request has `prompt` tokens to read and `answer` tokens to write. Every GPU
# costs `usd_per_hour`, busy or not.
#
# Return two prices in USD per million *output* tokens. The first is the one a report likes:
# only decode GPUs are billed, and their pool is full. The second is the honest one: all GPUs are
# billed, at the rate of requests that *both* pools can keep up with.


# %% tags=["exercise", "exercise-2"]
def two_bills(
    prefill_gpus: int,
    decode_gpus: int,
    usd_per_hour: float,
    reads_tok_s: float,
    writes_tok_s: float,
    prompt: int,
    answer: int,
) -> tuple[float, float]:
    """USD per million output tokens: as advertised, and as paid."""
    ### BEGIN SOLUTION
    requests_per_s = min(reads_tok_s / prompt, writes_tok_s / answer)

    def price(gpus: int, tokens_per_s: float) -> float:
        return gpus * usd_per_hour / (tokens_per_s * 3600) * 1e6

    everybody = prefill_gpus + decode_gpus
    return price(decode_gpus, writes_tok_s), price(everybody, requests_per_s * answer)
    ### END SOLUTION


# %% tags=["check", "exercise-2"]
check("12.2", two_bills)

# %% [markdown]
# ## Exercise 3: A gain for each limit
#
# **Minutes:** 15. **Difficulty:** medium.
#
# Two systems were measured at rising request rates on the same GPUs. `before` and `after` are lists
# of pairs: requests per second, and the p90 of the time per output token at that rate, in seconds.
# The rates of the two lists need not be the same. Under a limit, the *capacity* of a system is the
# highest rate before its first miss: a later point that happens to keep the limit does not count. A
# time exactly at the limit keeps it.
#
# Return a dictionary: for each limit, the gain in percent (twice the capacity is a gain of a hundred
# percent); do not round. Where the old system cannot keep a limit at all, no percentage exists: give
# `None`. Where only the new one cannot keep it, all of the capacity is lost, a gain of `-100`.


# %% tags=["exercise", "exercise-3"]
def gains(
    before: list[tuple[float, float]], after: list[tuple[float, float]], limits: list[float]
) -> dict[float, float | None]:
    """The gain in capacity, in percent, under each limit on the time per output token."""

    ### BEGIN SOLUTION
    def capacity(sweep: list[tuple[float, float]], limit: float) -> float:
        reached = 0.0
        for rate, tpot_s in sweep:
            if tpot_s > limit:
                break
            reached = rate
        return reached

    found: dict[float, float | None] = {}
    for limit in limits:
        old, new = capacity(before, limit), capacity(after, limit)
        found[limit] = 100 * (new / old - 1) if old else None
    return found
    ### END SOLUTION


# %% tags=["check", "exercise-3"]
check("12.3", gains)

# %% [markdown]
# ## Exercise 4: The riddle
#
# **Minutes:** 15. **Difficulty:** hard (a conclusion to examine).
#
# *"There are `servers` times as many servers, and a token costs one `cheaper`-th of what it did. The
# split between the two phases explains both."* Suppose that a server-hour costs the same as before,
# that the price of a token follows its cost, and that the split lets the same servers do `split`
# times the work within the same promise.
#
# Return four numbers:
#
# 1. how many times as many tokens are made;
# 2. how many times as many tokens one server makes;
# 3. which share of that second factor the split explains. Factors multiply, so compare
#    logarithms: if the split had to be applied twice to make the whole factor, its share is a half;
# 4. by which factor the split *alone* changes the number of servers that yesterday's load needs.


# %% tags=["exercise", "exercise-4"]
def riddle(servers: float, cheaper: float, split: float) -> tuple[float, float, float, float]:
    """Tokens made, tokens of one server, the split's share of that, servers by the split alone."""
    ### BEGIN SOLUTION
    from math import log

    return servers * cheaper, cheaper, log(split) / log(cheaper), 1 / split
    ### END SOLUTION


# %% tags=["check", "exercise-4"]
check("12.4", riddle)

# %% [markdown]
# ## Try it
#
# The riddle with published gains: none, as vLLM's documentation says; DistServe's range on chat;
# Mooncake's strictest limit.

# %% tags=["try"]
try:
    for split in (1.0, 2.0, 4.6, 5.98):
        tokens, _, share, needed = riddle(10, 10, split)
        print(f"a gain of {split:g}: {share:.0%} of the price, {needed:.2f} times the servers")
except NotImplementedError:
    print("This cell needs your riddle: solve Exercise 4, then run it again.")
