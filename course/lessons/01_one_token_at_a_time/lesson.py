# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Lesson 01: One token at a time
#
# **The question: why does the answer start late, then trickle?**
#
# **Minutes:** 75 for this notebook, 15 for the quiz at its end, 60 for the four exercises.
#
# **You need:** lesson 00. Nothing about transformers: what is needed of them is shown here, on
# four tokens that fit on the screen. Of PyTorch, the lines under "PyTorch in one minute".
#
# **Afterwards you can**
#
# - say what goes into a language model and what comes out of it, and work one attention head by
#   hand;
# - find out by experiment what a new token does to all that a model worked out about earlier ones,
#   and say what your finding rests on;
# - measure time to first token, the gaps between tokens and their p50 and p99, and predict what it
#   costs to compute everything again for each token.

# %%
import statistics
import time

import torch

from minipd.lab import calibration, panel, predict, quiz, reveal, show_table

panel("01")

# %%
from minipd import LLM, SamplingParams
from minipd.lab.model_choice import lesson_model

name, why_this_one = lesson_model()
print(why_this_one)
llm = LLM(name)
warm_up = llm.generate(["Hello"], SamplingParams(max_tokens=4))  # a first run is never counted

# %% [markdown]
# ## Two waits and their names
#
# In lesson 00 you saw one long bar and many short ones. Practitioners have names for them:
#
# - **TTFT**, time to first token: from the question to the first token of the answer;
# - a **gap** (also called **ITL**, inter-token latency): from one token to the next.
#
# The first is the late start, the second is the trickle. We measure both, with a prompt that is
# long enough to be felt: the contract of lesson 00, to be continued by the model.

# %%
import random

clauses = [f"Clause {n}: the tenant waters plant {n} every morning." for n in range(1, 31)]
# A new number each time: the engine would remember a prompt that it has read (lesson 05).
contract = f"House rules, copy {random.randint(100, 999)}. " + " ".join(clauses)
prompt = llm.token_ids(contract + " Clause 31:")
print(f"The prompt has {len(prompt)} tokens.")

# %%
arrivals, start = [], time.perf_counter()
for piece in llm.stream(prompt, SamplingParams(max_tokens=48, ignore_eos=True)):
    arrivals.append(time.perf_counter() - start)
    print(piece.text, end="", flush=True)

# %%
from minipd.lab.plots import show_pauses
from minipd.measure.quantiles import percentile

ttft = arrivals[0]
gaps = [later - earlier for earlier, later in zip(arrivals, arrivals[1:])]
show_pauses(arrivals)

# %% [markdown]
# How does one describe all those gaps with two numbers? Sort them. **p50** is the value that half
# of them stay below: the median, the gap that you usually get. **p99** is the value that all but
# one in a hundred stay below: the gap that you curse. Services promise p99, because every reader
# of a long answer meets it.
#
# (A percentile that falls between two samples is interpolated: half-way between them if it falls
# half-way. With as few gaps as ours, p99 is nearly the largest; it takes several hundred to say
# more.)

# %%
p50, p99 = percentile(gaps, 50), percentile(gaps, 99)
tpot = (arrivals[-1] - arrivals[0]) / (len(arrivals) - 1)
print(f"TTFT: {ttft:.2f} s, as long as {ttft / p50:.0f} usual gaps")
print(f"gaps: p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms")
print(f"TPOT: {tpot * 1000:.0f} ms")

# %% [markdown]
# **TPOT**, time per output token, is the mean of the gaps of one answer: from first to last
# token, divided by the number of gaps, which is one less than the number of tokens.
#
# So much for *what* happens. The rest of the lesson is about *why*: what a model does between two
# tokens, and what it must not have to do again.

# %% [markdown]
# ## What a model reads: tokens
#
# A model never sees letters. A *tokenizer* cuts the text into pieces from a fixed list, the
# *vocabulary*, and hands over their numbers. Here is an English sentence.

# %%
from minipd.lab.token_table import best_table, code_table, four_tokens, token_table

tokenizer = llm.model.tokenizer
english, korean = "The capital of Korea is Seoul.", "한국의 수도는 서울입니다."
show_table(token_table(tokenizer, llm.token_ids(english)))

# %% [markdown]
# The Korean sentence says the same. This tokenizer's list was made from texts that were nearly
# all English. How will it do?

# %%
predict(
    "01.korean",
    "How many times as many tokens does the Korean sentence have as the English one?",
    unit="times as many",
    brackets=[0.75, 1.5, 3, 6],
)

# %%
num_korean, num_english = len(llm.token_ids(korean)), len(llm.token_ids(english))
reveal("01.korean", num_korean / num_english, "times as many")
show_table(token_table(tokenizer, llm.token_ids(korean)))

# %% [markdown]
# Whole English words are on the list; Korean syllables are not, so most are spelt out in *bytes*,
# up to three for one syllable. Remember this: everything that we measure from here on is counted
# in tokens. A Korean reader who uses this model waits, and pays, for every one of them. (Models
# that were made for Korean have a list of their own.)

# %% [markdown]
# ## What a model answers: logits
#
# Numbers go in; what comes out? For *every* token of the vocabulary one score, called its
# *logit*: how well would this token come next? The higher the better. To read logits as shares of
# certainty we use the *softmax*: raise $e$ to each score, then divide by the sum of all. Shares
# are positive and add up to one, and a score that is higher by one has a share $e$ times as
# large.

# %%
from minipd.measure.same_tokens import teacher_forced_logits

decoder = llm.model.decoder
ids = llm.token_ids("The capital of Korea is")
last = range(len(ids) - 1, len(ids))  # a pass scores what follows each token; we ask for the last
scores = teacher_forced_logits(decoder, ids, last)[0]  # (V,): one for each of V tokens
print(f"{len(ids)} tokens in, {len(scores):,} scores out. The best of them:")
show_table(best_table(tokenizer, scores))

# %% [markdown]
# That is all that a language model does: *one* list of scores for *one* next token. An answer
# comes about because a loop around the model chooses a token, puts it at the end of the text and
# asks again. If the best one is always chosen, as in this course, that is called *greedy*.
#
# This is the first half of our answer. Each token of an answer depends on the one before it, so
# they come one by one: the trickle is no weakness of the machine.

# %% [markdown]
# ## PyTorch in one minute
#
# A *tensor* is a table of numbers; its *shape* says how many rows and columns it has (or more:
# three sizes are a stack of tables). These lines are all that the lesson's own code needs:
#
# | code | what it does |
# |---|---|
# | `a @ b` | each row of `a` with each column of `b`: multiply number by number, add up |
# | `a.T`, `a.mT` | rows become columns (`mT`: in every table of a stack) |
# | `a.transpose(0, 1)` | the first two sizes change places, for any number of sizes |
# | `a.triu(1)` | keeps what lies above the diagonal |
# | `a.masked_fill(m, x)` | puts `x` where `m` is true |
# | `a.softmax(-1)` | turns each row into shares that add up to one |
# | `a[None]` | a stack of one table |
# | `a.repeat_interleave(n, 0)` | each row `n` times |

# %%
a = torch.tensor([[1.0, 2], [3, 4]])
above = torch.ones(2, 2, dtype=torch.bool).triu(1)
made = {"a": a, "a @ a": a @ a, "a.T": a.T, "a.mT": a.mT, "a.transpose(0, 1)": a.transpose(0, 1)}
made |= {"above = all true, triu(1)": above, "a.masked_fill(above, 0)": a.masked_fill(above, 0)}
made |= {"a.softmax(-1)": a.softmax(-1), "a[None]": a[None]}
made |= {"a.repeat_interleave(2, 0)": a.repeat_interleave(2, 0)}
show_table(code_table(made))

# %% [markdown]
# ## How tokens see each other: attention
#
# Inside the model each token is a list of numbers, at first its entry in a learnt table. A model
# is a stack of *layers*, and each changes those lists a little. Nearly all that a layer does, it
# does to each token on its own. There is only one place where tokens look at each other:
# **attention**.
#
# It works like a room full of people with name tags. From a token's list, three shorter lists are
# made, by multiplying with three matrices of learnt weights:
#
# - its **query**: what it is looking for;
# - its **key**: the name tag, what it can be found by;
# - its **value**: what it hands over to whoever finds it.
#
# Let us do it by hand, for four tokens. The numbers are invented, so that you can check every
# step but the softmax in your head: "sat" looks mainly for whoever sits, "down" mainly for the verb. One row
# stands for one token. Behind a line of code you find the shape of what it makes: T tokens, D
# numbers each.

# %%
words = ["The", "cat", "sat", "down"]
q = torch.tensor([[2.0, 0, 0, 0], [1, 2, 0, 0], [0, 4, 2, 0], [0, 1, 4, 1]])  # (T, D)
k = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])  # (T, D)
v = torch.tensor([[9.0, 0, 0, 0], [0, 9, 0, 0], [0, 0, 9, 0], [0, 0, 0, 9]])  # (T, D)

# %% [markdown]
# **Step one: scores.** Each query is compared with each key: multiply number by number, add up.
# The better the two fit, the larger the sum. Sums of many products get large, so they are divided
# by the square root of D, the number of products; here D is four, and its root is two.


# %%
def show_square(square, columns=tuple(f"at '{word}'" for word in words)):
    """One row for each token that looks, one column for each token that is looked at."""
    columns = {name: [f"{x:.2f}" for x in square[:, i]] for i, name in enumerate(columns)}
    show_table({"looks back": words} | columns)


raw = q @ k.T / 4**0.5  # (T, T)
show_square(raw)

# %% [markdown]
# **Step two: nobody sees the future.** When "cat" was written, "sat" did not exist. So all that
# lies above the diagonal is hidden, with a score of minus infinity. This is the *causal mask*,
# and the whole lesson hangs on it.

# %%
later = torch.ones(4, 4, dtype=torch.bool).triu(1)  # True above the diagonal
masked = raw.masked_fill(later, -torch.inf)
show_square(masked)

# %% [markdown]
# **Step three: shares.** The softmax turns each row into shares that add up to one; $e$ to the
# power of minus infinity is zero, so hidden tokens get nothing. The first token can see only
# itself.

# %%
weights = masked.softmax(-1)  # along each row
show_square(weights)

# %% [markdown]
# **Step four: mix.** Each token adds up the values of those that it sees, each times its share.
# Here every token hands over a nine in a column of its own, so you can read off where it went. (The
# columns are no tokens any more, but the numbers of a value.)

# %%
mixed = weights @ v  # (T, D)
show_square(mixed, [f"number {n}" for n in range(1, 5)])

# %% [markdown]
# That is one *attention head*. A real layer has several side by side, each with matrices of its
# own, and adds what they found to the token's list. Look at what a token needs from the others:
# their keys and their values. Nobody ever asks for an old *query* again. So we call a token's key
# and value, in all layers, its **note**: what one would have to write down about it.

# %% [markdown]
# ## The same four steps in the real model
#
# Here they are for all heads of a layer at once. One thing is new: in this model several query
# heads share one key and one value head, so those are repeated first. (That saves memory, as
# lesson 02 will show.) In the shapes, H is the number of query heads and K that of key heads. The
# engine lets us pass in our own attention and does everything else itself.


# %%
def attention(layer, q, k, v, masked=True):
    """Our four steps: `q` (T, H, D), `k` and `v` (T, K, D) to (T, H, D)."""
    q, k, v = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)  # (heads, T, D)
    k, v = (x.repeat_interleave(len(q) // len(k), 0) for x in (k, v))  # (H, T, D)
    raw = q @ k.mT / q.shape[-1] ** 0.5  # (H, T, T)
    later = torch.full(raw.shape[1:], masked).triu(1)  # (T, T); all False without a mask
    weights = raw.masked_fill(later, -torch.inf).softmax(-1)  # (H, T, T)
    return (weights @ v).transpose(0, 1)  # (T, H, D)


# %% [markdown]
# Is that really all? We let the model answer with our attention, and compare all its scores with
# those from the engine's own.


# %%
@torch.inference_mode()
def next_scores(ids, attend=attention):
    """The logits (V,) of the token after `ids`, by one pass over all of them."""
    positions = torch.arange(len(ids))  # 0, 1, 2 and so on: each token's place in the text
    hidden = decoder(torch.tensor(ids), positions, attend)  # (T, E): each token's list, E numbers
    return decoder.logits(hidden[-1:])[0]


difference = (next_scores(ids) - scores).abs().max()
print(f"largest difference among {len(scores):,} scores: {difference:.6f}")

# %% [markdown]
# The tiny rest is rounding: two ways to add up the same numbers in another order end in slightly
# different last digits.

# %% [markdown]
# ## Change the last token
#
# Now the experiment of this lesson. Four tokens go through the model, and we write down the keys
# and values of all of them, in every layer. Then we replace the *last* token by another one and
# do it again.

# %%
before_ids, swaps = four_tokens(tokenizer)
last_changed = [*before_ids[:3], swaps[3]]
first_changed = [swaps[0], *before_ids[1:]]
for changed in (before_ids, last_changed, first_changed):
    print([tokenizer.decode([token_id]) for token_id in changed])

# %%
predict(
    "01.last",
    "The last of four tokens is replaced. Which tokens get another key or value, in some layer?",
    choices=[
        "Only the last one",
        "All four",
        "All but the first one",
        "None: the words change, the keys do not",
    ],
)


# %%
def keys_and_values(ids, attend=attention):
    """Keys (T, K, D) and values (T, K, D) of each layer, from one pass over `ids`."""
    seen = []

    def watching(layer, q, k, v):
        seen.append((k.clone(), v.clone()))
        return attend(layer, q, k, v)

    next_scores(ids, watching)
    return seen


# %% [markdown]
# We don't ask whether they are nearly the same. `torch.equal` is true only if every bit is.


# %%
def unchanged(before, after):
    """For each layer and each token: do key and value have the very same bits?"""
    return [
        [torch.equal(k[t], k2[t]) and torch.equal(v[t], v2[t]) for t in range(len(k))]
        for (k, v), (k2, v2) in zip(before, after)
    ]


# %%
from minipd.lab.attention_steps import changes_table

before, after = keys_and_values(before_ids), keys_and_values(last_changed)
show_table(changes_table(map(tokenizer.decode, last_changed), unchanged(before, after)))
assert all(all(layer[:3]) for layer in unchanged(before, after))

# %%
from minipd.lab.changed_notes import WHY_NOT, changed_layers, changed_tokens

reveal("01.last", changed_tokens(unchanged(before, after)), why_not=WHY_NOT["01.last"])

# %% [markdown]
# ## Change the first token
#
# Now the other end. Every later token can see the first one.

# %%
predict(
    "01.first",
    "The first token is replaced. In which layers do the other three get other keys or values?",
    choices=[
        "In no layer",
        "In every layer",
        "In every layer but the first",
        "In the last layer only",
    ],
)

# %%
after = keys_and_values(first_changed)
show_table(changes_table(map(tokenizer.decode, first_changed), unchanged(before, after)))

# %%
reveal("01.first", changed_layers(unchanged(before, after)), why_not=WHY_NOT["01.first"])

# %% [markdown]
# ## Step through it
#
# Why the first layer is different is best seen slowly. Choose which token to replace, then go
# through the steps. (The numbers are real, of the first head of the first layer.)

# %%
from minipd.lab.attention_steps import summary_table, watch_changes
from minipd.lab.attention_widget import step_through

changes = watch_changes(decoder, tokenizer, before_ids, swaps, attention)
step_through(changes)

# %% [markdown]
# The same without buttons: a row for each replaced token, and what became of all four.

# %%
show_table(summary_table(changes))

# %% [markdown]
# Read it row by row. Left of the replaced token, everything is the same in all layers; right of
# it, everything is different from the second layer on.

# %% [markdown]
# ## What follows: notes may be kept
#
# An answer grows at its end only. A new last token changes no key and no value of an earlier one,
# so they can be computed *once* and kept. A store of them is called a **KV cache**, and you will
# build one in lesson 02. It is no approximation: it is allowed because the mask hides the future.
#
# One thing still has to be checked. We *replaced* a token; an answer *gets longer*. Then the
# matrices have another shape, and a computer may add up in another order. We put more tokens
# behind our four: how far do the keys and values of the first four move?

# %%
longer = keys_and_values([*before_ids, *swaps * 4])
notes = [(a, b[:4]) for old, new in zip(before, longer) for a, b in zip(old, new)]  # k, v
moved = max(float((new - old).abs().max()) for old, new in notes)
largest = max(float(old.abs().max()) for old, _ in notes)
print(f"{len(before_ids)} tokens, then {len(longer[0][0])}: earlier keys and values moved")
print(f"by {moved:.6f} at most; the largest number in them is {largest:.1f}")

# %% [markdown]
# Not at all, or in the last digits, by rounding. That can decide which token is chosen only where
# the two best scores are as good as equal, a *near-tie*. This course counts two answers as the
# same if they differ nowhere, or first at a near-tie.

# %% [markdown]
# ## Write without notes
#
# How good are kept notes? First we write *without* them: for every token of the answer, the whole
# text so far goes through the model again.


# %%
def write_without_notes(prompt_ids, count):
    """Greedy answer of `count` tokens, everything computed anew each time; seconds of arrival."""
    ids, arrivals, start = list(prompt_ids), [], time.perf_counter()
    for _ in range(count):
        ids.append(int(next_scores(ids).argmax()))
        arrivals.append(time.perf_counter() - start)
    return ids[len(prompt_ids) :], arrivals


# %% [markdown]
# Before it runs, think: the first token needs one pass over the prompt, the second one over the
# prompt and one token more, and so on. Suppose an answer of some length takes a minute this way.
# (The cell after the question is the slowest of this lesson; that is its point.)

# %%
predict(
    "01.double",
    "How many times as long does an answer of twice as many tokens take, without notes?",
    unit="times",
    brackets=[1.5, 2.5, 3.5, 5, 8],
)

# %%
story = llm.token_ids("Once upon a time, a")
slow_ids, slow_arrivals = write_without_notes(story, 80)
print(tokenizer.decode(story + slow_ids))

# %% [markdown]
# A pass that something else interrupted says nothing about the model, so each wait is replaced by
# the median of itself and its neighbours, two on each side, before we add up.


# %%
def waits(arrivals):
    return [later - earlier for earlier, later in zip([0.0, *arrivals], arrivals)]


raw_waits = waits(slow_arrivals)
steady = [statistics.median(raw_waits[max(i - 2, 0) : i + 3]) for i in range(len(raw_waits))]
reveal("01.double", sum(steady) / sum(steady[:40]), "times")

# %% [markdown]
# And the same answer from the engine. Are these the same tokens?

# %%
from minipd.measure.same_tokens import compare, logits_of

fast_ids, fast_arrivals, start = [], [], time.perf_counter()
for piece in llm.stream(story, SamplingParams(max_tokens=80, ignore_eos=True)):
    fast_ids.append(piece.token_id)
    fast_arrivals.append(time.perf_counter() - start)
same_model = logits_of(decoder)
verdict = compare(story, fast_ids, slow_ids, same_model, same_model)
print("our loop against the engine:", verdict.kind)

# %%
from minipd.lab.note_pad_plots import show_steps

show_steps({"everything again": raw_waits, "the engine": waits(fast_arrivals)})

# %% [markdown]
# Without notes each token costs more than the one before; the engine's stay level, because it
# keeps keys and values. Count the work in *token-passes*, one for each token that goes through
# the model: without notes the answer's lengths add up like steps of a staircase, and a staircase
# twice as long has nearly four times the area.
#
# The clock says a little less than this count, because a short pass does not cost in proportion:
# it has to fetch all the weights even for a handful of tokens (lesson 03). For long texts the count
# takes over: **recomputing grows as the square.**


# %%
lengths = [len(story) + written for written in range(1000)]  # of the text at each pass
half, whole, page = sum(lengths[:40]), sum(lengths[:80]), sum(lengths)
print(f"40 tokens: {half:,} passes; 80 tokens: {whole:,}, {whole / half:.1f} times as many")
print(f"with notes: {len(story) + 39} and {len(story) + 79}")

# %% [markdown]
# What is that for a page?

# %%
one_pass = sum(steady[40:]) / (whole - half)
usual = percentile(waits(fast_arrivals)[1:], 50)
print(f"1,000 tokens without notes: about {page * one_pass / 60:.0f} minutes on this machine")
print(f"with notes, at the engine's usual gap: {1000 * usual / 60:.1f} minutes")

# %% [markdown]
# ## What goes wrong
#
# **Somebody forgets the mask.** The model below is the same in every weight; only step two is
# left out. There is no error message.


# %%
def careless(layer, q, k, v):
    return attention(layer, q, k, v, masked=False)


before, after = keys_and_values(before_ids, careless), keys_and_values(last_changed, careless)
show_table(changes_table(map(tokenizer.decode, last_changed), unchanged(before, after)))

# %% [markdown]
# Now the replaced *last* token changes all the others too. Whoever keeps notes of such a model
# keeps notes that are out of date with the next token. Let it continue our story, without notes,
# so that nothing but the mask is to blame:

# %%
text = list(story)
for _ in range(12):
    text.append(int(next_scores(text, careless).argmax()))
print("without mask:", repr(tokenizer.decode(text)))
print("with mask:   ", repr(tokenizer.decode(story + slow_ids[:12])))

# %% [markdown]
# While learning it never saw later tokens, so it does not know what to do with them.
#
# **One average for two waits.** A colleague divides the whole time of our first answer by its
# tokens. What did the readers wait for?

# %%
everything = arrivals[-1] / len(arrivals)
print(f"'{everything * 1000:.0f} ms per token' says the colleague")
print(f"usual gap: {p50 * 1000:.0f} ms; wait for the first token: {ttft * 1000:.0f} ms")
print(f"gaps longer than the 'average': {sum(gap > everything for gap in gaps)} of {len(gaps)}")

# %% [markdown]
# The late start was spread over all tokens. The result is too slow for the trickle, too fast for
# the start, and moves when the prompt gets longer or the answer shorter, though nothing about the
# machine has changed.

# %% [markdown]
# ## Why the answer starts late, then trickles
#
# It **starts late**, because the first token needs the keys and values of the whole prompt, and
# all of its tokens have to go through the model before there is anything to say. It **trickles**,
# because each further token depends on the one before and needs a pass of its own. And the
# trickle does not slow down to a stop, because keys and values of earlier tokens never change and
# are kept.

# %%
names = ["prompt (tokens)", "TTFT (s)", "gap p50 (ms)", "gap p99 (ms)", "TTFT in gaps"]
names += ["80 tokens without notes, by the clock (s)", "80 tokens with notes, by the clock (s)"]
mine = [len(prompt), ttft, 1000 * p50, 1000 * p99, ttft / p50]
mine += [slow_arrivals[-1], fast_arrivals[-1]]
show_table({"what": names, "this machine": mine})

# %% [markdown]
# Beside it, a run that was recorded on another day [waits-recorded]: on one core of a virtual
# machine (Intel Xeon, 29 November 2026) SmolLM2-135M read 512 tokens in 1.13 s and wrote one in
# 50 ms, so that the late start was as long as 23 gaps. Its samples are in
# `benchmarks/raw/phases-2026-11-29-c.json`.
#
# **A laptop exaggerates** the late start: reading costs arithmetic, of which it has little. With
# one machine of 8 H100 GPUs and a model of 70 billion weights, a prompt of 512 tokens is read in
# the time of about 2 gaps, and it takes one of 8,192 tokens to get to about 27 [freeze-70b-h100].
# What does not depend on the machine is the order of things: first a long wait that grows with
# the prompt, then gaps that hardly do.

# %% [markdown]
# ## The same idea, full-size
#
# Here is one layer of the engine. Find the one line where tokens meet; everything else works on
# each token alone.

# %%
import inspect

from minipd.engine import attention as engine_attention
from minipd.model.decoder import DecoderLayer

for part in (DecoderLayer.forward, DecoderLayer.feed_forward):
    print(inspect.getsource(part))

# %% [markdown]
# It is `mixed = attend(...)`.
#
# And here is the engine's attention for a whole prompt: the four steps are a single call.
# `is_causal` is the mask, `enable_gqa` repeats the shared heads, and the division by the root of D
# is built in. On a processor, a prompt of middling length takes another way, `PromptInBlocks`: our
# four steps once more, written out for blocks of rows, which is quicker there. With SmolLM2, that
# is what read the contract in this lesson.

# %%
print(inspect.getsource(engine_attention._prompt))

# %% [markdown]
# ## The line for your bench sheet
#
# Prompt tokens over TTFT is a rate of reading, and one over the usual gap a rate of writing: the
# two columns that you know from lesson 00.

# %%
from minipd.measure import sheet
from minipd.measure.machine import describe_machine

line = sheet.SheetLine(
    machine=describe_machine().summary,
    model=llm.model.name,
    dtype="float32",
    threads=torch.get_num_threads(),
    prefill_tok_s=len(prompt) / ttft,
    decode_tok_s=1 / p50,
    note=f"lesson 01, TTFT {ttft:.2f} s, gap p99 {p99 * 1000:.0f} ms",
)

# %%
kept = sheet.append(line)
rates = {"prefill tok/s": [kept.prefill_tok_s], "decode tok/s": [kept.decode_tok_s]}
show_table(rates | {"note": [kept.note]}, f"Kept on {kept.date[:10]} at {kept.date[11:16]}")

# %% [markdown]
# ## Where you meet this in practice
#
# | tool | the mask and the notes |
# |---|---|
# | vLLM | `causal` in its attention backends [vllm-causal] |
# | SGLang | `RadixAttention`, which saves K and V as it goes [sglang-radix-attention] |
# | llama.cpp | `set_input_kq_mask` of its KV cache [llamacpp-kq-mask] |
# | transformers | `use_cache=False` is our slow loop [transformers-use-cache] |
# | minipd | `minipd/engine/attention.py` |
#
# | tool | the two waits |
# |---|---|
# | vLLM | TTFT, TPOT and ITL in `vllm bench serve` [vllm-bench-serve] |
# | SGLang | the same in `bench_serving` [sglang-benchmarks] |
# | llama.cpp | `timings` in every answer of its server [llamacpp-timings] |
# | minipd | `minipd bench`, and the sheet |
#
# The names are not used alike everywhere: what one tool calls ITL is another one's TPOT.
# Lesson 09 compares them on one and the same answer.
#
# **What we left out.** How a token's position gets into its key (it is turned by an angle, one
# for each position: the engine's `rotate`); the rest of a layer, which works on each token alone;
# choosing a token by lot instead of greedily; where the weights come from. None of it changes
# what you found.

# %% [markdown]
# ## How well do you predict?

# %%
calibration()

# %% [markdown]
# ## Quiz
#
# Every wrong answer is explained, and you can try again. In a terminal it is `minipd quiz 01`.

# %%
quiz("01")

# %% [markdown]
# ## Next
#
# Open [the exercises](../exercises/01_one_token_at_a_time.ipynb): four of them, from reading a
# clock to writing attention yourself. Lesson 02 builds the note-pad, and asks how big it gets.
