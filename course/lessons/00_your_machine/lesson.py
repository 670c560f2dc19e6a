# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Lesson 00: See it, then measure your machine
#
# **The question: why did everybody's answer stop?**
#
# **Minutes:** 45, and 30 more for the exercises and the quiz.
#
# **You need:** some Python, and to have used a chatbot once. No GPU, no account, nothing about
# transformers.
#
# **Afterwards you can**
#
# - say what *prefill* and *decode* are, and measure each of them on its own;
# - measure the two ceilings of a computer, and tell which of them holds a given job back;
# - tell a measurement from a number that merely came out of a stopwatch.
#
# Run the cells from top to bottom with Shift+Enter. Before most measurements you are asked for a
# prediction. Please make one, even a wild one: it is kept beside the measurement, and what you
# learn is the distance between the two.

# %%
from minipd.lab import calibration, panel, predict, quiz, reveal, show, show_table

panel("00")

# %% [markdown]
# ## A story to start with
#
# A small company runs its own chatbot on one server. It is mid-morning and a dozen people are
# using it: on every screen, words are appearing one after the other. Then one colleague pastes a
# long contract into her window and asks for a summary.
#
# On every *other* screen, the words stop. Nothing has crashed, nobody has lost a connection. After
# a moment the words go on as if nothing had happened.

# %%
GUESSES = [
    "The network dropped out for a moment",
    "The server ran out of memory and recovered",
    "The server was busy reading the contract",
    "The model had to think harder about the next word",
]
predict("00.cause", "Why did everybody's answer stop?", choices=GUESSES)

# %% [markdown]
# ## A riddle to take along
#
# *Within one year, the companies that sell chatbots bought ten times more servers. In the same
# year, the price of what those servers make fell to a tenth. How can both be true?*
#
# The wording is ours. The course module that gave us the idea answers a riddle whose text has not
# come down to us, and neither of its two factors has a source [riddle-premises]. So treat it as a
# riddle and not as news: write down what you believe now. In lesson 12 you will compute how much of
# it the subject of this course can explain.

# %%
predict(
    "00.riddle",
    "What is the best explanation?",
    choices=[
        "The new servers are simply that much cheaper",
        "Each server gets far more done, so far more is sold",
        "The companies sell at a loss",
        "One of the two statements must be wrong",
    ],
)

# %% [markdown]
# ## Two phases in two sentences
#
# A language model reads and writes *tokens*: short words, or pieces of longer ones.
#
# **Prefill** is reading: all tokens of the prompt go through the model *at once*, and out comes the
# first token of the answer.
#
# **Decode** is writing: from then on, every further token needs a step of its own through the
# *whole* model, because each token depends on the one before it.
#
# That is all you need for this lesson. Everything else in this course follows from the fact that
# these two kinds of work could hardly be more different. Let us watch them.

# %% [markdown]
# ## Watch a real model write
#
# Three lines load a small but real language model and let it write. The first time, the model is
# fetched, which can take a minute. Larger models write better, but they go through exactly
# these steps.

# %%
from minipd import LLM, SamplingParams

llm = LLM("smollm2-135m")
print(llm.generate(["The capital of France is"], SamplingParams(max_tokens=8))[0].text)

# %% [markdown]
# Now with a long prompt, the contract of our story, and with a clock. `llm.stream` hands over each
# piece of the answer as soon as it exists; we note when each one arrives.

# %%
import random
import time

clauses = [f"Clause {n}: the tenant waters plant {n} every morning." for n in range(1, 31)]
# A new number each time: the engine would remember a prompt that it has read (lesson 05).
contract = f"House rules, copy {random.randint(100, 999)}. " + " ".join(clauses)
prompt = llm.chat_ids("Summarise this contract in one sentence. " + contract)
arrivals, start = [], time.perf_counter()
for piece in llm.stream(prompt, SamplingParams(max_tokens=24)):
    arrivals.append(time.perf_counter() - start)
    print(piece.text, end="", flush=True)

# %% [markdown]
# The pauses between the pieces show the two phases. How does the first one compare with the others?

# %%
import matplotlib.pyplot as plt

pauses = [later - earlier for earlier, later in zip([0.0, *arrivals], arrivals)]
fig, ax = plt.subplots(figsize=(7, 2.5))
ax.bar(range(1, len(pauses) + 1), pauses, color="0.55", edgecolor="black")
ax.set(xlabel="piece of the answer", ylabel="seconds waited")
pieces = {"piece": list(range(1, len(pauses) + 1)), "seconds waited": pauses}
words = f"Bar chart: {pauses[0]:.2f} s before the first piece, then {len(pauses) - 1} short waits."
show(fig, alt=words, table=pieces)

# %% [markdown]
# The tall bar is prefill: the prompt was read in one go. The short ones are decode: one step each.
# Reading took much longer than one step of writing, but it dealt with hundreds of tokens. Which of
# the two made better use of your computer? To answer that, we need to know what your computer
# could do at best.

# %% [markdown]
# ## What kind of machine is this?
#
# In a terminal, `minipd doctor` checks everything that the course needs and names the remedy for
# anything missing. Here we ask for the facts that decide about measurements.

# %%
import torch

from minipd.measure.machine import describe_machine

machine, threads = describe_machine(), torch.get_num_threads()
power = {True: "battery", False: "mains", None: "the system does not say"}[machine.on_battery]
names = ["processor", "threads used here", "memory (GiB)", "power"]
show_table({"what": names, "here": [machine.cpu, threads, machine.memory_bytes / 2**30, power]})

# %% [markdown]
# If this is a laptop on battery, plug it in before you go on: processors slow down to save power,
# and a number taken on battery says little about the machine. Close what you do not need, too.

# %% [markdown]
# ## Two ceilings
#
# Whatever a computer does with a language model, it does two things: it *reads numbers from
# memory*, and it *multiplies and adds* them. Each has a limit, and we can measure both.
#
# - Arithmetic: how many multiplications and additions per second, in the product of two large
#   matrices? The unit is GFLOP/s, a thousand million of them per second.
# - Reading: how many bytes per second can arrive from main memory? The unit is GB/s, a thousand
#   million bytes per second.

# %%
predict(
    "00.arithmetic",
    f"How much arithmetic can this machine do at best (threads used: {threads})?",
    unit="GFLOP/s",
    brackets=[10, 30, 100, 300, 1000, 3000],
)

# %%
predict(
    "00.reading",
    "And how fast can it read from main memory?",
    unit="GB/s",
    brackets=[5, 10, 20, 50, 100, 300],
)

# %%
from minipd.measure.ceilings import measure_ceilings

ceilings = measure_ceilings(threads=threads, quick=True)
reveal("00.arithmetic", ceilings.flops / 1e9, "GFLOP/s")
reveal("00.reading", ceilings.read_bytes_per_s / 1e9, "GB/s")

# %% [markdown]
# Put the two side by side and a third number appears: how many operations the machine can do in
# the time it takes to fetch a single byte.

# %%
print(f"Arithmetic: {ceilings.flops / 1e9:.1f} GFLOP/s")
print(f"Reading:    {ceilings.read_bytes_per_s / 1e9:.1f} GB/s")
print(f"Operations per byte read: {ceilings.ridge_flops_per_byte:.1f}")

# %% [markdown]
# Remember that last figure. A job that does *more* than this with every byte is held back by
# arithmetic, and a job that does *less* is held back by memory: then the arithmetic units are idle
# most of the time, however busy the computer looks.

# %% [markdown]
# ## How sure are we?
#
# A measurement without its spread is half a measurement. Here are all the samples behind the two
# ceilings.

# %%
product, read = ceilings.best_product, ceilings.best_read
fig, axes = plt.subplots(1, 2, figsize=(7, 2.5))
for ax, samples, unit in zip(axes, (product, read), ("GFLOP/s", "GB/s")):
    places = range(1, len(samples.values) + 1)
    ax.plot(places, [value / 1e9 for value in samples.values], "o", color="black")
    ax.set(xlabel="repetition", xticks=places, ylabel=unit)
    ax.set_ylim(0, samples.best / 1e9 * 1.15)
fig.tight_layout()
rows = {
    "ceiling": ["arithmetic (GFLOP/s)", "reading (GB/s)"],
    "best": [product.best / 1e9, read.best / 1e9],
    "median": [product.median / 1e9, read.median / 1e9],
    "spread (share of median)": [product.spread, read.spread],
}
words = f"Two dot plots of samples. Spread: {product.spread:.0%} for arithmetic, {read.spread:.0%}"
show(fig, alt=f"{words} for reading.", table=rows)

# %% [markdown]
# A ceiling is the *best* sample: nothing can make a computer faster than it is, but a great many
# things can make it slower for a moment. For everything else we take the *median*, which one
# interrupted run cannot move. If the samples lie far apart, something else is using the machine;
# the next cell says so in words.

# %%
print(ceilings.indicative_reason or "Nothing disturbed this measurement.")

# %% [markdown]
# ## What goes wrong
#
# Three ways to measure nonsense. Each cell below runs without an error, which is the trouble.
#
# **The stopwatch that times nothing.** How long does it take to write this answer?

# %%
start = time.perf_counter()
answer = llm.stream("Once upon a time", SamplingParams(max_tokens=16))
seconds = time.perf_counter() - start
print(f"{16 / seconds:,.0f} tokens per second?!")

# %% [markdown]
# `llm.stream` returns a generator: so far it has only *promised* to write. The work starts when
# somebody asks for the first piece. GPUs lead you into the same trap: they accept work and return
# at once, so a clock that does not wait measures how fast one can ask. Let us ask properly.

# %%
start = time.perf_counter()
count = sum(1 for _ in answer)
seconds = time.perf_counter() - start
print(f"{count / seconds:.1f} pieces per second")

# %% [markdown]
# **The first time is special.** Here is one product of two small matrices of 16-bit numbers, ten
# times over, with a size that this notebook has not used yet.

# %%
size = int(torch.randint(300, 400, ()))
matrix = torch.rand(size, size, dtype=torch.bfloat16)
runs = []
for _ in range(10):
    start = time.perf_counter()
    matrix @ matrix
    runs.append((time.perf_counter() - start) * 1000)
print("milliseconds:", " ".join(f"{run:.2f}" for run in runs))
print(f"first: {runs[0]:.2f}   mean: {sum(runs) / 10:.2f}   median: {sorted(runs)[5]:.2f}")

# %% [markdown]
# The first run is usually many times slower: the library writes a piece of machine code for the new
# size, and memory comes from the system. Nobody waits for that again. So repeat, leave the first
# runs out, and report the median with the spread; a single run proves nothing.
#
# **The mean of rates.** A car drives one hour at a slow and one minute at a high speed; nobody
# would call the mean of the two speeds its average. With tokens per second it is done all the time.

# %%
slow, fast = 500 / 50, 500 / 5  # tokens per second of two runs of equal length
mean_of_rates = (slow + fast) / 2
all_over_all = (500 + 500) / (50 + 5)
print(f"mean of rates: {mean_of_rates:.1f} tokens/s")
print(f"all tokens over all seconds: {all_over_all:.1f} tokens/s")
print(f"too good by a factor of {mean_of_rates / all_over_all:.1f}")

# %% [markdown]
# The slow run filled nearly all of the time, but the mean gives it only half of the say. Exercise 1
# is about this.

# %% [markdown]
# ## Predict both phases from the ceilings
#
# Now for the model. All that decode needs to do for one token is to use every weight of the model
# once: fetch it from memory, multiply it, add the result to a sum. Prefill also uses every weight,
# but for all tokens of the prompt together: it fetches each weight once and works with it hundreds
# of times.

# %%
from minipd.measure.counts import decode_bytes, decode_flops, prefill_flops, weight_bytes

config = llm.model.config
print(f"Parameters of the model: {config.num_parameters:,}")
print(f"Bytes that one step of decode reads: {weight_bytes(config, 4):,}")
print(f"Operations of one step of decode: {decode_flops(config, 1, 1):,}")
print(f"Operations to read a prompt of 512 tokens: {prefill_flops(config, 512):,}")

# %% [markdown]
# You have both ceilings and the amount of work, so you can predict with a division. Should a step
# of decode be limited by reading or by arithmetic? Which of the two divisions takes longer?

# %%
predict(
    "00.decode",
    "How many tokens per second will decode write?",
    unit="tokens/s",
    brackets=[3, 10, 30, 100, 300],
)

# %%
predict(
    "00.prefill",
    "And how many tokens per second will prefill read?",
    unit="tokens/s",
    brackets=[30, 100, 300, 1000, 3000, 10000],
)

# %% [markdown]
# ## Measure them apart
#
# Prefill: one pass over a whole prompt. Decode: passes with one token each. One run of each for
# warm-up, then repetitions.

# %%
from minipd.measure.phases import MinipdEngine, random_tokens
from minipd.measure.stats import Samples

engine, tokens = MinipdEngine(llm.model, 512, 1), random_tokens(config.vocab_size, 512)
engine.prefill(tokens), engine.decode(tokens[:8])
prefill = Samples(tuple(512 / engine.prefill(tokens) for _ in range(3)))
decode = Samples(tuple(32 / engine.decode(tokens[:32]) for _ in range(3)))

# %%
reveal("00.prefill", prefill.median, "tokens/s")
reveal("00.decode", decode.median, "tokens/s")

# %% [markdown]
# And this is what the ceilings would allow if nothing at all were lost on the way: the arithmetic
# ceiling for prefill, the reading ceiling for decode.

# %%
print(f"prefill: {512 * ceilings.flops / prefill_flops(config, 512):.0f} tokens/s at most")
print(f"decode: {ceilings.read_bytes_per_s / weight_bytes(config, 4):.1f} tokens/s at most")

# %% [markdown]
# How close did each phase come to the ceiling that holds it back? The share of the arithmetic
# ceiling is called **MFU**, the share of the reading ceiling **MBU**.

# %%
context = 16.5  # tokens that a step looks back at, on average over the first 32
operations = {"prefill": prefill_flops(config, 512) / 512}  # for one token
operations["decode"] = decode_flops(config, 1, context)
read_bytes = {"prefill": weight_bytes(config, 4) / 512}
read_bytes["decode"] = decode_bytes(config, 4, 1, context)

# %%
rates = {"prefill": prefill.median, "decode": decode.median}
mfu = {phase: rate * operations[phase] / ceilings.flops for phase, rate in rates.items()}
mbu = {phase: rate * read_bytes[phase] / ceilings.read_bytes_per_s for phase, rate in rates.items()}

# %%
fig, ax = plt.subplots(figsize=(7, 2.5))
bars = [mfu["prefill"], mfu["decode"], mbu["prefill"], mbu["decode"]]
labels = ["arithmetic,\nprefill", "arithmetic,\ndecode", "reading,\nprefill", "reading,\ndecode"]
ax.bar(labels, bars, color="0.75", edgecolor="black", hatch=["/", ".", "/", "."])
ax.set(ylabel="share of the ceiling", ylim=(0, max(1, *bars)))
table = {"phase": list(rates), "tokens/s": list(rates.values())}
table |= {"MFU": list(mfu.values()), "MBU": list(mbu.values())}
words = f"Prefill reaches {mfu['prefill']:.0%} of the arithmetic and {mbu['prefill']:.0%} of the"
words += f" reading ceiling; decode {mfu['decode']:.0%} and {mbu['decode']:.0%}."
show(fig, alt=words, table=table)

# %% [markdown]
# There is the whole course in one picture. Prefill keeps the arithmetic busy and hardly reads;
# decode keeps the memory busy and hardly computes. The same model on the same machine, and each
# phase leaves idle what the other one needs.

# %% [markdown]
# ## Why everybody's answer stopped
#
# A server that does both on one device must put them one after the other. While it reads somebody's
# contract, nobody's next token can be written. How long is that on your machine, in tokens that
# somebody else did not get?

# %%
freeze_s = 512 / prefill.median
print(f"Reading 512 tokens takes {freeze_s:.2f} s.")
print(f"In that time, decode would have taken {freeze_s * decode.median:.0f} steps.")
reveal("00.cause", GUESSES[2])

# %% [markdown]
# **Your laptop exaggerates.** On one machine with 8 H100 GPUs and a model of 70 billion weights, a
# prompt of 512 tokens costs the others about 2 steps, and one of 8,192 tokens about 27
# [freeze-70b-h100]. The freeze does not go away on better hardware; it takes longer prompts to see
# it. One remedy is to give the two phases separate machines. What that costs, and when it pays, is
# what this course lets you find out.

# %% [markdown]
# ## The same idea, full-size
#
# The measurement that you just used is part of the engine. Its two phases differ in one line each:
# prefill is *one* piece of work with all tokens, decode is *many* with one token each.

# %%
import inspect

print(inspect.getsource(MinipdEngine.prefill))
print(inspect.getsource(MinipdEngine.decode))

# %% [markdown]
# ## The first line of your bench sheet
#
# The bench sheet is a file that stays with you through the course: one line for each measurement,
# with prefill and decode in columns of their own. `minipd sheet` shows it in a terminal, and
# `minipd bench` adds lines with the full tests.

# %%
from minipd.measure import sheet

line = sheet.SheetLine(
    machine=machine.summary,
    model=llm.model.name,
    dtype="float32",
    threads=threads,
    prefill_tok_s=prefill.median,
    decode_tok_s=decode.median,
    mfu=mfu["prefill"],
    mbu=mbu["decode"],
    note="lesson 00 (32 steps)",
)
kept = sheet.append(line)
show_table({"prefill tok/s": [kept.prefill_tok_s], "decode tok/s": [kept.decode_tok_s]}, kept.date)

# %% [markdown]
# ## Where you meet this in practice
#
# | tool | where the two phases are reported |
# |---|---|
# | llama.cpp | `llama-bench`: the rows `pp512` and `tg128` [llama-bench-tests] |
# | vLLM | `vllm bench serve`: time to first token, time per output token [vllm-bench-serve] |
# | SGLang | `sglang.bench_one_batch`: prefill and decode apart [sglang-benchmarks] |
# | minipd | `minipd bench`, and `minipd sheet` for what you measured before |
#
# A report that gives a single "tokens per second" has mixed the two. Now you know what to ask.
#
# **What we left out.** Several users at once (lesson 04); the KV cache, which decode reads as well
# and which grows with the conversation (lesson 02); numbers smaller than four bytes (lesson 03);
# the queue in front of a busy server (lesson 06).

# %% [markdown]
# ## How well do you predict?
#
# A prediction of half and one of twice the truth count as equally far off. The line below will
# follow you through the course.

# %%
calibration()

# %% [markdown]
# ## Quiz
#
# Every wrong answer is explained, and you can try again. The quiz works with the mouse, and with
# Tab and Space; in a terminal it is `minipd quiz 00`.

# %%
quiz("00")

# %% [markdown]
# ## Next
#
# Open `exercises/00_your_machine.ipynb`: two short exercises with checks and hints. Then lesson 01
# looks inside a single step, and asks why the answer starts late and then trickles.
