# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Lesson 02: The KV cache
#
# **The question: what is the note-pad, and how big is it?**
#
# **Minutes:** 60 for this notebook, 15 for the quiz at its end, 50 for the three exercises.
#
# **You need:** lessons 00 and 01. No GPU.
#
# **Afterwards you can**
#
# - build a KV cache in a few lines, and prove that it changes no answer;
# - say for any model how many bytes each token of a conversation takes, and why;
# - work out how many people one computer can serve at once, and check it by a measurement.
#
# As always: predict first, then run. New words are explained at the end, under [Words](#Words).

# %%
import statistics
import time
from functools import partial

import torch

from minipd.lab import calibration, panel, predict, quiz, reveal, show_table

panel("02")

# %% [markdown]
# ## A story to start with
#
# The company from lesson 00 has bought a graphics card with twenty-four gigabytes of memory. The
# model that everybody likes takes sixteen of them. "So there are eight left," says the boss. "How
# many people can use it at the same time?"
#
# One engineer says: as many as you like, the model is loaded only once. Another says: one, the
# card is nearly full. Neither of them knows what the other eight gigabytes are *for*. At the end of
# this lesson you will answer the boss with a number, and you will have checked the method on your
# own computer.

# %% [markdown]
# ## What is worth keeping?
#
# Lesson 01 ended with two facts. In each layer, every token makes a *query*, a *key* and a *value*,
# and looks at the keys and values of the tokens before it. And the keys and values of earlier
# tokens *never change*, whatever comes later. Yet the loop there computed them all again for every
# new token.
#
# So we keep them. Think of a note-pad: one line for each token, with its key and its value, and one
# such pad for each layer. A new token then needs only its own query, key and value: it adds its
# line, and reads all the lines above. That note-pad is the **KV cache**.
#
# Why not keep the queries, too? A token uses its query once, in its own step, to look back. Nobody
# ever asks for the query of an earlier token again.

# %% [markdown]
# ## A model with a place to hook in
#
# We take a real model, and load it without the rest of the engine around it.

# %%
from minipd.lab.model_choice import lesson_model
from minipd.model.load import load

name, why = lesson_model()
print(why)
model = load(name)
decoder, config = model.decoder, model.config

# %% [markdown]
# The decoder does everything but one thing. In each layer it makes queries, keys and values of the
# tokens that we hand in, and then it calls a function of *ours*, `attend(layer, q, k, v)`. Where
# keys and values are kept is our business. Shapes are written behind the lines: `T` tokens are
# handed in, `S` tokens can be looked at, `D` numbers make a head, and there are `H` heads for
# queries and `K` for keys and values. (Why `K` may be smaller than `H` comes later.)
#
# First, attention itself: each query looks at the keys up to its own place, and mixes the values.
# You went through its four steps in lesson 01; here we use the one call that does them all, for all
# heads at once.

# %%
from torch.nn.functional import scaled_dot_product_attention


def attention(q, keys, values):
    """The T queries belong to the last T of the S tokens; each sees the tokens up to its own."""
    new, total = len(q), len(keys)
    may_see = torch.ones(new, total, dtype=torch.bool).tril(total - new)  # (T, S)
    q, keys, values = (x.transpose(0, 1)[None] for x in (q, keys, values))  # (1, heads, ..., D)
    mixed = scaled_dot_product_attention(q, keys, values, may_see, enable_gqa=True)
    return mixed[0].transpose(0, 1)  # (T, H, D)


# %% [markdown]
# The line with `may_see` is the one to look at twice. For two new tokens at the end of five, a row
# for each new token and a column for each token that there is:

# %%
new, total = 2, 5
print(torch.ones(new, total, dtype=torch.bool).tril(total - new).int())  # 1: may see

# %% [markdown]
# The last token sees all five, the one before it does not see the last.
#
# Then one pass through the model. Every token has a *position*, its place in the text; the model
# turns queries and keys by an angle that depends on it, so a token must always be handed in with
# the position that it really has.


# %%
def run(tokens, start, attend):
    """The token that follows `tokens`, whose first one stands at position `start`."""
    positions = torch.arange(start, start + len(tokens))  # (T,)
    hidden = decoder(torch.tensor(tokens), positions, attend)  # (T, E)
    return int(decoder.logits(hidden[-1:]).argmax())  # the likeliest one


# %% [markdown]
# ## Writing without a note-pad
#
# Here is lesson 01's way: an `attend` that keeps nothing, so that every step has to hand in the
# whole text from the beginning.


# %%
def forget(layer, q, k, v):
    return attention(q, k, v)  # all that there is was made in this very step


def step_without(tokens):
    return run(tokens, 0, forget)


# %% [markdown]
# And a loop that writes an answer and notes how long each token took.


# %%
def write(step, prompt, count):
    """`count` new tokens, one after the other, and the seconds that each of them took."""
    tokens, seconds = list(prompt), []
    for _ in range(count):
        start = time.perf_counter()
        tokens.append(step(tokens))
        seconds.append(time.perf_counter() - start)
    return tokens[len(prompt) :], seconds


# %% [markdown]
# ## Writing with a note-pad
#
# The note-pad has a line for each token that it may ever hold, in every layer. `attend` writes the
# new keys and values into the next free lines, and then looks at everything from the first line to
# the last one written.


# %%
class NotePad:
    """Keys and values of every token so far, layer by layer."""

    def __init__(self, room):
        shape = (config.num_layers, room, config.num_kv_heads, config.head_dim)
        self.keys, self.values = torch.zeros(shape), torch.zeros(shape)  # (L, S, K, D)
        self.length = 0  # tokens whose lines are complete

    def attend(self, layer, q, k, v):
        end = self.length + len(k)
        self.keys[layer, self.length : end] = k
        self.values[layer, self.length : end] = v
        return attention(q, self.keys[layer, :end], self.values[layer, :end])


# %% [markdown]
# A step now hands in only the tokens that are not on the pad yet. The first time, that is the whole
# prompt; from then on it is the single token written last. There they are again, the two phases of
# lesson 00: **prefill fills the note-pad, decode adds a line to it.**


# %%
def step_with(pad, tokens):
    """Run what the pad does not hold yet, and count it as noted."""
    fresh = tokens[pad.length :]
    token = run(fresh, pad.length, pad.attend)
    pad.length += len(fresh)
    return token


# %% [markdown]
# That is the whole cache: fewer than forty lines, with attention and the loop. One detail is easy
# to miss: `pad.length` grows after the *last* layer, because every layer writes into the same lines
# of its own pad.

# %% [markdown]
# ## How much faster?
#
# A question about a few lines of a diary, and an answer of sixteen tokens.

# %%
from minipd.prompts import chat_ids

days = [f"On day {n} we walked {n + 2} miles along the river, to a hut." for n in range(1, 11)]
question = "Where did the travellers sleep? We set out in spring. " + " ".join(days)
prompt, count = chat_ids(model.tokenizer, question, system=None), 16
print(f"The prompt has {len(prompt)} tokens.")

# %% [markdown]
# How much work is saved can be counted before anything runs, in the *token-passes* of lesson 01:
# one for each token that goes through the model.

# %%
passes_without = sum(range(len(prompt), len(prompt) + count))
passes_with = len(prompt) + count - 1  # the last token of the answer is never handed in
print(f"token-passes without a note-pad: {passes_without:,}")
print(f"token-passes with one: {passes_with:,}")
print(f"that is {passes_without / passes_with:.1f} times fewer")

# %%
predict(
    "02.speedup",
    "How many times faster will the whole answer be written with the note-pad?",
    unit="times",
    brackets=[1.5, 3, 6, 12, 24],
)

# %% [markdown]
# One run for warm-up, as in lesson 00; then the way without, once, and the way with, three times.

# %%
step_without(prompt)
plain, seconds_without = write(step_without, prompt, count)
runs = []
for _ in range(3):
    pad = NotePad(room=len(prompt) + count)
    noted, seconds = write(partial(step_with, pad), prompt, count)
    runs.append(seconds)

# %%
with_pad = [statistics.median(samples) for samples in zip(*runs)]  # seconds of each token
speedup = sum(seconds_without) / sum(with_pad)
reveal("02.speedup", speedup, "times")

# %%
from minipd.lab.note_pad_plots import show_steps

show_steps({"without": seconds_without, "with note-pad": with_pad})

# %% [markdown]
# The first token takes equally long either way: the prompt has to be read once. After that, the
# note-pad turns every step from a prefill into a decode.
#
# Did you expect the factor that was counted? Then look at what one token-pass costs.

# %%
decode_s = statistics.median(with_pad[1:])
print(f"a token-pass of prefill: {1000 * with_pad[0] / len(prompt):.1f} ms")
print(f"a token-pass of decode:  {1000 * decode_s:.1f} ms")
counted = passes_without / passes_with
print(f"{counted:.1f} times fewer token-passes, {speedup:.1f} times less time")

# %% [markdown]
# Lesson 00 said why: prefill fetches each weight once for all of its tokens, decode fetches every
# weight for a single one. The token-passes that the note-pad saves were the *cheap* ones. So the
# factor is smaller than the count, and it still grows with the text: without a note-pad each new
# token costs more than the one before.
#
# **Here the laptop exaggerates.** On a machine with 8 H100 GPUs and a model of 70 billion weights,
# reading 512 tokens takes only as long as 2 steps of decode [freeze-70b-h100]. At that length, each
# token without a note-pad would take twice as long there, and 27 times as long at 8,192 tokens.
# Nobody does without one there, either. (What this model did on another machine is told near the
# end, below "What is the note-pad, and how big is it?".)

# %%
steps = with_pad[0] / decode_s
print(f"Here, reading {len(prompt)} tokens takes as long as {steps:.0f} steps of decode.")

# %% [markdown]
# ## The same tokens?
#
# A cache that changes an answer is not a cache but a bug. We compare with the loop that forgets,
# and with the engine of this course. As in lesson 01, "the same" has one exception: a *near-tie*,
# where the two best tokens are as good as equal and the order of adding up decides. `compare`
# checks that nothing else has happened.

# %%
from minipd import LLM, SamplingParams
from minipd.measure.same_tokens import compare, logits_of

llm = LLM(model, num_kv_blocks=64)
engine = llm.generate([prompt], SamplingParams(max_tokens=count, ignore_eos=True))[0].token_ids
scores = logits_of(decoder)

# %%
print("note-pad and no note-pad:", compare(prompt, plain, noted, scores, scores).kind)
print("note-pad and engine:     ", compare(prompt, engine, noted, scores, scores).kind)
print(model.tokenizer.decode(noted))

# %% [markdown]
# ## How big is it?
#
# Now the second half of the question. These numbers decide it:

# %%
bytes_per_value = pad.keys.element_size()
print(f"layers: {config.num_layers}")
print(f"heads for keys and values: {config.num_kv_heads}")
print(f"numbers in a head: {config.head_dim}")
print(f"bytes of a number: {bytes_per_value}")
print(f"tokens on the pad: {pad.length} (the last one of the answer was never handed in)")

# %%
predict(
    "02.bytes",
    f"How many megabytes (millions of bytes) do the notes of these {pad.length} tokens take?",
    unit="MB",
    brackets=[0.2, 1, 5, 20, 100],
)

# %% [markdown]
# The tensors can be asked.

# %%
used = pad.keys[:, : pad.length].nbytes + pad.values[:, : pad.length].nbytes
per_token = used // pad.length
reveal("02.bytes", used / 1e6, "MB")
print(f"{used:,} bytes for {pad.length} tokens: {per_token:,} bytes per token")

# %% [markdown]
# Each token has a key *and* a value, in *every* layer, for each *KV head* (one set of keys and
# values, at which one or more query heads look), with so many numbers of so many bytes:
#
# `bytes per token = 2 * layers * KV heads * head size * bytes of a number`
#
# The two are key and value. Nothing in this formula depends on what the token says, nor on how
# large the rest of a layer is, which works on each token alone.

# %%
formula = 2 * config.num_layers * config.num_kv_heads * config.head_dim * bytes_per_value
print(f"by the formula: {formula:,} bytes per token")
assert formula == per_token == config.kv_bytes_per_token(bytes_per_value)

# %% [markdown]
# Does the engine's cache take as much? It hands out memory in *blocks* of several tokens (lesson 05
# says why). Let it read the same prompt, and count.

# %%
asked = llm.submit(prompt, SamplingParams(max_tokens=2))
events = llm.step()  # prefill; the request goes on, so its blocks are still its own
store, blocks = llm.executor.store, llm.scheduler.allocator.num_used_blocks
block_bytes = store.buffer.nbytes // store.layout.num_blocks
print(f"{blocks} blocks of {store.layout.block_size} tokens, {block_bytes:,} bytes each")
print(f"in use: {blocks * block_bytes:,} bytes; by the formula: {formula * len(prompt):,} bytes")
events = llm.step()  # its second token, and the end

# %% [markdown]
# Only the last block may be partly empty, so the engine needs hardly more than the formula says.
# Compare with the model itself: the notes of one conversation look harmless, but they grow.

# %%
from minipd.lab.kv_sizes import tokens_as_large_as_weights
from minipd.measure.counts import weight_bytes

print(f"weights: {weight_bytes(config, bytes_per_value) / 1e6:,.0f} MB")
even = tokens_as_large_as_weights(config, bytes_per_value)
print(f"from {even:,} tokens on, all conversations together, the notes are larger")

# %% [markdown]
# That matters for speed as well as for space: a step of decode reads the weights *and* all the
# notes of the conversations that it continues (lesson 03).

# %% [markdown]
# ## Why several heads share a note
#
# Look at the formula again: which of its numbers could one make smaller? Models used to have a KV
# head for each query head (*multi-head attention*, MHA). Then people found that several query heads
# can look at the *same* keys and values with little loss: *grouped-query attention*, GQA. Our
# model does it, and here is what it saves in models that people use, with 16-bit numbers:

# %%
from minipd.lab.kv_sizes import heads_table

show_table(heads_table())

# %% [markdown]
# Sizes are those of the models' own configuration files [kv-bytes-per-token]. (SmolLM2 in
# the first row takes half of what you measured: its numbers have half as many bits here.) Compare Llama-2-7B
# with Llama-3-8B: about as many weights, but the newer one takes a quarter of the notes.
#
# It is easy to forget the sharing. A published simulator of serving systems works out the column
# "if nothing were shared" for every model: 8 times too much for Llama-2-70B [splitwise-kv-size]. In
# exercise 1 you will do it better.

# %% [markdown]
# ### Optional: one short note for all heads
#
# DeepSeek-V3 goes further: it keeps neither keys nor values but one shorter list of numbers, from
# which each head makes its own (*multi-head latent attention*, MLA).

# %%
from minipd.fleet.formulas import mla_bytes_per_token

latent = mla_bytes_per_token(layers=61, latent=512, rope=64)
as_mha = 2 * 61 * 128 * 128 * 2  # 128 heads, each with a key and a value of 128 numbers
print(f"DeepSeek-V3 keeps {latent:,.0f} bytes per token; MHA with its heads: {as_mha:,}")

# %% [markdown]
# A model with far more weights than any in the table above keeps less than Llama-3-8B does, and the
# figure is the published one [deepseek-mla-bytes].

# %% [markdown]
# ## What goes wrong
#
# Three faulty note-pads, each with a fault that is easily made. None of them raises an error. In
# the first, somebody mixed up keys and values. In the second, the key of each step's last token
# gets lost afterwards.


# %%
class Swapped(NotePad):
    def attend(self, layer, q, k, v):
        return super().attend(layer, q, v, k)


class LastOneLost(NotePad):
    def attend(self, layer, q, k, v):
        mixed = super().attend(layer, q, k, v)
        self.keys[layer, self.length + len(k) - 1] = 0
        return mixed


# %% [markdown]
# In the third, the pad is right, but every token of the answer is handed in as if it stood one
# place further on.


# %%
def step_shifted(pad, tokens):
    fresh, shift = tokens[pad.length :], 1 if pad.length else 0
    token = run(fresh, pad.length + shift, pad.attend)
    pad.length += len(fresh)
    return token


# %%
from minipd.lab.note_pad_plots import show_faults

room, faulty = len(prompt) + count, {}
for fault, step in {
    "keys and values swapped": partial(step_with, Swapped(room)),
    "last token lost": partial(step_with, LastOneLost(room)),
    "positions one too far": partial(step_shifted, NotePad(room)),
}.items():
    faulty[fault], _ = write(step, prompt, count)
show_faults(noted, faulty, model.tokenizer)

# %% [markdown]
# Read what each of them wrote. (`<|im_end|>`, if you see it, is the token by which this model says
# that its turn is over; we let it go on writing.) The first fault is one that you would notice. The others are the
# dangerous kind: what comes out may be perfectly good language, and sometimes it even agrees for a
# while. Nobody finds such a fault by reading answers; one finds it by comparing tokens with a
# program that keeps nothing, as you did above. When KV travels between machines (lesson 07), every
# one of these faults comes back.

# %% [markdown]
# ## Weights and notes: sizing one box
#
# Now we can answer the boss's question, in four steps that hold for any single machine.
#
# 1. **Memory:** how much is there, and how much must stay free?
# 2. **Model:** subtract the weights. They are there once, however many people ask.
# 3. **Engine:** what is left holds notes. Divide by the bytes per token, then by the tokens of one
#    user (question *and* answer).
# 4. **Measurement:** check it, because engines have rules of their own.
#
# Try it on a very small box: it holds our model's weights and sixty megabytes more. This is what
# its users bring:

# %%
room_bytes, brought, answered = 60_000_000, 97, 6
print(f"bytes per token: {per_token:,}")
print(f"tokens of one user: a question of {brought}, an answer of {answered}")
print(f"room for notes: {room_bytes:,} bytes")

# %%
predict(
    "02.users",
    "Thirty people ask at once. For how many of them does the engine begin to write?",
    unit="users",
    brackets=[2, 4, 8, 16, 32],
)

# %% [markdown]
# The engine gets exactly that much memory for its cache, and thirty different questions of random
# tokens. One step is enough: whoever has been let in then has the first token of an answer.

# %%
from minipd.measure.phases import random_tokens
from minipd.sched.limits import Limits

limits = Limits(max_running=64, max_batch_tokens=8192)  # only memory shall say no
box = LLM(model, num_kv_blocks=room_bytes // block_bytes, limits=limits)
for person in range(30):
    text = random_tokens(config.vocab_size, brought, seed=person)
    box.submit(text, SamplingParams(max_tokens=answered, ignore_eos=True))
events = box.step()

# %%
inside, waiting = len(box.scheduler.running), len(box.scheduler.waiting)
reveal("02.users", float(inside), "users")
by_bytes = room_bytes // (per_token * (brought + answered))
each = -(-(brought + answered) // store.layout.block_size)  # -(-a // b) divides and rounds up
total = room_bytes // block_bytes
print(f"by bytes: {by_bytes}; in whole blocks: {total} // {each} = {total // each}")
print(f"measured: {inside} inside, {waiting} waiting")

# %% [markdown]
# The estimate by bytes is close, and a little too high, for two reasons. The engine gives whole
# blocks, and a conversation rarely fills its last one. And before it lets somebody in, it keeps one
# more block free for everybody who is already writing, so that their answers can go on. That is a rule of the engine, not of arithmetic, and it is why the fourth
# step is a measurement. The others have not lost their turn: they wait until somebody is done.

# %%
import inspect

print(inspect.getsource(box.scheduler.can_admit))

# %% [markdown]
# ## The calculator
#
# Real models, real boxes: choose a model, move the memory and the tokens of each user (with the
# mouse, or with Tab and the arrow keys), and see for how many users there is room. A tenth of the
# memory is kept in reserve for intermediate results and the program itself.

# %%
from minipd.lab.kv_calculator import kv_calculator

kv_calculator(model="Llama-3-8B", memory_gb=24, context=4096)

# %% [markdown]
# The same as text, for every model in the box of our story. Change the two numbers as you like.

# %%
from minipd.lab.kv_sizes import size_box, users_table

show_table(users_table(memory_gb=24, context=4096), "24 GB, 4,096 tokens for each user")
print(size_box("Llama-3-8B", memory_gb=24, context=4096).sentence)

# %% [markdown]
# Try these: How many users does Llama-3-8B lose when everybody brings twice as many tokens? Why do
# Llama-2-7B and Qwen2.5-7B differ so much? How much memory does Llama-3-70B want before it can
# serve anybody at all? And what does doubling the memory do to the number of users: does it double?
#
# <details><summary>Answers (open them when you have tried)</summary>
#
# - It loses half of them: the room is the same, and everybody takes twice as much.
# - The one keeps a KV head for every query head. In the other, seven query heads share one, so its
#   notes are about nine times smaller.
# - Its weights and the reserve alone want nearly a hundred and sixty gigabytes.
# - It more than doubles, because the weights are there only once and the rest is all for notes.
#
# </details>

# %% [markdown]
# ## What is the note-pad, and how big is it?
#
# It is the keys and values of every token so far, and this is how big it can become on your
# machine, by the memory that is free at this moment:

# %%
from minipd.cache.store import RESERVE_BYTES, RESERVE_SHARE, free_bytes

free = free_bytes("cpu")
left = max(0, int(free - RESERVE_BYTES - RESERVE_SHARE * free))
print(f"The note-pad takes {per_token:,} bytes per token with {model.name} here.")
print(f"Free: {free / 1e9:.1f} GB; after a reserve, {left / 1e9:.1f} GB are left for notes.")
print(f"That is {left // per_token:,} tokens: {left // per_token // 2048:,} users with 2,048 each.")

# %% [markdown]
# And the boss? With a tenth of the card in reserve, there is room for 10 people with 4,096 tokens
# each if the model is Llama-3-8B, and for 3 if it is Llama-2-7B [story-answer]. Both engineers were
# wrong. (Whether ten people would find it *fast enough* is another question: lesson 04.) Twice the
# memory would hold *more* than twice as many people, since the weights are there only once.
#
# **Recorded on another run.** On one core of an Intel Xeon virtual machine, on 30 November 2026, the
# engine wrote an answer of 16 tokens 3.1 times faster with its cache than without after a prompt of
# 64 tokens, 7.0 times after 256 and 9.9 times after 512 [lesson-02-recorded]; the samples are in `benchmarks/raw/lesson_02.json`. The bytes per token were
# 46,080 there as well [lesson-02-recorded]: they depend on the model, never on the machine.
#
# **Where the laptop misleads.** Its model is tiny, and so are its notes. With Llama-3-70B, 8 users
# with 8,192 tokens each take 21.5 gigabytes together [notes-llama-70b], which every step of decode
# has to read.

# %% [markdown]
# ## The same idea, full-size
#
# This is how the engine's cache writes and reads. Find our three lines in it.

# %%
from minipd.cache.store import KVStore

print(inspect.getsource(KVStore.write))
print(inspect.getsource(KVStore.read))

# %% [markdown]
# | ours | the engine's |
# |---|---|
# | `self.keys[layer, self.length : end] = k` | `rows.narrow(...).copy_(new)` |
# | `self.keys[layer, :end]` | `keys.narrow(...)` |
# | a line's number is the token's position | a *slot*, which may be anywhere in the store |
# | one pad for one conversation | one store for all of them |
#
# The last two rows are what lesson 05 is about.

# %% [markdown]
# ## A line for your bench sheet
#
# The rates of your own note-pad: reading the prompt, and writing.

# %%
from minipd.measure import sheet
from minipd.measure.machine import describe_machine
from minipd.measure.stats import Samples

totals = Samples(tuple(1 / sum(seconds) for seconds in runs))
note = f"lesson 02, own KV cache, {speedup:.1f} times faster than without"
note += ", indicative" if totals.is_indicative else ""

# %%
line = sheet.SheetLine(
    machine=describe_machine().summary,
    model=model.name,
    dtype="float32",
    threads=torch.get_num_threads(),
    prefill_tok_s=len(prompt) / with_pad[0],
    decode_tok_s=1 / decode_s,
    note=note,
)

# %%
kept = sheet.append(line)
rates = {"prefill tok/s": [kept.prefill_tok_s], "decode tok/s": [kept.decode_tok_s]}
show_table(rates | {"note": [kept.note]}, f"Kept on {kept.date[:10]} at {kept.date[11:16]}")

# %% [markdown]
# ## Where you meet this in practice
#
# | tool | the formula, or the memory itself | the option |
# |---|---|---|
# | vLLM [vllm-kv-cache] | `v1/kv_cache_interface.py` | `--gpu-memory-utilization` |
# | SGLang [sglang-kv-pool] | `mem_cache/memory_pool.py` | `--mem-fraction-static` |
# | llama.cpp [llama-kv-cache] | `src/llama-kv-cache.cpp` | `--ctx-size`, `--cache-type-k` |
# | minipd | `minipd/cache/store.py` | `LLM(..., num_kv_blocks=...)` |
#
# vLLM also writes into its log how many tokens fit, and how many conversations of the longest kind.
#
# When somebody tells you that a server handles so many users, ask: *with how many tokens each?*
#
# **What we left out.** Notes in 8-bit numbers, which take half of the space and may change answers;
# memory that is handed out in blocks, shared between conversations, or taken back (lesson 05); what
# reading the notes does to speed (lesson 03); notes that move to another machine (lesson 07), or to
# a disk (lesson 13).

# %% [markdown]
# ## How well do you predict?

# %%
calibration()

# %% [markdown]
# ## Quiz
#
# Every wrong answer is explained, and you can try again. In a terminal it is `minipd quiz 02`.

# %%
quiz("02")

# %% [markdown]
# ## Next
#
# Open [the exercises](../exercises/02_the_kv_cache.ipynb): three short ones with checks and hints.
# Lesson 03 asks why reading is limited by arithmetic and writing by memory.
