# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Lesson 04: Batching
#
# **The question: why serve dozens at once?**
#
# **Minutes:** 60 for this notebook, 15 for the quiz at its end, 45 for the three exercises.
#
# **You need:** lessons 00 to 03: prefill and decode, the cache of keys and values, and what holds
# each phase back.
#
# **Afterwards you can**
#
# - explain why a step of decode for many costs far less than many steps for one, and measure it;
# - build a server that lets requests join and leave between two steps;
# - read a throughput figure without mistaking it for what a single reader gets, and choose a
#   number of slots for a limit on the wait.

# %%
from minipd.lab import calibration, panel, predict, quiz, reveal, show_table

panel("04")

# %% [markdown]
# ## A queue of colleagues
#
# The small company of lesson 00 still has its one server, and more and more colleagues ask it
# things at the same time. Somebody proposes the obvious: serve one after the other, each at full
# speed. Then the last of sixteen waits until fifteen answers are written. Somebody else proposes to
# buy fifteen more servers. Who is right?
#
# Neither. A step of decode leaves most of the machine idle, as lessons 00 and 03 showed: it
# fetches *every weight* of the model from memory, and does next to nothing with each of them. The
# idea of this lesson: while a weight is there, use it for everybody.

# %% [markdown]
# ## One step, shared
#
# Inside a step, a weight matrix multiplies a row of numbers that stands for one token. Give it
# sixteen rows instead, one for each reader, and the same matrix, fetched once, serves all of them.

# %%
from minipd import LLM
from minipd.lab.model_choice import lesson_model

name, why_this_model = lesson_model()
llm = LLM(name)
print(why_this_model)

# %%
import torch

decoder, config = llm.model.decoder, llm.model.config
matrix = decoder.layers[0].gate_up  # one of the weights of the first layer
for rows in (1, 16):
    made = torch.randn(rows, config.hidden_size) @ matrix
    print(f"{rows} row(s) in, {tuple(made.shape)} out, weights fetched: {matrix.numel():,}")

# %% [markdown]
# What is shared, and what is not? The weights are read once for all. But each reader has a
# conversation, and so a cache of keys and values, of their own; and the arithmetic is done for
# each. (`counts` is the formula sheet of lessons 00 and 03.)

# %%
from minipd.measure import counts

weights = counts.weight_bytes(config, 4)
notes = counts.decode_bytes(config, 4, 1, 200) - weights  # 200 tokens of conversation
work = counts.decode_flops(config, 1, 200)
rows = {"one step for": [1, 16], "weights read (MB)": [weights / 1e6] * 2}
rows |= {"own keys and values read (MB)": [notes / 1e6, 16 * notes / 1e6]}
show_table(rows | {"operations (millions)": [work / 1e6, 16 * work / 1e6]})

# %% [markdown]
# Sixteen times the arithmetic, and nearly the same reading. If reading is what a step waits for,
# how much longer should a step for sixteen take?

# %%
predict(
    "04.sixteen",
    "A step for 16 sequences takes how many times as long as a step for one?",
    unit="times",
    brackets=[1.2, 2, 4, 8, 16],
)

# %% [markdown]
# Now measure. The engine runs steps for one sequence, for two, and so on, in turn, so that a busy
# moment hits all of them alike. It takes about half a minute.

# %%
from minipd.lab.batch_dial import dial_text, show_dial, show_points
from minipd.lab.batching import measure_points

points = measure_points(llm.model)
at = {point.sequences: point for point in points}
reveal("04.sixteen", at[16].tpot_s / at[1].tpot_s, "times")

# %%
show_points(points)

# %%
gain, wait = at[16].throughput / at[1].throughput, at[16].tpot_s / at[1].tpot_s
print(f"Sixteen in a step: the machine writes {gain:.1f} times as much,")
print(f"and each reader waits {wait:.1f} times as long for a token.")
print(f"Sixteen steps for one, one after the other, would take 16 times as long, not {wait:.1f}.")

# %% [markdown]
# So the step is *not* free to share; how far it is from free, and why, comes
# [later](#When-writing-turns-into-arithmetic). But it is far cheaper than sixteen steps. That is
# why servers serve dozens at once.

# %% [markdown]
# ## Two numbers for two people
#
# The left curve is for whoever pays for the machine: **throughput**, the tokens per second that it
# hands out to everybody together. The right curve is for whoever reads: **TPOT**, the time per
# output token of lesson 01, which here is just the length of a step. Every further sequence makes
# the first better and the second worse. There is no best number of sequences, only a best one *for
# a given patience*.
#
# Move the sliders: choose the longest wait that you would accept, then look for the most sequences
# within it.

# %%
show_dial(points)

# %% [markdown]
# The same without sliders: change the two numbers, and run the cell again.

# %%
print(dial_text(points, sequences=8, limit_ms=200))

# %% [markdown]
# ## Build it: a ragged batch
#
# A batch for real requests is not a neat rectangle. One prompt has five tokens, another five
# hundred; one answer wants four tokens, another twenty-four. The engine's way, and ours: lay all
# the rows of a step *one after another* and remember whose they are. That is a **ragged batch**.
#
# An `Answer` is a request on its way. `unread` is what the model has not seen of it yet: at first
# the whole prompt, later the one token written last.

# %%
from dataclasses import dataclass, field


@dataclass
class Answer:
    name: str
    prompt: list[int]
    wanted: int  # tokens to write
    written: list[int] = field(default_factory=list)
    notes: dict = field(default_factory=dict)  # keys and values so far, by layer (lesson 02)


# %%
def unread(answer):
    return answer.written[-1:] or answer.prompt


def places(answer):  # the positions of the unread tokens in their own conversation
    end = len(answer.prompt) + len(answer.written)
    return range(end - len(unread(answer)), end)


def is_done(answer):
    return len(answer.written) >= answer.wanted


# %% [markdown]
# Attention is the one part that is *not* shared: a row may look back at its own conversation only.
# So here each answer gets its rows, adds their keys and values to its own notes, and looks back at
# those. (`# (T, H, D)` says what the numbers are: T tokens, H heads of size D.)

# %%
from torch.nn import functional as F


def look_back(answer, layer, q, k, v):  # q is (t, H, D), k and v are (t, K, D)
    old = answer.notes.get(layer, (k[:0], v[:0]))
    k, v = torch.cat([old[0], k]), torch.cat([old[1], v])  # (S, K, D)
    answer.notes[layer] = k, v
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))  # (1, heads, t or S, D)
    is_prompt = q.shape[2] > 1
    out = F.scaled_dot_product_attention(q, k, v, is_causal=is_prompt, enable_gqa=True)
    return out[0].transpose(0, 1)  # (t, H, D)


# %%
def each_its_own(group):
    lengths = [len(unread(answer)) for answer in group]

    def attend(layer, q, k, v):  # all rows of all answers, one after another: (T, H, D)
        parts = zip(group, q.split(lengths), k.split(lengths), v.split(lengths))
        return torch.cat([look_back(answer, layer, *rows) for answer, *rows in parts])

    return attend


# %% [markdown]
# Everything else, that is, every weight, is used once for all rows: one call of the decoder. Then
# the last row of each answer says which token comes next.


# %%
@torch.inference_mode()
def step(group):
    ids = torch.tensor([token for answer in group for token in unread(answer)])  # (T,)
    where = torch.tensor([place for answer in group for place in places(answer)])  # (T,)
    hidden = decoder(ids, where, each_its_own(group))  # (T, E): every weight, once for all
    ends = torch.tensor([len(unread(answer)) for answer in group]).cumsum(0) - 1
    best = decoder.logits(hidden[ends]).argmax(-1)  # (B,)
    for answer, token in zip(group, best.tolist()):
        answer.written.append(token)


# %% [markdown]
# Twelve requests arrive at once, and the server has four **slots**: places in its batch. Answers
# differ in length, as they do in life. One of them, H, has to read a long text first.

# %%
from minipd.lab.batching import LONG_TEXT, TEXTS, WANTED

ids_of = {name: llm.token_ids(text) for name, text in TEXTS.items()}
ids_of["H"] = llm.token_ids(LONG_TEXT)[:512]


def requests(names=TEXTS):
    return [Answer(name, ids_of[name], WANTED[name]) for name in names]


# %% [markdown]
# ## Static batching: wait for the longest
#
# The simplest server takes the first four, runs steps until *all* of them are done, and only then
# takes the next four. Whoever finishes early keeps the slot; what is computed for it until then is
# thrown away.

# %%
import time


def timed_step(group):
    names, start = [answer.name for answer in group], time.perf_counter()
    step(group)
    return names, time.perf_counter() - start


# %%
def static(waiting, slots):
    log = []
    while waiting:
        group, waiting = waiting[:slots], waiting[slots:]
        while not all(is_done(answer) for answer in group):
            log.append(timed_step(group))
    return log


# %%
from minipd.lab.seats import show_seats, used_share

static_log = static(requests(), slots=4)
static_names = [names for names, _ in static_log]
show_seats(static_names, WANTED, slots=4)

# %% [markdown]
# Each letter is a request; hatched are the steps in which a finished one was still computed. Look
# at E in the second group: it arrived with all the others, and got its first token only when the
# longest answer of the first group was complete.

# %%
print(f"{len(static_names)} steps; a place in a step was used for a wanted token in")
print(f"{used_share(static_names, WANTED, slots=4):.0%} of the cases")

# %% [markdown]
# ## Continuous batching: join and leave between steps
#
# Nothing in `step` asks for the same group as last time. So decide anew *before every step*:
# whoever is done leaves, whoever waits longest joins. That is all. It is called **continuous
# batching**, and it was published under the name of iteration-level scheduling
# [orca-continuous-batching].


# %%
def continuous(waiting, slots):
    waiting, running, log = list(waiting), [], []
    while waiting or running:
        while waiting and len(running) < slots:
            running.append(waiting.pop(0))  # join: first come, first served
        log.append(timed_step(running))
        running = [answer for answer in running if not is_done(answer)]  # leave
    return log


# %%
predict(
    "04.continuous",
    "For the same requests: how many times as long does static batching take as continuous?",
    unit="times",
    brackets=[1.1, 1.4, 2, 3],
)

# %%
answers = requests()
log = continuous(answers, slots=4)
names = [step_names for step_names, _ in log]
show_seats(names, WANTED, slots=4)

# %%
seconds = {"static": sum(s for _, s in static_log), "continuous": sum(s for _, s in log)}
reveal("04.continuous", seconds["static"] / seconds["continuous"], "times")
shares = [used_share(kind, WANTED, 4) for kind in (static_names, names)]
rows = {"batching": list(seconds), "steps": [len(static_log), len(log)]}
rows |= {"places used": [f"{share:.0%}" for share in shares], "seconds": list(seconds.values())}
show_table(rows | {"tokens/s": [sum(WANTED.values()) / s for s in seconds.values()]})
print(f"{len(static_log) / len(log):.1f} times as many steps, on any machine")

# %% [markdown]
# The same machine, weights and requests; only *when* one may join has changed. The gain in steps
# depends on nothing but the lengths of the answers: were all of them equally long, there would be
# none. The gain in seconds should come out near it, and somewhat below, since reading the prompts
# takes as long in both; if it is far off, another program was busy meanwhile. In the right part of
# the picture slots stand empty because nobody waits any more.

# %% [markdown]
# ## The same tokens
#
# Does it matter to an answer who shares its steps? It must not. We compare with the same requests
# served one at a time, and with the engine. Sums of many numbers are rounded differently in
# batches of different shapes, so "the same" is said exactly: equal, or different only from a
# *near-tie* on, where the two best tokens were as good as equal (lesson 02).

# %%
alone = requests()
one_log = continuous(alone, slots=1)  # one slot: one at a time
print(f"one at a time: {len(one_log)} steps, {sum(s for _, s in one_log):.1f} s")

# %%
from minipd import SamplingParams
from minipd.sched.limits import Limits

engine = LLM(llm.model, limits=Limits(max_running=4))
queued = []
for answer in requests():
    params = SamplingParams(max_tokens=answer.wanted, ignore_eos=True)
    queued.append(engine.submit(answer.prompt, params))
while engine.scheduler.has_work:
    engine.step()

# %%
from minipd.measure.same_tokens import compare, logits_of, summarise

ours = [answer.written for answer in answers]
scores = logits_of(decoder)
for what, others in {
    "one at a time": [answer.written for answer in alone],
    "the engine": [sequence.output_ids for sequence in queued],
}.items():
    pairs = zip(answers, others, ours)
    found = summarise(compare(a.prompt, o, mine, scores, scores) for a, o, mine in pairs)
    print(f"{what}: {found.num_different} of {found.num_sequences} differ; ", end="")
    print(f"near-ties: {found.near_ties}")
    assert found.num_different == 0

# %% [markdown]
# ## A newcomer freezes the others
#
# Joining has a price. H's long text is read in one step, together with one token each for the
# others; and that step takes as long as the reading. Lesson 00's freeze is back, inside a single
# server. Measured in tokens that each of the others could have had meanwhile:

# %%
import statistics

from minipd.measure.real_hardware import H100X8

joined = next(s for step_names, s in log if "H" in step_names)  # the step that read H's text
usual = statistics.median(s for step_names, s in log if len(step_names) == 4)
print(f"here: {joined / usual:.1f} tokens for each of three others")
print(f"{H100X8.name}, same length of text: {H100X8.freeze_tokens(512, batch=4):.1f} tokens")

# %% [markdown]
# **The laptop exaggerates.** The second line is computed from published step times
# [batching-70b-h100]. Lesson 06 is about this freeze, and about reading in pieces.

# %% [markdown]
# ## What goes wrong
#
# **Padding that is read.** Many programs want a rectangle: they fill short prompts up with a
# filler token until all are equally long. That is right only if a *mask* tells attention to skip
# the filler. Forget it, and nothing crashes:

# %%
short = ["B", "C", "D", "L"]
longest = max(len(ids_of[name]) for name in short) + 4  # as if a longer prompt were among them
padded = [Answer(n, [0] * (longest - len(ids_of[n])) + ids_of[n], WANTED[n]) for n in short]
_ = static(padded, slots=4)

# %%
text_of = llm.model.tokenizer.decode
right = {answer.name: text_of(answer.written) for answer in answers}
wrong = {answer.name: text_of(answer.written[: answer.wanted]) for answer in padded}
rows = {"prompt": [TEXTS[name] for name in short], "right": [right[name] for name in short]}
show_table(rows | {"with filler": [wrong[name] for name in short]})
print(f"{sum(right[name] != wrong[name] for name in short)} of {len(short)} answers changed")

# %% [markdown]
# The filler was read as if somebody had written it. And the batch paid for it: every filler token
# is a row that the machine computes. A ragged batch needs neither filler nor mask, because each
# row knows whose it is.
#
# **Everybody's speed for anybody's speed.** Here is how an advertisement reads the same sweep:

# %%
best = max(points, key=lambda point: point.throughput)
print(f"Our server writes {best.throughput:.0f} tokens per second!")
print(f"An answer of 200 tokens takes {200 / best.throughput:.1f} s?!")

# %% [markdown]
# Nobody ever saw that. The rate belongs to all sequences together. A reader gets one token for
# each step:

# %%
print(f"200 tokens take {200 * best.tpot_s:.1f} s for each of {best.sequences} readers,")
print(f"and {200 * at[1].tpot_s:.1f} s for somebody who has the machine alone.")

# %% [markdown]
# Throughput says how many people a machine can serve, TPOT how it feels to be one of them. A
# report needs both, and the number of sequences they were measured at.

# %% [markdown]
# ## When writing turns into arithmetic
#
# Reading the weights is shared, arithmetic is not. So from some number of sequences on, arithmetic
# must be what a step waits for: the corner of lesson 03's roofline, since a step for sixteen
# sequences is a pass of sixteen tokens. In Exercise 2 of lesson 00 you wrote a formula for that: a
# step takes the *longer* of reading all weights and of multiplying for everyone. Let us put it to
# the test.

# %%
from minipd.lab.batching import crossing_table, formula_table
from minipd.measure.ceilings import measure_ceilings

ceilings = measure_ceilings(threads=torch.get_num_threads(), quick=True)
print(ceilings.indicative_reason or "Nothing disturbed this measurement.")
show_table(formula_table(points, config, ceilings))

# %% [markdown]
# Its shape is right: a few sequences cost little, many cost in proportion. Its corner is not to be
# found in the measurement, which leaves the formula long before, in a bend. Here is the prediction
# that you made in lesson 00, at last beside a measurement.

# %%
show_table(crossing_table(points, ceilings, "00.crossing"))

# %% [markdown]
# The formula gives the order of magnitude: tens here, not thousands. It cannot be exact, for three
# reasons.
#
# - *The ceiling of arithmetic is reached by large products only.* A product with few rows has too
#   little to do per number that it fetches, and cannot keep all of the processor's units busy.
# - *Reading and multiplying overlap only in part.* Near the corner both want all of their ceiling
#   at once, and neither gets it.
# - *Not all of a step is a product with weights.* Attention runs for each sequence apart, over its
#   own keys and values.
#
# The next cell runs nothing but the products of a step, and shows the first of the three.

# %%
from minipd.lab.batching import products_table

show_table(products_table(llm.model, points, ceilings))

# %% [markdown]
# Read the last column downwards: the more rows, the closer to the ceiling. What the whole step
# takes beyond its products is the third reason.
#
# **On an H100** the same formula gives another corner. The GPU multiplies 989.5 million million
# times per second in 16-bit numbers and reads 3.35 million million bytes per second
# [decode-corner-h100]:

# %%
h100_flops, h100_bytes_per_s, bytes_per_weight = 989.5e12, 3.35e12, 2
corner = bytes_per_weight * h100_flops / h100_bytes_per_s / 2  # 2 operations per weight
print(f"H100: both ceilings take equally long at {corner:.0f} sequences")
own = 4 * ceilings.ridge_flops_per_byte / 2
print(f"here: at {own:.0f}, a factor of {corner / own:.0f} earlier")

# %% [markdown]
# Hundreds, where this machine has tens: a GPU has far more arithmetic for each byte that it can
# fetch. It is also why an H100 that serves one person wastes more of itself than your computer
# does.

# %% [markdown]
# ## The same idea, full-size
#
# Open the engine. A `Chunk` is one request's rows in a step; `chunk_of` is our `unread` and
# `places`:

# %%
import inspect

from minipd.engine import batch, worker
from minipd.sched.base import Scheduler
from minipd.sched.colocated import Chunked, PrefillFirst

print(inspect.getsource(batch.chunk_of))

# %% [markdown]
# The loop is the body of our `continuous`: decide, run one step, book what came out.

# %%
print(inspect.getsource(worker.Worker.step))

# %% [markdown]
# Who may join? `len(running) < slots` is the first question of `can_admit`; the second, whether
# there is memory for it, is the subject of lesson 05.

# %%
print(inspect.getsource(Scheduler.can_admit))

# %% [markdown]
# One difference. Ours puts newcomers and running answers into one step. The engine's default reads
# newcomers in a step of their own, `PrefillFirst`; `Chunked` mixes them as ours does, and also cuts
# long prompts into pieces. Both are a choice of *what to put into the next step*, no more:

# %%
print(inspect.getsource(PrefillFirst.pick))
print(inspect.getsource(Chunked.pick))

# %% [markdown]
# ## The answer, in numbers
#
# Why serve dozens at once? Because a step fetches the weights for one as for many. What this
# machine said, beside a recorded run of another day and a published one of eight GPUs
# [batching-70b-h100]:

# %%
from minipd.lab.batching import RECORDED_FILE, compared_table

show_table(compared_table(points, H100X8))
print(f"The raw samples of the recorded run: {RECORDED_FILE}")

# %% [markdown]
# **Here, too, the laptop exaggerates.** On the GPUs the wait grows far more slowly, because their
# corner lies at hundreds of sequences: with 64 of them a reader waits 1.7 times as long as alone,
# while the machine writes 38 times as much [batching-70b-h100]. That is the bargain on which every
# large service is built.

# %% [markdown]
# ## A line for your bench sheet
#
# One sequence goes into the column for decode, as always; the sixteen stand in the note, so that
# nobody takes one for the other.

# %%
from minipd.measure import sheet
from minipd.measure.machine import describe_machine

kept = sheet.append(
    sheet.SheetLine(
        machine=describe_machine().summary,
        model=llm.model.name,
        dtype="float32",
        threads=torch.get_num_threads(),
        decode_tok_s=at[1].throughput,
        note=f"lesson 04, 16 sequences: {at[16].throughput:.1f} tok/s, {gain:.1f} times",
    )
)

# %%
show_table({"decode tok/s": [kept.decode_tok_s], "note": [kept.note]}, f"Kept on {kept.date[:10]}")

# %% [markdown]
# ## Where you meet this in practice
#
# | tool | the number of slots, and the place where requests join |
# |---|---|
# | llama.cpp | `llama-server --parallel` slots, `--cont-batching` [llama-server-slots] |
# | vLLM | `--max-num-seqs`; `vllm/v1/core/sched/scheduler.py`, `schedule` [vllm-slots] |
# | SGLang | `--max-running-requests`; `scheduler.py`, `get_next_batch_to_run` [sglang-slots] |
# | minipd | `Limits(max_running=...)`; `minipd/sched/base.py`, `can_admit` |
#
# A server with fewer slots than readers makes the others queue, and one with too many makes
# everybody slow: now you can measure both.
#
# **What we left out.** Where the keys and values of dozens of conversations find room (lesson 05);
# long prompts in pieces (lesson 06); choosing the next request by anything but its turn; models
# with experts, where a batch does *not* share all weights (lesson 11).

# %% [markdown]
# ## How well do you predict?

# %%
calibration()

# %% [markdown]
# ## Quiz
#
# Every wrong answer is explained, and you can try again. In a terminal it is `minipd quiz 04`.

# %%
quiz("04")

# %% [markdown]
# ## Next
#
# Open [the exercises](../exercises/04_batching.ipynb): the waste of static batching, one decision
# between two steps, and the most slots within a limit. Lesson 05 then asks where dozens of
# conversations are to be kept.
