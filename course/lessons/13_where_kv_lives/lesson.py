# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Lesson 13: Where KV lives
#
# **The question: keep, move, or recompute?**
#
# **Minutes:** 80 for this notebook, 15 for the quiz at its end, 75 for the four exercises.
#
# **You need:** lessons 01 to 03, lesson 05 (blocks and shared beginnings), lesson 07 (two pools) and
# lesson 08 (what a link costs). No GPU.
#
# **Afterwards you can**
#
# - say which share of a trace's prompts a cache of a given size finds again, and why two papers
#   state two shares for one trace;
# - decide for a machine, a model and a place whether fetching keys and values beats computing them
#   again, and for how long keeping them pays;
# - send a follow-up question to the worker that holds its beginning, or not, and name the price;
# - say where memory cost and network cost trade in a split fleet.
#
# Predict first, then run. New words are explained at the end, under [Words](#Words).

# %%
from minipd.lab import calibration, panel, predict, quiz, reveal, show_table

panel("13")

# %% [markdown]
# ## Gone for ten minutes
#
# Somebody asks a chatbot about a long contract, reads the answer, goes for a coffee, and asks again.
# The whole contract is part of the second prompt, too. Its keys and values were computed before the
# coffee. Where are they now?
#
# There are four possibilities. They may still be in the **GPU's memory**, and take room from everybody
# who is being served meanwhile. They may have been moved to the **host's memory** (the ordinary
# memory of the server), or to a **disk**, or to **another server**; then they have to come back. Or
# they were forgotten and must be computed again: that is **recompute**, another prefill.
#
# Each of these places is called a **tier**: the higher, the faster and the dearer. Moving keys and values
# to a lower tier is called **offloading**. To choose well we need three things: how much comes back at all, how fast each way back is, and what waiting costs.

# %% [markdown]
# ## How much comes back?
#
# Here are requests in the shape of a published trace, Mooncake's *synthetic* one: short questions,
# documents that are asked about once, and documents that are asked about again and again
# [mooncake-synthetic]. Lengths and times only; the texts are not known.

# %%
from minipd.lab.shared_beginnings import BLOCK, real_trace, synthetic_rows

rows = synthetic_rows(1000)
first = rows[:6]
show_table(
    {
        "arrives (s)": [f"{row.arrival_s:.2f}" for row in first],
        "prompt (tokens)": [row.prompt_tokens for row in first],
        "begins with": [row.segments[0].stream for row in first],
    }
)

# %% [markdown]
# A cache that never forgets is a good yardstick: no real one finds more. As in lesson 05, each prompt
# is cut into blocks (of `BLOCK` tokens, as in the published trace), and a block's *name* stands for all
# tokens from the beginning up to its end; `block_names` makes the names of a request. What is found
# again is always a *beginning*: the first missing name ends it.

# %%
predict(
    "13.hits",
    "Of all prompt tokens in this trace, which share has been read before?",
    unit="%",
    brackets=[10, 25, 40, 55, 70],
)

# %%
from minipd.fleet.kvpool import block_names

seen, found = set(), []
for row in rows:
    names = block_names(row, BLOCK)
    hits = next((n for n, name in enumerate(names) if name not in seen), len(names))
    found.append(hits * BLOCK)
    seen.update(names)

# %%
prompts = [row.prompt_tokens for row in rows]
by_tokens = sum(found) / sum(prompts)
by_requests = sum(hit / prompt for hit, prompt in zip(found, prompts)) / len(rows)
print(f"of all tokens, found again: {by_tokens:.1%}")
print(f"mean over the requests of each one's share: {by_requests:.1%}")
reveal("13.hits", 100 * by_tokens, "%")

# %% [markdown]
# Two averages of the same thing, and they are far apart. Look at who pulls them:

# %%
groups = {"under 1,000 tokens": (0, 1000), "1,000 and more": (1000, 10**9)}
table = {"prompts": list(groups), "how many": [], "share of all tokens": [], "mean found": []}
for low, high in groups.values():
    some = [(h, p) for h, p in zip(found, prompts) if low <= p < high]
    table["how many"].append(len(some))
    table["share of all tokens"].append(f"{sum(p for _, p in some) / sum(prompts):.1%}")
    table["mean found"].append(f"{sum(h / p for h, p in some) / len(some):.0%}")
show_table(table)

# %% [markdown]
# Short questions are many, are new, and hardly weigh anything in tokens. The mean over *requests* counts each
# of them as much as a document. Neither average is wrong; they answer two questions. How much
# *work* is spared? Count tokens. What share of the reading is a typical *user* spared? Count requests.
# The first exercise is about a report that mixes them up.
#
# For the real file, the two are 65.1 % and 43.2 % [mooncake-synthetic]. If you have it (it is in
# Mooncake's repository), put it beside this notebook as `synthetic_trace.jsonl`, or name it in
# `MINIPD_MOONCAKE_TRACE`, and the next cell reads it. The command line prints both averages of any
# trace, too: `minipd simulate --trace FILE --stats`. (It counts single tokens. Of a generated trace like
# ours it therefore finds a little more than the cell above, which counts whole blocks.)

# %%
from minipd.measure.trace_stats import prefix_hits

real = real_trace()
if real is None:
    print("The real file is not here; the generated trace has to do.")
else:
    hits = prefix_hits(real)
    print(f"{len(real)} requests: {hits.token_weighted:.1%} and {hits.per_request:.1%}")

# %% [markdown]
# ## And with a cache of a real size?
#
# No cache is endless. How large must it be? For Llama-3.1-8B with 16-bit numbers, in blocks of that trace;
# the cache forgets the block that was used longest ago (**LRU**, least recently used).

# %%
from minipd.lab.kv_places import reader_of
from minipd.lab.shared_beginnings import lru_hit_shares, show_hit_curve

per_token = reader_of("Llama-3.1-8B", "h100_sxm").kv_bytes
sizes = [10, 25, 56, 100, 200, 400, 1000]  # GB
room = [int(size * 1e9 / per_token / BLOCK) for size in sizes]
shares = lru_hit_shares(rows, room)
print(f"{per_token:,.0f} bytes per token; a block of {BLOCK}: {per_token * BLOCK / 1e6:.0f} MB")
print(f"{sizes[2]} GB find {shares[2]:.0%} of all tokens, {sizes[5]} GB {shares[5]:.0%}")
show_hit_curve(sizes, shares, most=by_tokens)

# %% [markdown]
# What an H100 has left beside the weights is about 56 GB [h100-room-8b], the first size in the printed
# line; the second one is within a server's ordinary memory. That is the whole case for tiers: *the
# GPU's memory is too small for the time that people take to come back*.

# %% [markdown]
# ## What the way back costs here
#
# Now the second question, on your machine, with the keys and values of the model that you know.

# %%
import statistics
import time
from collections import OrderedDict
from itertools import takewhile

import torch
from torch.nn.functional import scaled_dot_product_attention

from minipd import LLM, SamplingParams
from minipd.lab.model_choice import lesson_model

name, why = lesson_model()
llm = LLM(name)
decoder, config = llm.model.decoder, llm.model.config
print(why)

# %% [markdown]
# Lesson 08's note-pad, once more: the keys and values of every layer, and attention over them.


# %%
class NotePad(dict):
    """The keys and values of every layer; a layer calls it with new q, k and v, (T, heads, D)."""

    def __call__(self, layer, q, k, v):
        keys, values = self.get(layer, (k[:0], v[:0]))
        self[layer] = keys, values = torch.cat([keys, k]), torch.cat([values, v])  # (S, K, D)
        may_see = torch.ones(len(q), len(keys), dtype=torch.bool).tril(len(keys) - len(q))  # (T, S)
        q, keys, values = (x.transpose(0, 1)[None] for x in (q, keys, values))
        mixed = scaled_dot_product_attention(q, keys, values, may_see, enable_gqa=True)
        return mixed[0].transpose(0, 1)  # (T, H, D)


# %%
@torch.inference_mode()
def run(ids, start, pad):
    """Run tokens `start ..` of a text whose earlier ones are on the pad; the next token."""
    hidden = decoder(torch.tensor(ids[start:]), torch.arange(start, len(ids)), pad)  # (T, E)
    return int(decoder.logits(hidden[-1:]).argmax())


story = "The contract names the bridge, the lamp, the watchman and the hour of every round. "
contract = llm.model.tokenizer.encode(story * 30)[:400]
question = llm.model.tokenizer.encode(" Who counts the lamps on the bridge?")

# %% [markdown]
# How fast does it read, and how fast are the ways back? Memory and disk are yours; the other server is
# behind an emulated cable (lesson 08): real bytes, delivered as late as a real one would.

# %%
from minipd.lab.kv_places import ways_back, ways_table

kv_bytes, reading = config.kv_bytes_per_token(4), []  # 4 bytes: float32
for _ in range(3):
    start = time.perf_counter()
    run(contract, 0, NotePad())
    reading.append(time.perf_counter() - start)
speed = len(contract) / statistics.median(reading)  # tokens/s
print(f"{kv_bytes:,} bytes per token; reading again: {speed:,.0f} tokens/s")

# %%
ways = ways_back(config, tokens=512)
show_table(ways_table(ways, 512, kv_bytes, speed))

# %% [markdown]
# (The disk is asked to forget the file between writing and reading, or you would measure memory
# under another name. On a rented virtual machine the *host's* memory may still answer for the
# disk; nobody inside can tell.)
#
# One division says it all. Reading again makes `speed` tokens of KV per second, each of
# `kv_bytes` bytes. A way back that carries more bytes per second than that beats reading again.

# %%
needed = speed * kv_bytes
print(f"A way back pays here from {needed / 1e6:.0f} MB/s on.")
for way in ways:
    print(f"{way.place}: {way.bytes_per_s / needed:.1f} times that")

# %% [markdown]
# ## Where the laptop exaggerates
#
# Here almost any place beats reading again, because this machine reads slowly. A GPU makes keys and
# values many times as fast, and its ways back are not faster by as much. The same division for real
# machines (step-time model of lesson 12, see `docs/fleet.md`), for prefixes of three lengths:

# %%
from minipd.lab.kv_places import mooncake_thresholds, needed_table

bars = needed_table(kv_bytes, speed, len(contract))
show_table(bars, "GB/s that a way back needs to beat reading again")

# %% [markdown]
# Three things stand in that table. **The faster the reader, the faster the way back must be.** **For
# long prefixes the bar falls**: attention looks back at everything, so the work of reading grows faster
# than the bytes. (For short ones a GPU is not full yet, and the bar may first rise.) And **the model
# counts**; compare the two on the same eight GPUs: a layer's work grows with the square of its width,
# its KV only with the width, and shared KV heads (lesson 02) shrink the KV further.
#
# Mooncake's authors wrote the same division as a formula. Reading `p` tokens of prefix takes
# $a p^2 d + b p d^2$ operations in each layer: `d` is the width, `a` counts the work of attention and `b`
# that of the products with the weights. With `s` bytes per number, `gqa` query heads for each KV head
# and `G` the FLOP/s of the machine, loading pays if the bandwidth `B` keeps
# $B / G > 2 d s / (gqa (a p d + b d^2))$ [mooncake-reuse-threshold]. The layers cancel: each of them must
# be read, and each must be carried.

# %%
d, s, gqa, a, b, p = 8192, 2, 8, 4, 22, 8192  # LLaMA-3-70B


def threshold(flops_per_s):
    return flops_per_s * 2 * d * s / (gqa * (a * p * d + b * d**2))


for machine, flops_per_s in (("8 A800", 8 * 312e12), ("8 H800", 8 * 989.5e12)):
    ours, engine = threshold(flops_per_s) / 1e9, mooncake_thresholds()[machine]
    print(f"{machine}: {ours:.2f} GB/s; the course's own function: {engine:.2f}")

# %% [markdown]
# The paper says about 6 and 19 GB/s [mooncake-reuse-threshold]. Now compare with what there is: a
# PCIe slot to the host's memory carries tens of GB/s, 400-gigabit InfiniBand 50, a fast local disk a
# few, 25-gigabit Ethernet 3 [ways-in-a-data-centre]. So in a data centre host memory is safe, fast
# networks are fine, and *one disk or a slow network may be slower than forgetting*. (The
# formula takes the FLOP/s of the data sheet; no machine reaches them all, so real bars are lower.)

# %% [markdown]
# ## Two tiers in a few cells
#
# Let us build it. A block holds sixteen tokens; a name is made from the tokens and the name before
# (lesson 05). One token must be left to run, or there would be nothing to take the answer from.

# %%
from minipd.cache.allocator import hash_block

P = 16  # tokens in a block


def names_of(ids):
    names, name = [], b""
    for start in range(0, len(ids) - P, P):
        name = hash_block(name, ids[start : start + P])
        names.append(name)
    return names


# %% [markdown]
# Cut a block out of a note-pad, and make a note-pad that begins with some blocks:


# %%
def cut(pad, number):
    """Keys and values of one block in every layer: (L, 2, P, K, D)."""
    rows = slice(number * P, (number + 1) * P)
    sides = [torch.stack([keys[rows], values[rows]]) for keys, values in pad.values()]
    return torch.stack(sides)


def paste(blocks):
    joined = torch.cat(blocks, dim=2) if blocks else []  # (L, 2, S, K, D)
    return NotePad({layer: (keys, values) for layer, (keys, values) in enumerate(joined)})


# %% [markdown]
# Now the two places. `near` stands for the GPU's memory and has little room; what it has no room for
# is **evicted**: copied to `far`. The block that was used longest ago goes first.


# %%
class TwoTiers:
    def __init__(self, near_room, far_room):
        self.near, self.far = OrderedDict(), OrderedDict()  # name -> block, oldest first
        self.near_room, self.far_room = near_room, far_room

    def find(self, name):
        """A block from wherever it is; from afar it comes as a copy."""
        return self.near[name] if name in self.near else self.far[name].clone()

    def holds(self, name):
        return name in self.near or name in self.far


# %%
class Tiers(TwoTiers):
    def keep(self, name, block):
        self.far.pop(name, None)  # it is near again
        self.near[name] = block
        self.near.move_to_end(name)
        while len(self.near) > self.near_room:
            oldest, evicted = self.near.popitem(last=False)
            self.far[oldest] = evicted.clone()  # the copy out
        while len(self.far) > self.far_room:
            self.far.popitem(last=False)


# %% [markdown]
# Reading a prompt: fetch the longest beginning that is held somewhere, run only the rest, keep
# everything. The blocks are kept *from the end to the beginning*; we shall see why in a moment.


# %%
def read(ids, tiers):
    names = names_of(ids)
    held = list(takewhile(tiers.holds, names))
    pad = paste([tiers.find(name) for name in held])
    token = run(ids, len(held) * P, pad)
    for number in reversed(range(len(names))):
        tiers.keep(names[number], cut(pad, number))
    return token, pad, len(held)


# %% [markdown]
# The contract is read; then so many other prompts come that it is evicted; then the question about it
# comes.


# %%
def away(tiers):
    """Somebody else's prompt fills all of `near`."""
    other = llm.model.tokenizer.encode("Meanwhile others ask about quite another thing. " * 90)
    read(other[: (tiers.near_room + 1) * P], tiers)


tiers = Tiers(near_room=30, far_room=200)
_, first_pad, _ = read(contract, tiers)
away(tiers)
where = [["far", "near"][one in tiers.near] for one in names_of(contract)]
print("the contract's blocks are:", ", ".join(f"{where.count(w)} {w}" for w in set(where)))

# %%
predict(
    "13.back",
    "How many times sooner does the first token come if the contract's blocks are copied back "
    "than if it is read again?",
    unit="times",
    brackets=[1.5, 3, 6, 12, 25],
)

# %%
again, back = [], []
for _ in range(3):
    start = time.perf_counter()
    token, fresh, _ = read(contract + question, Tiers(30, 0))
    again.append(time.perf_counter() - start)
    away(tiers)  # the contract is evicted once more
    start = time.perf_counter()
    token_back, fetched, num_held = read(contract + question, tiers)
    back.append(time.perf_counter() - start)

# %%
again_s, back_s = statistics.median(again), statistics.median(back)
print(f"read again {again_s:.3f} s; {num_held} blocks copied back: {back_s:.3f} s")
reveal("13.back", again_s / back_s, "times")

# %% [markdown]
# That is less than the table of the ways back promised, because the question itself still has to be run, and
# a pass of few tokens reads every weight (lesson 03). (More blocks came back than the contract had above:
# a prompt's last tokens are left to run, so the contract's end was kept only once the question followed it.)
#
# Is it the same answer? We write on, from the fetched notes and from the fresh ones, and compare with the
# engine (rule for near-ties, lesson 02). And are the contract's blocks what they were when it was
# first read?

# %%
from minipd.lab.paging import verdict


def write(ids, token, pad, count=12):
    answer = [token]
    while len(answer) < count:
        answer.append(run(ids + answer, len(ids) + len(answer) - 1, pad))
    return answer


# %%
text = contract + question
from_far, from_fresh = write(text, token_back, fetched), write(text, token, fresh)
engine = llm.generate([text], SamplingParams(12, ignore_eos=True))[0].token_ids
print("fetched, against read again:", verdict(llm.model, text, from_fresh, from_far))
print("fetched, against the engine:", verdict(llm.model, text, engine, from_far))
blocks = range(len(names_of(contract)))
same = all(torch.equal(cut(first_pad, n), cut(fetched, n)) for n in blocks)
print("all blocks of the contract are bit-equal after their trips:", same)

# %% [markdown]
# (On a CPU, "near" and "far" are the same memory. The copies are real, and the bookkeeping is; what
# a bus between a GPU and its host would add, the table above has to tell.)

# %% [markdown]
# ## What goes wrong
#
# Why *from the end to the beginning*? Here is the obvious order. Each block is noted as used, first
# to last, as the text is read; then memory runs short, and the oldest blocks go.


# %%
def read_in_order(ids, tiers):
    names, pad = names_of(ids), NotePad()
    run(ids, 0, pad)
    for number in range(len(names)):  # the obvious order
        tiers.keep(names[number], cut(pad, number))


# %%
for reader in (read_in_order, read):
    small = Tiers(near_room=20, far_room=0)
    reader(contract, small)  # 24 blocks for 20 places
    usable = len(list(takewhile(small.holds, names_of(contract))))
    print(f"{reader.__name__}: {len(small.near)} blocks kept, {usable} of them usable")

# %% [markdown]
# The cache is full, and it is worth *nothing*. The obvious order made the beginning of the text the
# oldest part, so the beginning went first. But a text is found from its beginning: behind the first
# missing block nothing can be used, though it lies there, takes room and costs rent. **Never keep a child
# without its parent**: evict a chain from its end. (Exercise 3 is about this. In the first run above,
# nothing was reported, nothing crashed, and the hit rate was silently zero.)

# %% [markdown]
# ## The same idea, full-size
#
# The engine keeps what its blocks have no room for in host memory and, below that, in a folder on disk.
# A very small engine, so that it must: the contract, somebody else's prompt, then the question.

# %%
import tempfile

folder, block_bytes = tempfile.TemporaryDirectory(), P * kv_bytes
small = LLM(llm.model, num_kv_blocks=34, host_kv_bytes=12 * block_bytes, disk_kv=folder.name)
other = llm.model.tokenizer.encode("Meanwhile others ask about quite another thing. " * 90)
for ids in (contract, other[:500]):
    small.generate([ids], SamplingParams(1))
from_tiers = small.generate([text], SamplingParams(12, ignore_eos=True))[0].token_ids
print("from the tiers, against read again:", verdict(llm.model, text, from_fresh, from_tiers))

# %%
moved = [event for event in small.timeline if event.kind in ("kv_evicted", "kv_fetched")]
show_table(
    {
        "what": [event.kind for event in moved],
        "tier": [event.data["tier"] for event in moved],
        "tokens": [event.data["tokens"] for event in moved],
        "ms": [f"{1e3 * event.data['seconds']:.1f}" for event in moved],
    }
)
folder.cleanup()

# %% [markdown]
# What the host's few slots could not hold any more went on to the disk. The question was then put
# together from both, and its own arrival pushed others down: memory is full all the time, as it is in
# a real server.
#
# Find your lines in the engine's. `keep` decides where an evicted block goes; the copies themselves are
# made before the next step. What comes back is chosen by the division that you made by hand:

# %%
import inspect

from minipd.cache.books import FetchPolicy, TierBooks

print(inspect.getsource(TierBooks.keep))
print(inspect.getsource(FetchPolicy.num_worth_fetching))

# %% [markdown]
# | you wrote | the engine has |
# |---|---|
# | `near`, an ordered dictionary | the allocator's list of free blocks that still have a name |
# | `keep`: the oldest one is copied out | `TierBooks.keep`, called when a named block is about to be overwritten |
# | `far`, with the oldest dropped | `_host`, whose oldest block goes on to `_disk` |
# | `takewhile(tiers.holds, names)` | `BlockAllocator._fetch`, from the last block found on the device on |
# | `reversed(range(len(names)))` | `release`: a chain's end is forgotten before its start |
# | the division with `needed` | `FetchPolicy`: seconds saved less seconds of copying |
#
# So the engine, too, would rather read again than fetch from a place that is too slow:

# %%
for disk_bytes_per_s in (ways[1].bytes_per_s, needed / 2):
    policy = FetchPolicy(speed, disk_bytes_per_s=disk_bytes_per_s, latency_s=0.001)
    blocks = policy.num_worth_fetching(["disk"] * 25, block_bytes, P)
    print(f"a disk of {disk_bytes_per_s / 1e6:,.0f} MB/s: {blocks} of 25 blocks are fetched")

# %% [markdown]
# ## Gone for how long?
#
# The third question: what does waiting cost? A place asks **rent** for as long as somebody is
# away, and something for the **way back** (the GPUs stand waiting meanwhile). Forgetting asks no rent
# and has the dearest way back. So for every two places there is a time at which they cost the same:
#
# `break-even time = (dearer way back - cheaper way back) / (dearer rent - cheaper rent)`
#
# Database people know this since the days of expensive memory, as the *five-minute rule*: keep in memory what is
# used again within about 5 minutes [five-minute-rule].
#
# Rents: an hour of an H100's memory is taken as its share of the GPU's price; prices of host memory and
# disk are our assumptions, which you should edit (`minipd/lab/idle_session.py` says so, too).

# %%
from minipd.lab.idle_session import idle_widget, rent_table, session_of

for machine in ("8B on one H100", "70B on eight H100"):
    show_table(rent_table(session_of(machine, 8_192)), f"{machine}, a session of 8,192 tokens")

# %% [markdown]
# Seconds in the GPU's memory, minutes in the host's (last column): *that* is how long keeping pays, if
# others could use the room. If the room would be empty anyway, its rent is zero, and keeping is free.
# And money is not all: the way back is also a user's wait.
#
# Turn the dials: which idle times make the disk the best place for the large model? Why is it not the best
# one for the small model on an H100 with a session of this length, and from which length is it? What if
# host memory is there anyway and costs nothing?

# %%
idle_widget()

# %% [markdown]
# The same as a table, for a terminal or a screen reader:

# %%
from minipd.lab.idle_session import choice_table

show_table(choice_table(session_of("70B on eight H100", 8_192)))

# %% [markdown]
# And the answers. Where the disk's way back takes longer than reading again, it is never the cheapest:
# nobody pays rent for a longer wait. Long sessions turn that round, since reading grows faster than the
# bytes. And host memory that costs nothing is never given up.

# %%
from minipd.lab.idle_session import best_table

sessions = [session_of("70B on eight H100", 8_192)]
sessions += [session_of("8B on one H100", tokens) for tokens in (8_192, 16_384, 32_768)]
show_table(best_table(sessions, "disk"))

# %% [markdown]
# ## To the holder, or to whoever is free?
#
# With several workers, a new question arises: the contract's blocks are on *one* of them. Send the
# follow-up there (and wait in its queue), or to the worker with the shortest queue (and read
# everything again)? Let us play the trace against three workers that read as fast as an H100 and,
# to keep it simple, forget nothing. A
# **router** sees the queues, in seconds, and the *overlap*: how much of the prompt each worker holds.


# %%
class Worker:
    def __init__(self):
        self.free_at, self.busy_s, self.names = 0.0, 0.0, set()

    def overlap(self, names):
        return BLOCK * sum(1 for _ in takewhile(self.names.__contains__, names))

    def read(self, now, seconds, names):
        self.free_at = max(now, self.free_at) + seconds
        self.busy_s += seconds
        self.names.update(names)


# %%
H100 = 36_000  # tokens/s, read by the step-time model's H100 at 16,000 tokens


def play(rows, choose):
    workers, waits, spared = [Worker() for _ in range(3)], [], 0
    for row in rows:
        names = block_names(row, BLOCK)
        queues = [max(0.0, worker.free_at - row.arrival_s) for worker in workers]
        overlaps = [worker.overlap(names) for worker in workers]
        one = choose(row.prompt_tokens, queues, overlaps)
        workers[one].read(row.arrival_s, (row.prompt_tokens - overlaps[one]) / H100, names)
        waits.append(workers[one].free_at - row.arrival_s)
        spared += overlaps[one]
    return workers, waits, spared


# %% [markdown]
# Three rules:


# %%
def shortest_queue(prompt, queues, overlaps):
    return min(range(3), key=lambda w: queues[w])


def holder(prompt, queues, overlaps):
    return max(range(3), key=lambda w: (overlaps[w], -queues[w]))


def soonest(prompt, queues, overlaps):
    return min(range(3), key=lambda w: queues[w] + (prompt - overlaps[w]) / H100)


# %%
RULES = [shortest_queue, holder, soonest]
names_of_rules = ["to the shortest queue", "to the holder", "to the one that is done soonest"]
predict(
    "13.holder",
    "On this trace, which rule gives the shortest mean wait for the first token?",
    choices=names_of_rules,
)


# %%
def busy_shares(workers):
    span = max(worker.free_at for worker in workers)
    return ", ".join(f"{worker.busy_s / span:.0%}" for worker in workers)


# %%
def compare_rules(rows):
    table = {"rule": names_of_rules, "mean wait (s)": [], "spared": [], "each worker is busy": []}
    for rule in RULES:
        workers, waits, spared = play(rows, rule)
        table["mean wait (s)"].append(round(statistics.mean(waits), 3))
        table["spared"].append(f"{spared / sum(row.prompt_tokens for row in rows):.0%}")
        table["each worker is busy"].append(busy_shares(workers))
    return table


# %%
documents = compare_rules(rows)
show_table(documents, "Many documents, each asked about a few times")
waits = dict(zip(documents["mean wait (s)"], names_of_rules))
reveal("13.holder", waits[min(waits)])

# %% [markdown]
# Now one document is on everybody's mind: every second request asks about it.

# %%
from minipd.lab.shared_beginnings import with_a_hot_document

hot = compare_rules(with_a_hot_document(rows))
show_table(hot, "The same, with one hot document")

# %% [markdown]
# No rule spares more work than loyalty to the holder, but in the second table its queue is the price:
# people wait in front of one worker while the other two are idle most of the time. *Overlap is worth exactly the reading time that it
# spares, and a queue costs exactly the time that it lasts*: so put both on one scale, in seconds. That is
# the third rule. It is not perfect either: it copies a document to a second worker to save one
# user a moment, where loyalty might have served later ones better; but it never queues without need.
#
# (Why does even the shortest queue give the first worker the most work? Mostly several queues are empty,
# and among equals `min` takes the first.)
#
# On its own trace Mooncake found mean waits of 19.65 s at random, 5.27 s by load alone, 3.58 s with the
# holder's cache in the sum, and 3.07 s when blocks may also be *fetched* from another worker's
# cache [mooncake-scheduling].

# %% [markdown]
# The engine's router for this is `PrefixAware`. The coordinator hears from each worker what it has read
# and forgotten, and keeps a map of names. Its scale is your third rule, in tokens instead of
# seconds, with something added for the answers that a worker is writing:

# %%
from minipd.sched.prefix_router import PrefixAware
from minipd.sched.router import WorkerLoad

print(inspect.getsource(PrefixAware._tokens_of_work))
router = PrefixAware()
for queue in (0, 500, 5000):
    loads = [WorkerLoad("holder", queue, cached_tokens=900), WorkerLoad("idle")]
    route = router.route(1000, [], loads)
    print(f"holder's queue {queue} tokens: to the {route.decode} ({route.reason})")

# %% [markdown]
# ## Offload in a split fleet
#
# Now everything together. One of the texts that this course began with ends with a question: *when the
# phases are split and KV is offloaded as well, where do memory cost and network cost trade?* In a
# split fleet there are three places to keep more: beside the **prefill** workers (spares
# reading), beside the **decode** worker (what it holds need not travel again), or in **one store**
# that all prefill workers reach over the network (nothing is kept twice, everything travels).
#
# The simulator decides. It runs the engine's own schedulers and allocators, with step times of H100s and wires of
# 400 Gbit/s [kept-in-fleet-setting]: two prefill workers, one decode worker, the trace from above.

# %%
STORE = [
    "waits are shorter, as with any other store",
    "nothing changes",
    "waits are longer than if everything were forgotten",
]
predict(
    "13.store",
    "One store for all, but reached through 25-gigabit Ethernet only. What happens to first tokens?",
    choices=STORE,
)

# %%
from minipd.lab import kept_in_fleet as fleet

stores = [fleet.FORGET, fleet.AT_PREFILL, fleet.SHARED, fleet.SLOW_STORE, fleet.AT_DECODE]
kept = {store.name: fleet.serve(store, rows) for store in stores}
show_table(fleet.outcome_table(kept.values()), "2 prefill workers and 1 decode worker")

# %%
forget, slow = kept[fleet.FORGET.name], kept[fleet.SLOW_STORE.name]
worse = slow.ttft_p90_s > forget.ttft_p90_s
too_slow = "its blocks come back more slowly than an H100 computes them."
why_not = {
    STORE[0]: too_slow,
    STORE[1]: "it finds as much as the fast store; only the way back differs.",
}
reveal("13.store", STORE[2] if worse else STORE[0], why_not=why_not)

# %% [markdown]
# Read the table line by line.
#
# - *Memory at the prefill workers* spares reading, so it buys what only more GPUs could buy otherwise.
#   It does hardly anything for the network.
# - *One store* of the same size finds more, since no document lies there twice. The price is traffic.
#   Through a slow network it is worse than forgetting: the division from above, acted out.
# - *Memory at the decode worker* does hardly anything for first tokens, which the prefill workers give. It
#   halves what travels.
#
# (Fetching keeps a worker busy here, as in our engine: no other prompt is read meanwhile. Engines that
# fetch beside the computing lose less to a slow store.)
#
# So there are two trades. The first is memory against *GPUs*:

# %%
third = fleet.serve(fleet.FORGET, rows, num_prefill=3)
memory = kept[fleet.AT_PREFILL.name]
print(f"a third prefill GPU:   {third.ttft_p90_s:.2f} s at the 90th percentile")
print(f"memory for the two:    {memory.ttft_p90_s:.2f} s, {memory.memory_usd_per_hour:.2f} USD/h")
print(f"an H100 costs          {session_of('8B on one H100', 1024).usd_per_gpu_hour:.2f} USD/h")

# %% [markdown]
# The second is memory against *network*. Memory at the decode worker costs rent per gigabyte and hour and
# saves traffic. They cost the same at one price of traffic:

# %%
from minipd.fleet.gpus import load_links

decode = kept[fleet.AT_DECODE.name]
meet = fleet.price_where_they_meet(forget, decode)
ib = load_links()["infiniband_400"]
wire = fleet.usd_per_gb(3 * ib.usd_per_device_hour, forget.network_tb_per_hour)
filled = f"{decode.memory_gb:,.0f} of {fleet.AT_DECODE.gb_at_decode:,.0f} GB"
print(f"memory: {filled} in {decode.seconds:.0f} s, {decode.memory_usd_per_hour:.2f} USD per hour")
saved_tb = forget.network_tb_per_hour - decode.network_tb_per_hour
print(f"saves {saved_tb:.1f} TB of traffic per hour")
print(f"they meet at {meet:.6f} USD per GB; wires of your own: {wire:.6f} USD per GB")

# %% [markdown]
# (That price is this short run's: the memory was still filling up when it ended. Wires of your own: the
# rent of three, one for each GPU, over what this fleet sends through them. They stand idle most of the
# time; busier ones would be cheaper still for each gigabyte.)
#
# On wires that are paid by the hour a gigabyte costs next to nothing, so *moving beats
# keeping* by far: spend the money on the wire. Where a cloud bills every gigabyte, such as AWS between
# availability zones (0.01 USD, each way) [zone-transfer-price], it is the other way round, and a
# fleet must keep KV where it will be used. **The trade is not decided by memory or by network, but by
# how the network is billed**, and by how soon people come back: the rent runs while they are away.

# %% [markdown]
# ## Where you meet this in practice
#
# - **vLLM**: `--kv-offloading-size` (GiB of host memory) with `--kv-offloading-backend`; its
#   `OffloadingConnector` is in `vllm/v1/kv_offload` [vllm-kv-offloading].
# - **SGLang**: *HiCache*, `--enable-hierarchical-cache` with `--hicache-ratio` or `--hicache-size`,
#   and `--hicache-storage-backend` for a tier below [sglang-hicache].
# - **LMCache** (for both): host memory, disk and remote stores, set by `max_local_cpu_size` and others
#   [lmcache-offload].
# - **llama.cpp**: `--cache-ram` keeps prompts in host memory, `--slot-save-path` allows saving a
#   slot to a file [llama-cache-ram].
# - **NVIDIA Dynamo**: `--router-mode kv` weighs overlap against load; its KVBM block manager has host and disk tiers
#   [dynamo-kv-router]. **SGLang's router** goes by overlap until the loads are too unlike
#   (`--balance-abs-threshold`), then by load [sglang-cache-aware].
#
# **What was left out.** Keeping KV in fewer bits; fetching while the GPU computes (layer by layer,
# lesson 08 backwards); who may see whose KV, which a shared store makes a matter of privacy;
# what happens when the store fails (lesson 14); reusing a text in the *middle* of a prompt, where its keys and
# values are not the same.

# %% [markdown]
# ## Keep, move, or recompute? The answer in numbers
#
# Yours, from this notebook:

# %%
best = min(kept.values(), key=lambda one: one.ttft_p90_s)
print(f"{by_tokens:.0%} of the tokens came back; {by_requests:.0%} is the mean per request.")
print(
    f"Here a way back pays from {needed / 1e6:.0f} MB/s; copied back, {again_s / back_s:.1f} x sooner."
)
print(f"Shortest mean wait on the trace: {waits[min(waits)]}.")
print(f"In the fleet: {forget.ttft_p90_s:.1f} s if all is forgotten, {best.ttft_p90_s:.1f} s with")
print(f"{best.keeping.name}; memory and traffic meet at {meet:.5f} USD per GB.")

# %% [markdown]
# And recorded elsewhere, on a virtual machine with two cores of an Intel Xeon on 30 November 2026
# (raw file: `benchmarks/raw/lesson_13.json`) [lesson-13-recorded]: in the engine, a prompt whose
# blocks came back from host memory had its first token 7.9 times sooner than one that was read.
#
# The rest is computed, and must be the same for you. In the fleet, first tokens at the 90th percentile
# came after 7.3 s if all was forgotten, 1.8 s with memory at the prefill workers, 1.6 s with one
# store, 10.5 s with the store behind the slow network; memory at the decode worker cut the
# hand-offs from 1.68 to 0.81 TB, and it met the network at 0.00026 USD per GB [lesson-13-recorded].
#
# **Keep** for seconds in the GPU's memory and for minutes below it; **move** where the way back is faster
# than the reader and the network is paid by the hour; **recompute** when people stay away longer, or
# the way back is slow. Where the laptop exaggerates: it reads slowly, so every place looks good
# from here.

# %% [markdown]
# ## A line for your bench sheet

# %%
from minipd.measure import sheet
from minipd.measure.machine import describe_machine

line = sheet.SheetLine(
    machine=describe_machine().summary,
    model=llm.model.name,
    dtype="float32",
    threads=torch.get_num_threads(),
    prefill_tok_s=speed,
    note=f"lesson 13: a way back pays from {needed / 1e6:.0f} MB/s; back {again_s / back_s:.1f}x sooner",
)
kept_line = sheet.append(line)
show_table({"prefill tok/s": [kept_line.prefill_tok_s], "note": [kept_line.note]})

# %% [markdown]
# ## How well do you predict?

# %%
calibration()

# %% [markdown]
# ## Quiz
#
# Every wrong answer is explained, and you can try again. Two questions go back to earlier lessons.

# %%
quiz("13")

# %% [markdown]
# ## Next
#
# Open [the exercises](../exercises/13_where_kv_lives.ipynb): a report with the wrong average, the
# shortest text that is worth fetching, the order in which to forget, and a router that may also move
# blocks. Then lesson 14 goes to production.
