# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Lesson 06: The collision
#
# **The question: what does one long document do to everyone else?**
#
# **Minutes:** 75 for this notebook, 15 for the quiz at its end, 60 for the three exercises.
#
# **You need:** lessons 00, 03 and 04: the two phases, their two bottlenecks, and what a batch is.
# Lesson 05 helps, but nothing here needs it. No GPU.
#
# **Afterwards you can**
#
# - predict how long a document stops everybody else, in seconds and in tokens, before it happens;
# - say what each order of work does, reading first, writing first or reading in pieces, and to
#   whom;
# - choose a token budget from measured times, and name its price;
# - weigh two papers that contradict each other, with a measurement of your own.
#
# Predict first, then run. New words are explained at the end, under [Words](#Words).

# %%
import statistics
import time

from minipd.lab import calibration, panel, predict, quiz, reveal, show_picture, show_table

panel("06")

# %% [markdown]
# ## A restaurant with one cook
#
# In a small restaurant one person does everything at a single counter: she reads the order slips
# and prepares what they ask for, and she puts the finished plates on the tables, one plate for each
# guest in turn. It goes well. Guests who are already eating get their next plate every few minutes.
#
# Then somebody hands in an order for a wedding. The slip is five pages long. The cook reads it to
# its end, because that is how she works, and for as long as that takes no plate leaves the counter.
# The guests who were eating look at each other. They did not order anything special.
#
# - Reading the slip is **prefill**. Bringing plates is **decode**.
# - The wedding party waits a long time for its first plate. That is its own doing: a long order.
# - The *other* guests wait as long, and it is nobody's doing that they can see.
#
# The obvious remedies are the ones that servers use. Bring the plates first and read later. Or read
# the slip a page at a time, and bring plates in between. Or hire a second person and give each of
# them a counter: that is lesson 07. In this lesson there is one counter, and we measure the first
# two.

# %% [markdown]
# ## Two servers, one morning
#
# You saw the collision in lesson 00, with a random model and no explanation. Now you have what it
# takes to predict it. The model first:

# %%
from minipd import LLM
from minipd.lab.model_choice import lesson_model

name, why_this_one = lesson_model()
llm = LLM(name)
print(why_this_one)

# %% [markdown]
# We will run two servers, each a process with processor cores of its own, and send requests to them
# in turn. Both read *and* write; such servers are called **colocated**. All we need to know about
# one of them are lesson 03's two speeds, measured on the cores that it is going to have.

# %%
from minipd.measure.contest import split_cores
from minipd.measure.demo import measure_phases

cores = split_cores(2)
speed = measure_phases(llm.model, cores, repetitions=2)
print(f"reading: {speed.prefill_tok_s:.0f} tokens/s, in one pass of 512 tokens")
print(f"writing: {speed.decode_tok_s:.1f} tokens/s for one answer, a token at a time")

# %% [markdown]
# And this is the morning. Four chats begin one after the other. While all of them are being
# written, a document arrives at the first server, and a little later one at the second. Two short
# questions come in between; the second of them ends up *behind* the first document.

# %%
from minipd.lab.collision import Servers, morning_picture, trace_table

step_s = 1 / speed.decode_tok_s
show_table(trace_table(step_s))

# %% [markdown]
# Everything that is needed for a forecast is on your screen: how many tokens the document has, how
# fast the server reads, and how long a step of writing takes. (Two chats share a step on each
# server; by lesson 04 that makes it a little longer.)

# %%
predict(
    "06.freeze",
    "How many tokens will each chat on the document's server miss, in its longest wait?",
    unit="tokens",
    brackets=[5, 10, 15, 20, 30],
)

# %%
servers = Servers(llm.model, cores, step_s)
read_first = servers.serve("colocated")

# %%
reveal("06.freeze", read_first.freezes[0].tokens, "tokens")

# %%
show_picture(morning_picture([read_first], "One morning on two colocated servers"))

# %% [markdown]
# Read it from left to right. Each server has a lane: what it did, step by step. (The engine calls
# a server a *worker*, and writes its role below its name: these do `both`.) Below are the answers,
# one stroke for each token. When a document comes in, its server's lane turns into one long block,
# and the strokes below it stop. The other server goes on, until its own document comes.
#
# A step that only writes is called *undisturbed*. Its usual length is the unit of a wait "in
# tokens": so many tokens would have come meanwhile. A wait of more than three is marked as frozen.

# %% [markdown]
# ## Predict its length
#
# Now compare the forecast with the measurement. While a server reads, it can do nothing else. So
# the wait should be: all tokens that were read meanwhile, divided by the reading speed, and then
# the usual step that brings the next token.

# %%
from minipd.lab.collision import freezes_table

show_table(freezes_table(read_first, speed))

# %% [markdown]
# On the first server a few more tokens were read than the document has: the short question had come
# in meanwhile, and a server that reads first reads that, too, before anybody gets another token.
#
# Is the agreement luck? The machine may have been slower or faster during the run than during the
# measurement before it. So we measure the reading speed once more.

# %%
from minipd.lab.budget_dial import reading_speed
from minipd.lab.collision import agreement

again = reading_speed(llm.model, cores)
print(agreement(read_first, speed, again))

# %% [markdown]
# Recorded over six such mornings on two quiet cores, twelve waits in all: the forecast was off by
# 9 % in the median, and by 20 % at most [freeze-forecast-recorded]; eleven of the twelve were too short.
#
# That is worth a moment's thought. You knew one speed, the document's length and the scheduler's
# rule, and you could say how long strangers would wait. Nothing about the document's *content*
# mattered, and nothing about the chats.
#
# **The laptop exaggerates.** A wait in tokens can be compared between machines, and here it is
# beside a recorded run and beside eight GPUs, whose times are published [freeze-by-length].

# %%
from minipd.lab.collision import elsewhere_table

show_table(elsewhere_table(read_first.freezes[0].tokens))

# %% [markdown]
# A data centre reads far faster than it writes, compared with this machine: its ridge point lies
# further right (lesson 03). But people bring longer documents there. Look at the last line.

# %% [markdown]
# ## A server in a few lines
#
# Who decided that the document is read at once? Let us write that decision ourselves. First the
# guests: a `Sequence` of the engine knows its prompt, what it has written, and how many tokens are
# *cached*, that is, have gone through the model. We give each its own place in the cache.

# %%
from minipd import SamplingParams
from minipd.engine.batch import chunk_of
from minipd.engine.executor import Executor
from minipd.request import Request, Sequence

executor = Executor(llm.model, num_blocks=128)  # blocks of 16 tokens


def new_guest(name, prompt, wanted, first_block):
    request = Request(name, tuple(prompt), SamplingParams(max_tokens=wanted, ignore_eos=True))
    num_blocks = -(-(len(prompt) + wanted) // 16)  # rounded up
    return Sequence(request, block_ids=list(range(first_block, first_block + num_blocks)))


# %% [markdown]
# One step, as in lesson 04: `picks` says which guests take part and with how many tokens. The
# engine's `chunk_of` asks for a token only if the piece reaches the end of what the guest has; in
# the middle of a prompt there is no next token to be had.


# %%
def run_step(picks):
    chunks = [chunk_of(guest, count) for guest, count in picks]
    tokens = iter(executor.run(chunks))
    for (guest, _), chunk in zip(picks, chunks):
        guest.num_cached_tokens = chunk.stop
        if chunk.sampling is not None:
            guest.output_ids.append(next(tokens))


# %% [markdown]
# The loop of every server: who is here, what runs next, run it. Guests arrive after a number of
# steps, so that the same thing happens on a fast and on a slow machine. (A real server sleeps when
# nobody is here; in ours, somebody always is.)

# %%
from minipd.lab.budget_dial import StepBar, show_steps


def is_done(guest):
    return len(guest.output_ids) == guest.request.sampling.max_tokens


def timed(picks, begin):
    start = time.perf_counter()
    read = sum(count for g, count in picks if not g.output_ids)
    writers = sum(1 for g, _ in picks if g.output_ids)
    run_step(picks)
    return StepBar(start - begin, time.perf_counter() - begin, read, writers)


# %%
def serve(guests, arrives_at, pick):
    log, begin = [], time.perf_counter()
    while not all(is_done(g) for g in guests):
        here = [g for g in guests if arrives_at[g.id] <= len(log) and not is_done(g)]
        reading = [g for g in here if not g.output_ids]
        writing = [g for g in here if g.output_ids]
        log.append(timed(pick(reading, writing), begin))
    return log


# %% [markdown]
# All that is left is the decision. Here is the cook's rule in one line: whoever has something to
# read is read to the end; otherwise everybody gets a token.


# %%
def reading_first(reading, writing):
    return [(g, g.num_uncached_tokens) for g in reading] or [(g, 1) for g in writing]


# %% [markdown]
# Two chats, a document, and a short question that comes while the document is being read:

# %%
from minipd.lab.batching import LONG_TEXT

PROMPTS = {"A": llm.token_ids("Once upon a time"), "B": llm.token_ids("In the year 1900")}
PROMPTS |= {"document": llm.token_ids(LONG_TEXT)[:256], "C": llm.token_ids("Water boils at")}
WANTED, ARRIVES = {"A": 14, "B": 14, "document": 4, "C": 4}, {"A": 0, "B": 0, "document": 5, "C": 6}


def new_guests():
    return [new_guest(n, PROMPTS[n], WANTED[n], 30 * i) for i, n in enumerate(PROMPTS)]


# %%
first_guests = new_guests()
first_log = serve(first_guests, ARRIVES, reading_first)
show_steps(first_log)

# %% [markdown]
# Each bar is a step, and the number in a hatched bar is the tokens that it read. There is the
# freeze again, from one line of code: a step that is as long as the document.

# %% [markdown]
# ## The other way round
#
# So turn the rule around: plates first. Whoever is being written goes on; only when nobody is left
# does the server read.


# %%
def writing_first(reading, writing):
    return [(g, 1) for g in writing] or [(g, g.num_uncached_tokens) for g in reading]


# %%
predict(
    "06.starve",
    "Two servers that write first: how many times as long do documents wait for a first token?",
    unit="times",
    brackets=[1.2, 1.7, 2.5, 4],
)

# %%
second_guests = new_guests()
show_steps(serve(second_guests, ARRIVES, writing_first))

# %% [markdown]
# No reader ever waits: the long step comes when both chats are complete. And the two servers, with
# the engine's own scheduler of this kind:

# %%
write_first = servers.serve("decode_first")
waits = [statistics.mean(m.ttft_s("document")) for m in (read_first, write_first)]
reveal("06.starve", waits[1] / waits[0], "times")
show_picture(morning_picture([write_first], "The same morning, writing first"))

# %% [markdown]
# The strokes are even, and the lanes tell the price. Whoever comes while an answer is being written
# waits until it is *complete*: the documents, the short questions, and even the second chat of each
# server, which came four steps after the first one. That is lesson 04's static batching, by another
# way. And if somebody always has an answer running, as on a busy server, newcomers wait for ever.
# This is called **starvation**.
#
# So there are two collisions. Reading stops writing, or writing starves reading. With one counter
# and whole documents, you can only choose who waits.

# %%
from minipd.lab.collision import mornings_table

show_table(mornings_table([read_first, write_first]))

# %% [markdown]
# ## Documents queue behind documents
#
# One document was a freeze. What if they keep coming? Say that documents arrive at random, all of
# the same length, at a server that reads first. The **load** is the share of its time that it would
# spend reading: a load of `0.8` means that on average four fifths of a document arrive in the time
# that it takes to read one.
#
# Only so much is random here: the times between arrivals. That fits into a few lines of Python,
# with no model at all. The unit of time is *one reading*.

# %%
import random


def mean_ttft(load, documents=100_000):
    draw, now, free_at, total = random.Random(6), 0.0, 0.0, 0.0
    for _ in range(documents):
        now += draw.expovariate(load)  # the next one arrives
        free_at = max(now, free_at) + 1.0  # read as soon as the server is free
        total += free_at - now
    return total / documents


# %%
predict(
    "06.queue",
    "At a load of 0.8, how many reading times pass on average until a document has been read?",
    unit="times",
    brackets=[1.2, 1.8, 2.5, 3.5, 5],
)

# %% [markdown]
# Your intuition may say: there is a fifth of the time to spare, so hardly anybody waits.

# %%
reveal("06.queue", mean_ttft(0.8), "times")

# %%
from minipd.fleet.queueing import single_ttft_s

loads = [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95]
simulated, formula = [mean_ttft(x) for x in loads], [single_ttft_s(x, 1.0) for x in loads]
read_s = 512 / speed.prefill_tok_s
rows = {"load": loads, "simulated (readings)": simulated, "formula (readings)": formula}
show_table(rows | {"512 tokens here (s)": [read_s * times for times in simulated]})

# %% [markdown]
# The formula is a classic, called `M/D/1`: random arrivals, equal service times, one server
# [mdone-ttft]. With a reading time $D$ and a load $u$, the mean time until a document is read is
#
# $D + D \cdot \frac{u}{2(1 - u)}$
#
# The last part is the queue. Half the time busy costs half a reading; after that it climbs steeply,
# because a queue that has built up can only be worked off with the time to spare, $1 - u$, and that
# goes towards nothing. (Near a load of one, even a hundred thousand documents are too few for a
# steady mean: the last line of the table may be some way off.)
#
# Two consequences. A server must not be planned for a load near one. And for those who *write* on a
# server that reads first, the load is the share of time during which they stand still.

# %% [markdown]
# ## Reading in pieces
#
# Back to the counter, and to the third idea: a page at a time. Give every step a **token budget**.
# All running answers come first, with one token each. What is left of the budget goes to a piece of
# whatever has to be read. This is called **chunked prefill**.


# %%
def in_pieces(reading, writing, budget=64):
    picks = [(g, 1) for g in writing]
    left = budget - len(picks)
    for g in reading:
        count = min(left, g.num_uncached_tokens)
        if count > 0:
            picks.append((g, count))
            left -= count
    return picks


# %%
third_guests = new_guests()
show_steps(serve(third_guests, ARRIVES, in_pieces))

# %% [markdown]
# The same executor, the same loop; only the decision is new. Nobody stands still, nobody starves:
# the short question is read in the same step as the last piece of the document.
#
# Before we measure what that is worth: are the answers still the same? We compare the three orders
# with each other and with the engine, by lesson 02's rule for near ties. The engine reads in pieces
# as well.

# %%
from minipd.sched.colocated import Chunked, DecodeFirst, PrefillFirst
from minipd.sched.limits import Limits

engine = LLM(llm.model, policy=Chunked, limits=Limits(max_batch_tokens=64))
queued = [
    engine.submit(prompt, SamplingParams(max_tokens=WANTED[n], ignore_eos=True))
    for n, prompt in PROMPTS.items()
]
while engine.scheduler.has_work:
    engine.step()
ways = {"writing first": second_guests, "pieces": third_guests, "engine": queued}

# %%
from minipd.measure.same_tokens import compare, logits_of, summarise

scores = logits_of(llm.model.decoder)
for what, others in ways.items():
    found = summarise(
        compare(a.request.prompt_ids, a.output_ids, b.output_ids, scores, scores)
        for a, b in zip(first_guests, others)
    )
    print(f"{what}: {found.num_different} of {found.num_sequences} differ from reading first")
    assert found.num_different == 0

# %% [markdown]
# Now the two servers with three budgets.

# %%
predict(
    "06.pieces",
    "With a budget of 64 tokens, how long is the longest wait of a chat, in undisturbed steps?",
    unit="tokens",
    brackets=[1.5, 2.5, 4, 7, 12],
)

# %%
pieces = {budget: servers.serve("chunked", budget) for budget in (256, 64, 16)}
reveal("06.pieces", pieces[64].longest_s / pieces[64].step_s, "tokens")

# %%
mornings = [read_first, *pieces.values(), write_first]
show_table(mornings_table(mornings))

# %%
servers.close()
show_picture(morning_picture([read_first, pieces[64]], "Read at once, and in pieces"))

# %% [markdown]
# Read the table from top to bottom. A smaller budget makes the longest wait shorter: that is the
# gain in **ITL**, the inter-token latency. The price stands further right: the document's own first
# token comes later (its **TTFT**), since every piece carries the running answers along and fetches
# all the weights again; and the short question behind it waits as well, since prompts are read in
# turn. The smallest budget pays most, and still its readers wait longer than undisturbed: *a piece
# makes everybody's step longer for as long as the document lasts*. The freeze has become a slow
# stretch. It has not gone away.

# %% [markdown]
# ## Choose a budget
#
# You can know all this beforehand. The time of a step depends on the tokens in it, and you can
# measure that: a few passes on the cores of one server.

# %%
from minipd.lab.budget_dial import measure_passes, plan_steps, plan_table

passes = measure_passes(llm.model, cores)
milliseconds = [1000 * seconds for seconds in passes.values()]
per_token = [ms / tokens for tokens, ms in zip(passes, milliseconds)]
rows = {"tokens in a pass": list(passes), "milliseconds": milliseconds}
show_table(rows | {"milliseconds for each token": per_token})

# %% [markdown]
# From these times alone, the plan for a few budgets. Compare with the measured table above. The
# plan is too kind: it leaves out the second server, which wants to fetch from the same memory, and
# what attention adds late in a document. What it gets right is how the columns move against each
# other.

# %%
show_table(plan_table([plan_steps(passes, budget) for budget in (512, 256, 64, 16)]))

# %% [markdown]
# The dial does this for any budget, with the steps as bars (the scale of the seconds follows the
# plan). Three things to try:
#
# - Find the largest budget with which no reader waits longer than four undisturbed steps.
# - Take the smallest budget and raise the number of answers being written. What happens to the
#   document, and why? (Who comes first in a budget?)
# - Is there a budget below which readers gain nothing more?

# %%
from minipd.lab.budget_dial import show_dial

show_dial(passes)

# %% [markdown]
# Without widgets, the next cell says the same; change its numbers.

# %%
from minipd.lab.budget_dial import dial_text

print(dial_text(plan_steps(passes, budget=64, writers=2)))
print(dial_text(plan_steps(passes, budget=16, writers=8)))

# %% [markdown]
# ## Who is right?
#
# Two papers of the same year disagree about the price. *Sarathi-Serve*, which proposed serving in
# pieces of this kind, found that reading in pieces of `512` tokens costs at most about a quarter
# more than reading at once [sarathi-chunk-cost]. *DistServe*, which separates the two phases,
# objects: each piece must look back at all pieces before it, so their keys and values are fetched
# from the cache again and again, and that grows with the *square* of the document's length
# [distserve-chunk-cost].
#
# The second is a matter of counting. A document of $N$ tokens in pieces of $c$: the second piece
# fetches the notes of $c$ tokens, the third those of $2c$, and so on.

# %%
from minipd.lab.reading_in_pieces import reread_tokens

for length in (512, 2048, 8192):
    again = reread_tokens(length, 64)
    print(f"{length:5} tokens in pieces of 64: notes of {again:7} tokens fetched again", end=", ")
    print(f"{again / length:.1f} times the document; N*N/2c is {length * length / 128:.0f}")

# %% [markdown]
# Four times the length, sixteen times the fetching: DistServe counts right. But how many *seconds*
# is that? We read documents of two lengths, whole and in pieces, taking turns. For this we use
# `mini`, the small random model, which is fast enough for long documents; what its words are does
# not matter here. The seconds are processor time on one core, and the quicker of two runs, so that
# other programs hardly count.

# %%
predict(
    "06.reread",
    "2,048 tokens in 32 pieces of 64: how many times as long as reading them at once?",
    unit="times",
    brackets=[1.05, 1.15, 1.3, 1.6, 2.5],
)

# %%
from minipd.lab.reading_in_pieces import measure_pieces, pieces_table

mini = LLM("mini").model
measured = measure_pieces(mini, {512: (16, 64, 256), 2048: (64, 256)}, rounds=2)
by_size = {(p.prompt_tokens, p.piece_tokens): p for p in measured}
reveal("06.reread", 1 + by_size[2048, 64].extra, "times")

# %%
show_table(pieces_table(measured, mini.config))

# %% [markdown]
# Two things are fetched again. With every pass come all the weights; and a piece looks back at the
# notes of all pieces before it, which is why the last piece of a long document takes longer than
# the first. How much of the surplus could the fetching be? The next cell takes the speed with which
# a step of writing fetches its weights here, and counts as if nothing else were done at the same
# time.

# %%
from minipd.lab.reading_in_pieces import fetching_table, verdicts
from minipd.measure.counts import weight_bytes

bytes_per_s = speed.decode_tok_s * weight_bytes(llm.model.config, 4)
print(f"A step of writing fetches {bytes_per_s / 1e9:.1f} GB/s here.")
show_table(fetching_table(measured, mini.config, bytes_per_s))

# %%
for sentence in verdicts(measured):
    print(sentence)

# %% [markdown]
# Look at the smallest pieces first: their surplus is the *weights*. Lesson 03 told you from which
# number of tokens on a pass is no longer limited by fetching them, and these pieces lie below it.
#
# Then compare the two lengths. If your small pieces have a surplus that grows with the length, you
# have seen DistServe's point in seconds. The bytes of the notes explain only a part of it. The rest
# is that a few rows of attention over a long past keep the arithmetic less busy than a whole prompt
# does. And the large pieces show Sarathi-Serve's point: they look back less often, they have enough
# rows, and their surplus stays small.
#
# So the two papers are not at odds about a fact. One says how the cost grows, the other how large
# it is for pieces of a sensible size, and the size of the pieces decides. What neither of them
# disputes is the other price, which you measured before: in every step that carries a piece, *all*
# readers wait for that piece. How much that matters depends on what you promised them (lesson 09).

# %% [markdown]
# ## What goes wrong
#
# **The percentile that saw nothing.** Somebody watches a dashboard with the gaps between tokens:
# the median, and the p95, to be on the safe side. Which of the two servers would they choose?

# %%
for morning in (read_first, pieces[64]):
    shown = [f"p{p}: {1000 * morning.gap_s(p):5.0f} ms" for p in (50, 95)]
    print(f"{morning.name:18} {'   '.join(shown)}")

# %% [markdown]
# And now the gaps that people complain about:

# %%
for morning in (read_first, pieces[64]):
    print(f"{morning.name:18} longest: {1000 * morning.longest_s:5.0f} ms")

# %% [markdown]
# A freeze is rare and long. As long as fewer than one gap in twenty is part of one, the p95 does
# not see it; it may even prefer the server that freezes, because pieces make *many* steps a little
# longer. In the recorded run the p95 is 121 ms for reading first and 197 ms for pieces, and the
# longest gaps are 1,584 ms and 271 ms [gaps-recorded]. So look at the longest gaps and at a
# percentile that is high enough for the events you fear. A mean (and TPOT is one) spreads the
# freeze over all tokens, until nobody can find it.
#
# **The first token after the wrong piece.** A token can be sampled after any piece. Nothing
# crashes, and the TTFT looks wonderful:

# %%
from minipd.engine.batch import Chunk

ids = llm.token_ids("Water boils at 100 degrees, and the capital of France is")
cut, greedy = 3, SamplingParams()
early = executor.run([Chunk("cut", ids[:cut], 0, [0], greedy)])
late = executor.run([Chunk("cut", ids[cut:], cut, [0], greedy)])
print("after the first piece:", repr(llm.model.tokenizer.decode(early)))
print("after the last piece: ", repr(llm.model.tokenizer.decode(late)))

# %% [markdown]
# The first line answers a question that nobody has asked to its end. In the engine the piece itself
# says whether a token is wanted, so that no scheduler can get it wrong. Exercise 3 is about this.

# %% [markdown]
# ## The same idea, full-size
#
# The engine's three schedulers differ in one function, `pick`. You have written all three. Compare
# them with yours, line by line:

# %%
import inspect

print(inspect.getsource(PrefillFirst.pick))
print(inspect.getsource(DecodeFirst.pick))

# %% [markdown]
# What yours left out is memory: `admit_prompts` lets a prompt in only when there are blocks for it,
# and `pick_decodes` may have to preempt somebody (lesson 05).

# %%
print(inspect.getsource(Chunked.pick))

# %% [markdown]
# Two details. `max(1, ...)`: when the running answers alone fill the budget, reading would starve;
# so at least one token is read. And a prompt that was begun goes on before a new one is let in.

# %% [markdown]
# ## The answer, in numbers
#
# What does one long document do to everyone else? It stops them for as long as it takes to read it,
# if it is read at once; it waits itself, if the others come first; and in pieces it slows everybody
# down a little for a little longer. Here, beside a recorded run with more and longer documents:

# %%
from minipd.lab.collision import RECORDED_FILE, RECORDED_ON, recorded_table

show_table(recorded_table(mornings))
print(f"SmolLM2-135M, {RECORDED_ON}; raw timeline: {RECORDED_FILE}")

# %% [markdown]
# **Where the laptop exaggerates.** The same `512` tokens cost about two tokens on eight H100 GPUs
# [freeze-by-length], and a budget of a few hundred or thousand tokens takes little from a GPU,
# whose passes need hundreds of tokens before arithmetic is the limit (lesson 03). The *shape* is
# the same: a wait that grows with the document, a budget that trades it, a queue that climbs.

# %% [markdown]
# ## A line for your bench sheet

# %%
from minipd.measure import sheet
from minipd.measure.machine import describe_machine

lost, budgeted = read_first.freezes[0].tokens, pieces[64].longest_s / pieces[64].step_s

# %%
kept = sheet.append(
    sheet.SheetLine(
        machine=describe_machine().summary,
        model=llm.model.name,
        dtype="float32",
        threads=cores.threads,
        prefill_tok_s=speed.prefill_tok_s,
        decode_tok_s=speed.decode_tok_s,
        note=f"lesson 06, freeze {lost:.1f} tokens, with budget 64: {budgeted:.1f}",
    )
)

# %%
columns = {"prefill tok/s": [kept.prefill_tok_s], "decode tok/s": [kept.decode_tok_s]}
show_table(columns | {"note": [kept.note]}, f"Kept on {kept.date[:10]}")

# %% [markdown]
# ## Where you meet this in practice
#
# | tool | the token budget, and the place where it is spent |
# |---|---|
# | vLLM | `--max-num-batched-tokens`; `vllm/v1/core/sched/scheduler.py`, `schedule`: running requests first, then waiting ones [vllm-token-budget] |
# | SGLang | `--chunked-prefill-size`; pieces share steps with answers only with `--enable-mixed-chunk` [sglang-chunked-prefill] |
# | llama.cpp | `llama-server --batch-size`: tokens of the answers first, then pending prompts up to that size [llama-server-batch] |
# | minipd | `Setup(mode="chunked", chunk_tokens=...)`; `minipd/sched/colocated.py`, `Chunked.pick` |
#
# All of them are the twenty lines that you have read.
#
# **What we left out.** Two servers with different jobs (lesson 07). What is good enough for whom,
# which decides between a budget and a split (lesson 09). Queues with unequal documents, and more
# than one server (lesson 10). Requests that are more urgent than others.

# %% [markdown]
# ## How well do you predict?

# %%
calibration()

# %% [markdown]
# ## Quiz
#
# Every wrong answer is explained, and you can try again. In a terminal it is `minipd quiz 06`.

# %%
quiz("06")

# %% [markdown]
# ## Next
#
# Open [the exercises](../exercises/06_the_collision.ipynb): the freeze from four numbers, a
# detective who charges every stall to its cause, and one step under a token budget. Then lesson 07
# gives the cook a colleague.
