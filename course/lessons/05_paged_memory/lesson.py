# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Lesson 05: Why blocks?
#
# **The question: the memory is full, and most of it is empty. Why blocks?**
#
# **Minutes:** 75 for this notebook, 15 for the quiz at its end, 70 for the four exercises.
#
# **You need:** lessons 01 to 04: what keys and values are, why they are kept (the KV cache), and
# why a server writes many answers at once.
#
# **Afterwards you can**
#
# - say how much memory a server loses by reserving room for the longest answer, and measure what
#   blocks win back;
# - build a paged KV cache with block tables, and prove that the model writes the same tokens;
# - share the beginning of a prompt between requests, and say when that goes wrong;
# - explain what happens to a half-written answer when the memory runs out.
#
# Run the cells from top to bottom. You are asked for three predictions; make them before you run
# the cell that measures.

# %%
from minipd.lab import calibration, panel, predict, quiz, reveal, show_table

panel("05")

# %% [markdown]
# ## A full house with empty rooms
#
# A hotel does not know how long its guests will stay. To be safe it books every guest for the
# longest stay it allows. By noon the house is full: no more bookings. At night most rooms are dark.
#
# A server that keeps each KV cache in one piece does the same. The cache of an answer grows by one
# token with each step, and nobody knows how long the answer will be. If the next place in memory
# belongs to somebody else, the cache cannot grow there. So the server reserves, when the question
# arrives, a piece that is long enough for the longest answer it allows, and turns people away
# while most of the reserved places are empty.
#
# How bad is it? Here are the lengths of a few hundred chat requests. They are drawn at random in
# the shape of a published trace, in which half of the prompts have at most 1,020 tokens and half
# of the answers at most 129 [azure-chat-lengths].

# %%
from minipd.lab import paging

CONTEXT, LONGEST_ANSWER = 8192, 1000  # tokens: what the server allows
lengths = paging.chat_lengths(count=200, most=CONTEXT)
show_table({"prompt": [p for p, _ in lengths[:6]], "answer": [a for _, a in lengths[:6]]})
used = [prompt + answer for prompt, answer in lengths]
print(f"mean length of prompt and answer together: {sum(used) / len(used):.0f} tokens")

# %% [markdown]
# Say that our memory holds the keys and values of `32_768` tokens. How much that is depends on the
# model (lesson 02). For the model of these lessons:

# %%
from minipd import LLM, SamplingParams
from minipd.lab.model_choice import lesson_model

name, why_this_one = lesson_model()
llm = LLM(name)
model, config, MEMORY = llm.model, llm.model.config, 32_768  # tokens
print(why_this_one)
print(f"{MEMORY} tokens take {MEMORY * config.kv_bytes_per_token(4) / 2**20:.0f} MiB of memory")

# %% [markdown]
# Two ways to reserve. The careless one reserves the whole context for everybody. The better one
# looks at the prompt, whose length is known when it arrives, and adds the longest answer that the
# server allows.

# %%
whole = paging.how_many_fit([CONTEXT] * len(used), MEMORY)
better = paging.how_many_fit([prompt + LONGEST_ANSWER for prompt, _ in lengths], MEMORY)
print(f"whole context reserved for each:        {whole} users at once")
print(f"prompt and longest answer reserved:     {better} users at once")

# %% [markdown]
# Now the idea of this lesson. Cut the memory into *blocks* of equal size, say sixteen tokens. Give
# a user blocks only as the tokens come: one more whenever the last one is full. The blocks of one
# user may lie anywhere, so nothing needs to be reserved.
#
# To be strict with the new idea, we count everybody at their *full* length, as if all answers were
# about to end at the same moment.

# %%
predict(
    "05.fit",
    "With blocks of 16 tokens, how many of the same users fit into the same memory?",
    unit="users",
    brackets=[5, 8, 12, 16, 24, 40],
)

# %%
in_blocks = paging.how_many_fit_in_blocks(used, MEMORY, block_size=16)
reveal("05.fit", float(in_blocks), "users")

# %%
counts = {"whole context": whole, "prompt + longest answer": better, "blocks of 16": in_blocks}
paging.show_fit(counts)

# %% [markdown]
# That is the answer to "why blocks" in one picture. The cell below asks what block size does. Read
# the first line well: one block as long as the whole context *is* the careless reservation. Paging
# is not another kind of memory; it is the same memory, cut smaller.

# %%
sizes = [8192, 2048, 512, 128, 64, 16, 1]
fit = [paging.how_many_fit_in_blocks(used, MEMORY, size) for size in sizes]
empty = [f"{paging.empty_share(used, size):.1%}" for size in sizes]
show_table({"block size (tokens)": sizes, "users at once": fit, "places without a token": empty})

# %% [markdown]
# **Where the empty places are.** Every block of a user is full except the *last* one. On average it
# is half empty, so each user wastes about half a block, however long the answer gets. That is
# called *fragmentation*. (Free blocks are never wasted: since blocks of one user may lie anywhere,
# any free block is as good as any other.)
#
# **Why not blocks of a single token?** They waste nothing. But each block costs an entry in a
# table, and hardware reads long stretches of memory faster than scattered rows. The table above
# shows that sixteen tokens already win nearly all there is to win.
#
# The people who invented this for language models found that the servers of their time wasted 60 to
# 80 % of the KV memory, and theirs under 4 % [vllm-kv-waste].

# %% [markdown]
# ## What are more users worth?
#
# Lesson 04: a step serves many answers for little more than one. So memory that lets in more users
# makes the *machine* faster. Below is the same tiny memory twice, `512` tokens in all. A server
# that reserves `128` tokens for each user can serve four at once. The engine's own, with blocks,
# may take as many as its blocks allow.

# %%
from minipd.sched.limits import Limits

places = ["France", "Japan", "Egypt", "Peru", "Norway", "Kenya"]
places += ["Canada", "Spain", "India", "Chile", "Cuba", "Iran"]
questions = [llm.token_ids(f"The capital of {place} is") for place in places]
reserving = LLM(model, num_kv_blocks=32, limits=Limits(max_running=512 // 128))
paged_llm = LLM(model, num_kv_blocks=32)  # blocks of 16 tokens: the same 512

# %%
runs = {
    "reserving": paging.faster_of_two(reserving, questions, max_tokens=8),
    "blocks": paging.faster_of_two(paged_llm, questions, max_tokens=8),
}
speeds = [run.tokens_per_s for run in runs.values()]
peaks = [run.peak for run in runs.values()]
show_table({"memory": list(runs), "answers at once": peaks, "tokens/s": speeds})
print(f"The same memory gave {speeds[1] / speeds[0]:.1f} times the tokens per second.")
print("(Each is the faster of two runs: an interruption can only make a run slower.)")

# %% [markdown]
# ## Blocks and a table
#
# If the blocks of an answer lie anywhere, something must remember where. That is the **block
# table**: for each answer, the ids of its blocks, in order. Token number `t` of an answer is found
# in two steps, exactly as an operating system finds a byte of a program:
#
# 1. its block is entry `t // block_size` of the table;
# 2. its place in there is `t % block_size`.
#
# Below is a cache of eight blocks of four tokens, with words for tokens. Try this:
#
# 1. Ask Ann's question and take one step, then Ben's and one step. Their prompts begin with the
#    same eight words. How many blocks does Ben get of his own?
# 2. Ask Cem's question, whose prompt fills exactly one block.
# 3. Take steps until no block is free. Who has to go, and what becomes of the words in those
#    blocks?
# 4. End Ann's answer. Which of her blocks become free, and why not all?
#
# A block with a double border is shared, a dashed one is free; each box says so in words as well.

# %%
from minipd.lab.block_tables import block_board, board_text, play

block_board()

# %% [markdown]
# The same as text, for a terminal or a screen reader: actions, what each of them did, and how the
# blocks stand at the end. Change the list and run it again.

# %%
story = ["Ann", "step", "Ben", "step", "Cem", "step", *["step"] * 5, "end Ann"]
print("\nAt the end:", board_text(play(story)))

# %% [markdown]
# Every decision was made by the allocator and the scheduler that also run the real model. You have
# seen the three ideas of this lesson: blocks with a table, a shared beginning, and giving way when
# memory is full. Let us build the first one.

# %% [markdown]
# ## A paged cache in a few cells
#
# First the memory: rows for keys and values of every layer, a list of free blocks, and for each
# block a count of the answers that use it. (The count seems idle for now. It will not stay so.)

# %%
import random
from collections import Counter

import torch

P = 16  # tokens in a block


class Pool:
    def __init__(self, num_blocks):
        shape = (config.num_layers, num_blocks * P, config.num_kv_heads, config.head_dim)
        self.keys, self.values = torch.zeros(shape), torch.zeros(shape)  # (L, N P, K, D)
        self.free, self.users = list(range(num_blocks)), Counter()


# %% [markdown]
# Then the one line that all of paging comes down to: from token numbers to rows of the memory,
# through the table.


# %%
def rows(table, start, stop):
    """Where tokens start .. stop - 1 of an answer lie in the memory."""
    return torch.tensor([table[t // P] * P + t % P for t in range(start, stop)])


print(rows([7, 2], start=14, stop=19).tolist(), "<- the last two rows of block 7, then block 2")

# %% [markdown]
# Attention is lesson 01's: every token looks back at all tokens up to its own. The engine's decoder
# asks us for it once per layer, with the queries, keys and values of the new tokens.

# %%
from torch.nn import functional as F


def look_back(q, keys, values):
    """q (T, H, D) of the last T tokens; keys and values (S, K, D) of all S; gives (T, H, D)."""
    position = torch.arange(len(keys))
    seen = position <= position[-len(q) :, None]  # (T, S)
    q, keys, values = (x.transpose(0, 1)[None] for x in (q, keys, values))  # (1, heads, T, D)
    mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen, enable_gqa=True)
    return mixed[0].transpose(0, 1)  # (T, H, D)


# %% [markdown]
# Now paging meets attention: put the new keys and values where the table says, then gather all
# rows of this answer, in order, wherever they lie.


# %%
def paged(pool, table, start):
    def attend(layer, q, k, v):
        new, past = rows(table, start, start + len(q)), rows(table, 0, start + len(q))
        pool.keys[layer, new], pool.values[layer, new] = k, v
        return look_back(q, pool.keys[layer, past], pool.values[layer, past])

    return attend


# %% [markdown]
# An answer in the making: its tokens so far, its block table, and how many of its tokens are in the
# cache. It gets a block when its tokens no longer fit, and not before.


# %%
class Answer:
    def __init__(self, ids, table=()):
        self.ids, self.table, self.cached = list(ids), list(table), len(table) * P


def make_room(pool, answer):
    while len(answer.table) * P < len(answer.ids):
        block = pool.free.pop()
        pool.users[block] += 1
        answer.table.append(block)


# %% [markdown]
# And the loop of lesson 02: run the tokens that are not cached yet, take the best next token. The
# first turn runs the whole prompt (prefill), each later one a single token (decode).


# %%
@torch.inference_mode()
def write(pool, answer, count):
    for _ in range(count):
        make_room(pool, answer)
        new, places = answer.ids[answer.cached :], torch.arange(answer.cached, len(answer.ids))
        attend = paged(pool, answer.table, answer.cached)
        hidden = model.decoder(torch.tensor(new), places, attend)  # (T, E)
        answer.cached = len(answer.ids)
        answer.ids.append(int(model.decoder.logits(hidden[-1:]).argmax()))


# %% [markdown]
# To make it hard, we shuffle the free blocks first: the answer's blocks will lie all over the
# place.

# %%
prompt = llm.chat_ids("Why do books have pages? Answer in one sentence.")
pool = Pool(num_blocks=32)
random.Random(5).shuffle(pool.free)
answer = Answer(prompt)
write(pool, answer, count=20)
ours = answer.ids[len(prompt) :]
print("block table:", answer.table)
print(model.tokenizer.decode(ours))

# %% [markdown]
# ## The same tokens?
#
# A cache that changes what the model says would be useless, so we compare: with lesson 02's cache
# (all keys and values in one piece, in its shortest form), and with the engine.


# %%
def one_piece():
    kept = {}

    def attend(layer, q, k, v):
        if layer in kept:
            k, v = torch.cat([kept[layer][0], k]), torch.cat([kept[layer][1], v])
        kept[layer] = k, v  # (S, K, D) each
        return look_back(q, k, v)

    return attend


# %%
with torch.inference_mode():
    ids, cached, attend = list(prompt), 0, one_piece()
    for _ in range(20):
        places = torch.arange(cached, len(ids))
        hidden = model.decoder(torch.tensor(ids[cached:]), places, attend)
        cached = len(ids)
        ids.append(int(model.decoder.logits(hidden[-1:]).argmax()))

# %%
engine = llm.generate([prompt], SamplingParams(20, ignore_eos=True))[0].token_ids
in_one_piece = ids[len(prompt) :]
print("paged and in one piece:", paging.verdict(model, prompt, in_one_piece, ours))
print("paged and the engine:  ", paging.verdict(model, prompt, engine, ours))

# %% [markdown]
# Where the rows lie makes no difference to attention: it gets the same rows in the same order. Only
# the *order* counts, and the order is kept by the table.

# %% [markdown]
# ## A shared beginning
#
# The chatbot of a museum begins every prompt with the same house rules. Their keys and values are
# the same for every visitor: lesson 01 showed that a token's keys and values depend on the tokens
# *before* it and on nothing after. If one visitor's blocks hold them, the next visitor can simply
# put the same block ids at the front of the own table. Nothing is copied and nothing is
# computed. That is **prefix reuse** (also called prefix caching).
#
# How does the engine find them? Each full block gets a *name*, computed from its tokens **and the
# name of the block before it**. Equal names therefore mean: equal tokens from the very beginning
# up to the end of this block.

# %%
from minipd.cache.allocator import hash_block

first = hash_block(b"", [1, 2])
print("block [3, 4] after [1, 2]:", hash_block(first, [3, 4]).hex()[:8])
print("block [3, 4] after [9, 9]:", hash_block(hash_block(b"", [9, 9]), [3, 4]).hex()[:8])
print("block [3, 4] after [1, 2]:", hash_block(first, [3, 4]).hex()[:8], "<- the same again")

# %% [markdown]
# What is it worth? Below are two kinds of prompts of about the same length. The *fresh* ones carry
# a new number in front of the rules, so that all blocks from there on get new names. The *shared*
# ones differ only in the question at the end.

# %%
rules = " ".join(f"Rule {n}: visitors must not touch machine {n}." for n in range(1, 31))
fresh = [llm.chat_ids(f"Copy {random.random()}. {rules} May I touch it?") for n in range(3)]
shared = [llm.chat_ids(f"{rules} May I touch machine {n}?") for n in range(3)]
print(f"tokens: fresh {len(fresh[0])}, shared {len(shared[0])}")

# %%
predict(
    "05.prefix",
    "How many times sooner does the first token come when the rules were read before?",
    unit="times",
    brackets=[1.5, 3, 6, 12, 25, 50],
)

# %%
import statistics

paging.first_token_s(llm, llm.chat_ids(rules))  # somebody asked before: the rules are cached
waits = [
    (paging.first_token_s(llm, a), paging.first_token_s(llm, b)) for a, b in zip(fresh, shared)
]
fresh_s, shared_s = (statistics.median(times) for times in zip(*waits))
print(f"time to first token: fresh {fresh_s:.2f} s, shared {shared_s:.3f} s")
reveal("05.prefix", statistics.median(a / b for a, b in waits), "times")

# %% [markdown]
# Why that much? The engine noted how many tokens it found and how many it had to run.

# %%
started = [event.data for event in llm.timeline if event.kind == "prefill_started"][-2:]
asked = {"prompt": ["fresh", "shared"], "found in the cache": [d["cached_tokens"] for d in started]}
show_table(asked | {"run": [d["tokens"] for d in started]})
print(f"tokens to run: {started[0]['tokens'] / started[1]['tokens']:.1f} times fewer")

# %% [markdown]
# (Tokens found even for the fresh prompt come from the chat format: it begins every prompt with the
# same few words.) The gain in time stays below the saving in tokens: a pass of few tokens still has
# to read every weight (lesson 03), and the tokens that are run still look back at all the others.
#
# **What to take home as a practitioner.** Put what never changes first and what changes last. A
# date or a user's name in the first line of the house rules makes every prompt a fresh one.
#
# **The laptop exaggerates.** Here even a prompt of this length is limited by arithmetic, so every
# token that is not run saves time. On 8 H100 GPUs with a model of 70 billion weights, reading 512
# tokens takes only as long as about 2 steps of decode, and 8,192 tokens about 27
# [freeze-70b-h100]. A pass can hardly be shorter than one step, so there a shared beginning of 512
# tokens makes the first token at most 2 times sooner, and one of 8,192 tokens up to 27 times. In a
# data centre, reuse pays for *long* beginnings: documents, tools, conversations. It also saves
# memory in both places: a shared block is there only once.

# %% [markdown]
# ## What goes wrong
#
# Sharing makes giving back dangerous. Our museum has three visitors. Ann and Ben ask under the same
# rules, so they share blocks. Then Ann is done.

# %%
SYSTEM = "You guide visitors through a museum of old machines. Be kind, brief and exact. " * 2
ann = llm.chat_ids("What is a steam engine?", system=SYSTEM)
ben = llm.chat_ids("What should I see first?", system=SYSTEM)
cem = llm.chat_ids("Write a poem about the sea. " + "It should mention wind and rain. " * 8)
common = next(n for n, (a, b) in enumerate(zip(ann, ben)) if a != b)
print(f"Ann and Ben share {common} tokens, that is {common // P} full blocks of {P}.")


# %% [markdown]
# Sharing is a matter of one table: Ben's begins with Ann's first blocks. Then the story: Ben writes
# six words, Ann is done, Cem moves in, and Ben writes on.


# %%
def share(pool, other, ids):
    """A new answer whose table begins with the full blocks that it has in common with another."""
    answer = Answer(ids, table=other.table[: common // P])
    pool.users.update(answer.table)  # one more user for each of these blocks
    return answer


# %%
def museum(give_back):
    pool, visitor = Pool(num_blocks=32), Answer(ann)
    write(pool, visitor, count=2)
    reader = share(pool, visitor, ben)
    write(pool, reader, count=6)
    give_back(pool, visitor)  # Ann is done ...
    write(pool, Answer(cem), count=1)  # ... and Cem moves in
    write(pool, reader, count=14)
    return reader.ids[len(ben) :]


# %% [markdown]
# The obvious way to give blocks back is to put them on the list of free blocks. Nothing crashes.
# Compare what Ben reads with what he reads when he is alone.


# %%
def carelessly(pool, answer):
    pool.free += answer.table


alone = Answer(ben)
write(Pool(num_blocks=32), alone, count=20)
expected, corrupted = alone.ids[len(ben) :], museum(carelessly)
print("Ben alone:    ", model.tokenizer.decode(expected))
print("Ben corrupted:", model.tokenizer.decode(corrupted))
print("The two are:  ", paging.verdict(model, ben, expected, corrupted))

# %% [markdown]
# Ben's answer starts well and goes astray in the middle. Ann's blocks were free, Cem's prompt was
# written over them, and Ben's table still pointed there: from then on his model looked back at
# *somebody else's prompt*. No error, no warning, only words that make no sense here. Read the
# corrupted answer once more: does anything in it come from Cem, who asked for a poem with wind and
# rain? A stranger's text in your answer is the worst thing that a shared server can do.
#
# The cure is the count that seemed idle, the block's **reference count**: a block is free when its
# *last* user has left.


# %%
def counting(pool, answer):
    for block in answer.table:
        pool.users[block] -= 1
        if pool.users[block] == 0:
            pool.free.append(block)


healed = museum(counting)
print("Ben with counting:", model.tokenizer.decode(healed))
print("The two are:      ", paging.verdict(model, ben, expected, healed))

# %% [markdown]
# ## When the memory is full
#
# Nobody reserves any more, so one day all blocks are taken and a running answer needs one more.
# The engine then *preempts* the answer that came last: it takes all of its blocks, and puts it at
# the front of the queue. When there is room again, it is read again, its own words included, and
# goes on.
#
# Six answers, once with plenty of memory and once with very little:

# %%
roomy = LLM(model, block_size=8, num_kv_blocks=64)
tight = LLM(model, block_size=8, num_kv_blocks=16)
with_plenty = paging.serve(roomy, questions[:6], max_tokens=24)

# %%
FATES = [
    "They start again, with other words",
    "They are cut short",
    "They go on where they stopped, as if nothing had happened",
    "They repeat the words that were already written",
]
predict("05.preempted", "How do the preempted answers read in the end?", choices=FATES)

# %%
with_little = paging.serve(tight, questions[:6], max_tokens=24)
print(f"preempted: {with_little.preempted} times; tokens read again: {with_little.read_again}")
pairs = zip(questions, with_plenty.answers, with_little.answers)
verdicts = [paging.verdict(model, *three) for three in pairs]
print("each answer, against plenty of memory:", ", ".join(sorted(set(verdicts))))

# %%
why_not = {
    FATES[0]: "its words are part of what is read again, so the model continues the same text.",
    FATES[1]: "the request waits; nothing is dropped.",
    FATES[3]: "tokens that the user has are kept; only their keys and values were given up.",
}
same = paging.WORDS["different"] not in verdicts
reveal("05.preempted", FATES[2] if same else "They read differently", why_not=why_not)

# %% [markdown]
# Keys and values can always be computed again from the tokens; that is what makes them a *cache*.
# The price is time: the answer waits for a place, and its tokens are read a second time.

# %%
for label, run in {"plenty": with_plenty, "little": with_little}.items():
    print(f"{label}: {run.seconds:.1f} s, at most {run.peak} answers at once")
print("Reading is cheap per token, so a preemption now and then costs little.")
print("A server that does it all the time needs more memory, or should let in fewer users.")

# %% [markdown]
# ## The same idea, full-size
#
# The engine's allocator is `minipd/cache/allocator.py`. Find your own lines in it.

# %%
import inspect

from minipd.cache.allocator import BlockAllocator
from minipd.cache.store import slots_of

print(inspect.getsource(BlockAllocator.grow))
print(inspect.getsource(BlockAllocator.release))

# %% [markdown]
# | you wrote | the engine has |
# |---|---|
# | `make_room`: take blocks until all tokens fit | `grow`, the loop over `missing` |
# | `pool.users[block] -= 1`, free at zero | `release`, the first lines of its loop |
# | `rows(table, start, stop)` | `slots_of` in `minipd/cache/store.py`, printed below |
# | the shared front of Ben's table | `find_prefix` and `admit` |
#
# What is new in `release`: a free block keeps its name. As long as nobody needs the space, its
# words stay, and a later prompt can find them (in the widget: *free, but remembered*). The oldest
# are overwritten first.

# %%
print(inspect.getsource(slots_of))
print(inspect.getsource(BlockAllocator.find_prefix))

# %% [markdown]
# `slots_of` has a shortcut: where the blocks happen to lie one after another, it gives a `range`,
# so that a CPU can read the rows in place instead of gathering them. And look at the range in
# `find_prefix`: why does it stop one token before the end?

# %% [markdown]
# ## Edge cases that broke real engines
#
# Paging is a few lines of arithmetic with many boundaries. These are faults that users found in
# engines that many people run or learn from. Each one is an exercise of this lesson.
#
# - **A prompt exactly as long as its blocks.** A formula for "is a new block needed?" that was off
#   at the boundary ended in a failed assertion [nano-vllm-block-length].
# - **A prompt that is cached to its last token.** Nothing was left to run, so there was no row to
#   take the next token from: the GPU was asked for work of size zero, and failed
#   [nano-vllm-full-hit].
# - **Preempted, then read again.** The books still held numbers from before: too many tokens were
#   planned, and a block table was read beyond its end [nano-vllm-preempted].
# - **A prompt read in pieces.** The last piece met a block that was full to the brim, or looked at
#   places that nobody had filled yet [paged-chunk-boundary].
#
# Now the answer to the question above: `find_prefix` leaves at least one token over, because only
# a token that is *run* yields the scores from which the next one is chosen. The widget's Cem shows
# it:

# %%
print("\nAt the end:", board_text(play(["Cem", "step", "end Cem", "Cem", "step"])))

# %% [markdown]
# His whole prompt is remembered, but it is exactly one block: reusing it would leave nothing to
# run.
#
# How do you find such cases before your users do? Not by thinking of examples; you would have
# thought of them when writing the code. Say what must *always* hold, and let a program try
# hundreds of small cases. That is a *property test*, and the exercises come with one for each of
# the four.

# %% [markdown]
# ## Where you meet this in practice
#
# - **vLLM** calls it *PagedAttention*. Its options: `block_size` (16 unless you choose) and
#   `enable_prefix_caching` (on unless you turn it off). `vllm/v1/core/block_pool.py` keeps the free
#   list, the counts and the names [vllm-paging].
# - **SGLang** finds shared beginnings in a tree of tokens in place of block names
#   (*RadixAttention*): `mem_cache/radix_cache.py`, with `--page-size` and `--disable-radix-cache`
#   [sglang-radix].
# - **llama.cpp**: the slots of its server (`--parallel`) share one buffer with `--kv-unified`, and
#   `--cache-prompt` reuses a beginning; `src/llama-kv-cache.cpp` [llama-kv-unified].
# - **minipd**: `cache/allocator.py` and `cache/store.py`, with `LLM(block_size=16,
#   num_kv_blocks=...)`.
#
# **What was left out.** Several answers that continue one prompt and part ways inside a block
# (*copy on write*); moving blocks to ordinary memory or disk in place of forgetting them
# (lesson 13); keeping users apart, since a fast first token tells that somebody has sent the same
# beginning before; kernels that read a block table directly instead of gathering rows.

# %% [markdown]
# ## Why blocks: the answer in numbers
#
# Yours, from this notebook:

# %%
print(f"Users in the same memory: {whole} with the whole context reserved, {in_blocks} in blocks.")
print(f"Tokens per second from the same memory: {speeds[1] / speeds[0]:.1f} times as many.")
print(f"A shared beginning: first token {fresh_s / shared_s:.1f} times sooner.")
print(f"Preempted {with_little.preempted} times, and the words were: {', '.join(set(verdicts))}.")

# %% [markdown]
# And recorded elsewhere, on a virtual machine with two cores of an Intel Xeon, two threads, on 30
# November 2026 (raw file: `benchmarks/raw/lesson_05.json`) [lesson-05-recorded]:
#
# - 4 users with the whole context reserved, 12 with prompt and longest answer, 19 in blocks of 16
#   [lesson-05-recorded]. This depends on the lengths alone, so it must be the same for you.
# - A shared beginning made the first token 3.4 times sooner for a prompt of 149 tokens, 5.1 times
#   for 279, 10.3 times for 539 and 19.1 times for 1,059 [lesson-05-recorded].
# - 2 preemptions, 42 tokens read again, the same words [lesson-05-recorded].

# %% [markdown]
# ## A line for your bench sheet

# %%
from minipd.measure import sheet
from minipd.measure.machine import describe_machine

note = f"lesson 05: {whole} -> {in_blocks} users, shared beginning {fresh_s / shared_s:.1f}x sooner"
line = sheet.SheetLine(
    machine=describe_machine().summary,
    model=model.name,
    dtype="float32",
    threads=torch.get_num_threads(),
    prefill_tok_s=len(fresh[0]) / fresh_s,
    note=note,
)

# %%
kept = sheet.append(line)
show_table({"prefill tok/s (fresh)": [kept.prefill_tok_s], "note": [kept.note]})

# %% [markdown]
# ## How well do you predict?

# %%
calibration()

# %% [markdown]
# ## Quiz
#
# Every wrong answer is explained, and you can try again. Two questions go back to earlier lessons.

# %%
quiz("05")

# %% [markdown]
# ## Next
#
# Open [the exercises](../exercises/05_paged_memory.ipynb): four functions with planted faults, of
# the kind in the table above. Then lesson 06 asks what one long document does to everybody else.
