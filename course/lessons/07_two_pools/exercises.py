# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercises 07: Two pools
#
# Three functions of a hand-off: refuse half a KV cache, refuse bytes in the wrong number format,
# and decide who may be read next. Replace the line that raises `NotImplementedError`, run the cell,
# then run the check below it. A check that fails opens a hint; run it again after a change, and the
# next hint opens if the same question fails again.
#
# In a terminal, `minipd check 07` checks the saved notebook.

# %%
import torch

from minipd.cache.store import KVStore
from minipd.lab import check, show_table
from minipd.lab.parcels import Parcel, arrival, digests_of, judge_all

# %% [markdown]
# ## Exercise 1: Half a KV
#
# **Minutes:** 25. **Difficulty:** medium.
#
# In the lesson, a hand-off without its last block gave an answer that read well and was wrong. You
# are the decode worker; write the check that makes this impossible.
#
# A `parcel` says what the sender claims: `num_layers`, `block_ids` (the blocks of *your* store that
# it wrote into, in the order of the tokens), `num_tokens`, and `digests`, taken from the sender's
# own memory: for each layer one of the keys and one of the values. You know which blocks you have
# `reserved` for this prompt, how many tokens it has (`num_tokens`), and you have your own `store`;
# `store.layout.num_layers` says how many layers your model has.
#
# Return the first thing that does not match, in this order:
#
# - `"layers"`: the sender's model has another number of layers;
# - `"blocks"`: it wrote into other blocks than you reserved, or into them in another order;
# - `"tokens"`: the parcel is for another number of tokens;
# - `"digests"`: what lies in your blocks is not what was sent;
# - and `""`, the empty text, if everything matches.
#
# `digests_of(store, block_ids)` computes the digests of what lies in some blocks right now, in the
# same form as the parcel's. Here is a parcel:

# %%
example = arrival()
print("layers:", example.parcel.num_layers, "| tokens:", example.parcel.num_tokens)
print("blocks:", example.parcel.block_ids, "| reserved:", example.reserved)
print("digests:", [hex(digest)[-6:] for digest in example.parcel.digests])


# %% tags=["exercise", "exercise-1"]
def why_refuse(parcel: Parcel, reserved: list[int], num_tokens: int, store: KVStore) -> str:
    """What does not match: "layers", "blocks", "tokens" or "digests"; "" if all is well."""
    ### BEGIN SOLUTION
    found = digests_of(store, reserved)
    claims = {
        "layers": parcel.num_layers == store.layout.num_layers,
        "blocks": list(parcel.block_ids) == list(reserved),
        "tokens": parcel.num_tokens == num_tokens,
        "digests": tuple(parcel.digests) == tuple(found),
    }
    return next((what for what, holds in claims.items() if not holds), "")
    ### END SOLUTION


# %% tags=["check", "exercise-1"]
check("07.1", why_refuse)

# %% [markdown]
# Fourteen parcels, thirteen of them spoiled, each in a way of its own:

# %% tags=["try"]
show_table(judge_all(why_refuse))

# %% [markdown]
# ## Exercise 2: The right bytes, the wrong numbers
#
# **Minutes:** 20. **Difficulty:** medium.
#
# Two pools were started with two settings: the prefill workers keep keys and values as `bfloat16`,
# the decode workers as `float16`. Both take two bytes for each number, so a hand-off has the right
# length, and every byte arrives. A digest of the bytes agrees, too. Look at what the decode worker
# sees:

# %%
sent = torch.tensor([0.02, 0.5, 1.0, -3.0], dtype=torch.bfloat16)
seen = sent.view(torch.uint8).view(torch.float16)
show_table({"sent": sent.float().tolist(), "read as float16": seen.float().tolist()})

# %% [markdown]
# No number is absurd: everything is small and of the right sign. Nobody who looks at the numbers
# alone can be sure. Only the *manifest* can tell: it names the format.
#
# Write `unpack`. It gets the bytes that arrived (`raw`, a flat tensor of `torch.uint8`), what the
# manifest says about them (`manifest["dtype"]`, a text like `"bfloat16"`, and `manifest["shape"]`),
# and the format of your own store, like `torch.float16`. Return the numbers, as a tensor of your
# store's format in the manifest's shape. Raise a `ValueError`
#
# - if the formats differ, whatever their sizes are, with *both names* in its message: whoever set
#   up the pools must learn what to change. Do not convert: a rounded KV cache gives other words
#   than the pool it came from;
# - if there are more or fewer bytes than the shape needs.
#
# `str(torch.float16)` is `"torch.float16"`, `torch.float16.itemsize` the number of bytes of one
# number, and `torch.Size(shape).numel()` the number of numbers in a shape.


# %% tags=["exercise", "exercise-2"]
def unpack(raw: torch.Tensor, manifest: dict, store_dtype: torch.dtype) -> torch.Tensor:
    """The numbers that `raw` holds, in the store's own format; raises ValueError if they do not."""
    ### BEGIN SOLUTION
    ours = str(store_dtype).removeprefix("torch.")
    if manifest["dtype"] != ours:
        raise ValueError(f"the KV is {manifest['dtype']} and this store {ours}: set both alike")
    wanted_bytes = torch.Size(manifest["shape"]).numel() * store_dtype.itemsize
    if raw.numel() != wanted_bytes:
        raise ValueError(f"{raw.numel()} bytes came and {wanted_bytes} are needed")
    return raw.view(store_dtype).reshape(tuple(manifest["shape"]))
    ### END SOLUTION


# %% tags=["check", "exercise-2"]
check("07.2", unpack)

# %% [markdown]
# ## Exercise 3: Who may be read next?
#
# **Minutes:** 15. **Difficulty:** medium.
#
# A prompt may be read only when the decode worker has room for it: a prefill without a reservation
# would end with nowhere to go. You keep the decode worker's books.
#
# `waiting` are the prompts that want a reservation, the first to come first: pairs of a name and a
# number of tokens. `free` is the number of free blocks on the decode worker, `holding` the number
# of sequences that it holds already (running, or reserved for). Each sequence that it holds must stay
# able to grow by one block, so one block for each of them may not be given away. (A new one needs
# no such block of its own yet, but counts as held from then on.)
#
# Return the reservations that can be made now, in order: pairs of a name and a number of blocks.
# Nobody overtakes: if the first one does not fit, the ones behind it wait, too. Otherwise a long
# prompt would wait for ever behind a stream of short ones.


# %% tags=["exercise", "exercise-3"]
def reservations(
    waiting: list[tuple[str, int]], free: int, holding: int, block_size: int
) -> list[tuple[str, int]]:
    """Who gets how many blocks now: pairs (name, blocks), in the order of waiting."""
    ### BEGIN SOLUTION
    made: list[tuple[str, int]] = []
    for who, prompt_tokens in waiting:
        own_blocks = (prompt_tokens + block_size - 1) // block_size
        if own_blocks > free - holding:
            break
        made += [(who, own_blocks)]
        free, holding = free - own_blocks, holding + 1
    return made
    ### END SOLUTION


# %% tags=["check", "exercise-3"]
check("07.3", reservations)

# %% [markdown]
# Now look at `DecodeOnly.reserve_pending` and `can_admit` in `minipd/sched/split.py`: the same
# loop, with `popleft` in place of your `for`.
