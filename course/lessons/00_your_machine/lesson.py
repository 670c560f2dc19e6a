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
# **Minutes:** 60 for this notebook, 15 for the quiz at its end, 30 for the two exercises.
#
# **You need:** some Python, to have used a chatbot once, and, for the first start, the internet (the
# model is fetched once). No GPU, no account, nothing about transformers.
#
# **Afterwards you can**
#
# - say what *prefill* and *decode* are, and measure each of them on its own;
# - measure the two ceilings of a computer, and tell which of them holds a given job back;
# - tell a measurement from a number that merely came out of a stopwatch.
#
# Run the cells from top to bottom with Shift+Enter. Before most measurements you are asked for a
# prediction. Please make one, even a wild one: it is kept beside the measurement, and what you
# learn is the distance between the two. New words are explained at the end, under
# [Words](#Words).

# %%
from minipd.lab import calibration, panel, predict, quiz, reveal, show_picture, show_table

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

# %% [markdown]
# ## Watch it happen
#
# The next cell does this for real, on your computer. It starts two *workers*, programs of their own
# that stand for two small servers. Four people are chatting, two on each worker. Then two long
# documents arrive, one at each worker. The model is small and random, so its answers would mean
# nothing; the time that it takes is real.

# %%
from minipd.lab.freeze import on_real_hardware, watch_freeze

watched = watch_freeze()
print(watched.note or "Each worker had processor cores of its own.")

# %% [markdown]
# This is what the four readers saw. Each stroke is one token, that is, one word or piece of a word.

# %%
show_picture(watched.screens())

# %%
GUESSES = [
    "The network dropped out for a moment",
    "The server ran out of memory and recovered",
    "The server was busy reading the document",
    "The model had to think harder about the next word",
]
predict("00.cause", "Why did everybody's answer stop?", choices=GUESSES)

# %%
predict(
    "00.freeze",
    "Count: how many tokens would a reader have got during the longest pause?",
    unit="tokens",
    brackets=[3, 10, 30, 100],
)

# %%
reveal("00.freeze", watched.tokens, "tokens")
print(on_real_hardware(watched.tokens))

# %% [markdown]
# A pause counted in tokens can be compared between machines. The figures of the data centre are
# computed from step times that others published [freeze-70b-h100]: the same thing happens there,
# and it takes longer documents to see it.
#
# `watch_freeze` served all requests a second time, on the same two workers. Only their roles were
# different: one of them did nothing but read, the other nothing but write. Here are both runs, one
# lane for each worker. Don't look for an explanation yet; just compare.

# %%
show_picture(watched.workers())
show_table(watched.compared())

# %% [markdown]
# Keep your guess about the cause. The rest of this lesson collects what you need to judge it. (In a
# terminal, `minipd demo` runs the long version with a real model, four ways of serving and all the
# figures, better or worse.)

# %% [markdown]
# ## A riddle to take along
#
# *Within one year, the companies that sell chatbots bought ten times more servers. In the same
# year, the price of what those servers make fell to a tenth. How can both be true?*
#
# The wording is our own and neither factor has a source [riddle-premises], so treat it as a riddle
# and not as news. In lesson 12 you will compute how much of it the subject of this course explains.

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
# A language model reads and writes *tokens*: short words, or pieces of longer ones. Inside it are
# very many numbers that it has learnt, its *weights* (also called parameters).
#
# **Prefill** is reading: all tokens of the *prompt* (the text that you send) go through the model
# *at once*, and out comes the first token of the answer.
#
# **Decode** is writing: from then on, every further token needs a step of its own through the
# *whole* model, because each token depends on the one before it.
#
# That is all you need for this lesson. Everything else in this course follows from the fact that
# these two kinds of work could hardly be more different. Let us watch them.

# %% [markdown]
# ## Watch a real model write
#
# Three lines load a small but real language model and let it write. If the model is not on your
# computer yet, it is fetched first. Larger models write better, but they go through exactly
# these steps.

# %%
from minipd import LLM, SamplingParams

llm = LLM("smollm2-135m")
print(llm.generate(["The capital of France is"], SamplingParams(max_tokens=8))[0].text)

# %% [markdown]
# Now with a long prompt, the contract of our story, and with a clock. `llm.stream` hands over each
# piece of the answer as soon as it exists; we note when each one arrives. (`chat_ids` turns a
# question into tokens, with the marks that tell the model who is speaking.)

# %%
import random
import time

clauses = [f"Clause {n}: the tenant waters plant {n} every morning." for n in range(1, 31)]
# A new number each time: the engine would remember a prompt that it has read (lesson 05).
contract = f"House rules, copy {random.randint(100, 999)}. " + " ".join(clauses)
prompt = llm.chat_ids("Summarise this contract in one sentence. " + contract)
print(f"The prompt has {len(prompt)} tokens.")

# %%
arrivals, start = [], time.perf_counter()
for piece in llm.stream(prompt, SamplingParams(max_tokens=24)):
    arrivals.append(time.perf_counter() - start)
    print(piece.text, end="", flush=True)

# %% [markdown]
# The pauses between the pieces show the two phases. How does the first one compare with the others?

# %%
from minipd.lab.plots import show_pauses, show_samples, show_use

show_pauses(arrivals)

# %% [markdown]
# The first bar is prefill: the prompt was read in one go. The others are decode: one step each. The
# next cell divides both waits by the tokens that they dealt with.

# %%
import statistics

step = statistics.median(later - earlier for earlier, later in zip(arrivals, arrivals[1:]))
print(f"reading: {arrivals[0]:.2f} s for {len(prompt)} tokens")
print(f"one step of writing: {step:.3f} s for one token")
print(f"one token is read in {arrivals[0] / len(prompt) / step:.2f} of the time of writing one")

# %% [markdown]
# Which of the two makes better use of your computer? To answer that, we need to know what your
# computer could do at best.

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
# and a number taken on battery says little about the machine. Close what you do not need, too. Even
# then the clock is not constant: many processors run faster for a few seconds (*turbo*) until they
# get warm, so a short measurement may flatter a machine that has rested.
#
# In the table, a *thread* is one line of work: with two of them, two cores compute at once. A GiB is
# a little more than the GB below.

# %% [markdown]
# ## Two ceilings
#
# Whatever a computer does with a language model, it does two things: it *reads numbers from
# memory*, and it *multiplies and adds* them. Each has a limit, and we can measure both.
#
# - Arithmetic: how many multiplications and additions per second, in the product of two large
#   matrices? One multiplication or addition of two numbers is a FLOP (floating-point operation);
#   the unit is GFLOP/s, a thousand million of them per second.
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

ceilings = measure_ceilings(threads=threads, quick=True, at_least=5)  # samples of everything
reveal("00.arithmetic", ceilings.flops / 1e9, "GFLOP/s")
reveal("00.reading", ceilings.read_bytes_per_s / 1e9, "GB/s")

# %% [markdown]
# Now you have the two ceilings that everything in this course is compared with.

# %% [markdown]
# ### Optional: how many operations for a byte?
#
# Put the two side by side and a third number appears: how many operations the machine can do in
# the time that it takes to fetch a single byte.

# %%
print(f"Arithmetic: {ceilings.flops / 1e9:.1f} GFLOP/s")
print(f"Reading:    {ceilings.read_bytes_per_s / 1e9:.1f} GB/s")
print(f"Operations per byte read: {ceilings.ridge_flops_per_byte:.1f}")

# %% [markdown]
# A job that does *more* than this with every byte is held back by arithmetic, and a job that does
# *less* is held back by memory: then the arithmetic units wait, however busy the computer looks.

# %% [markdown]
# ## How sure are we?
#
# A measurement without its spread is half a measurement. Several sizes of product and several ways
# to read were tried. Here are all the samples of those two that came out best: they are the ceilings.

# %%
samples = {"GFLOP/s": ceilings.best_product, "GB/s": ceilings.best_read}
show_samples(samples, scale=1e9)

# %% [markdown]
# A ceiling is the *best* sample: that speed was reached, so the computer can do it, and a great many
# things can make it slower for a moment. For everything else we take the *median*, the middle one
# of the sorted samples, which one interrupted run cannot move. (With an even number of samples it
# is half-way between the two in the middle.)
#
# In this course, the *spread* is always the width of the middle half of the samples, as a share of
# their median: sort them, leave out the lowest and the highest quarter, and see how far the rest
# reaches. If it reaches over more than a tenth, something was not constant (other programs, the
# processor's clock), and we call the result *indicative*: good for its order of magnitude, no more.
# The next cell says so in words.

# %%
print(ceilings.indicative_reason or "The samples lie close together, and nobody else was busy.")

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
# **The first time is special.** Here is one product of two small matrices of 16-bit numbers (half
# as many bits for each as the model here uses), ten times over, with a size that this notebook has
# not used yet.

# %%
size = int(torch.randint(300, 400, ()))
matrix, runs = torch.rand(size, size, dtype=torch.bfloat16), []
for _ in range(10):
    start = time.perf_counter()
    matrix @ matrix
    runs.append((time.perf_counter() - start) * 1000)

# %%
print("milliseconds:", " ".join(f"{run:.2f}" for run in runs))
middle = statistics.median(runs)
print(f"first: {runs[0]:.2f}   mean: {statistics.mean(runs):.2f}   median: {middle:.2f}")
print(f"the first took {runs[0] / middle:.1f} times as long as the median")

# %% [markdown]
# A first run may have to pay for what later ones find ready: a library prepares code for the new
# size, memory comes from the system. How much that was here, the last line says. Nobody waits for
# it again. So repeat, leave the first runs out, and report the median with the spread; a single run
# proves nothing.
#
# **The mean of rates.** A car drives one hour at a slow and one minute at a high speed; nobody
# would call the mean of the two speeds its average. With tokens per second it is done all the time.

# %%
slow, fast = 500 / 50, 500 / 5  # tokens per second of two runs of equally many tokens
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
# of times. One part is different: the *head*, the last matrix, which turns the result into the next
# token, is needed for the last token of the prompt only. So a prompt costs less arithmetic than its
# length times a step of decode.
#
# Each weight is stored here as a number of the 32-bit type `float32`. A byte has eight bits, so
# that makes four bytes for each weight. Smaller types are the subject of lesson 03.

# %%
from minipd.measure.counts import decode_bytes, decode_flops, prefill_flops, weight_bytes

config = llm.model.config
print(f"Parameters of the model: {config.num_parameters:,}")
print(f"Bytes that one step of decode reads: {weight_bytes(config, 4):,}")
print(f"Operations of one step of decode: {decode_flops(config, 1, 1):,}")
print(f"Operations to read a prompt of 512 tokens: {prefill_flops(config, 512):,}")

# %% [markdown]
# **Optional:** compare each phase's operations per byte with what the machine can do for a byte.

# %%
decode_ratio = decode_flops(config, 1, 1) / weight_bytes(config, 4)
prefill_ratio = prefill_flops(config, 512) / weight_bytes(config, 4)
print(f"decode: {decode_ratio:.1f} operations for each byte of weights")
print(f"prefill of 512 tokens: {prefill_ratio:.0f} operations for each byte of weights")
print(f"this machine: {ceilings.ridge_flops_per_byte:.1f} in the time of fetching a byte")

# %% [markdown]
# You have both ceilings and the amount of work, so you can predict with a division: operations by
# the arithmetic ceiling, or bytes by the reading ceiling. Each gives a time. Which of the two is
# longer for a step of decode? That one limits it, since reading and arithmetic go on side by side.

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
# A *pass* is one trip of tokens through the whole model. Prefill: one pass over a whole prompt.
# Decode: passes with one token each. One run of each for
# warm-up, then repetitions. The tokens are drawn at random, and decode starts with nothing read
# before: the time of a step depends on how many tokens there are, not on what they say, and the
# longer a conversation, the more there is to read besides the weights (lesson 02).

# %%
from minipd.measure.phases import MinipdEngine, random_tokens
from minipd.measure.stats import Samples

engine, tokens = MinipdEngine(llm.model, 512, 1), random_tokens(config.vocab_size, 512)
engine.prefill(tokens), engine.decode(tokens[:8])
prefill = Samples(tuple(512 / engine.prefill(tokens) for _ in range(5)))
decode = Samples(tuple(32 / engine.decode(tokens[:32]) for _ in range(5)))

# %%
reveal("00.prefill", prefill.median, "tokens/s")
reveal("00.decode", decode.median, "tokens/s")
show_samples({"prefill, tokens/s": prefill, "decode, tokens/s": decode})

# %% [markdown]
# How far may you trust these two?

# %%
from minipd.lab.trust import doubts

doubt = doubts(ceilings, {"prefill": prefill, "decode": decode})
print(doubt or "The samples lie close together, and nothing disturbed the ceilings.")

# %% [markdown]
# And this is what the ceilings would allow if nothing at all were lost on the way: the arithmetic
# ceiling for prefill, the reading ceiling for decode. (A phase can come out a little above such a
# line when the machine happened to be faster than while its ceiling was measured.)

# %%
print(f"prefill: {512 * ceilings.flops / prefill_flops(config, 512):.0f} tokens/s at most")
print(f"decode: {ceilings.read_bytes_per_s / weight_bytes(config, 4):.1f} tokens/s at most")

# %% [markdown]
# How close did each phase come to each ceiling? The share of the arithmetic ceiling is called
# **MFU** (model FLOP utilisation), the share of the reading ceiling **MBU** (model bandwidth
# utilisation).

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
show_use(rates, mfu, mbu)

# %% [markdown]
# In this picture lies the reason for the whole course. Compare, phase by phase, which ceiling it
# comes closer to. The next cell says it for your numbers.

# %%
for phase in rates:
    near, far = sorted([(mfu[phase], "arithmetic"), (mbu[phase], "reading")], reverse=True)
    print(f"{phase}: {near[0]:.0%} of the {near[1]} ceiling, {far[0]:.0%} of the {far[1]} ceiling")
same = (mfu["prefill"] > mbu["prefill"]) == (mfu["decode"] > mbu["decode"])
also = "Both lean on the same ceiling here, one of them more; lesson 03 shows where that changes."
print(also if same else "Each leaves what the other one needs.")

# %% [markdown]
# ## Why everybody's answer stopped
#
# A server that reads a prompt in one go can do nothing else meanwhile. While it reads somebody's
# contract, nobody's next token can be written. The others do not get *slower*: their words come at
# full speed, stop, and go on at full speed. (Nor is it a matter of writing for one person at a
# time: a step can serve several answers at once, as lesson 04 shows.) How long is the stop on your
# machine, in tokens that somebody else did not get? (At the start of this lesson you counted it with
# a smaller model and other documents, so do not expect the same number.)

# %%
freeze_s = 512 / prefill.median
print(f"Reading 512 tokens takes {freeze_s:.2f} s.")
print(f"In that time, decode would have taken {freeze_s * decode.median:.0f} steps.")

# %%
why_not = {
    GUESSES[0]: "there was no network at all between the workers and the picture.",
    GUESSES[1]: "the pause is as long as the reading of the document, whatever the memory holds.",
    GUESSES[3]: "every step does the same arithmetic, whichever word comes out.",
}
reveal("00.cause", GUESSES[2], why_not=why_not)

# %% [markdown]
# **A laptop exaggerates**, as you saw at the start. On one machine with 8 H100 GPUs and a model
# of 70 billion weights, a prompt of 512 tokens costs the others about 2 steps, and one of 8,192
# tokens about 27 [freeze-70b-h100]. The freeze does not go away on better hardware. One remedy is
# to give the two phases separate machines, as in the second run that you watched; another is to
# read a prompt in pieces, with steps of writing in between (*chunked prefill*, lesson 06). What
# they cost, and when each of them pays, is what this course lets you find out.

# %% [markdown]
# ## The same idea, full-size
#
# The measurement that you just used is part of the engine. See what each phase hands to the model:
# prefill is *one* chunk with all tokens, decode is one step for each token, and in a step a chunk
# with that token alone (for one answer; with several, one such chunk for each).

# %%
import inspect

print(inspect.getsource(MinipdEngine.prefill))
print(inspect.getsource(MinipdEngine.decode_in_parts))

# %% [markdown]
# ## The first line of your bench sheet
#
# The bench sheet is a file that stays with you through the course: one line for each measurement,
# with prefill and decode in columns of their own. The rates of this line are medians; a line's note
# says where it comes from. `minipd sheet` shows it in a terminal, and `minipd bench` adds lines with the full tests.

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
    note="lesson 00, 32 steps" + (", indicative" if doubt else ""),
)

# %%
kept = sheet.append(line)
rows = {"prefill tok/s": [kept.prefill_tok_s], "decode tok/s": [kept.decode_tok_s]}
show_table(rows | {"note": [kept.note]}, f"Kept on {kept.date[:10]} at {kept.date[11:16]}")

# %% [markdown]
# ## Where you meet this in practice
#
# | tool | where the two phases are reported |
# |---|---|
# | llama.cpp | `llama-bench`: the rows `pp512` and `tg128` [llama-bench-tests] |
# | vLLM | `vllm bench serve`: time to first token, time per output token [vllm-bench-serve] |
# | SGLang | `sglang.bench_one_batch`: prefill and decode apart [sglang-benchmarks] |
# | NVIDIA Dynamo | its AIPerf: time to first token, inter-token latency [dynamo-aiperf] |
# | minipd | `minipd bench`, and `minipd sheet` for what you measured before |
#
# A report that gives a single "tokens per second" has mixed the two. Now you know what to ask.
#
# **What we left out.** Several users at once (lesson 04); the *KV cache*, the model's notes about
# every token so far, which decode reads as well and which grows with the conversation (lesson 02);
# numbers smaller than four bytes (lesson 03);
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
# Open [the exercises](../exercises/00_your_machine.ipynb): two short ones with checks and hints.
# Lesson 01 looks inside a single step, and asks why the answer starts late and then trickles.
