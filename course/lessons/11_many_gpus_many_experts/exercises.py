# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercises 11: Many GPUs, many experts
#
# Four functions to write. Replace the line that raises `NotImplementedError`, run the cell, then
# run the check below it. A check that fails opens a hint; run it again after a change, and the next
# hint opens if the same question fails again.
#
# In a terminal, `minipd check 11` checks the saved notebook.

# %%
from minipd.lab import check

# %% [markdown]
# ## Exercise 1: What company saves
#
# **Minutes:** 10. **Difficulty:** easy.
#
# A layer has `experts` experts, and each token goes through `top_k` of them. All are equally
# popular, and tokens choose independently of each other. In each decode step `slots` answers get
# one token each.
#
# Return how many times fewer experts are read *for each token* than if every answer were written
# alone: `1.0` where company saves nothing.


# %% tags=["exercise", "exercise-1"]
def slots_gain(experts: int, top_k: int, slots: int) -> float:
    """Experts read one answer at a time, over experts read by all of them together."""
    ### BEGIN SOLUTION
    left_out_by_all = (1 - top_k / experts) ** slots
    return slots * top_k / (experts * (1 - left_out_by_all))
    ### END SOLUTION


# %% tags=["check", "exercise-1"]
check("11.1", slots_gain)

# %% [markdown]
# ## Exercise 2: Notes on one device
#
# **Minutes:** 10. **Difficulty:** medium.
#
# A model has `layers` layers, each with `kv_heads` KV heads of `head_dim` numbers, and a number takes
# `value_bytes` bytes. It is cut with TP over `tp` devices (`tp` divides `kv_heads`, or is a multiple of
# it).
#
# Return two numbers: the bytes that *one* device keeps for a token, and how many devices keep the
# same KV head.


# %% tags=["exercise", "exercise-2"]
def device_notes(
    layers: int, kv_heads: int, head_dim: int, value_bytes: int, tp: int
) -> tuple[float, float]:
    """KV bytes of one token on one of `tp` devices, and copies of each KV head."""
    ### BEGIN SOLUTION
    heads_here = max(1, kv_heads / tp)
    return 2 * layers * heads_here * head_dim * value_bytes, max(1, tp / kv_heads)
    ### END SOLUTION


# %% tags=["check", "exercise-2"]
check("11.2", device_notes)

# %% [markdown]
# ## Exercise 3: How many fit at once?
#
# **Minutes:** 15. **Difficulty:** medium.
#
# A group of `devices` devices, each with `memory_bytes` of memory, holds one copy of a model: its
# `weight_bytes` are shared out evenly. The share `reserve` of each memory must stay free. A token's
# notes take `note_bytes` in all, and each conversation has `context` tokens. If `copied` is true,
# *every* device keeps all the notes (as with TP and a latent that has no heads); otherwise notes
# are shared out, too.
#
# Return how many conversations fit at once, and `0` if not even the weights do.


# %% tags=["exercise", "exercise-3"]
def fit_at_once(
    devices: int,
    memory_bytes: float,
    reserve: float,
    weight_bytes: float,
    note_bytes: float,
    context: int,
    copied: bool,
) -> int:
    """Whole conversations whose notes fit beside the weights on all devices together."""
    ### BEGIN SOLUTION
    room = devices * memory_bytes * (1 - reserve) - weight_bytes
    one = note_bytes * context * (devices if copied else 1)
    return max(0, int(room // one))
    ### END SOLUTION


# %% tags=["check", "exercise-3"]
check("11.3", fit_at_once)

# %% [markdown]
# ## Exercise 4: Who earned the factor?
#
# **Minutes:** 15. **Difficulty:** hard (a conclusion to examine).
#
# A report says: *"We split prefill from decode and got four times the goodput."* A look at its table
# shows that the phases were split *and* TP was replaced by EP, on the same day.
#
# `cells` holds what was measured: from a pair such as `("colocated", "TP")` or `("split", "EP")` to
# the goodput of the whole fleet and its number of GPUs. Not every pair need be there.
#
# Return what the split earned *by itself*, per GPU, as a factor: once with TP before and after,
# once with EP before and after. For example `{"TP": 1.5, "EP": None}`. The value is `None` where the
# table cannot say: a fleet of the pair is missing, or the colocated one has a goodput of zero.

# %%
Cells = dict[tuple[str, str], tuple[float, int]]


# %% tags=["exercise", "exercise-4"]
def split_alone(cells: Cells) -> dict[str, float | None]:
    """Goodput per GPU of split over colocated, for each cut by itself."""
    ### BEGIN SOLUTION
    gains: dict[str, float | None] = {}
    for cut in ("TP", "EP"):
        before, after = cells.get(("colocated", cut)), cells.get(("split", cut))
        if before is None or after is None or before[0] == 0:
            gains[cut] = None
        else:
            gains[cut] = (after[0] / after[1]) / (before[0] / before[1])
    return gains
    ### END SOLUTION


# %% tags=["check", "exercise-4"]
check("11.4", split_alone)

# %% [markdown]
# ## Try it
#
# The claim of the lesson, eight H200, with your own function: DeepSeek-V3's weights and notes in bytes.

# %% tags=["try"]
from minipd.fleet.configs import find_model

model = find_model("DeepSeek-V3")
try:
    for context in (2_000, 5_000, 20_000):
        sizes = (model.parameters, model.kv_bytes_per_token(), context)
        cut = [fit_at_once(8, 141e9, 0.1, *sizes, copied) for copied in (True, False)]
        print(f"{context:6,} tokens each: {cut[0]:,} if notes are copied, {cut[1]:,} if not")
except NotImplementedError:
    print("This cell needs your fit_at_once: solve Exercise 3, then run it again.")

# %% [markdown]
# The same as the lesson's table counts it. It has less, since there each GPU keeps some weights whole:
# with TP (notes copied) the small matrices that make the latent, with EP (notes not copied) all of the
# attention.

# %% tags=["try"]
from minipd.lab import cuts

for context in (2_000, 5_000, 20_000):
    fit = {cut: cuts.fit_at_once("DeepSeek-V3", 8, context, cut) for cut in ("TP", "EP")}
    print(f"{context:6,} tokens each: {fit['TP']:,} with TP8, {fit['EP']:,} with EP8")
