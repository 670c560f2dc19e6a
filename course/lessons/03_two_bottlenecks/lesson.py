# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Lesson 03: Two bottlenecks
#
# **The question: why is reading limited by arithmetic and writing by memory?**
#
# **Minutes:** 60 for this notebook, 15 for the quiz at its end, 50 for the three exercises.
#
# **You need:** lessons 00 to 02. No GPU.
#
# **Afterwards you can**
#
# - count the operations and the bytes of any pass through a model, and say which of them limits it;
# - draw a machine's *roofline*, put your own measurements on it, and see what they leave unused;
# - tell from two lines of a data sheet what a new machine would do for reading and for writing.
#
# As always: predict first, then run. New words are explained at the end, under [Words](#Words).

# %%
import statistics
import time
from functools import partial

from minipd.lab import calibration, panel, predict, quiz, reveal, show_table

panel("03")

# %% [markdown]
# ## A new machine that disappoints
#
# A company serves its chatbot with A100 GPUs and replaces them by H100 GPUs. Two lines of the data
# sheets changed: arithmetic went from 312 to 989.5 TFLOP/s (a TFLOP is a thousand GFLOP), and
# reading from memory went from 2.0 to 3.35 TB/s [gpu-ridge-points]. "Three times as fast", says the
# order form.
#
# Somebody has measured both, with one and the same large model. How much faster do the words of a
# *single* answer appear on the new machines? Write down a reason, too; at the end of this lesson
# you will read it again.

# %%
predict(
    "03.upgrade",
    "How many times as fast does one answer appear on the new GPU?",
    unit="times",
    brackets=[1.2, 1.7, 2.3, 3.0],
)

# %% [markdown]
# ## One pass, any number of tokens
#
# To the model, prefill and decode are the same thing: a *pass* through all of its layers. The only
# difference is how many tokens go through together. So let us build one pass, and then choose the
# number ourselves. First the model of the last lessons:

# %%
import torch
from torch.nn.functional import scaled_dot_product_attention

from minipd import LLM, SamplingParams
from minipd.lab.model_choice import lesson_model

name, why = lesson_model()
llm = LLM(name)
decoder, config, threads = llm.model.decoder, llm.model.config, torch.get_num_threads()
print(why)

# %% [markdown]
# Then lesson 02's note-pad, as short as it gets: keys and values of every token so far, layer by
# layer. A token may look at itself and at those before it, however many arrive at once.


# %%
class NotePad(dict):
    """Keys and values of every layer; a layer calls it with new q, k and v, (T, heads, D)."""

    def __call__(self, layer, q, k, v):
        keys, values = self.get(layer, (k[:0], v[:0]))
        self[layer] = keys, values = torch.cat([keys, k]), torch.cat([values, v])  # (S, K, D)
        may_see = torch.ones(len(q), len(keys), dtype=torch.bool).tril(len(keys) - len(q))  # (T, S)
        q, keys, values = (x.transpose(0, 1)[None] for x in (q, keys, values))
        mixed = scaled_dot_product_attention(q, keys, values, may_see, enable_gqa=True)
        return mixed[0].transpose(0, 1)  # (T, H, D)


# %% [markdown]
# Last, the pass itself, and a way to read a prompt in passes of `size` tokens. Whatever the size,
# every token goes through every layer exactly once, and the *head* (the matrix that turns the
# result into the next token) is used once, at the end.


# %%
@torch.inference_mode()
def one_pass(tokens, start, pad):
    """Run `tokens`, the first of which stands at position `start`, through all layers."""
    positions = torch.arange(start, start + len(tokens))  # (T,)
    return decoder(torch.tensor(tokens), positions, pad)  # (T, E)


# %%
def read(prompt, size):
    """Read a prompt in passes of `size` tokens; returns the notes and the first token."""
    pad = NotePad()
    for at in range(0, len(prompt), size):
        hidden = one_pass(prompt[at : at + size], at, pad)
    return pad, int(decoder.logits(hidden[-1:]).argmax())


# %% [markdown]
# Now read the same prompt three times: in one pass, in passes of eight tokens, and token by token.

# %%
text = (
    "The old lighthouse keeper wrote down every ship that passed, its name, its flag and the hour."
)
prompt = (llm.model.tokenizer.encode(text) * 4)[:64]
sizes = [64, 8, 1]
print(f"{len(prompt)} tokens, in {', '.join(str(len(prompt) // size) for size in sizes)} passes")

# %%
predict(
    "03.passes",
    "How many times as long do 64 passes of one token take as one pass of 64 tokens?",
    unit="times",
    brackets=[1.5, 3, 8, 20],
)

# %%
seconds, notes, first = {size: [] for size in sizes}, {}, {}
read(prompt, 64), read(prompt[:4], 1)  # warm-up
for size in sizes * 3:
    start = time.perf_counter()
    notes[size], first[size] = read(prompt, size)
    seconds[size].append(time.perf_counter() - start)

# %%
medians = {size: statistics.median(samples) for size, samples in seconds.items()}
reveal("03.passes", medians[1] / medians[64], "times")
columns = {"tokens in a pass": sizes, "passes": [len(prompt) // size for size in sizes]}
columns["seconds"] = list(medians.values())
show_table(columns | {"first token of the answer": [first[size] for size in sizes]})

# %% [markdown]
# ## The same answer?
#
# The three ways must agree, or the comparison means nothing. Let each of them write on from its own
# notes, and compare with the engine, by lesson 02's rule for near ties.

# %%
from minipd.measure.same_tokens import compare, logits_of


def write(first_token, pad, at, count):
    """An answer of `count` tokens: the first is there already, each other one takes a pass."""
    answer = [first_token]
    while len(answer) < count:
        hidden = one_pass(answer[-1:], at + len(answer) - 1, pad)
        answer.append(int(decoder.logits(hidden).argmax()))
    return answer


# %%
limits = SamplingParams(max_tokens=12, ignore_eos=True)
engine_wrote = llm.generate([prompt], limits)[0].token_ids
scores = logits_of(decoder)
for size in sizes:
    ours = write(first[size], notes[size], len(prompt), 12)
    print(f"passes of {size}:", compare(prompt, engine_wrote, ours, scores, scores).kind)

# %% [markdown]
# The same tokens came out, after the same multiplications and additions. So the difference in time
# cannot come from arithmetic. What did the slow way do more of? It *fetched* more: a pass has to
# bring every weight of the layers from memory, for one token just as for sixty-four. The slow way
# did that sixty-four times.

# %% [markdown]
# ## Operations for each byte
#
# Let us count. In a pass of $T$ tokens each weight is multiplied with a number of every token, and
# the product is added to a sum: 2 operations for each token [two-flops-per-weight]. And each weight
# is read once, with as many bytes as it has.


# %%
def count_pass(tokens, weights, bytes_of_a_weight):
    """Operations and bytes of one pass, counting nothing but the weights."""
    return 2 * weights * tokens, weights * bytes_of_a_weight


for tokens in (1, 8, 64, 512):
    flops, num_bytes = count_pass(tokens, config.num_matmul_parameters, 4)
    print(f"{tokens:3} tokens: {flops / 1e9:7.2f} GFLOP, {num_bytes / 1e6:.0f} MB read,", end=" ")
    print(f"{flops / num_bytes:5.1f} operations for each byte")

# %% [markdown]
# The last column is called **arithmetic intensity**: the operations that are done with each byte
# that is read. Look at the formula again: $2 \cdot W \cdot T$ operations, $W$ times the bytes of a
# weight. The number of weights $W$ cancels. *How large the model is does not matter*: the intensity
# of a pass depends on the tokens that go through it together, and on the bytes of a weight.
#
# That is the first half of the answer. Decode must make a pass for each token, because the next
# token is not known yet; its intensity is as low as it can be. Prefill knows its tokens from the
# start and puts hundreds of them into one pass.
#
# How good is so rough a count? The engine counts more carefully: the head works for one token of a
# prompt only, and attention works more the more there is to look back at.

# %%
from minipd.lab.roofline import decode_work, prefill_work

works = [prefill_work(config, tokens, 4) for tokens in (1, 8, 64, 512)]
works.append(decode_work(config, 1, context=4000, bytes_per_value=4))
columns = {"pass": [work.name for work in works[:-1]] + ["one step after 4,000 tokens"]}
columns["GFLOP"] = [work.flops / 1e9 for work in works]
columns["MB read"] = [work.num_bytes / 1e6 for work in works]
show_table(columns | {"FLOP per byte": [work.intensity for work in works]})

# %% [markdown]
# The rough count is good to a fifth or so. The last line shows what a long conversation adds to a
# step of decode: it reads the notes of lesson 02 as well, and does no more than a few operations
# with each byte of them. Notes are read for one answer only; no other token shares them. So decode
# stays where it is, at the low end.

# %% [markdown]
# ## Two ceilings, one picture
#
# Lesson 00 measured two ceilings: how fast this machine multiplies, and how fast it reads. We need
# them as they are now.

# %%
from minipd.lab.roofline import Roof, corner_tokens, show_roofline
from minipd.measure.ceilings import measure_ceilings

ceilings = measure_ceilings(threads=threads, quick=True, at_least=3)
own = Roof("this machine", ceilings.flops, ceilings.read_bytes_per_s)
print(f"arithmetic: {own.flops / 1e9:.0f} GFLOP/s, reading: {own.bytes_per_s / 1e9:.1f} GB/s")
print(ceilings.indicative_reason or "Nothing disturbed this measurement.")

# %% [markdown]
# A machine that reads $B$ bytes in a second, and does $I$ operations with each, cannot do more than
# $I \cdot B$ operations in a second, however fast it multiplies. Nor can it do more than its
# arithmetic ceiling. The lower of the two is what it can **attain**:
#
# `attainable = min(arithmetic ceiling, intensity * reading ceiling)`
#
# Drawn over the intensity, that is a slope which ends in a flat roof: the **roofline**
# [roofline-model]. The corner between them, also called the *ridge point*, is where both ceilings
# are met at once.

# %%
print(f"The corner is at {own.ridge:.1f} operations for each byte.")
print(f"A pass gets there with {corner_tokens(own, 4):.0f} tokens (weights of four bytes).")

# %% [markdown]
# That number of tokens may look familiar: exercise 2 of lesson 00 asked from how many answers at
# once a step is limited by arithmetic. It is the same question, since a pass does not care whether
# its tokens belong to one prompt or to many answers. (The many answers are lesson 04.)
#
# Left of the corner, a pass takes as long as it takes to fetch the weights, whatever the number of
# its tokens. So the roofline makes a bold promise: up to the corner, more tokens are *free*. Do you
# believe it?

# %%
predict(
    "03.eight",
    "How many times as long does a pass of 8 tokens take as a pass of one token?",
    unit="times",
    brackets=[1.1, 1.5, 2.5, 5],
)

# %%
predict(
    "03.mbu",
    "One step of decode: which share of the reading ceiling does it reach (MBU)?",
    unit="%",
    brackets=[10, 25, 50, 75],
)

# %%
predict(
    "03.mfu",
    "One pass of 512 tokens: which share of the arithmetic ceiling does it reach (MFU)?",
    unit="%",
    brackets=[10, 25, 50, 75],
)

# %% [markdown]
# ## Your own points
#
# Passes of four sizes, and steps of decode, each timed five times after a warm-up. They take turns,
# so that a slower moment of the machine meets all of them. It is the engine's own pass now: it
# keeps its notes in blocks (lesson 05), and does the same work.

# %%
from minipd.measure.phases import MinipdEngine, random_tokens

engine, tokens = MinipdEngine(llm.model, 512, 1), random_tokens(config.vocab_size, 512)
jobs = {size: partial(engine.prefill, tokens[:size]) for size in (1, 8, 64, 512)}
jobs["decode"] = partial(engine.decode, tokens[:16])  # sixteen steps
times = {job: [] for job in jobs}
for job in list(jobs) * 6:
    times[job].append(jobs[job]())

# %%
from minipd.lab.roofline import Point

typical = {job: statistics.median(runs[1:]) for job, runs in times.items()}  # first: warm-up
points = [Point(prefill_work(config, size, 4), typical[size]) for size in (1, 8, 64, 512)]
step = Point(decode_work(config, 1, context=8.5, bytes_per_value=4), typical["decode"] / 16)
reveal("03.eight", typical[8] / typical[1], "times")
reveal("03.mbu", 100 * step.mbu(own), "%")
reveal("03.mfu", 100 * points[-1].mfu(own), "%")

# %%
show_roofline([own], [*points, step])

# %% [markdown]
# Here are the same points as numbers, and in words how far each lies below its roof.

# %%
from minipd.lab.roofline import points_table

show_table(points_table(own, [*points, step]))
for point in [*points, step]:
    limit = own.limit(point.work.intensity)
    print(f"{point.work.name}: {point.of_roof(own):.0%} of what {limit} allows")

# %% [markdown]
# Read the picture from left to right.
#
# - One token in a pass, and a step of decode, lie at the foot of the slope. They come near the
#   *slope*, and far below the flat roof: memory holds them back. (They are nearly the same pass; a
#   step also looks back at some notes.)
# - With hundreds of tokens, a pass lies far to the right, near the *flat* roof: arithmetic holds it
#   back.
# - In between, both ceilings are near, and a pass usually stays well below either. For a few rows a
#   processor has neither the best way of reading (a row at a time) nor the best way of multiplying
#   (large squares of numbers). A roof says what is possible, not what a program reaches.
#
# A point a little above its roof is no miracle: the machine was faster just then than while its
# ceiling was measured.

# %% [markdown]
# ## Which share to look at
#
# MFU and MBU are these distances, one for each roof. Only one of them means something for a given
# pass: MFU where arithmetic is the limit, MBU where memory is. The other one is small because it
# *cannot* be large.

# %%
for point in (points[-1], step):
    work, limit = point.work, own.limit(point.work.intensity)
    best = {"MFU": own.attainable(work.intensity) / own.flops}
    best["MBU"] = own.attainable(work.intensity) / work.intensity / own.bytes_per_s
    print(f"{work.name}, limited by {limit}:")
    print(f"  MFU {point.mfu(own):.1%}, could be {best['MFU']:.1%} at most")
    print(f"  MBU {point.mbu(own):.1%}, could be {best['MBU']:.1%} at most")

# %% [markdown]
# ## What goes wrong
#
# **The forecast with the wrong ceiling.** It stands in many a plan: "A token costs two operations
# for each weight. We divide what the machine can multiply by that, and know how fast it writes."

# %%
from minipd.measure.counts import decode_flops

forecast = own.flops / decode_flops(config, 1, 8.5)
print(f"forecast from arithmetic: {forecast:6.1f} tokens/s")
print(f"measured:                 {1 / step.seconds:6.1f} tokens/s")
print(f"wrong by a factor of {forecast * step.seconds:.0f}")

# %% [markdown]
# The division is right, and so is each of its numbers. It answers another question: how fast would
# this machine write if every weight were at hand already? Take the *lower* roof for a forecast:

# %%
print(f"forecast from the roofline: {1 / own.seconds(step.work):.1f} tokens/s at most")

# %% [markdown]
# **Busy is not working.** "But the monitor says that the processor is fully used!" Let us ask the
# system how much of the time the processor was busy, in both phases.

# %%
for phase, point, run in (("prefill", points[-1], jobs[512]), ("decode", step, jobs["decode"])):
    start, used = time.perf_counter(), time.process_time()
    run()
    busy = (time.process_time() - used) / (time.perf_counter() - start) / threads
    print(f"{phase}: processor busy {busy:.0%} of the time, MFU {point.mfu(own):.0%}")

# %% [markdown]
# (Where other programs want the processor, both shares are lower, but alike.) A processor that
# waits for memory counts as busy: an instruction is under way, it just does not get its number yet.
# The "utilisation" that a GPU's monitor shows is of the same kind: it says for which share of the
# time *something* was running [gpu-utilisation-meaning]. Only work that was counted, divided by
# time, tells you what you got.

# %% [markdown]
# ## Where the corner lies elsewhere
#
# Three data-centre GPUs, from their data sheets [gpu-ridge-points], and this machine. Data sheets
# state what the hardware could do; what can be measured is less. Weights have two bytes there, as
# is usual, so a pass of $T$ tokens does $T$ operations for each byte.

# %%
from minipd.lab.roofline import GPUS, corners_table

show_table(corners_table([own, *GPUS], {own.name: 4}))
show_roofline([*GPUS])

# %% [markdown]
# The H200 has the arithmetic of the H100 and faster memory: its slope is higher and its flat roof
# the same. Which of the two phases gains? The explorer answers that, and much else: choose a
# machine, a model, the bytes of a weight and the number of tokens. (A model that is too large for
# one GPU gets as many as hold its weights, as if sharing cost nothing; lesson 11 says what it
# costs.)

# %%
from minipd.lab.roofline_explorer import forecast_table, roofline_explorer

roofline_explorer(own)

# %% [markdown]
# The same as a table, for those who do not use the buttons:

# %%
show_table(forecast_table([own, *GPUS], "Llama-3-8B", 2), "Llama-3-8B, weights of two bytes")

# %% [markdown]
# ## Where the laptop exaggerates
#
# On this machine a pass reaches the corner with a few tokens; an H100 needs about 295
# [gpu-ridge-points]. That one number explains lesson 00's freeze. While a prompt of $T$ tokens is
# read, others lose as many steps as fit into that time. If reading runs at the arithmetic ceiling
# and each step at the memory ceiling, the lost steps are simply $T$ divided by the tokens at the
# corner. Published step times of a model with 70 billion weights let us check that
# [freeze-70b-h100].

# %%
from minipd.measure.real_hardware import A100X8, H100X8

corner = corner_tokens(GPUS[1], 2)
print(f"here, 512 tokens: {512 / corner_tokens(own, 4):.0f} steps by the formula,", end=" ")
print(f"{points[-1].seconds / step.seconds:.0f} measured")
for length in (512, 8192):
    published = H100X8.freeze_tokens(length)
    print(f"H100, {length} tokens: {length / corner:.1f} by the formula, {published:.1f} published")

# %% [markdown]
# So a small machine exaggerates the freeze *because its corner lies further to the left*. For the
# same reason, short prompts are another matter in a data centre: up to some hundreds of tokens they
# are limited by memory there, just like decode, and cost hardly more than a single step.

# %% [markdown]
# ## The answer
#
# Reading puts many tokens into one pass, so each weight that was fetched is used many times, and
# arithmetic becomes the limit. Writing has one token for a pass, uses each weight once, and waits
# for memory. In numbers from this machine:

# %%
for label, point in (("reading 512 tokens", points[-1]), ("writing one token", step)):
    print(
        f"{label}: {point.work.intensity:.1f} operations for each byte (corner: {own.ridge:.1f}),"
    )
    print(f"  {1000 * point.seconds:.0f} ms, MFU {point.mfu(own):.0%}, MBU {point.mbu(own):.0%}")

# %% [markdown]
# And the disappointing new machine? Its arithmetic is three times as fast, but one answer leans on
# the other line of the data sheet. Here is what somebody measured [upgrade-a100-h100].

# %%
old, new = GPUS[0], GPUS[1]
reveal("03.upgrade", A100X8.decode_ms() / H100X8.decode_ms(), "times")
print(f"the memory line of the data sheet promised {new.bytes_per_s / old.bytes_per_s:.2f} times,")
print(f"the arithmetic line {new.flops / old.flops:.2f} times.")
gain = A100X8.prefill_ms(2048) / H100X8.prefill_ms(2048)
print(f"A prompt of 2,048 tokens was read {gain:.2f} times as fast.")

# %% [markdown]
# Another machine beside yours, recorded on 29 November 2026 [lesson-03-recorded]: one core of an
# Intel Xeon server processor, the same model in float32 (raw samples in
# `benchmarks/raw/phases-2026-11-29-c.json`).
#
# | what | recorded there |
# |---|---|
# | corner, operations for each byte | 8.7 [lesson-03-recorded] |
# | reading 512 tokens in one pass | 455 tokens/s, MFU 72 % [lesson-03-recorded] |
# | writing, 128 steps | 20.1 tokens/s, MBU 65 % [lesson-03-recorded] |
# | steps lost while 512 tokens are read | 23 [lesson-03-recorded] |

# %% [markdown]
# ### Optional: weights of one byte
#
# If decode waits for bytes, give it fewer. A weight can be rounded to an 8-bit whole number, which
# takes one byte, with one *scale* for each column of a matrix: `weight = whole number * scale`. Two
# ways to multiply with it are in use.
#
# - **Weights only.** Each whole number is widened to the usual type on its way into the product.
#   A quarter of the bytes is read; the arithmetic is what it was.
# - **Weights and inputs.** The row that a matrix is multiplied with becomes 8-bit as well, and
#   whole numbers are multiplied, for which processors have faster instructions.
#
# Which bottleneck does each of them lift? Predict all four; the first two are for weights only.

# %%
predict(
    "03.weights-decode",
    "8-bit weights only: how many times as fast is a step of decode?",
    unit="times",
    brackets=[0.8, 1.2, 2, 4],
)

# %%
predict(
    "03.weights-prefill",
    "8-bit weights only: how many times as fast is a pass of 512 tokens?",
    unit="times",
    brackets=[0.8, 1.2, 2, 4],
)

# %%
predict(
    "03.both-decode",
    "8-bit weights and inputs: how many times as fast is a step of decode?",
    unit="times",
    brackets=[0.8, 1.2, 2, 4],
)

# %%
predict(
    "03.both-prefill",
    "8-bit weights and inputs: how many times as fast is a pass of 512 tokens?",
    unit="times",
    brackets=[0.8, 1.2, 2, 4],
)

# %% [markdown]
# Rounding a whole model takes a few seconds. Then the same passes as above, taking turns.

# %%
from minipd.lab.eight_bit import eight_bit, same_choices, time_passes

kinds = {"float32": llm.model}
kinds |= {kind: eight_bit(llm.model, kind) for kind in ("weights", "both")}
took = time_passes(kinds, tokens, rows=(1, 16, 512))

# %%
show_table(
    {
        "products in": ["float32", "8-bit weights", "8-bit weights and inputs"],
        **{
            f"{rows} rows (ms)": [1000 * took[kind][rows] for kind in kinds]
            for rows in (1, 16, 512)
        },
    }
)

# %%
faster = {
    (kind, rows): took["float32"][rows] / took[kind][rows] for kind in kinds for rows in (1, 512)
}
reveal("03.weights-decode", faster["weights", 1], "times")
reveal("03.weights-prefill", faster["weights", 512], "times")
reveal("03.both-decode", faster["both", 1], "times")
reveal("03.both-prefill", faster["both", 512], "times")

# %% [markdown]
# Fewer bytes lift the slope: both ways can help decode, which waits for memory. The first way does
# nothing for a long pass, and even costs a little, since the weights have to be widened first. Only
# 8-bit arithmetic lifts the flat roof and helps prefill. How much you see depends on the processor,
# which may lack instructions for small whole numbers, and on what else is running: a step of
# decode in 8-bit weights is so short that the small work between the products begins to show.
#
# Neither is free. Rounded weights are other weights, and now and then another token wins. How
# often? We ask all three models for the next token at every place of a text.

# %%
story = "A pass fetches every weight of the model. In prefill it works for many tokens at once, so "
story += "arithmetic is the limit. In decode it works for a single token, and memory is the limit. "
story += (
    "Many people believe that a faster processor helps both of them equally, and buy the wrong "
)
story += "machine. Before you buy one, count what a pass must read and what it must multiply."
asked = [prompt, llm.model.tokenizer.encode(story)]
for kind in ("weights", "both"):
    other = 1 - same_choices(llm.model, kinds[kind], asked)
    print(f"{kind}: another token at {other:.1%} of {sum(map(len, asked))} places")

# %% [markdown]
# In an answer, one other token changes everything after it. From which token on does each answer
# differ from the one in float32?

# %%
from minipd.lab.eight_bit import first_difference

long = SamplingParams(max_tokens=40, ignore_eos=True)
plain = llm.generate([asked[1]], long)[0]
for kind in ("weights", "both"):
    answer = LLM(kinds[kind], num_kv_blocks=64).generate([asked[1]], long)[0]
    at = first_difference(plain.token_ids, answer.token_ids)
    print(
        f"{kind}: {'no other token in all 40' if at is None else f'other from token {at + 1} on'}"
    )

# %% [markdown]
# Another token need not be a worse one; whether answers get worse is a question for a test of
# quality, which is not our subject. But whoever serves 8-bit weights serves another model, and has
# to say so.

# %% [markdown]
# ## The same idea, full-size
#
# The counts that turn a time into MFU and MBU stand in one file of the engine. Find the two
# operations for each weight, the head for one row, and the weights that are read once.

# %%
import inspect

from minipd.measure import counts

print(inspect.getsource(counts.prefill_flops))
print(inspect.getsource(counts.decode_bytes))

# %% [markdown]
# And the corner, from the two ceilings:

# %%
print(inspect.getsource(type(ceilings).ridge_flops_per_byte.fget))

# %% [markdown]
# | tool | the same idea |
# |---|---|
# | vLLM | `--enable-mfu-metrics` counts operations and bytes by formula [vllm-mfu-metrics] |
# | SGLang | `--enable-mfu-metrics`: counters of operations and bytes [sglang-mfu-metrics] |
# | llama.cpp | `Q8_0` weights on a CPU: inputs are rounded to 8 bits as well [llama-q8-dot] |
# | vLLM, 8 bits | *INT8 W8A8*: weights and inputs in 8 bits [vllm-int8-w8a8] |
# | DistServe | on an A100, arithmetic limits above an intensity of 156 [gpu-ridge-points] |

# %% [markdown]
# ## A line for your bench sheet

# %%
from minipd.lab.trust import doubts
from minipd.measure import sheet
from minipd.measure.machine import describe_machine
from minipd.measure.stats import Samples

rates = {"prefill": Samples(tuple(512 / s for s in times[512][1:]))}
rates["decode"] = Samples(tuple(16 / s for s in times["decode"][1:]))
doubt = doubts(ceilings, rates)
print(doubt or "The samples lie close together, and nothing disturbed the ceilings.")

# %%
line = sheet.SheetLine(
    machine=describe_machine().summary,
    model=llm.model.name,
    dtype="float32",
    threads=threads,
    prefill_tok_s=rates["prefill"].median,
    decode_tok_s=rates["decode"].median,
    mfu=points[-1].mfu(own),
    mbu=step.mbu(own),
    note="lesson 03, 16 steps" + (", indicative" if doubt else ""),
)

# %%
kept = sheet.append(line)
shares = {"MFU of prefill": [f"{kept.mfu:.0%}"], "MBU of decode": [f"{kept.mbu:.0%}"]}
show_table(shares | {"note": [kept.note]}, f"Kept on {kept.date[:10]} at {kept.date[11:16]}")

# %% [markdown]
# **What we left out.** Caches between memory and processor: a model that fits into them is not read
# from memory at all, and its "MBU" can exceed the ceiling. Writing to memory, and the numbers that
# travel between layers; for passes like these they are small. Many answers in one step, which move
# decode to the right along the slope (lesson 04). Smaller numbers still, of four
# bits. And the network between
# several GPUs, a third roof (lesson 11).

# %% [markdown]
# ## How well do you predict?

# %%
calibration()

# %% [markdown]
# ## Quiz
#
# Every wrong answer is explained, and you can try again; in a terminal it is `minipd quiz 03`.

# %%
quiz("03")

# %% [markdown]
# ## Next
#
# Open [the exercises](../exercises/03_two_bottlenecks.ipynb): three, with checks and hints. Then
# lesson 04: a step of decode leaves nearly all arithmetic unused, so let it write for many at once.
