# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Lesson 12: Fleets and audits
#
# **The question: why did servers grow tenfold while tokens got ten times cheaper?**
#
# **Minutes:** 75 for this notebook, 20 for the quiz at its end, 55 for the four exercises.
#
# **You need:** lessons 00 to 11: the two phases, queues, the two pools, goodput, rate matching, and
# how a model is cut over several GPUs.
#
# **Afterwards you can**
#
# - write a simulator of a fleet in two pools, and check it before you believe it;
# - size a fleet for a promise, and say when the size was computed from means and will not hold;
# - audit a claim: who said it, of what, from which source, and what a calculation says.
#
# Nothing here needs a GPU, not even to talk about hundreds of them: step times are computed, and
# what follows from them is simulated.

# %%
from minipd.lab import calibration, panel, predict, quiz, reveal, show_table

panel("12")

# %% [markdown]
# ## The riddle comes back
#
# In lesson 00 you took a riddle along: *within one year, the companies that sell chatbots bought
# ten times more servers; in the same year, the price of what those servers make fell to a tenth.
# How can both be true?* Neither factor has a source [riddle-premises]. So it is a thought
# experiment, and we treat it as one.
#
# What do you think now?

# %%
ANSWERS = [
    "The new servers are simply that much cheaper",
    "Each server gets far more done, so far more is sold",
    "The companies sell at a loss",
    "One of the two statements must be wrong",
]
predict("12.riddle", "What is the best explanation?", choices=ANSWERS)

# %% [markdown]
# The course module from which the riddle comes has an answer: *servers multiplied because reading
# and writing were split and most GPUs were given to writing, one to ten; tokens got cheaper because
# after the split no GPU idles any more* [module-answer]. It is a good story. This lesson checks it,
# with the tools of the last ten lessons and one new one. First the plain arithmetic.

# %%
predict(
    "12.hundred",
    "Ten times the servers, each token at a tenth, a server-hour costs what it did. "
    "If the price follows the cost: how many times as many tokens are made?",
    unit="times",
    brackets=[1, 5, 20, 50],
)

# %%
servers, price = 10, 1 / 10
bill = servers  # a server-hour costs the same, so the bill grows with the servers
tokens = bill / price
print(f"tokens made: times {tokens:.0f}; by each server: times {tokens / servers:.0f}")
reveal("12.hundred", tokens, "times")

# %% [markdown]
# So the two statements do not contradict each other. They ask for two explanations: why a server
# makes so many more tokens, and why people want so many more. *The second has nothing to do with
# how servers are arranged.* Keep that in mind while we look for the first.

# %% [markdown]
# ## A fleet in sixty lines
#
# Nobody lends us hundreds of GPUs to try an arrangement. But we know how long steps take, and what
# happens between steps is a matter of rules: who waits for whom. A program that applies the rules on
# a clock that jumps from one happening to the next is an **event-driven simulator**. A request
# first; it counts its tokens and remembers when each came. (`route`, below, sets its reader and its
# writer; `owed` is how many requests a worker still has to finish.)


# %%
class Request:
    def __init__(self, arrived, tokens):
        self.arrived, self.left, self.times = arrived, tokens, []

    def token(self, now):  # one more token; says how many are still owed
        self.times.append(now)
        self.left -= 1
        self.writer.owed -= self.left == 0
        return self.left


# %% [markdown]
# A **reader** is a prefill worker: one queue, one prompt at a time. When something starts that will
# end later, it says so with `yield`: in how many seconds, what happens then, and to whom. (Each
# class is written in two cells, one idea each; the second adds a method to the first.)


# %%
class Reader:
    def __init__(self, read_s):
        self.read_s, self.queue, self.owed = read_s, [], 0

    def take(self, now, request):
        self.queue.append(request)
        if len(self.queue) == 1:
            yield self.read_s, self.done, request


# %%
def done(self, now, request):  # the first token comes out of prefill
    self.queue.pop(0)
    self.owed -= 1
    if request.token(now):
        yield from request.writer.take(now, request)
    if self.queue:
        yield self.read_s, self.done, self.queue[0]


Reader.done = done

# %% [markdown]
# A **writer** is a decode worker: step after step, each step one token for every answer in it. Who
# arrives during a step joins at the next one. A new request asks its writer first (`ask`); this one
# passes it on to the reader at once.


# %%
class Writer:
    def __init__(self, step_s):
        self.step_s, self.joining, self.running, self.owed = step_s, [], [], 0

    def ask(self, now, request):
        yield from request.reader.take(now, request)

    def take(self, now, request):
        self.joining.append(request)
        if not self.running:
            yield from self.step(now, None)


# %%
def step(self, now, _):
    still = [request for request in self.running if request.token(now)]
    self.running, self.joining = still + self.joining, []
    if self.running:
        yield self.step_s(len(self.running)), self.step, None


Writer.step = step

# %% [markdown]
# The router sends each request to the reader and the writer that owe the least. The loop at the
# bottom is the whole simulator: take the earliest happening off the heap, let it happen, put what
# follows from it back.


# %%
def route(readers, writers, now, request):
    request.reader = min(readers, key=lambda reader: reader.owed)
    request.writer = min(writers, key=lambda writer: writer.owed)
    request.reader.owed += 1
    request.writer.owed += 1
    yield from request.writer.ask(now, request)


# %%
from heapq import heapify, heappop, heappush
from itertools import count


def run(agenda):
    number = count(len(agenda))  # at one instant things happen in the order they were asked for
    while agenda:
        now, _, happens, what = heappop(agenda)
        for delay, then, whom in happens(now, what):
            heappush(agenda, (now + delay, next(number), then, whom))


# %%
from functools import partial


def serve(readers, writers, arrivals, tokens):
    requests = [Request(arrived, tokens) for arrived in arrivals]
    arrive = partial(route, readers, writers)
    agenda = [(one.arrived, number, arrive, one) for number, one in enumerate(requests)]
    heapify(agenda)
    run(agenda)
    return requests


# %% [markdown]
# ## Check it before you believe it
#
# A simulator always prints *some* number. Two checks, then. First against theory: one reader, random
# arrivals, answers of one token, where the mean time to first token is known exactly, as in lessons
# 06 and 10 [mdone-ttft]. Reading takes one second.

# %%
from random import Random
from statistics import mean

from minipd.fleet.queueing import single_ttft_s


def random_arrivals(rate, number, draw):
    now = 0.0
    return [now := now + draw.expovariate(rate) for _ in range(number)]


# %%
def mean_ttft(load, name):
    came = random_arrivals(load, 20_000, Random(name))
    served = serve([Reader(1.0)], [Writer(None)], came, tokens=1)
    return mean(one.times[0] - one.arrived for one in served)


# %%
loads = (0.1, 0.5, 0.9)
table = {"load": loads, "theory (s)": [single_ttft_s(load, 1.0) for load in loads]}
for name in ("first draw", "second draw", "third draw"):
    table[f"{name} (s)"] = [mean_ttft(load, name) for load in loads]
show_table(table)

# %% [markdown]
# Good at light loads. Near a full reader three draws of many thousand requests give three different
# answers, since one unlucky bunch is felt for a long time. *A short simulation of a nearly full
# system is a draw of luck*, and so is a short benchmark of one.
#
# Second check: the engine's own simulator, on the very same arrivals, with two readers and one
# writer. It runs the real coordinator, router and schedulers of this package; only the steps take
# what a timer says.

# %%
from minipd.fleet.fleet import Fleet, WorkerKind
from minipd.fleet.simulate import Simulation
from minipd.fleet.sources import equal_requests
from minipd.fleet.timers import PointTimer
from minipd.sched.limits import Limits
from minipd.sched.step_times import interpolate

rows = list(equal_requests(500, prompt_tokens=100, output_tokens=30, rate_per_s=20).rows)
steps = ((1.0, 0.01), (64.0, 0.05))  # a step for 1 answer takes 10 ms, one for 64 takes 50

# %%
kind = WorkerKind(PointTimer(((1.0, 0.0006), (100.0, 0.06)), steps), kv_tokens=10**7)
limits = Limits(max_running=10**4, max_batch_tokens=100)
fleet = Fleet(kind, kind, num_prefill=2, num_decode=1, limits=limits, chunk_tokens=10**6)
engine = Simulation(fleet, skip_ahead=False).run(rows).summary.latency  # every step by itself


# %%
def our_means(writer):  # milliseconds to the first token, and to the last one
    came = [row.arrival_s for row in rows]
    served = serve([Reader(0.06), Reader(0.06)], [writer(partial(interpolate, steps))], came, 30)
    return [1000 * mean(one.times[at] - one.arrived for one in served) for at in (0, -1)]


# %%
known = [1000 * engine[name].mean for name in ("ttft_s", "e2e_s")]


def compared(ours):
    columns = {"mean": ["first token", "whole answer"], "ours (ms)": ours}
    show_table(columns | {"engine's simulator (ms)": known})


compared(our_means(Writer))

# %% [markdown]
# Close, and wrong: our first tokens come too early, by about half a step of the writer. The rule we
# forgot is in lesson 07: the writer *reserves* room before anybody reads. It can answer only
# between two steps, so a request waits for the end of the step under way. Write that in.


# %%
class Reserving(Writer):
    asked = ()

    def ask(self, now, request):
        self.asked = [*self.asked, request]
        if not self.running:
            yield from self.answer(now)

    def answer(self, now):
        for request in self.asked:
            yield from request.reader.take(now, request)
        self.asked = ()


# %%
def step_and_answer(self, now, _):
    yield from Writer.step(self, now, _)
    yield from self.answer(now)


Reserving.step = step_and_answer
ours = our_means(Reserving)
compared(ours)
off = max(abs(mine - theirs) for mine, theirs in zip(ours, known))
assert off < 1e-6
print(f"the difference is at most {off:.0e} ms")

# %% [markdown]
# Now two programs that share only the arrivals and the table of step times agree to the last digit
# that matters. And the check has taught us something that a drawing of two boxes and an arrow hides.
# Here are the same two ideas in the engine, the loop and its heap:

# %%
import inspect

from minipd.fleet.events import Agenda

print(inspect.getsource(Agenda.at))
print(inspect.getsource(Agenda.run))

# %% [markdown]
# ## Step times of machines we do not own
#
# What is still missing are the step times of real GPUs. The **step-time model** computes them, as
# lesson 03 did for one product: for every operation of a step, the longer of its arithmetic and its
# memory time, plus what it takes to start it and, between GPUs, to exchange results. Ten factors for
# each kind of GPU say which share of its promises is reached; they are fitted to measured steps.
# Against the published times that it was fitted on it is off by a few percent at the median
# [step-time-errors], and more on models and GPUs that it has not seen.
#
# Our fleet: **nodes** of eight H100 GPUs, each of which holds Llama-3.1-70B once, and the requests
# that follow. An answer as long as a quarter of its prompt is about what DeepSeek's published day
# had [deepseek-day].

# %%
from minipd.lab import fleet_runs as fleet

node = fleet.steps_on("H100")
context = fleet.READ + fleet.WRITE // 2  # tokens behind an answer that is half written
together = [1, 8, 32, 128]
steps_ms = [1000 * node.decode_s(context, number) for number in together]
print(fleet.setting())
print(f"{fleet.READ} tokens are read in {1000 * node.prefill_s(fleet.READ):.0f} ms")
show_table({"answers written at once": together, "one step (ms)": steps_ms})

# %%
reads, writes = fleet.node_rates(node)
print(f"A node reads {reads:.1f} requests/s, or writes {writes:.1f} requests/s of {fleet.WRITE}.")
best = max(range(1, fleet.NODES), key=lambda p: min(p * reads, (fleet.NODES - p) * writes))
print(f"Rate matching of {fleet.NODES} nodes: {best} that read, {fleet.NODES - best} that write.")

# %% [markdown]
# ## One to ten
#
# *"DeepSeek-V3 runs on 32 GPUs for prefill and 320 for decode, about one to ten"* [deepseek-units].
# Together that is exactly our fleet. Suppose that somebody takes the sentence as advice.

# %%
predict(
    "12.units",
    "The same GPUs: how many times as many requests does the matched split serve as 32 to 320?",
    unit="times",
    brackets=[1.2, 2, 4, 8, 16],
)

# %% [markdown]
# The ratio itself needs no simulation: rate matching gives each split its rate, and we divide one by
# the other. What the division cannot say is whether the promise holds at these rates. So the
# engine's simulator serves both on all of the fleet, each at nine tenths of what rate matching
# gives. To keep the lesson short, requests arrive for a quarter of a minute only; hours would be
# better.

# %%
served = fleet.splits_served(node, [(4, 40), (best, fleet.NODES - best)], seconds=15)
each_s = fleet.WRITE * served[1].tpot_p90_s
show_table(fleet.served_table(served), f"Arrivals for 15 s; writing an answer takes {each_s:.0f} s")

# %%
better = served[1].rate_per_s / served[0].rate_per_s
reveal("12.units", better, "times")
decode_busy = fleet.FULL * 4 * reads / (40 * writes)
print(f"At 32 to 320 the writers have work for {decode_busy:.0%} of what they could do.")

# %% [markdown]
# The same GPUs, placed otherwise, serve several times as many people within the same promise. That
# is the point of another text behind this course: *not more GPUs, better placed*. It is true for a
# given workload; with much longer answers the writers would be short.
#
# And DeepSeek? The report calls 32 and 320 the *smallest units* of its two pools [deepseek-units].
# How many units run is another number, and it can be computed from what the company published about
# one day [deepseek-day]:

# %%
from minipd.lab import claims

reading, writing = claims.fleet_nodes()
print(f"{claims.READ_A_DAY:.3g} tokens read a day keep {reading:.1f} nodes busy,")
print(f"{claims.WRITTEN_A_DAY:.3g} tokens written a day keep {writing:.1f} nodes busy:")
print(f"one to {writing / reading:.2f}. Together {reading + writing:.1f} nodes.")

# %% [markdown]
# The sum meets the average that the company itself states [deepseek-day], which is what makes the
# derivation believable. (Somebody else writes that DeepSeek runs 3 nodes and 9; those are the nodes
# of another team's copy of it [three-and-nine].) **A unit is not a fleet.** Exercise 1 is this audit.

# %% [markdown]
# ## A gain needs a limit beside it
#
# *"Capacity grew about fivefold, 498 %."* The figure is Mooncake's, not DeepSeek's, and holds for
# one trace and the strictest of three limits; with looser ones it was 157 % and 59 %
# [mooncake-gain-by-slo]. (And +498 % is almost six times as much, not almost five: what was there
# before counts as well.)
#
# Does a gain really depend that much on the limit? The **planner** can say. For prompts of 4,000
# tokens [planned-case] at a fixed rate it finds the cheapest fleet of each kind that keeps the
# promise, under four limits on the time per output token.

# %%
predict(
    "12.loose",
    "Under a limit of 30 ms the colocated fleet needs twice the GPUs of the split one. "
    "How many times as many under a limit of 200 ms?",
    unit="times",
    brackets=[1, 1.3, 1.6, 1.9],
)

# %%
plans = {limit: fleet.plan_for(tpot_s=limit) for limit in (0.03, 0.05, 0.1, 0.2)}
show_table(fleet.plans_table(plans), "Llama-3.1-70B on H100, 4,000 in, 300 out, 40 requests/s")
strict, loose = (fleet.gain(plans[limit], "colocated") for limit in (0.03, 0.2))
reveal("12.loose", loose, "times")

# %% [markdown]
# Read the table by columns. The split needs as many GPUs under every limit, arranged in other ways
# (last column); it is the others that pay for strictness. And by the ratios: compared with chunked
# prefill, a fairer opponent, the gain is smaller still. So *"times as much" without a limit and an
# opponent is not a figure*. The same holds for "2.5 times the throughput on the same GPUs", for which
# there is no source at all [module-two-and-a-half]: vLLM's own documentation says that throughput
# does not improve [vllm-disagg-two-reasons]. Exercise 3 turns two sweeps into a gain for each limit.

# %% [markdown]
# A plan is more than a number of GPUs. Here is what `minipd plan` says about the second row: how the
# GPUs are arranged, whether to split and why, what decides the size of each pool, and what it costs.

# %%
for mode, plan in plans[0.05].items():
    print(f"{mode}: {fleet.short_name(plan)}")
print("\n".join(fleet.plan_words(tpot_s=0.05)))

# %% [markdown]
# (`9P2D` counts workers: nine prefill, two decode. `TP4`: each layer of a worker is cut over four GPUs.
# `PP4`: each of four GPUs holds a quarter of the layers. Both are in lesson 11.)
#
# ## Who is billed?
#
# *"A million tokens cost about USD 0.20 to make; an API of that class sells them at about USD 1.00."* The
# first figure was measured, by LMSYS, on 96 H100s, at USD 2 for each GPU-hour [lmsys-deepseek]. Do the
# division yourself.

# %%
from minipd.lab.bill_dial import DEEPSEEK_96, bill_table, bill_text, show_bill_dial

pools = DEEPSEEK_96
rate = pools.decode_nodes * pools.writes_tok_s  # tokens/s of nine decode nodes
for who, gpus in {"the decode GPUs": 72, "all GPUs": 96}.items():
    print(f"{who}: USD {gpus * 2.0 / (rate * 3600) * 1e6:.4f} per million output tokens")

# %% [markdown]
# Only the first line gives the published figure: *whoever reads the prompts works for nothing*. And
# there is a second condition. The phases were measured one by one, each "assuming unlimited
# resources" for the other. What if the readers have to keep up? Prompts are 2,000 tokens long
# [lmsys-deepseek].

# %%
for answer in (100, 500, 2500):
    print(bill_text(pools, answer), "\n")

# %% [markdown]
# With short answers these readers cannot feed these writers: the decode pool idles and costs all the
# same. The published rate needs answers longer than the prompts, or more readers. Try it: who must
# be billed, at what price, at what ratio, before the bill comes near the figure?

# %%
show_bill_dial(pools, answer=100)

# %% [markdown]
# The same as a table, for the published ratio and for as many readers as writers:

# %%
from dataclasses import replace

show_table(bill_table(pools), "3 prefill and 9 decode nodes")
show_table(bill_table(replace(pools, prefill_nodes=9)), "9 and 9")

# %% [markdown]
# (Here everything is charged to output tokens, because that is how the claim is worded. APIs sell
# input tokens as well; `minipd plan` charges each phase for its own time.) And "USD 1.00" is a *price* [lmsys-deepseek]:
# it also pays for the hours at night, for staff, and for profit. DeepSeek's own published day has a
# theoretical margin of 545 % [deepseek-margin]. A price beside a cost proves nothing about either.
#
# ### Which Kimi?
#
# *"Kimi K2.7 wrote 288,000 tokens per second on 128 H200s."* The number is right and the name is
# wrong: it was Kimi K2, a year earlier [kimi-288k]. And a big number of a fleet says nothing about
# one reader. The whole decode pool has 480 answers under way on each of its GPUs:

# %%
answers = claims.KIMI_TOGETHER * 96  # on 96 decode GPUs
each = claims.KIMI_TOK_S / answers
print(f"{answers:,} answers at once: {each:.2f} tokens/s for each, {1000 / each:.0f} ms apart")

# %% [markdown]
# Is that fast? For somebody who reads along, yes; for an agent that waits for the end, no. **Ask of
# every throughput what one user gets.**

# %% [markdown]
# ## What goes wrong: planning with means
#
# The planner's requests are all alike. Nobody's requests are. The next cell plans with the mean
# lengths, then serves the same load on the planned fleet: first equal requests, then lengths that
# vary around the same means. The fleet is nearly full, so one draw would be luck; we take three.

# %%
plan = plans[0.05]["disaggregated"]
work = plan.decode.speeds.work
equal = fleet.equal_rows(work, 1500)
draws = [fleet.varied_rows(work, 1500, seed) for seed in range(3)]
print(f"The plan, {plan.gpus} GPUs, promises {work.attainment:.0%}.")
print(f"equal requests: {fleet.kept_promise(plan, equal):.0%} keep it")
kept = ", ".join(f"{fleet.kept_promise(plan, rows):.0%}" for rows in draws)
print(f"lengths that vary, same means, three draws: {kept}")

# %% [markdown]
# The draws are far apart, and in each of them the promise is broken for more users than it may be, with
# the *same* tokens per second. More GPUs?

# %%
larger = fleet.plan_for(0.05, rate_per_s=1.5 * work.rate_per_s)["disaggregated"]
kept = ", ".join(f"{fleet.kept_promise(larger, rows):.0%}" for rows in draws)
print(f"Planned for half as much load again, {larger.gpus} GPUs: {kept} keep the promise.")
alone = ", ".join(f"{fleet.too_long_alone(larger, rows):.0%}" for rows in draws)
print(f"Prompts that take longer than the limit to read, on an empty reader: {alone}.")

# %% [markdown]
# Better, and then it gets stuck. The readers of this plan are pipelines of four GPUs, cheap per
# prompt but slow for one; the longest prompts take longer than the limit *to read*, alone, on
# empty machines. No number of such readers helps (lesson 10, exercise 2); readers of another shape
# would, or a limit that grows with the prompt. (Fleets without a split, larger to begin with, broke
# fewer promises in our record [lesson-12-recorded]: what a plan saves, it often takes from its
# reserve.) *Plan with the lengths that come, not with their
# mean, and simulate the plan before you buy it*: `minipd plan ... --verify --trace FILE` does.

# %% [markdown]
# ## The riddle, computed
#
# Back to the story. Its first half: *servers multiplied because of the split.* For a given load and
# promise, look at the plans again: the split needs **fewer** GPUs than the others, or as many. The
# one to ten was a pair of unit sizes. The split cannot be why there are more servers.
#
# Its second half: *tokens got cheaper because of the split.* That it can do, in part. Which part of a
# factor of ten? Factors multiply, so we compare their logarithms: a factor that has to be applied
# twice to make ten explains half of it.

# %%
predict(
    "12.share",
    f"Under the strictest limit our split saves a factor of {strict:.2f}. What share of a factor of "
    "ten is that, counted in multiplications?",
    unit="%",
    brackets=[5, 15, 25, 40, 70],
)

# %%
from math import log

share = log(strict) / log(10)
reveal("12.share", 100 * share, "%")
assert abs(share - claims.explained(strict)) < 1e-12

# %% [markdown]
# For comparison, what else makes a token cheaper, computed with the same model: more answers
# in a step (lesson 04), weights of one byte each (lesson 03), a newer GPU *per dollar of rent*. (Rents
# are assumptions in `minipd/fleet/data/gpus.json`, each with its source and date; and the model was
# never fitted to the newer GPU.)

# %%
from minipd.fleet.plan_command import in_dtype


def per_dollar(steps, answers):  # tokens written per second and dollar per hour
    return answers / steps.decode_s(context, answers) / steps.device.usd_per_hour


eight_bit = replace(node, model=in_dtype(node.model, "fp8"))
newer = fleet.steps_on("B200")

# %%
factors = {
    "split, not colocated, TPOT within 30 ms": strict,
    "split, not chunked, TPOT within 30 ms": fleet.gain(plans[0.03], "chunked"),
    "split, not colocated, TPOT within 200 ms": loose,
    "32 answers in a step, not 1": per_dollar(node, 32) / per_dollar(node, 1),
    "32 answers in a step, not 8": per_dollar(node, 32) / per_dollar(node, 8),
    "weights of 8 bits, not 16": per_dollar(eight_bit, 32) / per_dollar(node, 32),
    "B200, not H100, per dollar": per_dollar(newer, 32) / per_dollar(node, 32),
}

# %%
shares = [f"{claims.explained(factor):.0%}" for factor in factors.values()]
table = {"what changed": list(factors), "cheaper by a factor of": list(factors.values())}
show_table(table | {"share of a factor of ten": shares})

# %% [markdown]
# Batching alone, which is older than the split, can make ten and more; the split adds its part on
# top, where limits are strict; a newer GPU may even cost *more* for each token at today's rents
# (below zero: the wrong direction). Published gains of the split lie between none at all and almost
# six, each with its own opponent and limit [published-gains]; six would be about three quarters of
# a factor of ten, and that is the best case of the best paper.
#
# Two things are left over. The other factors multiply: smaller models that do the same job, experts
# of which a token touches few (lesson 11), caches of what was read before (lesson 13). And demand:
# ten times the servers *and* ten times the work of each means a hundred times the tokens.

# %%
reveal("12.riddle", ANSWERS[1])

# %% [markdown]
# That is the best explanation *if the premises hold*. "One of the two must be wrong" cannot be ruled
# out by arithmetic, since nobody has shown a source for either; it is just not needed.
#
# **A debate for a class.** "Not more GPUs, better placed" against "ten times the servers": both texts
# explain the split. Do they contradict each other? One speaks of a given load, the other of all
# servers of a growing market. A fleet that is better placed makes tokens cheaper; cheaper tokens may
# be wanted more. Whether they are wanted *so much* more is a question to economists, not to GPUs.

# %% [markdown]
# ## The ledger
#
# Every claim with which this course began, first with what a calculation says:

# %%
show_table(claims.claims_table(), "Recomputed where there is something to compute")

# %% [markdown]
# And where each comes from. *module* is the course module with the riddle, *announcement* an
# explainer of a cloud's announcement, *vendor* an article of a vendor. "Unsourced" does not mean
# false; it means that nobody can check it, so nothing should be built on it.

# %%
show_table(claims.claims_table(computed=False))

# %% [markdown]
# The same five questions found every fault in it. Take them to the next talk you hear:
#
# 1. Who measured it, and of *which* model, machine and year?
# 2. Of what is it a number: a unit or a fleet, a price or a cost, a phase or a service?
# 3. Under which limit, and against which opponent?
# 4. Who is billed, and what is idle meanwhile?
# 5. What does one user get?

# %% [markdown]
# **Where the laptop exaggerates.** Not at all this time, since nothing was timed on it. The simulator
# does, in the other direction: requests that are alike, no failures, no cold start, and step times
# that are a few percent off. And a GPU reads fast compared with one of its steps, so that a prompt
# read on this node freezes the answers beside it for a few steps only, however many they are. Your
# laptop froze for dozens (lesson 06).

# %%
for answers in (1, 32, 128):
    freeze = node.prefill_s(fleet.READ) / node.decode_s(context, answers)
    print(f"{answers} at once: reading {fleet.READ} tokens lasts as long as {freeze:.1f} steps")

# %% [markdown]
# ## Where you meet this in practice
#
# | tool | where |
# |---|---|
# | AIConfigurator | searches parallelism and pool sizes from a table of measured kernels, matching rates [aiconfigurator-match] |
# | NVIDIA Dynamo | its SLA planner sizes both pools again while they run [dynamo-planner] |
# | DistServe | simulates each phase to find a placement before anything is started [distserve-placement] |
# | Vidur, splitwise-sim | event-driven simulators of serving, fed by measured operations [serving-simulators] |
# | minipd | `minipd plan ... --verify`, `minipd simulate --prefill 4 --decode 40 --tp 8` |
#
# **What we left out.** Failures and repairs, cold starts, several models on one fleet, the price of
# power and of network, tenants with promises of their own. And nothing was said about whether the
# *quality* of the tokens changed meanwhile.
#
# There is no line for the bench sheet today: it holds measurements, and this lesson made none.

# %% [markdown]
# ## The answer, in your numbers

# %%
print(f"The same GPUs, better placed, serve {better:.1f} times the requests of 32 to 320.")
print(
    f"A split saves a factor of {strict:.2f} under a strict limit, {loose:.2f} under a loose one:"
)
print(f"under the strictest limit tried here {share:.0%} of a factor of ten,")
print("and nothing of ten times the servers.")
print(f"The USD 0.20 becomes USD {96 * 2 / (rate * 3600) * 1e6:.2f} when all GPUs are billed.")

# %% [markdown]
# These are computed, so they should be the same on every machine: our own record is in
# `benchmarks/raw/lesson_12.json` [lesson-12-recorded]. If yours differ, a table of prices or of
# fitted factors has changed since; that is worth an audit, too.

# %% [markdown]
# ## How well do you predict?

# %%
calibration()

# %% [markdown]
# ## Quiz
#
# Every wrong answer is explained, and you can try again. In a terminal it is `minipd quiz 12`.

# %%
quiz("12")

# %% [markdown]
# ## Next
#
# Open [the exercises](../exercises/12_fleets_and_audits.ipynb): four audits, the last one the riddle.
