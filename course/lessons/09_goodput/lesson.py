# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Lesson 09: Goodput
#
# **The question: faster for whom?**
#
# **Minutes:** 75 for this notebook, 25 for the quiz at its end, 55 for the three exercises.
#
# **You need:** lessons 00 to 08: the two phases, batching, the collision, the two pools, and what
# moving the notes costs.
#
# **Afterwards you can**
#
# - read a latency figure of any tool and say what exactly was measured;
# - turn a user's patience into a number, *goodput*, and compare ways of serving with it fairly;
# - name the cases in which a split into two pools loses, and recognise them on a timeline;
# - answer somebody who owns one or two GPUs.

# %%
from minipd.lab import calibration, panel, predict, quiz, reveal, show_picture, show_table

panel("09")

# %% [markdown]
# ## Two reports on one machine
#
# The small company has tried the two pools of lesson 07. Two reports lie on the table. The first:
# "Since the split, nobody's answer freezes any more. It is a great success." The second: "Since the
# split, people wait longer for the first word, and the machines finish less work in an hour. It is
# a failure." Both were measured on the same machines, on the same day, by honest people.
#
# Nobody lied. The two did not measure the same thing, and they did not think of the same user. So
# this lesson asks three questions before it asks "how much faster": *what* was measured, *for
# whom*, and *compared with what*?

# %% [markdown]
# ## One answer, four tools
#
# First: what was measured? A benchmark sees an answer as a row of **chunks** that arrive one after
# the other. Usually a chunk brings one token, but it may bring several: a server may collect
# tokens before it sends them (SGLang has an option for it [sglang-stream-interval]), and with
# speculative decoding a step may produce several at once.
#
# Here is a short answer by hand: the first token after a second, the next one 40 ms later, then
# three at once after another 287 ms. Five tokens, three chunks [one-stream-four-answers].

# %%
chunks = [(1.000, 1), (1.040, 1), (1.327, 3)]  # seconds since the request, new tokens


def gaps(chunks):  # seconds before each later chunk, and its tokens
    return [(late[0] - soon[0], late[1]) for soon, late in zip(chunks, chunks[1:])]


# %% [markdown]
# Lesson 01 called the time per output token after the first **TPOT**: all the time after the first
# token, over all the tokens after the first. Everybody agrees on that one.


# %%
def tpot(chunks):
    tokens = sum(count for _, count in chunks)
    return (chunks[-1][0] - chunks[0][0]) / (tokens - 1)


print(f"TPOT: {1000 * tpot(chunks):.2f} ms")

# %% [markdown]
# **ITL**, the inter-token latency, is another matter. What is the gap before a token that came
# together with two others? The tools answer differently, and each answer makes some sense.


# %%
def vllm(chunks):  # a gap for each chunk, whatever it brings
    return [gap for gap, _ in gaps(chunks)]


def genai_perf(chunks):  # divided by the chunk's tokens, once for each chunk
    return [gap / count for gap, count in gaps(chunks)]


def sglang(chunks):  # divided, and once for each token
    return [gap / count for gap, count in gaps(chunks) for _ in range(count)]


# %%
from statistics import mean

mine = {"vLLM": vllm(chunks), "GenAI-Perf": genai_perf(chunks), "SGLang": sglang(chunks)}
mine["AIPerf"] = [tpot(chunks)]  # it calls TPOT "inter-token latency"
samples = [", ".join(f"{1000 * value:.1f}" for value in one) for one in mine.values()]
means = [1000 * mean(one) for one in mine.values()]
show_table({"tool's ITL": list(mine), "samples (ms)": samples, "mean (ms)": means})

# %% [markdown]
# One answer, and its "mean inter-token latency" differs by more than a factor of two. llama.cpp's
# benchmark is missing from the table, and rightly: `llama-bench` serves nobody, so there is no
# first token to wait for. It times passes through the model, 512 prompt tokens (`pp512`) and 128
# single ones (`tg128`), and takes the mean of the runs' *rates* [llama-bench-tests]. In lesson 00
# you saw what such a mean is worth when runs differ.
#
# The engine has all these definitions, each with its source, so that a figure of somebody else's
# can be compared with ours. They agree with the cells above:

# %%
from minipd.measure import tools

stream = tools.Stream(0.0, tuple(tools.Chunk(seconds, count) for seconds, count in chunks))
assert mine["vLLM"] == tools.vllm_itl(stream) and mine["SGLang"] == tools.sglang_itl(stream)
assert mine["GenAI-Perf"] == tools.genai_perf_itl(stream)
assert mine["AIPerf"] == [tools.aiperf_itl(stream)]
print("the same numbers as the engine's")

# %% [markdown]
# ## The same tokens in bundles
#
# Now a real answer. A model writes; we note when each token comes. Then we pretend that the server
# had collected the tokens in bundles of four and sent each bundle when it was complete. Not one
# token was computed earlier or later.

# %%
from minipd import LLM, SamplingParams
from minipd.lab.model_choice import lesson_model

name, why_this_model = lesson_model()
llm = LLM(name)
print(why_this_model)

# %%
import time

params, arrivals, start = SamplingParams(max_tokens=25, ignore_eos=True), [], time.perf_counter()
for _ in llm.stream("A good waiter serves", params):
    arrivals.append(time.perf_counter() - start)
one_by_one = [(seconds, 1) for seconds in arrivals]
bundled = one_by_one[:1] + [(seconds, 4) for seconds in arrivals[4::4]]

# %%
predict(
    "09.bundle",
    "vLLM's mean ITL of the bundled answer is how many times that of the same answer one by one?",
    unit="times",
    brackets=[0.3, 0.8, 1.5, 3, 6],
)

# %%
reveal("09.bundle", mean(vllm(bundled)) / mean(vllm(one_by_one)), "times")
rows = {"sent": ["one by one", "in bundles of four"]}
for what, measure in {"vLLM": vllm, "GenAI-Perf": genai_perf, "SGLang": sglang}.items():
    rows[f"{what} ITL (ms)"] = [1000 * mean(measure(one)) for one in (one_by_one, bundled)]
show_table(rows | {"TPOT (ms)": [1000 * tpot(one) for one in (one_by_one, bundled)]})

# %% [markdown]
# A server that sends in bundles looks several times slower under one definition and unchanged under
# the others. So a figure without its definition is not a figure. **Ask first: which tool, which
# version, how many tokens in a chunk?**
#
# ### An answer of one token
#
# "Is this a question? Yes." An answer of one token has no gap at all. What is its TPOT? Again the
# tools differ, and here it decides who counts as well served.

# %%
yes = tools.Stream(0.0, (tools.Chunk(0.3),))  # one token, after 0.3 s
limits = {"vLLM": tools.vllm_meets(yes, 1.0, 0.1), "AIPerf": tools.aiperf_meets(yes, 1.0, 0.1)}
for tool, good in limits.items():
    print(f"{tool}: within 1 s for the first token and 0.1 s per token? {good}")
print(f"DistServe's simulator takes its TPOT as {tools.distserve_tpot(yes)} s, a perfect value")

# %% [markdown]
# vLLM counts a missing TPOT as zero and lets it pass; AIPerf gives it no value and lets it fail
# [goodput-one-token]. With many one-word answers, say in a classifier, that alone can turn a
# comparison round.

# %% [markdown]
# ## For whom: from patience to a number
#
# Second question: for whom? A mean hides the answer. Let us serve some traffic and look.
#
# To try many situations we need runs by the hundred, and this machine would need hours for them. So
# do as follows. *Measure* how long each kind of step takes on this machine, once. Then let the
# engine's own parts, the same coordinator, the same routers, the same schedulers, decide on a
# **clock that jumps**: where a step would take half a second, the clock is set half a second later,
# and the next decision is taken at once. You will check below whether that is to be trusted.
#
# The next cell measures the steps: prompts of some lengths, and decode steps for some numbers of
# sequences, on the share of the machine that one of two workers gets. It takes a quarter of a
# minute.

# %%
from minipd.lab.goodput_sweep import serve, table_of_steps, traffic
from minipd.sched.step_times import interpolate

pace = table_of_steps(llm.model)
for tokens in (64, 160, 512):
    print(f"reading {tokens} tokens: {interpolate(pace.prefill, tokens):.2f} s")
for sequences in (1, 4, 16):
    print(f"one step for {sequences}: {1000 * interpolate(pace.decode, sequences):.0f} ms")

# %% [markdown]
# Traffic: prompts of 16 to 512 tokens, half of them under about 160, and short answers, at random
# moments (the lengths are ours [sweep-traffic]). Two workers, colocated as in lesson 06. Rates are
# told as shares of `capacity(pace)`: what two workers could just manage, if four answers shared
# each step. Well below it, what did the readers wait?

# %%
from minipd.lab.goodput_sweep import capacity
from minipd.measure.quantiles import percentile

calm = serve(pace, "colocated", traffic(0.42 * capacity(pace), count=80, seed=1))
first = [request.ttft_s for request in calm]
longest = [max(request.itl_s, default=0.0) for request in calm]
rows = {"seconds": ["mean", "p50", "p90", "p99"]}
for what, waits in {"first token": first, "longest gap of each answer": longest}.items():
    rows[what] = [mean(waits)] + [percentile(waits, p) for p in (50, 90, 99)]
show_table(rows)


# %%
def as_prompt(gap_s):  # how many tokens are read in so long
    return next((n for n in range(1, 4096) if interpolate(pace.prefill, n) >= gap_s), 4096)


half, tenth = percentile(longest, 50), percentile(longest, 90)
print(f"a step for four: {interpolate(pace.decode, 4):.2f} s")
print(f"half of the readers: no gap over {half:.2f} s, in which {as_prompt(half)} tokens are read")
print(f"one reader in ten: a gap over {tenth:.2f} s, in which {as_prompt(tenth)} tokens are read")

# %% [markdown]
# The **p90** is the value that nine of ten samples stay below. Look at the gaps: they are much
# longer than a step. Half of the readers had none longer than about one usual prompt takes, and one
# in ten had a freeze as long as a long prompt, or as several. The mean describes neither. And now
# ask: how many readers were served *well*? No row of this table says it, because "well" means both
# columns at once, for the same reader.
#
# So write the patience down. An **SLO** (service-level objective) is a limit, or several. A request
# is *good* if it keeps *all* of them. **SLO attainment** is the share of good requests.


# %%
def is_good(request, ttft_s, gap_s):
    smooth = not request.itl_s or percentile(request.itl_s, 99) <= gap_s
    return request.ttft_s <= ttft_s and smooth


def attainment(requests, ttft_s, gap_s):
    return sum(is_good(one, ttft_s, gap_s) for one in requests) / len(requests)


# %%
soon, even = 2.2 * percentile(first, 50), 1.2 * percentile(longest, 50)
print(f"first token within {soon:.2f} s: {attainment(calm, soon, 1e9):.0%} of the requests")
print(f"gaps within {even:.2f} s: {attainment(calm, 1e9, even):.0%}")
print(f"both: {attainment(calm, soon, even):.0%}")

# %% [markdown]
# (For the gaps we hold each answer's own p99 against the limit. A TPOT would be the mean of its
# gaps, and a mean of gaps forgives a freeze: one long gap among many short ones hardly moves it.)
#
# **Goodput** is the highest request rate at which enough requests are still good. "Enough" is
# usually nine of ten, and the rate is counted *per GPU*, here per worker [distserve-goodput]. It is
# the one number that contains what was measured, for whom, and for how much hardware. (The function
# below takes and returns the rates of both workers together; the tables divide by two.)


# %%
def goodput(rates, share_good, target=0.9):
    best = 0.0
    for rate in sorted(rates):
        if share_good(rate) < target:
            break  # what comes after the first miss is luck
        best = rate
    return best


# %% [markdown]
# ## Three readers
#
# Three users of the company, three kinds of patience. The limits are multiples of this machine's
# own step times, so that they mean the same on a fast and on a slow computer. They were written
# down before the sweep.
#
# - **Quick start**: somebody types short commands. The first token must come soon; a pause later on
#   is fine.
# - **No long freeze**: somebody chats. A moderate start, and no gap much longer than a step that
#   reads a *piece* of a prompt.
# - **Even flow**: the answer is read out by a machine voice. It may start late, but then no token
#   may come later than a step that only *writes* takes.

# %%
from minipd.lab.goodput_sweep import objectives_table, three_objectives

objectives = three_objectives(pace)
show_table(objectives_table(objectives))

# %% [markdown]
# Three ways of serving, each with *two workers*, the same requests and the same step times:
# colocated (reads whole prompts, first), chunked (reads in pieces of 64 tokens beside the writing
# [sweep-traffic]) and disaggregated (one worker reads, one writes). The words of an answer are the
# same in all three, as lesson 07 proved to the bit; only the times differ.

# %%
MODES = ["colocated", "chunked", "disaggregated"]
predict("09.even", "Which way of serving has the highest goodput for the even flow?", choices=MODES)

# %%
predict("09.start", "And which one for the quick start?", choices=MODES)

# %%
from minipd.lab.goodput_sweep import sweep

swept = sweep(pace)

# %%
from minipd.lab.goodput_dial import show_attainment
from minipd.lab.goodput_sweep import winners_table

show_attainment(swept, objectives)
winners = winners_table(swept, objectives)
show_table(winners, "Good requests per second and worker")

# %%
by_reader = dict(zip(winners["reader"], winners["winner"]))
reveal("09.even", by_reader["even flow"])
reveal("09.start", by_reader["quick start"])
print(f"{len(set(by_reader.values()))} different outcomes for three readers")

# %% [markdown]
# Each line falls as the rate grows, and where it crosses the thin line of nine in ten is that
# mode's goodput for that reader. Look at who crosses last in each panel.
#
# - *Quick start.* Two colocated workers both read, at once and whole: nobody reads sooner. In the
#   split one worker reads everybody's prompts, and a queue in front of one worker is longer than in
#   front of two. Chunked reads with two workers as well, but in pieces, and each piece pays the price
#   of a pass (lesson 08).
# - *No long freeze.* Colocated fails by its freezes. Both others keep the limit; but chunked has
#   two workers that read, and the split has one.
# - *Even flow.* Even a piece of a prompt is too long a gap. Only a worker that never reads can
#   keep this limit at a rate worth the name.
#
# The last column of the table judges each of two runs (two seeds) alone. Where it names two
# different winners, call it noise.
#
# Is it us, or do others see it? The authors of TaiChi found the same two ends, and a middle ground
# between them [taichi-regimes]. And in Mooncake's published experiment the gain of the split over
# its rivals was 498 % with a limit of 100 ms on the gaps, 157 % with 200 ms and 59 % with 300 ms
# [mooncake-gain-by-slo]: the same systems on the same trace. **A gain without its SLO is not a
# result.**
#
# Our own `goodput` of a few lines gives what the engine gives:

# %%
slo = objectives["even flow"]
for mode in MODES:
    shares = {rate: swept.attainment(mode, rate, slo) for rate in swept.rates}
    assert goodput(shares, shares.get) == swept.goodput(mode, slo)
sample = swept.requests["chunked", swept.rates[0], 1]
assert all(is_good(r, slo.ttft_s, slo.itl_p99_s) == slo.met_by(r) for r in sample)
print("the same goodput, and the same verdict on every request")

# %% [markdown]
# ## Is the clock to be trusted?
#
# A clock that jumps is an assumption. So take each winner and its nearest rival at the winner's
# goodput, and serve *new* requests on **paced workers**: real workers with real queues, real
# messages and a real hand-off of bytes, which only sleep through each step for as long as it took on
# this machine. All of them run at the same time, since sleeping workers do not get into each
# other's way. To be done in half a minute, long runs are played in fast motion: the steps, the
# arrivals and the limits are all divided by the same number.

# %%
from minipd.lab.paced_runs import claims, try_claims

show_table(try_claims(pace, claims(swept, objectives)), "Paced")

# %% [markdown]
# These runs are short, a few dozen requests each, so a share may be off by several percent;
# what should agree is who of the two did better. A "no" where both are near the top is a draw, and
# says that the two are closer than so few requests can tell. What sleeping workers leave out: two
# workers that compute get into each other's way in the machine's memory.

# %% [markdown]
# ## Move the limits
#
# Every request of the sweep was kept, so any two limits can be judged without a new run. Move the
# sliders, and watch the winner change.

# %%
from minipd.lab.goodput_dial import dial_text, show_dial, winners_map

show_dial(swept)

# %% [markdown]
# The same without sliders: the winner for every pair of limits, as a map. Read a row from left to
# right (more patience for the start), then a column downwards (more patience for gaps).

# %%
show_table(winners_map(swept))
print(dial_text(swept, ttft_s=slo.ttft_s, gap_s=slo.itl_p99_s))

# %% [markdown]
# ## What goes wrong
#
# Third question: compared with what? Each cell below makes the split, or anything else, look
# splendid. Each mistake stands in public reports [unfair-comparisons].
#
# **Twice the hardware.** The split needs two workers. Compared with *one* colocated worker it wins
# easily, and so would anything with two.

# %%
from minipd.lab.goodput_sweep import timeline_of
from minipd.measure.metrics import run_metrics

rows = traffic(0.5 * capacity(pace), count=60, seed=4)
waits = {}
for what, first_pool, second_pool in (("one worker", 1, 0), ("two workers", 1, 1)):
    alone = run_metrics(timeline_of(pace, "colocated", rows, first_pool, second_pool)).requests
    waits[what] = percentile([request.e2e_s for request in alone], 90)
split = percentile([request.e2e_s for request in serve(pace, "disaggregated", rows)], 90)

# %%
print(f"'{waits['one worker'] / split:.1f} times faster since the split!'  (two against one)")
print(f"against two colocated workers: {waits['two workers'] / split:.2f} times as fast")

# %% [markdown]
# **Prompts that were read before.** A benchmark that sends the same prompt again and again measures
# the prefix cache of lesson 05. Then reading is nearly free, there is nothing to disaggregate, and
# whatever follows says nothing. Here with the real model:

# %%
prompt = llm.token_ids("The waiter reads the menu aloud, dish by dish. " * 20)
for attempt in ("first", "second"):
    start = time.perf_counter()
    next(iter(llm.stream(prompt, SamplingParams(max_tokens=2))))
    print(f"{attempt} time: {1000 * (time.perf_counter() - start):.0f} ms to the first token")

# %% [markdown]
# Even careful people fall for it: one public study repeated its measurement after its prompts had
# hit the cache [agentic-cached-prompts]. Use random prompts, or count the tokens that were really
# read.
#
# **The phase that nobody timed.** Here is the split at far too high a rate. Timed from the first
# token on, it looks in perfect health:

# %%
crowd, quiet = (
    serve(pace, "disaggregated", traffic(share * capacity(pace), count=80, seed=1))
    for share in (1.2, 0.42)
)
tpots = percentile([request.tpot_s or 0.0 for request in crowd], 50)
print(f"'Steady {1000 * tpots:.0f} ms per token, even at this rate!'")
late, usual = (percentile([r.ttft_s for r in one], 50) for one in (crowd, quiet))
print(f"half of the readers waited more than {late:.1f} s for their first token;")
print(f"in the same split at a calm rate it was {usual:.2f} s")

# %% [markdown]
# A queue moves to where nobody looks. Time both phases, with the queue, for everybody. Exercise 3
# is a detective's job of this kind.

# %% [markdown]
# ## Where the split loses
#
# Now the other direction: five situations, fair in every respect (equal workers, equal memory, the
# same requests), in which the split does *not* pay. All of them are run on paced workers.
#
# - **short prompts**: a few words in, a longer answer out;
# - **slow link**: notes travel at half the speed at which they are made;
# - **low load**: one request at a time;
# - **wrong ratio**: four workers, of which one reads and three write, and long prompts;
# - **memory held twice**: each worker has room for the notes of a few answers only.
#
# They, too, are played in fast motion on a slow machine; what counts is the ratio of both sides.

# %%
from minipd.lab.where_it_loses import losing_cases

cases = losing_cases(pace)
predict(
    "09.loses",
    "In which of them does a whole answer take longest, compared with colocated workers?",
    choices=list(cases),
)

# %%
from minipd.lab.where_it_loses import losses_table, motion_of, slower, try_cases

tried = try_cases(pace, cases)
times = {name: slower(one) for name, one in tried.items()}
reveal("09.loses", max(times, key=times.get))
show_table(losses_table(tried), f"Medians; paced, {motion_of(pace):.1f} times fast motion")

# %%
for name, factor in times.items():
    print(f"{name}: {factor:.2f} times as long; {cases[name].lesson}")

# %% [markdown]
# Every row has its own reason, and the column "busy" or the second token gives it away. See it on
# three timelines, each with the colocated run above. First, short prompts: look at how empty the
# lane of the worker is that only reads.

# %%
show_picture(tried["short prompts"].picture())

# %% [markdown]
# The slow link. The first token comes as soon as ever, since the reader of the prompt publishes it.
# Then nothing, until the notes have arrived. The TPOT is larger, too, but it spreads the wait over
# all tokens and cannot say where it was: look at the *second* token, and at the mark "waits for
# notes".

# %%
show_picture(tried["slow link"].picture())

# %% [markdown]
# The wrong ratio: one lane is full from end to end, three are nearly empty. More hardware of the
# wrong kind does not help.

# %%
show_picture(tried["wrong ratio"].picture())

# %% [markdown]
# Memory held twice deserves a word. Both workers hold a full copy of the weights. Colocated, what is
# left on *both* of them holds notes of running answers. In the split, the answers live on the
# writer alone, and the reader's memory is a passage. So half of the answers fit, and the rest
# wait before they are even read (lesson 07: no reservation, no reading).
#
# But is it the memory? One writer for twelve answers is slow for another reason as well, the one of
# the short prompts. Only a control can tell: the same requests, with room for everybody.

# %%
from dataclasses import replace
from statistics import median

from minipd.lab.paced_runs import ROOM

control = replace(cases["memory held twice"], num_blocks=ROOM)
control = try_cases(pace, {"with room": control})["with room"]
for name, one in {"a few": tried["memory held twice"], "everybody": control}.items():
    together, apart = (median(r.ttft_s for r in one.requests(side)) for side in one.runs)
    print(
        f"room for {name}: first token {apart / together:.1f} times as late in the split,", end=" "
    )
    print(f"whole answer {slower(one):.1f} times")

# %% [markdown]
# What stays with room for everybody is the price of one writer. What room for a few adds is the wait
# for a place, and it stands in front of the first token.
#
# At low load the split loses nothing that a reader would feel. It just gains nothing, for two
# copies of the weights, a link and twice as many parts that can break.

# %% [markdown]
# ## I own one or two GPUs: what do I do?
#
# Your own numbers first. One worker is not half of two: whoever finds it busy must wait, while of
# two workers the other one may be free. So the cell serves the same requests with one worker, at
# half of the rates.

# %%
from minipd.lab.goodput_sweep import one_or_two_table

single = sweep(pace, workers=1)
show_table(one_or_two_table(swept, single, objectives), "Good requests per second and worker")

# %% [markdown]
# **One GPU.** There is nothing to split: two pools need two copies of the weights. Choose between
# colocated and chunked, and set the size of a piece by your limit on the gaps (lesson 06). Where the
# table says "nobody", a single worker cannot keep that reader's limits at any of our rates.
#
# **Two GPUs.** Two colocated or chunked replicas, unless your users need an even flow at high load.
# Then try the split, measure goodput *per GPU* against two chunked replicas, and keep what wins.
# You have no other ratio to choose than one to one, and it is seldom the right one (lesson 10).
#
# This is also what its friends say. DistServe's authors advise against the split where total
# throughput is all that counts and where there are only a few GPUs [distserve-when-not]. vLLM's
# documentation says that it does not improve throughput [vllm-disagg-two-reasons]. Amazon names
# its conditions: dense models of 70 billion weights and more, 4,000 prompt tokens and more, at
# least 2 requests per second, 256 tokens of answer and more, all of them together
# [aws-dpd-conditions]. NVIDIA's tuning guide sees no benefit at low load [dynamo-tuning], and the
# example of its configurator gives the split 0.89 of the throughput of the unsplit system
# [aiconfigurator-example].

# %% [markdown]
# **Where the laptop exaggerates.** A freeze is longer here, in tokens, than on a data centre's
# hardware, so the freezes that sink the colocated mode in our sweep are milder there for prompts of
# this length:

# %%
from minipd.measure.real_hardware import H100X8

here = interpolate(pace.prefill, 512) / interpolate(pace.decode, 4)
print(f"a prompt of 512 tokens freezes {here:.0f} steps here,")
print(f"{H100X8.freeze_tokens(512, batch=4):.1f} on {H100X8.name},")
print(f"where it takes 8,192 tokens to freeze {H100X8.freeze_tokens(8192, batch=4):.0f}")

# %% [markdown]
# (Published step times [freeze-70b-h100]. The table of lesson 08 shows one less: it leaves out the
# token that each chat gets out of the step that reads.) With long documents, the picture of this
# lesson holds there, too; with short chats the split has less to cure.

# %% [markdown]
# ## The same idea, full-size
#
# The engine's verdict on one request is your `is_good` with more limits and with the rule for an
# answer of one token; its goodput is your `goodput`.

# %%
import inspect

from minipd.measure.slo import SLO, highest_good_rate

print(inspect.getsource(SLO.met_by))
print(inspect.getsource(SLO._tokens_met))
print(inspect.getsource(highest_good_rate))

# %% [markdown]
# ## Neighbours of the split
#
# Many ideas are mentioned in the same breath as disaggregation. Most of them can be combined with
# it; few of them replace it. The quiz has a second part about them.
#
# | idea | what it changes | beside the split |
# |---|---|---|
# | chunked prefill | prompts are read in pieces between the writing steps, on the same worker | the alternative: shorter freezes, no second pool |
# | continuous batching | requests join and leave between steps (lesson 04) | works within each pool |
# | replicas | more copies of the whole server, requests are shared out | the baseline to beat, with as many GPUs |
# | tensor, pipeline and expert parallelism (TP, PP, EP) | one copy of the model is cut over several GPUs: each matrix, the layers, the experts | how *one* worker is built; each pool may choose its own |
# | prefix caching | notes of an equal beginning are used again (lesson 05) | less to read, so less to disaggregate |
# | offload | notes that nobody needs now go to host memory or disk | a place, not a phase; lesson 13 |
# | speculative decoding | several tokens are guessed, and checked in one step | speeds up writing alone, where arithmetic is idle |
# | quantisation | fewer bits for each number (lesson 03) | writing gains by smaller weights; smaller notes travel faster |

# %% [markdown]
# ## Faster for whom: the answer in numbers
#
# Your machine beside a recorded run [lesson-09-recorded], in good requests per second and worker.
# Rates scale with the machine; compare who wins.

# %%
from minipd.lab.goodput_sweep import RECORDED_FILE, beside_recorded

show_table(beside_recorded(swept, objectives))
print(f"The raw figures of the recorded run: {RECORDED_FILE}")

# %% [markdown]
# So "is the split faster?" has no answer. "For readers who need an even flow, at this rate, with
# prompts like these, against two chunked workers" has one, and you can measure it.

# %% [markdown]
# ## A line for your bench sheet

# %%
from minipd.measure import sheet
from minipd.measure.contest import split_cores
from minipd.measure.machine import describe_machine

threads = split_cores(2).threads  # of each worker

# %%
told = ", ".join(f"{reader}: {best}" for reader, best in by_reader.items())

# %%
kept = sheet.append(
    sheet.SheetLine(
        machine=describe_machine().summary,
        model=llm.model.name,
        dtype="float32",
        threads=threads,
        prefill_tok_s=512 / interpolate(pace.prefill, 512),
        decode_tok_s=1 / interpolate(pace.decode, 1),
        note=f"lesson 09, one of two workers; {told}",
    )
)

# %%
show_table({"decode tok/s": [kept.decode_tok_s], "note": [kept.note]}, f"Kept on {kept.date[:10]}")

# %% [markdown]
# ## Where you meet this in practice
#
# | tool | what it calls what |
# |---|---|
# | vLLM | `vllm bench serve --goodput`; TPOT per request, ITL per chunk [vllm-itl] |
# | SGLang | `sglang.bench_serving`; ITL per token, in equal parts of a chunk [sglang-itl] |
# | GenAI-Perf | ITL per response, divided by its tokens [genai-perf-itl] |
# | AIPerf | ITL is the TPOT of the others; goodput is built in [aiperf-itl] |
# | llama.cpp | `llama-bench`: rates of passes, no requests [llama-bench-tests] |
# | minipd | `minipd/measure/tools.py` has them all; `minipd load` reports the client's view |
#
# **What we left out.** Goodput weighted by tokens or by price; admission control, which refuses
# requests to keep the others good; how many runs it takes to tell two systems apart by a small
# margin; ratios other than one to one (lesson 10).

# %% [markdown]
# ## How well do you predict?

# %%
calibration()

# %% [markdown]
# ## Quiz
#
# Every wrong answer is explained, and you can try again. In a terminal it is `minipd quiz 09`. The
# second part is about the neighbours of the split.

# %%
quiz("09")

# %% [markdown]
# ## Next
#
# Open [the exercises](../exercises/09_goodput.ipynb): goodput from raw records, two metrics that
# share a name, and reports that compare what cannot be compared. Lesson 10 then asks how many
# workers should read and how many should write.
