# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Lesson 10: How many of each
#
# **The question: what P:D ratio?**
#
# **Minutes:** 60 for this notebook, 15 for the quiz at its end, 35 for the three exercises.
#
# **You need:** lessons 00 to 04 and 06 to 09: prefill and decode, slots, the two pools, queues,
# goodput.
#
# **Afterwards you can**
#
# - derive the ratio of prefill to decode workers for a workload in three ways, and say what each of
#   them leaves out;
# - read from TTFT, TPOT, queues and utilisation which pool is short, and move a worker while
#   requests run;
# - check the sentence "agents load decode" with a calculation of your own.
#
# Before most measurements you are asked for a prediction; it is kept beside the result. New words
# are explained at the end, under [Words](#Words).

# %%
from minipd.lab import calibration, panel, predict, quiz, reveal, show_table

panel("10")

# %% [markdown]
# ## Four cooks, two kitchens
#
# You split your servers into two pools, and the freeze is gone (lesson 07). Now somebody has to say
# how many servers go into each pool. Too few readers: every new question waits in a queue. Too few
# writers: answers trickle, or wait for a free place. The number that people ask for is called the
# **P:D ratio**, prefill workers to decode workers.
#
# There are four workers in this lesson, so there are three ways to split them: 1P3D, 2P2D and 3P1D
# (one prefill worker and three decode workers, and so on). These are the requests:

# %%
from minipd.lab.pool_ratio import CHAT, DOCUMENT, MIX

kinds = [CHAT, DOCUMENT, MIX]
names, reads = [kind.name for kind in kinds], [kind.read for kind in kinds]
show_table({"request": names, "tokens to read": reads, "to write": [k.write for k in kinds]})

# %%
predict(
    "10.split",
    f"Requests with {MIX.read} tokens to read and {MIX.write} to write: which split is best?",
    choices=["1P3D", "2P2D", "3P1D"],
)

# %% [markdown]
# ## Four workers on two cores
#
# Two cores cannot run four workers at full speed. So the workers here are **paced**: schedulers,
# queues, messages, KV blocks and hand-offs are real, but a step *waits* for as long as it took on
# this machine instead of computing. First, then, we measure how long steps take.

# %%
from minipd.lab.pool_ratio import lesson_pace
from minipd.measure.contest import split_cores
from minipd.measure.pace import measure_pace
from minipd.model.load import load

model = load("mini")  # small and random: its times are real, its words would mean nothing
pace, factor = lesson_pace(measure_pace(model, split_cores(2), repetitions=2))
print(f"Measured; all times are multiplied by {factor:.2f}.")

# %% [markdown]
# The factor makes the lesson take about as long on a slow computer as on a fast one. It stretches
# reading and writing alike, so it does not change which of them is short of workers.

# %%
show_table(
    {
        "prompt tokens": [int(tokens) for tokens, _ in pace.prefill],
        "read in (ms)": [round(1000 * seconds, 1) for _, seconds in pace.prefill],
    }
)
show_table(
    {
        "answers written at once": [int(together) for together, _ in pace.decode],
        "one step (ms)": [round(1000 * seconds, 1) for _, seconds in pace.decode],
    }
)

# %% [markdown]
# ## First way: match the rates
#
# A pool of prefill workers hands over so many requests per second; a pool of decode workers takes
# so many. If one is faster than the other, the difference is of no use to anybody. So:
#
# - one prefill worker reads $1 / T_{prefill}$ requests per second;
# - one decode worker writes $B$ answers at once, one token each per step, so it finishes
#   $B / (T_{step}(B) \cdot (O - 1))$ requests per second, with $O$ the tokens of an answer. (The
#   first token comes out of prefill.)
#
# $B$ is as large as the limit on the time per output token allows, and no larger than the worker's
# number of slots (lesson 04).

# %%
from minipd.lab.pool_ratio import MOST_TOGETHER
from minipd.measure.slo import SLO

slo = SLO(ttft_s=0.4, tpot_s=0.06)  # the promise to our users, in (stretched) seconds
print(f"A decode worker has {MOST_TOGETHER} slots here.")


# %%
def step_s(kind, together):
    """One step of so many answers, half written; each token of context makes it a little longer."""
    seconds = dict(pace.decode)
    near = min(seconds, key=lambda size: abs(size - together))
    return seconds[near] + together * (kind.read + kind.write / 2) * pace.per_context_token_s


# %%
from minipd.lab.pool_ratio import matched_rate, splits, worker_rates

for kind in kinds:
    reader, writer = worker_rates(pace, kind, slo.tpot_s)
    print(
        f"{kind.name}: a prefill worker reads {reader:.1f}/s, a decode worker writes {writer:.1f}/s"
    )

# %% [markdown]
# `worker_rates` does what the two lines above say, with straight lines between the measured sizes
# (and beyond the largest). Check one number by hand, with as many answers as keep the limit; where
# that is not one of the measured sizes, the two differ a little.

# %%
from minipd.lab.pool_ratio import most_within

together = most_within(pace, MIX, slo.tpot_s)
by_hand = together / (step_s(MIX, together) * (MIX.write - 1))
print(f"{together} answers together: by hand {by_hand:.1f}/s,")
print(f"by worker_rates {worker_rates(pace, MIX, slo.tpot_s)[1]:.1f}/s")

# %% [markdown]
# A split can serve no more than the slower of its pools.

# %%
table = {"split": [f"{p}P{d}D" for p, d in splits(4)]}
for kind in kinds:
    table[f"{kind.name} (requests/s)"] = [
        round(matched_rate(pace, kind, slo.tpot_s, split), 1) for split in splits(4)
    ]
show_table(table, "Rate matching: what each split promises")

# %% [markdown]
# One line of that table is the answer for one kind of request, and another line for another. *There
# is no best ratio of a model or of a machine, only of a workload.*

# %% [markdown]
# ## Second way: count the queue
#
# A pool that is busy all the time has an endless queue (lesson 06). Rate matching asks what the
# workers *can* do; the promise asks how long people *wait*. For prompts that are all alike and come
# at random, the mean time to first token of one worker is given by a formula [mdone-ttft] (queueing theory calls it `M/D/1`),
#
# $TTFT = D + \frac{R D^2}{2 (1 - R D)}$
#
# with $D$ the time to read one prompt and $R$ the requests per second that this worker gets. Each of
# $x$ prefill workers gets $R / x$, if requests are dealt out at random. (Our router looks for the
# shortest queue, so with several prefill workers the wait is a little shorter than the formula says.)

# %%
predict(
    "10.queue",
    "2P2D: what share of the rate that rate matching promises is left, if the mean TTFT must "
    f"stay under {slo.ttft_s} s?",
    unit="%",
    brackets=[20, 50, 70, 80, 90],
)

# %%
from minipd.lab.pool_ratio import queued_rate

promised = {split: matched_rate(pace, MIX, slo.tpot_s, split) for split in splits(4)}
queued = {split: queued_rate(pace, MIX, slo, split) for split in splits(4)}
reveal("10.queue", 100 * queued[2, 2] / promised[2, 2], "%")

# %% [markdown]
# Where prefill is the slower pool, the queue takes its share. Where decode is the slower pool, the
# prefill workers are not full, and the queue is no matter.
#
# (This "measured" was computed, with the formula. And as times are stretched until one prompt of
# the mixture takes the same everywhere, it comes out the same on every machine on which prefill is
# the slower pool of 2P2D.)

# %% [markdown]
# ## Third way: run it
#
# Now all three splits serve real requests, each at several rates and with two different draws of
# random arrivals. The rates are shares of what rate matching promised *that* split; the last one is
# above the promise, so that a promise can also turn out too low. It takes about a minute. Each
# finished point is kept in a file at once: if you interrupt the cell and run it again, it goes on
# where it was.

# %%
from minipd.lab.pool_ratio import SHARES, RatioSweep

print("Rates, of each split's promise:", ", ".join(f"{share:.0%}" for share in SHARES))
points = RatioSweep(model, pace, slo).run(num_workers=4, kind=MIX, seeds=2, seconds=1.6)

# %%
columns = {name: [point[name] for point in points] for name in ("split", "rate", "seed")}
good = [f"{point['attainment']:.0%}" for point in points]
show_table(columns | {"requests": [p["requests"] for p in points], "kept the promise": good})
fewest = min(point["requests"] for point in points)
print(f"The shortest run had {fewest} requests: there, one of them is {1 / fewest:.0%}.")

# %% [markdown]
# The *goodput* of a split is the highest rate at which at least nine in ten requests keep both
# limits (lesson 09; here of all four workers together). Where even the lowest rate is too much, the
# table says that it is below that. Here are the three ways side by side.

# %%
from minipd.lab.pool_ratio import best, rate_text, swept_rates

swept = swept_rates(points)
table = {"split": [f"{p}P{d}D" for p, d in splits(4)]}
for name, rates in {"rate matching": promised, "queue": queued}.items():
    table[name] = [round(rates[split], 1) for split in splits(4)]
table["measured"] = [rate_text(rate, split, points) for split, rate in swept.items()]
show_table(table, "Requests per second, three ways")

# %%
chosen, winner = best(promised), best(swept)
print(f"Rate matching chooses {chosen[0]}P{chosen[1]}D, the sweep {winner[0]}P{winner[1]}D.")
print(f"The choice reaches {swept[chosen] / swept[winner]:.0%} of the best measured goodput,")
print(f"and {swept[chosen] / promised[chosen]:.0%} of what rate matching promised for it.")

# %%
reveal("10.split", f"{winner[0]}P{winner[1]}D")

# %% [markdown]
# Is that winner a fact, or luck? The two draws of arrivals were two separate runs.

# %%
winners = [best(swept_rates(points, seed)) for seed in (0, 1)]
same = winners[0] == winners[1]
print("Winners of the two draws:", ", ".join(f"{p}P{d}D" for p, d in winners))
print("The same twice." if same else "They differ: between these splits it is noise.")

# %% [markdown]
# Two questions, then: did rate matching choose the right split, and did the split keep what was
# promised for it? Rate matching compares averages. That is often enough to say *which* split, and
# too hopeful about *how much*, since it knows no chance. The queue formula knows chance in prefill,
# but only its mean, and nothing of waiting for a place in decode. The sweep knows everything and
# costs the most. Engineers use them in this order.

# %% [markdown]
# ## What goes wrong
#
# *"More than half of our tokens are read, so more than half of the workers should be prefill
# workers."* Count tokens for the chat above, then seconds.

# %%
for kind in (CHAT, MIX):
    reader, writer = worker_rates(pace, kind, slo.tpot_s)
    by_tokens = kind.read / (kind.read + kind.write)
    by_time = (1 / reader) / (1 / reader + 1 / writer)
    print(f"{kind.name}: {by_tokens:.0%} of all tokens are read, so {4 * by_tokens:.1f} of 4")
    print(f"  workers should read, by tokens; by time it is {4 * by_time:.1f} of 4.")

# %% [markdown]
# A token that is read costs far less time than a token that is written (lesson 03), and how much
# less depends on how many are written together. Where both counts ask for the same split, as they
# may for the mixture, that is luck. Workers are bought by time, so *count seconds, never tokens*.

# %% [markdown]
# ## The workload shifts
#
# In the morning people chat; then the documents come. The next cell serves first chat, then
# documents, on 1P3D. Once the split is left alone. Once a **controller** looks ten times a second
# at TTFT, TPOT and the queues and may move one worker at a time: it stops giving it new work, waits
# until the worker holds nothing, and then changes its role. Nothing is lost on the way.

# %%
predict(
    "10.moves",
    "How many of the documents keep the promise if nobody moves?",
    unit="%",
    brackets=[10, 30, 50, 70, 90],
)

# %%
from minipd.lab.live_roles import attained, shifted
from minipd.lab.pool_ratio import paced_cluster, requests_at

requests = requests_at([(CHAT, 3), (DOCUMENT, 7)], 12, model.config.vocab_size, seed=0)
with paced_cluster(model, pace, (1, 3)) as cluster:
    fixed, _ = shifted(cluster, requests, slo, moves=False)
    cluster.reconfigure("disaggregated")
    moved, reasons = shifted(cluster, requests, slo, moves=True)
    leaks = sum(cluster.audit().values())

# %%
share = 100 * attained(fixed, slo, DOCUMENT)
reveal("10.moves", max(0.1, share), "%")  # of none at all no guess would be a factor away
rows = [[f"{attained(run, slo, kind):.0%}" for run in (fixed, moved)] for kind in (CHAT, DOCUMENT)]
show_table({"": ["1P3D, fixed", "with a controller"], "chat": rows[0], "documents": rows[1]})
print("\n".join(reasons) or "Nobody moved.")
finished = sum(event.kind == "finished" for event in moved.timeline)
print(f"Requests lost: {len(requests) - finished}. Blocks left behind: {leaks}.")

# %% [markdown]
# How long did a worker stand idle while it changed sides? The timeline has every step of it.

# %%
events = [e for e in moved.timeline if e.kind in ("worker_draining", "worker_resumed")]
columns = {"at (s)": [round(e.t_s, 2) for e in events], "worker": [e.worker for e in events]}
paused = [round(float(e.data.get("paused_s", 0)), 2) or "" for e in events]
show_table(columns | {"what": [e.kind for e in events], "took (s)": paused})

# %% [markdown]
# The controller is not magic: it sees a need only after people have waited, it lets the worker end
# what it holds, and a wave that is shorter than that is over before the move helps. Three brakes
# keep it from swinging back and forth: the same need must be seen several times in a row, some time
# must have passed since the last move, and the giving pool must be able to spare the worker. They
# stand at the top of the policy, which is plain Python without a clock:

# %%
import inspect

from minipd.sched.rebalance import Rebalancer

print(inspect.getsource(Rebalancer.decide))
print(inspect.getsource(Rebalancer._who_is_short))
print(inspect.getsource(Rebalancer._can_spare))

# %% [markdown]
# ### Optional: unlike hardware in the two pools
#
# Published step times of one model on two machines say that the newer one writes about 1.5 times as
# fast and reads about 2.0 times as fast [upgrade-a100-h100]. Give the prefill pool of your machine that kind
# of worker, and match the rates again.

# %%
from minipd.lab.pool_ratio import scaled

newer = scaled(pace, reading=1 / 2.0, writing=1 / 1.5)
fast_reader, fast_writer = worker_rates(newer, MIX, slo.tpot_s)
reader, writer = worker_rates(pace, MIX, slo.tpot_s)
print(f"old for both: {writer / reader:.2f} readers for each writer")
print(f"new reads, old writes: {writer / fast_reader:.2f}")
print(f"old reads, new writes: {fast_writer / reader:.2f}")

# %% [markdown]
# Reading gains more from the newer machine than writing does, so it pays to put the newer machines
# where arithmetic is the limit and to let the older ones write. Splitwise found that such a mixed
# fleet loses a few percent when the workload shifts, since its workers cannot change sides as
# cheaply [splitwise-mixed-fleet].

# %% [markdown]
# ## Do agents load decode?
#
# *"With agents, decode is the bottleneck, since they think so much."* One of the texts that this
# course began with says so. In a published trace of coding agents, nearly all tokens are *read*
# [agentic-tokens]. Tokens are not time, as we have just seen, so let us do it properly, with the
# generators of the course's workloads and the times of this machine.

# %%
from statistics import mean

from minipd.lab.pool_ratio import Kind
from minipd.measure.trace_stats import prefix_hits
from minipd.measure.workloads import generate

loads = {}
for name in ("chat", "rag", "coding_agent", "multi_turn", "reasoning", "api"):
    rows = generate(name, num_requests=300, rate_per_s=1, seed=0)
    read, write = mean(r.prompt_tokens for r in rows), mean(r.output_tokens for r in rows)
    found = prefix_hits(rows).token_weighted  # in a cache that never forgets
    loads[name] = (read, read * found, write)

# %%
predict(
    "10.agents",
    "Of the time that a coding agent costs all workers, what share is reading, if nothing that was "
    "read before is read again?",
    unit="%",
    brackets=[4, 10, 25, 50, 75],
)

# %% [markdown]
# What a cache holds is not read again. But it is still there, and every step of decode looks back
# at *all* of it. So the cache shortens the reading, not the context behind the writing.

# %%
from minipd.sched.step_times import interpolate


def reading_share(new, context, write):
    """Share of worker time that is prefill: `new` tokens read, answers behind all of `context`."""
    kind = Kind("", round(context), max(2, round(write)))
    reading_s = interpolate(pace.prefill, max(1, new))
    _, writer = worker_rates(pace, kind, tpot_s=float("inf"))  # with all slots taken
    return reading_s / (reading_s + 1 / writer)


# %%

table = {"workload": list(loads), "read": [round(read) for read, _, _ in loads.values()]}
table |= {"seen before": [round(seen) for _, seen, _ in loads.values()]}
table |= {"written": [round(write) for _, _, write in loads.values()]}

# %%
cold = {name: reading_share(r, r, write) for name, (r, _, write) in loads.items()}
warm = {name: reading_share(r - seen, r, write) for name, (r, seen, write) in loads.items()}
table |= {"time spent reading": [f"{share:.0%}" for share in cold.values()]}
show_table(table | {"without what was seen before": [f"{share:.0%}" for share in warm.values()]})
reveal("10.agents", 100 * warm["coding_agent"], "%")

# %%
read, seen, write = loads["coding_agent"]
print(f"An agent reads {read / write:.0f} tokens for each that it writes, and {seen / read:.0%}")
print("of them it had read before. Of the time that it costs here, reading is")
print(f"{cold['coding_agent']:.0%} without a cache and {warm['coding_agent']:.0%} with one.")
side = {name: "decode" if share < 0.5 else "prefill" for name, share in warm.items()}
print("With a cache, more time goes to:", ", ".join(f"{n}: {s}" for n, s in side.items()))

# %% [markdown]
# The sentence leaves out *whether the conversation so far is read again at every turn*. With a cache
# of what was read before, an agent's reading shrinks to what is new, while its writing costs what it
# did before. And it is not the long thoughts: an agent writes little, but every token of it is
# written behind a long context. So a claim can hold while its reason is wrong. The workload that does
# think long (`reasoning`) reads so little that a cache changes nothing. (Both columns stretch straight
# lines far beyond the longest prompt that we measured. Attention makes reading grow faster than that,
# so without a cache long prompts cost even more than the table says.)

# %% [markdown]
# **The laptop exaggerates.** Here a step for many answers takes a few times as long as a step for
# one; on a GPU of a data centre it would be hardly longer, and hundreds of answers share it
# (lesson 04). Decode workers there finish more requests, so of the same workload's time *reading is
# a larger share* than your table says, and it needs more prefill workers for each decode worker.
# Unit sizes that vendors publish, such as 32 prefill and 320 decode GPUs [deepseek-units], are not
# ratios of a fleet at all: lesson 12 shows why.

# %% [markdown]
# ## The same idea, full-size
#
# Our sweep changed the split between runs with one call; the live change is another. Both end in
# the same few lines of the engine: the worker is taken off the list, drains, and is told its new
# role.

# %%
from minipd.pools.roles import RoleChanges

print(inspect.getsource(RoleChanges.begin))
print(inspect.getsource(RoleChanges._switch))

# %% [markdown]
# ## Where you meet this in practice
#
# | tool | where |
# |---|---|
# | NVIDIA Dynamo | its SLA planner counts prefill and decode workers from the expected requests and lengths [dynamo-planner] |
# | Mooncake | found the best ratio for a trace by measuring several: about 8 to 8 on 16 machines [mooncake-ratio] |
# | AIConfigurator | matches rates like our first way, each pool taken for about nine tenths of what it can do [aiconfigurator-match] |
# | DistServe | searches for the sizes of both pools by simulation before it starts [distserve-placement] |
# | minipd | `minipd run --prefill 3 --decode 1`, and `--rebalance` with `--ttft` and `--tpot` |
#
# **What we left out.** Prompts of unlike length in one queue (a long one in front makes many wait);
# several models on one fleet; the price of each kind of worker (lesson 12); KV that is kept between
# turns (lesson 13). And a caution that belongs here: splitting the pools gives you a better *place*
# for each job, *not more GPUs*.

# %% [markdown]
# ## A line on your bench sheet
#
# The rates of one paced worker are worth keeping: next to them you will put those of a real server.

# %%
from minipd.measure import sheet
from minipd.measure.machine import describe_machine

seconds = {int(tokens): s / factor for tokens, s in pace.prefill}

# %%
line = sheet.SheetLine(
    machine=describe_machine().summary,
    model=model.name,
    dtype="float32",
    threads=split_cores(2).threads,
    prefill_tok_s=512 / seconds[512],
    decode_tok_s=factor / dict(pace.decode)[1],
    note=f"lesson 10, {winner[0]}P{winner[1]}D best of 4 for {MIX.read} in, {MIX.write} out",
)
kept = sheet.append(line)
show_table({"prefill tok/s": [kept.prefill_tok_s], "note": [kept.note]})

# %% [markdown]
# ## The answer, in your numbers

# %%
print(f"For {MIX.read} tokens in and {MIX.write} out, {winner[0]}P{winner[1]}D is best here:")
print(
    f"{swept[winner]:.1f} requests/s keep the promise, rate matching said {promised[winner]:.1f}."
)
docs = f"{attained(fixed, slo, DOCUMENT):.0%} to {attained(moved, slo, DOCUMENT):.0%}"
print(f"With a controller, the share of the documents on time went from {docs}.")

# %% [markdown]
# On the machine of our own recording (two virtual cores; date and samples in
# `benchmarks/raw/lesson_10.json`), all three ways chose 3P1D [lesson-10-recorded]. That sweep tried
# 50, 70, 90 and 110 % of each promise [lesson-10-recorded], so it could have found one too low.

# %% [markdown]
# ## How well do you predict?

# %%
calibration()

# %% [markdown]
# ## Quiz
#
# Every wrong answer is explained, and you can try again. In a terminal it is `minipd quiz 10`.

# %%
quiz("10")

# %% [markdown]
# ## Next
#
# Open [the exercises](../exercises/10_how_many_of_each.ipynb): three of them, the last about a
# conclusion that does not follow.
