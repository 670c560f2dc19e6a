# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Lesson 11: Many GPUs, many experts
#
# **The question: what changes when the model no longer fits?**
#
# **Minutes:** 75 for this notebook, 20 for the quiz at its end, 50 for the four exercises.
#
# **You need:** lessons 00 to 04, 06, 07 and 09: the KV cache, batching, the freeze, the two pools,
# goodput. No GPU: the "devices" of this lesson are turns of a loop on your computer, or simulated.
#
# **Afterwards you can**
#
# - cut a model in three ways, and say what each of them sends for every token;
# - predict how many experts a step wakes up, and what a few slots gain by it;
# - tell apart what a split into two pools earns and what spreading the experts earns, and bound a
#   claim about served customers by memory alone.
#
# As always: predict first, then run. New words are explained at the end, under [Words](#Words).

# %%
import torch

from minipd.lab import calibration, panel, predict, quiz, reveal, show_table

torch.set_num_threads(1)  # such small products are quicker without company
panel("11")

# %% [markdown]
# ## A model larger than its card
#
# The small company has outgrown its model. The candidates are on the table, and so is a price list
# of cards with 141 GB of memory each [h200-memory]. The boss asks two things. "How do you put a
# model on a card that is too small for it?" And: "I read that somebody served *one* customer on
# eight of these cards, then split prefill from decode and served 175 [seed-one-to-175]. Do we get
# that, too?"
#
# At the end you will answer both.

# %%
from minipd.lab.cuts import models_table

show_table(models_table(), "Sizes from each model's config.json")

# %% [markdown]
# Two things stand out. Some models need several cards for their *weights alone*. And in some of
# them a token uses only a small part of the weights; the rest waits for other tokens. The first is
# about cutting, the second about *experts*. We take them in this order.
#
# There are three ways to cut a model:
#
# | name | the cut goes | so that a GPU holds |
# |---|---|---|
# | **TP**, tensor parallel | through every matrix | a part of each layer |
# | **PP**, pipeline parallel | between layers | some of the layers, whole |
# | **EP**, expert parallel | between experts | some of the experts, whole |

# %% [markdown]
# ## Cut every matrix
#
# TP is the one that looks impossible: how can two GPUs share one matrix product? We do it with a
# real model, in a loop over the devices; the mathematics is the same.

# %%
from minipd.lab.model_choice import lesson_model
from minipd.model.layers import rms_norm, rotate, swiglu
from minipd.model.load import load

name, why = lesson_model()
print(why)
model = load(name)
decoder, c = model.decoder, model.config
print(f"{c.num_heads} query heads, {c.num_kv_heads} KV heads, feed-forward of {c.ffn_size}")

# %% [markdown]
# A feed-forward multiplies twice: up to many numbers (`gate` and `up` count as one here), then down
# again. Cut the *columns* of the first matrix: each device makes some of the many numbers. Cut the
# *rows* of the second matrix in the same places: each device brings its numbers down to a full-size
# result, which is only a *part of the sum*. Between the two products nobody has to talk to anybody.


# %%
def ffn_part(layer, h, part):
    """What one device with the columns `part` of the feed-forward adds: (T, E)."""
    gate, up = layer.gate_up[:, part], layer.gate_up[:, c.ffn_size + part]  # (E, F/n) each
    return swiglu(torch.cat([h @ gate, h @ up], dim=1)) @ layer.down[part]  # (T, E)


# %% [markdown]
# Attention is cut between *heads*, since heads do not look at each other. A device takes some query
# heads, the KV heads that those need, and the rows of the output matrix that belong to them.

# %%
from torch.nn.functional import scaled_dot_product_attention

group, d = c.num_heads // c.num_kv_heads, c.head_dim  # query heads that share one KV head


def columns(layer, h, first, heads):
    """`h` times the columns of so many heads of the fused matrix, from head `first` on."""
    return (h @ layer.qkv[:, first * d : (first + heads) * d]).view(len(h), heads, d)  # (T, ., D)


# %%
def needed(q0, count):
    """The first KV head that the query heads q0, q0 + 1, ... need, and how many they need."""
    first = q0 // group
    return first, (q0 + count - 1) // group + 1 - first


# %%
def attention_part(layer, h, turns, q0, count):
    """What one device with `count` query heads from q0 on adds: (T, E)."""
    kv0, kv = needed(q0, count)
    q = rotate(columns(layer, h, q0, count), turns)
    k = rotate(columns(layer, h, c.num_heads + kv0, kv), turns)
    v = columns(layer, h, c.num_heads + c.num_kv_heads + kv0, kv)
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))  # (heads, T, D)
    mixed = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return mixed.transpose(0, 1).flatten(1) @ layer.o[q0 * d : (q0 + count) * d]


# %% [markdown]
# After each of the two, the parts must be added up and everybody must get the sum: an
# **all-reduce**. On GPUs that is a message to and from each of them; here it is `sum`. We count it.


# %%
class Devices:
    """So many devices that share every matrix; counts what they exchange and keep."""

    def __init__(self, n):
        if c.num_heads % n:
            raise ValueError(f"{c.num_heads} query heads cannot be dealt out to {n} devices.")
        self.n, self.exchanges, self.kv_heads = n, 0, 0

    def all_reduce(self, parts):
        self.exchanges += 1
        return sum(parts)


# %%
def attend(devices, layer, x, turns):
    h, count = rms_norm(x, layer.input_norm, c.rms_norm_eps), c.num_heads // devices.n
    firsts = range(0, c.num_heads, count)  # each device's first query head
    devices.kv_heads = sum(needed(q0, count)[1] for q0 in firsts)
    return x + devices.all_reduce([attention_part(layer, h, turns, q0, count) for q0 in firsts])


def feed_forward(devices, layer, x):
    h = rms_norm(x, layer.post_norm, c.rms_norm_eps)
    parts = torch.arange(c.ffn_size).tensor_split(devices.n)
    return x + devices.all_reduce([ffn_part(layer, h, part) for part in parts])


# %%
def run(devices, tokens):
    """Scores of the next token, computed by all devices together, layer by layer."""
    x, turns = decoder.embed_tokens(torch.tensor(tokens)), decoder.turns(torch.arange(len(tokens)))
    for layer in decoder.layers:
        x = attend(devices, layer, x, turns)
        x = feed_forward(devices, layer, x)
    return decoder.logits(rms_norm(x[-1:], decoder.final_norm, c.rms_norm_eps))[0]


# %% [markdown]
# Try it with two devices. vLLM refuses in much the same words [vllm-heads-divisible]. (With the small
# model `mini` it works, since its heads divide evenly.)

# %%
prompt = model.tokenizer.encode("Many cooks share one kitchen, so")
try:
    run(Devices(2), prompt)
    print("two devices: works")
except ValueError as error:
    print("two devices:", error)

# %% [markdown]
# Heads are whole. So we take as many devices as there are KV heads, and compare with the engine of
# the earlier lessons: the same scores up to rounding (a sum in several parts is rounded elsewhere),
# and the same tokens.

# %%
from minipd import LLM, SamplingParams
from minipd.measure.same_tokens import compare, logits_of


def write(n, count):
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(run(Devices(n), tokens).argmax()))
    return tokens[len(prompt) :]


# %%
llm, n, scores = LLM(model, num_kv_blocks=64), c.num_kv_heads, logits_of(decoder)
whole = scores(prompt, range(len(prompt) - 1, len(prompt)))[0]
furthest = (run(Devices(n), prompt) - whole).abs().max()
print(f"{n} devices, largest difference of a score: {furthest:.1e}")
engine = llm.generate([prompt], SamplingParams(max_tokens=6, ignore_eos=True))[0].token_ids
verdict = compare(prompt, engine, write(n, 6), scores, scores)
print(f"{n} devices and the engine, 6 tokens: {verdict.kind}")

# %% [markdown]
# ### More devices than KV heads
#
# Now take more: one device for each *query* head. Each needs the keys and values of its head, and
# there are fewer of those than devices.

# %%
predict(
    "11.copies",
    f"{c.num_heads} devices, {c.num_kv_heads} KV heads. All devices together keep how many times "
    "the keys and values that one device alone would keep?",
    unit="times",
    brackets=[0.7, 1.5, 2.5, 5, 8],
)

# %%
many = Devices(c.num_heads)
run(many, prompt)
reveal("11.copies", many.kv_heads / c.num_kv_heads, "times")

# %% [markdown]
# A device cannot keep less than one KV head, so **beyond as many devices as KV heads, KV is
# copied, not shared**: more cards, and no more room for notes. Models that keep one short latent
# instead of heads (lesson 02's optional part) are the extreme case: the latent has no heads to
# deal out, so *every* device of a TP group keeps all of it. Remember that; it comes back.

# %% [markdown]
# ## What each cut moves
#
# Count the exchanges of our own pass: two in each layer, and each of them holds a full row for
# every token.

# %%
devices = Devices(n)
run(devices, prompt)
row_bytes = c.hidden_size * 4
print(f"{devices.exchanges} exchanges, {c.num_layers} layers")
sent = 2 * (n - 1) / n * row_bytes * devices.exchanges  # by each device, around a ring
print(f"for each token, every device sends {sent / 1000:.0f} kB; its note in the KV cache takes")
print(f"{c.kv_bytes_per_token(4) / 1000:.0f} kB, and that would be moved only once (lesson 08)")

# %% [markdown]
# PP is much simpler: the row goes from one GPU to the next, once for each boundary. EP sends a
# token's row to the GPUs that hold its experts, and back: an **all-to-all**, once there and once
# back in each layer. For one token of a large model, counted by the engine's step-time model
# (for EP only what crosses between the two machines; copies inside a machine are not counted):

# %%
from minipd.lab.cuts import moved_table

show_table(moved_table("Qwen3-235B-A22B"), "One decoded token of Qwen3-235B-A22B, in 16 bits")

# %% [markdown]
# Look at the third column first. A token cannot enter a layer before the exchange in front of it is
# over, so TP and EP pay the *delay* of the link so many times for every token. That is why TP stays
# inside one machine, where the links are fast. PP hardly sends anything; but it does not make one
# token faster either, since the token passes through all layers all the same.
#
# What, then, is PP good for? For the *queue*: as soon as the first GPU has done its half of one
# prompt, it begins the next. For two GPUs and equal prompts there are formulas, like the one that
# lesson 10 used [distserve-parallel-queues]. One GPU reads a prompt in one second here; two with TP
# are faster, but not twice as fast, because of the exchanges (`speedup` is an assumption):

# %%
from minipd.fleet.queueing import parallel_crossover
from minipd.lab.cuts import waits_table

show_table(waits_table((0.1, 0.5, 0.9, 1.3, 1.6), speedup=1.7), "Mean time to first token")
print(f"TP and PP are equal at a load of {parallel_crossover(1.7):.2f}.")

# %% [markdown]
# At low load TP wins: it makes the reading shorter. At high load PP wins: it makes the queue
# shorter. This is a choice that two pools may make differently, prefill one way and decode another.

# %% [markdown]
# ## A feed-forward in many parts
#
# Now the experts. In a **mixture of experts** (MoE), the feed-forward of a layer comes in many
# small copies, the *experts*. A *router*, one small matrix, scores them for each token; the token
# goes through the few best ones, and their results are added with weights. Attention stays as it
# was.
#
# `tiny-moe` is such a model, of the Qwen3-MoE architecture. Its weights are random, so it says
# nothing sensible, but it takes the same way through the engine as a real one.

# %%
moe = load("tiny-moe")
experts = moe.decoder.layers[0].experts
count, top_k = moe.config.experts.count, moe.config.experts.top_k
print(f"{moe.config.num_layers} layers, {count} experts in each, {top_k} for each token")

# %% [markdown]
# One layer of it by hand, token by token:


# %%
def moe_by_hand(h):
    """The experts of a layer on `h` (T, E), one token and one expert at a time."""
    shares, out = (h @ experts.router.weight).softmax(dim=-1), torch.zeros_like(h)
    for t, (weights, chosen) in enumerate(zip(*shares.topk(top_k))):
        for weight, e in zip(weights / weights.sum(), chosen):
            out[t] += weight * (swiglu(h[t : t + 1] @ experts.gate_up[e]) @ experts.down[e])[0]
    return out


# %%
rows = torch.randn(5, moe.config.hidden_size, generator=torch.Generator().manual_seed(0))
print(f"largest difference: {(moe_by_hand(rows) - experts(rows)).abs().max():.1e}")

# %% [markdown]
# The engine's version, opened here, does the same from the other side: it does not ask "which
# experts does this token want?" but "which tokens want this expert?", so that it reads each
# expert's weights once.

# %%
import inspect

from minipd.model.experts import Experts

print(inspect.getsource(Experts.forward))

# %% [markdown]
# And the whole model, against `transformers`, from the same files. (Importing it takes a moment.)

# %%
from transformers import AutoModelForCausalLM
from transformers.utils import logging

logging.disable_progress_bar()
theirs = AutoModelForCausalLM.from_pretrained(moe.folder, dtype=torch.float32).eval()
theirs.generation_config.eos_token_id = None  # write on, whatever comes
text = moe.tokenizer.encode("Several cooks, each with a dish of their own")
with torch.inference_mode():
    answer = theirs.generate(torch.tensor([text]), max_new_tokens=12, do_sample=False)[0].tolist()

# %%
from minipd.sched.limits import Limits

llm = LLM(moe, num_kv_blocks=512, limits=Limits(max_running=64, max_batch_tokens=4096))
ours = llm.generate([text], SamplingParams(max_tokens=12, ignore_eos=True))[0].token_ids
scores = logits_of(moe.decoder)
verdict = compare(text, answer[len(text) :], ours, scores, scores)
print(f"{type(theirs).__name__} of transformers and the engine, 12 tokens: {verdict.kind}")

# %% [markdown]
# ## How many experts wake up?
#
# A step reads the weights of each expert that *any* of its tokens chose. One token wakes 8 of 128
# [qwen3-30b-experts]. Those that a step wakes are its **touched experts**. How many do eight tokens of
# eight strangers touch, in one layer?

# %%
predict(
    "11.touched",
    "8 answers in a step, 128 experts, 8 for each token: how many different experts are read?",
    unit="experts",
    brackets=[10, 20, 40, 58, 80],
)

# %% [markdown]
# Reckon first. One token leaves a given expert out with chance $1 - k/E$, where $k$ of $E$ experts
# are chosen. If tokens choose independently and no expert is more popular than another, $T$ tokens
# leave it out with chance $(1 - k/E)^T$. So the number that is *not* left out is
#
# $E \cdot (1 - (1 - k/E)^T)$

# %%
for tokens in (1, 2, 4, 8, 16, 32, 64):
    print(f"{tokens:2} tokens: {128 * (1 - (1 - 8 / 128) ** tokens):5.1f} of 128")

# %% [markdown]
# Now count. `watch_experts` notes what each router chose while the engine writes answers to random
# prompts, and we look at the steps in which all the answers were written together.

# %%
from minipd.lab.expert_dial import decode_passes, mean_touched, random_prompts, show_touched

measured = {}
for together in (1, 2, 4, 8, 16, 32):
    passes = decode_passes(llm, random_prompts(moe.config.vocab_size, together))
    measured[together] = mean_touched(passes)

# %%
reveal("11.touched", measured[8], "experts")
show_touched(count, top_k, measured)

# %% [markdown]
# The points lie a little below the upper line, not on it, and for an honest reason: even random
# routers have favourites. Here is the busiest expert of the first layer beside the average one, and
# the same for sixteen GPUs to which the experts were dealt out in order:

# %%
from minipd.lab.expert_dial import load_of

busy = torch.tensor(load_of(passes), dtype=torch.float)  # tokens of each expert
print(f"busiest expert: {busy.max() / busy.mean():.1f} times the average")
by_gpu = busy.view(16, -1).sum(dim=1)
print(f"busiest of 16 GPUs: {by_gpu.max() / by_gpu.mean():.2f} times the average")

# %% [markdown]
# Keep that last number in mind: all GPUs wait for the busiest one.
#
# **Trained routers differ** from ours in both directions. They are trained to spread their load
# (with a term in the loss, or a bias that is corrected as they go), but what people ask is not
# random: code wakes other experts than poems do. The lower line in the picture is what a few
# favourites do, with popularity falling as one over the rank; the engine's step-time model uses it.
# The truth of a real server lies somewhere between the two lines, and it can be measured as here.

# %% [markdown]
# ## What a few slots gain
#
# In a dense model, eight answers in a step share one reading of the weights: each token costs an
# eighth (lesson 04). With experts, eight answers wake six or seven times as many experts as one.
# What is left of the gain?

# %%
from minipd.lab.expert_dial import show_dial, slots_table

show_table(slots_table("Qwen3-30B-A3B"), "Weights of Qwen3-30B-A3B, in 16 bits, that a step reads")

# %%
show_dial()

# %% [markdown]
# The dial says the same for other models; a crossed square is an expert that was read in one random
# draw. (Without widgets, `dial_text("gemma-4-26B-A4B", 8)` from `minipd.lab.expert_dial` prints its
# words and `slots_table` its numbers.) Try one slot, then a few, then very many.
#
# So `--parallel 8` of llama.cpp's server gains much less with an MoE model than with a dense one:
# each newcomer brings experts of their own. The sharing begins in earnest only when nearly all
# experts are awake anyway, at a hundred answers and more. *An MoE model wants a crowd.*
#
# Only decode needs that crowd from outside. A prompt of a few hundred tokens is a crowd by itself:
# prefill wakes nearly all experts in any case, and shares each of them among many tokens. That is one
# more way in which the two phases are unlike.
#
# And here, on this computer?

# %%
import time

params, seconds = SamplingParams(max_tokens=32, ignore_eos=True), {1: [], 8: []}
for _ in range(4):  # in turns, so that a busy moment hits both
    for together, samples in seconds.items():
        start = time.perf_counter()
        llm.generate(random_prompts(moe.config.vocab_size, together), params)
        samples.append(time.perf_counter() - start)

# %%
alone_s, together_s = min(seconds[1]), min(seconds[8])  # the least disturbed of four
gain = 8 * alone_s / together_s
print(f"8 answers together: {gain:.1f} times the tokens per second of one alone")
print("(a dense model whose steps did nothing but read weights would gain 8 times)")
print(f"experts woken: {measured[8] / measured[1]:.1f} times as many")

# %% [markdown]
# **The laptop's figure has another cause.** `tiny-moe` fits into the processor's own memory, so
# reading its experts is cheap; what grows with the experts here is the number of small products. On
# a GPU it is the bytes. The shape is the same, the cause is not, so do not carry this factor to
# other machines.

# %% [markdown]
# ## What goes wrong
#
# Somebody measures an MoE server with eight slots, and is delighted: eight times the speed of one!
# The benchmark sent the same prompt to all the slots.

# %%
same = random_prompts(moe.config.vocab_size, 1) * 8
for what, asked in {
    "strangers": random_prompts(moe.config.vocab_size, 8),
    "one, 8 times": same,
}.items():
    touched = mean_touched(decode_passes(llm, asked))
    print(f"{what:12}: {touched:.1f} experts for 8 answers")

# %% [markdown]
# Equal prompts get equal answers, and equal tokens choose equal experts. Nothing looks wrong: the
# program is right, the tokens are right, and the number is of no use, because no eight customers
# ask the same. (In lesson 08 equal prompts made reading free. Here they make writing cheap.)
# **Measure a mixture of experts with a mixture of people.**

# %% [markdown]
# ## A crowd needs room
#
# A crowd of answers needs room for its notes. And that is where the two halves of this lesson meet.
# Take DeepSeek-V3 (256 experts, one latent note for all heads [deepseek-v3-experts]) on cards of
# 141 GB [h200-memory]. With TP, each of eight GPUs holds an eighth of everything, and *all* of every note, as you
# saw above. With EP over sixteen GPUs, each holds sixteen experts of each layer and a whole
# attention, and serves customers of its own; their tokens meet in the experts.

# %%
from minipd.lab.four_corners import room_table

show_table(room_table(), "DeepSeek-V3 in 8 bits: what is left for notes")

# %% [markdown]
# Look at the last column. The course text that this lesson answers tells it as two circles: *"notes
# eat the memory, so the batch stays small, so the experts idle"*, and *"decode GPUs share the
# experts, so there is room, so the batch grows, so the experts are busy"*. The table confirms the
# first step of the second one: there is room. But the text says that the *split into prefill and
# decode* breaks the circle. Which is it, the split or the sharing of experts?

# %% [markdown]
# ## Four corners
#
# Two choices, each with two answers, make four fleets. All have 32 H200, the same model and the
# same requests (2,000 tokens to read, 400 to write), and the same promise: first token within two
# seconds, then 20 tokens a second [four-corners-setting].
#
# | | colocated | split |
# |---|---|---|
# | **TP8** | 4 groups of 8 do both [four-corners-setting] | 2 groups read, 2 write |
# | **wide EP16** | 2 groups of 16 do both [four-corners-setting] | 1 group reads, 1 writes |
#
# No laptop has that many GPUs; this is the simulator of lesson 09, with step times computed for the H200.

# %%
NAMES = ["colocated, TP8", "split, TP8", "colocated, wide EP16", "split, wide EP16"]
predict("11.best", "Which fleet keeps the promise at the highest rate?", choices=NAMES)

# %%
predict("11.worst", "And which one breaks it first?", choices=NAMES)

# %%
from minipd.lab.four_corners import kept, tried_table, try_all, waits_at

runs = try_all()

# %%
rates = kept(runs)
show_table(tried_table(runs), "Requests that kept the promise; - where a lower rate broke it")
reveal("11.best", max(rates, key=rates.get))
reveal("11.worst", min(rates, key=rates.get))
show_table(waits_at(runs, 4), "At the lowest rate, where all four still keep the promise")

# %% [markdown]
# Three rates only, and short runs, so that you do not wait. Longer runs at more rates found these
# limits (a simulation gives the same figures on every machine):
#
# | requests per second, all GPUs | colocated | split | the split alone |
# |---|---|---|---|
# | TP8 | 20 | 28 | 1.4 times [lesson-11-recorded] |
# | wide EP16 | 4 | 72 | 18 times [lesson-11-recorded] |
#
# Read it slowly; it is the answer to "which is it?".
#
# - *The split alone* (first line) helps a little: no freezes, but only half of the GPUs read now, and
#   they are the next limit.
# - *Sharing experts alone* (first column) makes everything **worse**. All sixteen GPUs meet twice
#   in each layer. When one of them reads a prompt, the other fifteen wait for it in the experts, and
#   with sixteen GPUs somebody is nearly always reading. The freeze of lesson 06 now belongs to all:
#   see the last column of the second table.
# - *Both together* win, and by far more than the two effects one by one. The split takes the reading
#   out of the group that must not wait; and a wide group that only reads does so much faster than
#   narrow ones.
#
# So the text is right that the two fit together, and wrong to credit the split with all of it.
#
# ### Is it the room for notes?
#
# In the text it is *room* that TP lacks. So give the two TP fleets four times as much of it, at a
# rate that each of them does not keep:

# %%
from minipd.lab.four_corners import CORNERS, readers_table, tried

for corner, rate in zip(CORNERS[:2], (24, 40)):
    before, at = (tried(corner, rates=(rate,), room=room)[rate] for room in (1, 4))
    share = f"{before.share:.0%} kept, {at.share:.0%} with more room"
    print(f"{corner.name}, {rate} requests/s: {share}")
    waits = f"first token {at.ttft_p90_s:.1f} s, time per token {1000 * at.tpot_p90_s:.0f} ms"
    print(f"  (with more room, p90: {waits})")

# %% [markdown]
# More room does not save either. Without a split, the time per token breaks the promise; with one, the
# first token does: prompts wait for a reader. Where does wide EP get its faster readers from?

# %%
show_table(readers_table(), "Half of the GPUs, reading in full steps")

# %% [markdown]
# A wide step reads many prompts at once, so each expert that it wakes works for more tokens. A token's
# row goes only to the GPUs that hold its experts, while TP sums every row over the whole group. And
# with TP each GPU of a group computes the norms of every token again. The last line is where the two
# splits end: compare it with their limits above. (Room would decide if answers were longer or the
# promise looser, so that more of them were under way at once.)
#
# ### Is it the ratio?
#
# Lesson 10 says that a split must fit its workload. Wide EP16 has two groups here, so there is only
# one way to split it. TP8 has four groups:

# %%
from dataclasses import replace

for readers in (1, 2, 3):
    split = replace(CORNERS[1], num_prefill=readers, num_decode=4 - readers)
    at = tried(split, rates=(24,))[24]
    print(f"split, TP8, {readers}P{4 - readers}D, 24 requests/s: {at.share:.0%} kept")

# %% [markdown]
# ### How sure is that?
#
# The low corner hangs on one assumption: a prompt is read by *one* GPU of its group, while the
# others wait. An engine could cut each prompt so finely that all sixteen read equally. Then:

# %%
best_case = tried(CORNERS[2], even=True, rates=(4, 16))
print("colocated, wide EP16, prompts spread evenly:")
print("\n".join(f"{rate:2} requests/s: {one.share:.0%} kept" for rate, one in best_case.items()))

# %% [markdown]
# In longer runs that best case reached 32 requests per second, and the split, with its prompts
# spread in the same way, 64 [lesson-11-recorded]. (Less than its 72 without [lesson-11-recorded],
# since our even model is coarse: it takes the pieces that a GPU gets for one long prompt, and so
# counts too much attention.) So under both assumptions the split with spread experts is the best of
# the four; but the split alone then earns a factor of 2 with EP, not 18 [lesson-11-recorded]. *A
# factor without its assumptions is an anecdote.*
#
# The model also leaves out: that some experts are busier than others (all GPUs wait for the busiest;
# engines copy popular experts, which LMSYS found worth 2.54 times in decode, more than many a split
# [lmsys-eplb]); that exchanges can hide behind computing; requests of unlike lengths; failures. The first
# two pull in opposite directions.

# %% [markdown]
# ## From one customer to very many
#
# Now the boss's second question: *"eight H200, one customer before the split, 175 and more after"*.
# Nobody has found a source for it [seed-one-to-175]. That does not make it false. But we can ask
# what memory allows, with no assumption on speed at all: how many answers fit beside the weights?

# %%
predict(
    "11.room",
    "DeepSeek-V3 in 8 bits on eight H200 with TP, no split: how many conversations of 5,000 tokens "
    "fit at once?",
    unit="conversations",
    brackets=[2, 10, 40, 90, 175],
)

# %%
from minipd.lab.cuts import bound_table, fit_at_once

reveal("11.room", fit_at_once("DeepSeek-V3", 8, 5_000), "conversations")
names, lengths = (
    ("DeepSeek-V3", "Qwen3-235B-A22B", "Llama-3.1-405B"),
    (2_400, 5_000, 32_768, 131_072),
)
show_table(bound_table(names, lengths), "Conversations that fit at once on 8 H200; - : no room")
print("DeepSeek-V3 in 8 bits, the others in 16.")

# %% [markdown]
# What follows?
#
# 1. **"One" is not memory's doing.** In every line where the weights fit, many short conversations
#    fit without any split, and even the longest ones more than once. If a server handled one at a time,
#    it was set up so, or nobody else came.
# 2. **Nor do "175" need a split** [seed-one-to-175]. At a few thousand tokens each, TP has room for a
#    number of that order. Spreading the experts over the same eight GPUs makes more room, most of all
#    for DeepSeek-V3, of whose notes TP keeps eight copies.
# 3. **The split of these eight cannot do it.** Two pools hold the weights twice (lesson 07). In halves
#    of four, the last column says, DeepSeek-V3 and Llama-3.1-405B do not even fit, and Qwen3-235B-A22B
#    has only a small part of its room left.
#
# So if somebody saw the jump, a change of *parallelism*, of batch settings or of the number of GPUs
# lay behind it. Memory gives the bound; the exercises let you compute it for your own model.

# %% [markdown]
# ## The same idea, full-size
#
# What our loops did by hand, the step-time model counts for any model and any cut. Here are the
# exchanges of a step: find the two all-reduces of TP, and the two all-to-alls of EP.

# %%
from minipd.fleet import work

print(inspect.getsource(work._exchanges))

# %%
from minipd.fleet.attention import GroupedAttention

print(inspect.getsource(GroupedAttention.kv_heads_on_device))

# %% [markdown]
# ## Where you meet this in practice
#
# | tool | where |
# |---|---|
# | vLLM | `--tensor-parallel-size`, `--pipeline-parallel-size`; `--enable-expert-parallel` with `--data-parallel-size`; one backend of its all-to-all is meant for prefill and another one for decode [vllm-expert-parallel] |
# | SGLang | `--tp-size`, `--ep-size`, `--enable-dp-attention`, `--moe-a2a-backend deepep` [sglang-expert-parallel] |
# | vLLM, again | GPUs without work of their own run empty passes, because the experts' exchange needs everybody [vllm-dummy-passes] |
# | llama.cpp | `--split-mode layer` is PP and the default, `row` cuts matrices [llama-split-mode]; `--parallel` sets the slots |
# | minipd | `minipd simulate --model DeepSeek-V3 --gpu H200 --ep 16`, `minipd plan` |
#
# **What we left out.** Cutting a prompt's tokens among GPUs (sequence and context parallel); experts
# that every token uses ("shared"); copies of busy experts; exchanges hidden behind computing; how a
# hand-off copes with two pools that are cut differently.

# %% [markdown]
# ## The answer, in numbers

# %%
copies, best_fleet = many.kv_heads / c.num_kv_heads, max(rates, key=rates.get)
print(f"{n} devices shared {name} and wrote the same tokens;")
print(f"with {c.num_heads} devices its notes were kept {copies:.0f} times.")
print(f"8 answers woke {measured[8]:.0f} of {count} experts; here they gained {gain:.1f} times.")
print(f"Of four fleets, '{best_fleet}' kept the promise at the highest rate.")

# %% [markdown]
# On our own recording (a virtual machine with two cores; `benchmarks/raw/lesson_11.json`) eight
# answers woke 50 of 128 experts, where 52 were predicted [lesson-11-recorded].
#
# What changes when the model no longer fits? *The weights are shared out, and from then on GPUs wait
# for each other: every cut buys room and pays in waiting.*

# %% [markdown]
# ## A line for your bench sheet
#
# One answer of the MoE model alone, and the gain of eight slots in the note.

# %%
from minipd.measure import sheet
from minipd.measure.machine import describe_machine

line = sheet.SheetLine(
    machine=describe_machine().summary,
    model=moe.name,
    dtype="float32",
    threads=torch.get_num_threads(),
    decode_tok_s=32 / alone_s,
    note=f"lesson 11, 8 slots gain {gain:.1f}x, {measured[8]:.0f} of {count} experts",
)
kept_line = sheet.append(line)
show_table({"decode tok/s": [kept_line.decode_tok_s], "note": [kept_line.note]})

# %% [markdown]
# ## How well do you predict?

# %%
calibration()

# %% [markdown]
# ## Quiz
#
# Every wrong answer is explained, and you can try again. In a terminal it is `minipd quiz 11`.

# %%
quiz("11")

# %% [markdown]
# ## Next
#
# Open [the exercises](../exercises/11_many_gpus_many_experts.ipynb): four of them; the last one is
# a report whose conclusion does not follow.
