# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Lesson 07: Two pools
#
# **The question: how do we split the phases, and what has to travel?**
#
# **Minutes:** 80 for this notebook, 15 for the quiz at its end, 60 for the three exercises.
#
# **You need:** lessons 01 to 03 (keys and values, the KV cache, the two bottlenecks), block tables
# from lesson 05, and the freeze of lesson 06.
#
# **Afterwards you can**
#
# - hand a half-finished answer from one worker to another by hand, and prove that nothing changed;
# - say what must be known before the second worker may write, and refuse a hand-off that is not
#   whole;
# - say what the split removes, what it only moves elsewhere, and what it costs in memory.
#
# Run the cells from top to bottom. You are asked for six predictions; make each of them before the
# cell that measures.

# %%
from minipd.lab import calibration, panel, predict, quiz, reveal, show_picture, show_table

panel("07")

# %% [markdown]
# ## Where the restaurant breaks
#
# Lesson 06 left us with a restaurant in trouble. One cook both studies the orders and carries out
# the plates. When somebody hands in a very long order, nobody gets a plate until it has been
# studied.
#
# The remedy seems obvious: two people. One studies orders all day, the other carries plates all
# day. The first writes on a slip of paper what the second has to bring.
#
# Here the picture breaks, and it breaks at the slip of paper. What would a model write on it? If
# only *words* went from the first worker to the second, the second would have to read them: all
# tokens through the model, which is just the work that we wanted to spare it. What reading
# *produced* are keys and values, in every layer, for every token. **The KV cache must travel**,
# not words.

# %%
from minipd import LLM, SamplingParams
from minipd.lab import paging, two_pools
from minipd.lab.model_choice import lesson_model

name, why_this_one = lesson_model()
llm = LLM(name, num_kv_blocks=64)
model, config = llm.model, llm.model.config
print(why_this_one)

# %% [markdown]
# Here is a short letter from a bank, and the same with another customer. We will need both.

# %%
LETTER = (
    "Bank message, please keep it safe for your own records. Dear customer, thank you for your "
    "payment. We have sent money to {who} in {city}, amount: {amount} euros. "
    "To repeat, we have sent money to"
)
ann = llm.token_ids(LETTER.format(who="Ann Lee", city="Paris", amount=500))
ben = llm.token_ids(LETTER.format(who="Ben Ray", city="Rome", amount=900))
print(f"Ann's letter has {len(ann)} tokens, Ben's has {len(ben)}.")

# %%
predict(
    "07.luggage",
    "How many times more bytes are the keys and values of the letter than its text?",
    unit="times",
    brackets=[30, 300, 3000, 30000],
)

# %%
text_bytes = len(model.tokenizer.decode(ann).encode())
kv_bytes = len(ann) * config.kv_bytes_per_token(4)
print(f"The text: {text_bytes} bytes. Its keys and values: {kv_bytes / 2**20:.1f} MiB.")
reveal("07.luggage", kv_bytes / text_bytes, "times")

# %% [markdown]
# That is the price of the split: heavy luggage. Whether the road is wide enough for it is lesson
# 08's question. Here we carry it by hand.

# %% [markdown]
# ## A hand-off by hand
#
# Three engines: one will only read, one will only write, and the third does both, so that we have
# something to compare with. From here on, the *reader* is the engine that reads prompts (in lesson
# 06, readers were people), and the *writer* is the one that writes answers. Each has a KV store of
# its own. (In this notebook they share one copy of the weights, which nobody ever changes. Further
# down, each worker has its own.)

# %%
import time

import torch

from minipd.engine.batch import Chunk
from minipd.engine.executor import Executor

GREEDY, P, LENGTH = SamplingParams(), 16, 14  # a block's tokens, an answer's tokens
reader, writer, unsplit = (Executor(model, num_blocks=64, block_size=P) for _ in range(3))

# %% [markdown]
# To make it realistic, an answer's blocks lie anywhere. `shelf(n)` gives one answer's blocks, in a
# random order; different numbers give different blocks.

# %%
from random import Random

SHUFFLED, NEED = Random(7).sample(range(64), 64), -(-(len(ann) + LENGTH) // P)


def shelf(n):
    return SHUFFLED[n * NEED : (n + 1) * NEED]


print("for example:", shelf(0), "and", shelf(1))

# %% [markdown]
# An answer in the making has three things: its tokens so far, the blocks that hold their keys and
# values *where it is now*, and the blocks that the writer has **reserved** for it. Why reserve in
# advance? If the reader finished a prompt and the writer had no room, the finished keys and values
# would block the reader's own memory, and the work would stand still there.


# %%
class Answer:
    def __init__(self, ids, blocks, reserved=()):
        self.ids, self.num_prompt = list(ids), len(ids)
        self.blocks, self.reserved = list(blocks), list(reserved)

    @property
    def text(self):
        return model.tokenizer.decode(self.ids[self.num_prompt :])


# %% [markdown]
# Reading and writing are one call each. The engine runs *chunks*: some tokens of a sequence, the
# position of the first of them, and the block table. Reading is a chunk with all tokens of the
# prompt, and gives the first token of the answer. Writing is a chunk of one token for each answer.


# %%
def read(engine, answer):
    answer.ids += engine.run([Chunk("", answer.ids, 0, answer.blocks, GREEDY)])
    return answer


def newest(answer):
    return Chunk("", answer.ids[-1:], len(answer.ids) - 1, answer.blocks, GREEDY)


# %%
def write(engine, answers):
    tokens = engine.run([newest(answer) for answer in answers])
    for answer, token in zip(answers, tokens):
        answer.ids.append(token)
    return [a for a in answers if len(a.ids) < a.num_prompt + LENGTH]


# %% [markdown]
# Now the hand-off. The store of an engine is one tensor: layers, keys and values, blocks, tokens
# in a block, KV heads, head size. We pick the blocks that the reader filled, in all layers, and put
# them where the writer has reserved room. The block *ids* differ on both sides; only the order
# counts, as in lesson 05.
#
# Look at the number of blocks: the newest token has no keys and values yet. It was *chosen* by the
# reader, and running it is the writer's first step.


# %%
def hand_over(answer, lost=0):
    """From the reader's store to the writer's; `lost` blocks at the end get lost on the way."""
    count = -(-(len(answer.ids) - 1) // P) - lost  # blocks that hold a token
    kv = reader.store.buffer[:, :, answer.blocks[:count]].clone()  # (L, 2, n, P, K, D)
    writer.store.buffer[:, :, answer.reserved[:count]] = kv
    answer.blocks = answer.reserved
    return answer


# %% [markdown]
# Read on one side, carry, and stop there for a moment.

# %%
split = Answer(ann, blocks=shelf(0), reserved=shelf(1))
read(reader, split)
hand_over(split)
whole = read(unsplit, Answer(ann, blocks=shelf(2)))
print("first token:", repr(split.text), "and without a split:", repr(whole.text))

# %% [markdown]
# ## Did anything change?
#
# Three questions, from strict to lenient. First: are the keys and values on the writer's side *bit
# for bit* those of an engine that was never split?


# %%
def kv_of(engine, answer):
    """Keys and values of the prompt's tokens, in order: (L, 2, tokens, K, D)."""
    blocks = answer.blocks[: -(-answer.num_prompt // P)]
    return engine.store.buffer[:, :, blocks].flatten(2, 3)[:, :, : answer.num_prompt]


same_kv = torch.equal(kv_of(writer, split), kv_of(unsplit, whole))
print("keys and values equal, bit for bit:", same_kv)

# %% [markdown]
# Second: the scores (*logits*) of the next token, one number for each token of the vocabulary. Sums
# of floating-point numbers depend on their order, so do not take the answer for granted.

# %%
MOVED = ["Not by a single bit", "By rounding, somewhere behind the decimal point", "Visibly"]
predict("07.logits", "How far do the scores of the next token move?", choices=MOVED)

# %%
ours, theirs = writer.forward([newest(split)]), unsplit.forward([newest(whole)])
largest = (ours - theirs).abs().max().item()
print(f"{ours.numel()} scores, largest difference {largest}")
happened = MOVED[0] if torch.equal(ours, theirs) else MOVED[1] if largest < 1e-3 else MOVED[2]
why_not = dict.fromkeys(MOVED[1:], "the same bytes go through the same sums, in the same order.")
reveal("07.logits", happened, why_not=why_not)

# %% [markdown]
# Equal bytes in, equal arithmetic, equal bits out. This holds for steps of the *same shape*: in
# both engines one sequence was in the step. With other sequences beside it, the processor may add
# in another order, and the last digits differ, with or without a split.
#
# Third, what users notice: the same words. We time the steps on the way.

# %%
seconds, running = [], [split]
while running:
    start = time.perf_counter()
    running = write(writer, running)
    seconds.append(time.perf_counter() - start)
while write(unsplit, [whole]):
    pass

# %%
engine = llm.generate([ann], SamplingParams(LENGTH, ignore_eos=True))[0].token_ids
ours, theirs = split.ids[len(ann) :], whole.ids[len(ann) :]
print("read here, written there:", split.text)
print("split and unsplit:  ", paging.verdict(model, ann, theirs, ours))
print("split and LLM(...): ", paging.verdict(model, ann, engine, ours))

# %% [markdown]
# So the split changes *where* and *when* things are computed, and nothing else. It makes no answer
# better: same model, same bytes, same words. Whoever promises better answers from it sells
# something else.

# %% [markdown]
# ## Lesson 06's loop, and what changed
#
# Lesson 06's rule was `reading_first`: whoever has something to read is read to the end, *or else*
# everybody gets a token. With today's functions, its loop is short. The word that freezes
# everybody is `else`.


# %%
def serve(waiting):
    running = []
    while waiting or running:
        if waiting:
            running.append(read(unsplit, waiting.pop(0)))
        else:
            running = write(unsplit, running)


# %%
def serve_apart(waiting):
    running = []
    while waiting or running:
        if waiting:
            running.append(hand_over(read(reader, waiting.pop(0))))
        running = write(writer, running)


print(two_pools.diff_of(serve, serve_apart))

# %% [markdown]
# Two changes: the prompt is read by the reader and handed over, and the `else` is gone, since the
# writer has no reason to wait. In a notebook the two lines still take turns, because one program
# runs them. The engine gives each its own process and its own cores; then they really run at the
# same time.

# %%
together = [Answer(ann, shelf(3)), Answer(ben, shelf(4))]
apart = [Answer(ann, shelf(3), shelf(2)), Answer(ben, shelf(4), shelf(3))]
serve(list(together))
serve_apart(list(apart))
for one, other, ids in zip(together, apart, (ann, ben)):
    print(paging.verdict(model, ids, one.ids[len(ids) :], other.ids[len(ids) :]), "|", other.text)

# %% [markdown]
# ## When may the writer begin?
#
# Between "reserved" and "decode" lies a time in which the writer's blocks are half full. The next
# widget lets you walk through it. It is a small model of four layers and a prompt that fills two
# blocks and half of a third. Stores, link, reservation and verdict are the engine's own. Try this:
#
# 1. Ask for a token at once. What is missing?
# 2. Reserve, write two layers, send the manifest too early.
# 3. Start again, and lose the last block of one layer on the way.
# 4. Start again and do it right. From which press on may the writer decode?
#
# Each layer is sent as soon as it is final, while the layers above it are still being computed. So
# most of the luggage is under way before reading has ended.

# %%
from minipd.lab.handoff_board import board_text, handoff_board, play

handoff_board()

# %% [markdown]
# The same as text. Change the list and run it again.

# %%
steps = ["reserve", "layer", "manifest", "lose", "layer", "layer", "manifest", "decode"]
print("\nAt the end:", board_text(play(steps)))

# %% [markdown]
# The message that ends a hand-off is called the **manifest**, like the list of a ship's cargo. It
# says what was written where, for which tokens, in which number format, and has a *digest* for the
# keys and the values of each layer: a short number computed from all of their bytes. The writer
# computes the digests of what it finds in its own memory. Only when all of them agree does the
# sequence exist for it.

# %% [markdown]
# ## What goes wrong
#
# What if nobody checked? Say that the last block gets lost on the way. The writer's blocks are not
# empty: other people's sequences lay there before. Ben's letter was answered a moment ago, and his
# blocks were given back.

# %%
ENDS = [
    "It stops with an error",
    "Anybody sees that it is garbage",
    "It reads well, and is not the right answer",
    "It is the right answer",
]
predict("07.half", "What does Ann's answer look like without its last block?", choices=ENDS)

# %%
hand_over(read(reader, Answer(ben, shelf(0), reserved=shelf(5))))  # Ben was here before
victim = hand_over(read(reader, Answer(ann, shelf(1), reserved=shelf(5))), lost=1)
while write(writer, [victim]):
    pass
print("Ann, whole:", split.text)
print("Ann, half: ", victim.text)

# %%
same = paging.verdict(model, ann, split.ids[len(ann) :], victim.ids[len(ann) :])
print("The two are:", same)
why_not = {
    ENDS[0]: "every block has the right shape, so nothing complains.",
    ENDS[1]: "the keys and values in the lost block's place are those of a real text.",
    ENDS[3]: "compare every word and every figure of the two answers.",
}
reveal("07.half", ENDS[2] if same == paging.WORDS["different"] else ENDS[3], why_not=why_not)

# %% [markdown]
# Compare the amounts. With the lesson's usual model, Ann's bank now confirms to her the amount of
# *another customer's* payment. (The small random model writes no words that mean anything; there,
# only the verdict counts.) The front of her letter arrived, its end is Ben's, and both fit together
# perfectly. There is no error, no warning and no odd word: **half a KV cache decodes to plausible
# garbage.** It has happened in real engines: a request whose reading was broken off sent the keys
# and values of one token, and the decode side wrote on from memory that nobody had filled
# [sglang-incomplete-kv].
#
# Nobody can find this by reading answers. It must be found by counting bytes. The engine's digests:

# %%
from minipd.pools.links.digests import Digests


def digests(engine, blocks):
    taken = Digests(engine.store)
    for layer in range(config.num_layers):
        taken.add(layer, blocks)
    return taken.result()


# %%
filled = -(-len(ann) // P)  # blocks that the prompt fills
sent, after_half = digests(reader, shelf(1)[:filled]), digests(writer, shelf(5)[:filled])
hand_over(read(reader, Answer(ann, shelf(1), reserved=shelf(5))))
after_whole = digests(writer, shelf(5)[:filled])

# %%
for label, found in {"whole": after_whole, "half": after_half}.items():
    wrong = sum(a != b for a, b in zip(sent, found, strict=True))
    print(f"{label}: {wrong} of {len(sent)} digests differ")

# %% [markdown]
# One block missing in each layer spoils every digest. In exercise 1 you write the check that uses
# them.
#
# **The right bytes, the wrong numbers.** A digest says that every byte arrived. It does not say
# what the bytes *mean*. On GPUs keys and values usually take two bytes for each number, and there
# are two common ways to write a number into them: `bfloat16` and `float16`. What if one pool was
# started with the first and the other with the second?

# %%
sent_numbers = torch.tensor([0.25, 1.0, -2.0], dtype=torch.bfloat16)
read_as = sent_numbers.view(torch.float16)  # the very same bytes
print("sent as bfloat16:", sent_numbers.tolist(), " read as float16:", read_as.tolist())

# %% [markdown]
# No byte is missing, so the length and all digests agree, and no number looks absurd. They are
# wrong all the same. Only a *name* can tell: the manifest says in which format it was written,
# and the decode worker compares that with its own. Exercise 2 is about this.

# %% [markdown]
# ## Before and after
#
# Now for the engine's own pools: real processes, each with its own weights, cores and store. The
# requests are those of lesson 06's morning: four chats, two long documents, two short questions.
# First both workers do everything, as there. Then the same requests on the same workers, with one
# reading and one writing.

# %%
from minipd.lab.collision import morning_rows

step_s = min(seconds)  # of the steps that you timed above: an interruption only makes one slower
rows = morning_rows(step_s)
columns = {"kind": [r.kind for r in rows], "arrives at (s)": [round(r.arrival_s, 2) for r in rows]}
show_table(columns | {"prompt tokens": [r.prompt_tokens for r in rows]})

# %% [markdown]
# Three predictions. The first is about the people at the chats.

# %%
predict(
    "07.freeze",
    "Apart: how many tokens would somebody at a chat have got in the longest pause?",
    unit="tokens",
    brackets=[2, 5, 10, 20, 40],
)

# %% [markdown]
# The second is about the person who sent the second document. Together, each document has a
# worker to itself. Apart, there is a single reader, and the first document is still being read
# when the second one arrives.

# %%
predict(
    "07.second",
    "How long does the second document wait for its first token, apart against together?",
    unit="times",
    brackets=[0.5, 0.8, 1.2, 2, 4],
)

# %% [markdown]
# The third is about memory. Both workers need the model. In units of the model's weights, how much
# memory do the two processes take, beyond what two empty Python programs take?

# %%
predict(
    "07.copies",
    "How many times the weights do both workers hold together?",
    unit="copies",
    brackets=[0.7, 1.4, 2.8, 5],
)

# %%
served = two_pools.serve_both(model, rows)
print(served.note or "Each worker had processor cores of its own.")
print("Same tokens in both runs:", "yes" if served.tokens.passed else "NO")

# %% [markdown]
# One lane for each worker, first together, then apart: there, the lane with `prefill` below its
# name is the reader's, the one with `decode` the writer's. The strokes are the chats' tokens.

# %%
show_picture(served.timelines())
show_table(served.waits_table())

# %%
reveal("07.freeze", served.freeze_tokens(served.apart), "tokens")

# %% [markdown]
# In the upper half, both workers stop writing while they read a document, as lesson 06 found. In
# the lower half, the writer never reads: a hand-off drops blocks into its memory (the arrows), and
# its loop goes on. **No chat waits for a document any more.** (If a hatched pause is left in the
# lower half, look at the reader's lane above it: if it does not match a document, something else
# was using this computer. Run the cell again when it is quiet.)
#
# Two smaller things are worth seeing. All four chats now share *one* writer, so each of its steps
# serves four answers and takes a little longer (lesson 04). And the longest pause in a chat is
# not exactly one step: the second token of a chat waits for the hand-off of the first.

# %% [markdown]
# ## "Reduced" is not "gone"
#
# Where did the reading time go? Look at the reader's lane again: the prompts stand one behind the
# other. Here is how long people waited for their first token.

# %%
show_table(served.first_tokens_table())
waits = {n: two_pools.first_token_waits(o.run.timeline) for n, o in served.outcomes.items()}
second = {n: found["document 2"] for n, found in waits.items()}
reveal("07.second", second[two_pools.APART] / second[two_pools.TOGETHER], "times")

# %% [markdown]
# Compare the questions, too. Together, the first one came to a worker that had nothing to read, and
# had its first token almost at once. Apart, it stood in the one queue there is, behind a document.
# When the reader is free again, it takes everybody who waits in one step, so that the questions
# also wait until the second document is read.
#
# **Prefill still queues behind prefill.** The reading itself costs as much as before, and now only
# half of the workers do it. The freeze moved from everybody's screen into a queue in front of the
# reader, where only the senders of documents see it. If documents came faster than one reader can
# read, that queue would grow without end, while the writer next to it looked idle. How many readers
# a workload needs is lesson 10.
#
# So say precisely what was gained: the *gaps between tokens* of running answers no longer depend on
# other people's prompts. The *time to first token* became worse here. Nobody got more hardware, so
# no one should expect more throughput. vLLM's own documentation says of this split that it does not
# improve throughput [vllm-disagg-two-reasons].

# %% [markdown]
# ## Weights held twice
#
# A worker that only reads needs all weights, and so does a worker that only writes. Your prediction
# first, then what the system says about the two processes.

# %%
print(f"The weights take {served.weight_bytes / 1e6:.0f} MB in float32.")
print(f"A worker's program with next to no model takes {served.bare_bytes / 1e6:.0f} MB.")
reveal("07.copies", served.copies, "copies")
show_table(served.memory_table(), "Memory of the two worker processes")

# %% [markdown]
# Two copies of the weights, and a little more for each: the tokenizer, and scratch memory of the
# steps. Each worker has weights for itself and shares them with nobody.
#
# The three columns answer three questions, and only one of them is yours:
#
# - **RSS** is all memory that a process has mapped and touched. The reader has also mapped the
#   *writer's* KV store, since it writes into it. Adding up RSS counts such memory twice.
# - **USS** is what would become free if the process ended: nobody else has it mapped.
# - The last column also leaves out everything that is a file, and so both KV stores, which lie in
#   shared files. What remains is the program and its weights. (Where a system does not say which
#   memory is a file, the column repeats USS.)
#
# On GPUs it is the same: each pool holds all weights of the model. On a machine whose memory holds
# the weights just once, two pools of one worker each do not fit. Whatever the second copy takes is
# no longer there for users' KV caches (lesson 02).

# %% [markdown]
# **The laptop exaggerates**, in two ways. A document of this length costs the others a couple of
# dozen tokens here, and about 2 on a 70-billion model on 8 H100 GPUs, where 8,192 tokens cost about
# 27 [freeze-70b-h100]. So there, the same gain needs longer documents. And the luggage travelled
# through this computer's own memory; between two machines, it has to pass a network first.

# %% [markdown]
# ## The same idea, full-size
#
# `minipd/pools/handoff.py` has both ends. The sending end is called by the engine as soon as a
# layer's keys and values are stored:

# %%
import inspect

from minipd.pools.handoff import Outgoing, Receiver
from minipd.sched.split import DecodeOnly

print(inspect.getsource(Outgoing.layer_done))

# %% [markdown]
# That is the middle line of your `hand_over`, one layer at a time: these blocks of mine, into those
# blocks of yours. `wanted` leaves out blocks that the target has already, from an earlier prompt
# with the same beginning (lesson 05). The receiving end asks more questions than you will in
# exercise 1. A *fingerprint* is a digest of the weights, and an *epoch* counts how often a worker
# was started: what was meant for its earlier life is refused.

# %%
print(inspect.getsource(Receiver.why_refuse))
print(inspect.getsource(DecodeOnly.commit))

# %% [markdown]
# | you wrote | the engine has |
# |---|---|
# | `answer.reserved` | `DecodeOnly.reserve_pending`, before anything is read |
# | `hand_over`, all layers at once | `Outgoing.layer_done`, one layer, while reading goes on |
# | `answer.blocks = answer.reserved` | `DecodeOnly.commit`, only after `why_refuse` said nothing |
# | the loop of digests | `Receiver`, which compares them with the manifest |
#
# And a refusal is not the end: the decode worker reads the prompt itself and gives the reason
# `recovered`. Slow, and right.

# %% [markdown]
# ### Optional: who computes the last token of the prompt?
#
# We let the reader run all tokens and choose the first token of the answer. There is another way:
# the reader leaves the last token of the prompt to the writer, who runs it as its first step and
# so gets the first token itself. Then no token needs to be handed over. NVIDIA's Dynamo was built
# that way [dynamo-last-token], and vLLM's scheduler steps back by one token when all of a prompt
# has arrived [vllm-last-token]; SGLang hands the first token over with the keys and values
# [sglang-first-token].

# %%
short = hand_over(read(reader, Answer(ann[:-1], shelf(0), reserved=shelf(4))))
short.ids[-1] = ann[-1]  # not what the reader would have said: the prompt's own last token
there = writer.forward([newest(short)])
here = unsplit.forward([Chunk("", ann, 0, shelf(5), GREEDY)])
moved = (there - here).abs().max().item()
print(f"same first token: {bool(there.argmax() == here.argmax())}; scores moved by {moved:.1e}")

# %% [markdown]
# The same token, but not the same bits: the last token ran alone there, and with all others here,
# and the sums came out in another order. What is better? With the first way the reader can show
# the first token as soon as it is done. With the second the choice of *every* token (sampling,
# stop words) happens in one place, at the price of a first token that waits for the hand-off.

# %% [markdown]
# ### Optional: two pools on one GPU
#
# With a single GPU, the two workers can be two *streams* of work on it. On a GPU this lets copies
# run beside computation, but the streams still compete for the same arithmetic units: while a long
# prefill fills all of them, a step of decode waits. So the units (SMs, streaming multiprocessors)
# can be divided: prefill gets a part, and the rest is always free for decode. Prefill gets slower
# by about what it gave up, decode gets steady. Research systems shift the border all the time
# [sm-partition].
#
# The engine does it with `pool="threads"` and `prefill_sm_share`. A CPU runs the same classes,
# where streams do nothing. The workers say so themselves:

# %%
from minipd.pools.cluster import Cluster, Setup

shape = Setup(model="tiny", pool="threads", num_blocks=64, prefill_sm_share=0.5)
with Cluster(shape) as cluster:
    print("\n".join(f"- {note}" for note in cluster.notes))

# %% [markdown]
# So on this computer, threads show the *mechanism* and never a gain: both share one Python lock.
# One GPU also means one memory, in which both workers' weights must fit, unless the engine lets
# the two share them.

# %% [markdown]
# ## Where you meet this in practice
#
# - **vLLM**: a *KV connector*, `KVConnectorBase_V1`, has the same verbs. On the sending side
#   `save_kv_layer` and `wait_for_save`; on the receiving side `start_load_kv` and
#   `wait_for_layer_load`; `get_finished` tells who is done, `get_block_ids_with_load_errors` which
#   blocks did not come [vllm-connector-verbs]. When two sides connect through NIXL, they compare a
#   hash of model, number format, heads and layout, and refuse each other when it differs
#   [vllm-nixl-compat].
# - **SGLang**: `--disaggregation-mode prefill` or `decode`. The decode side reserves first (its
#   *prealloc queue*), then waits for the bytes (*transfer queue*); the prefill side waits for that
#   reservation (*bootstrap queue*) [sglang-pd-queues].
# - **NVIDIA Dynamo** puts a router in front of such engines, which decides for each prompt whether
#   it is read remotely [dynamo-conditional].
# - **llama.cpp** has no pools. Its `llama_state_seq_get_data` and `llama_state_seq_set_data` export
#   and import the cache of one sequence: enough to do this lesson by hand [llama-state-seq].
# - **minipd**: `minipd/pools/`, and `Setup(mode="disaggregated", num_prefill=1, num_decode=1)`.
#
# **What was left out.** How long the road is and when the luggage costs more than it saves (lesson
# 08); who decides which prompts take it (lesson 08); whether anybody is better off (lesson 09);
# how many workers each pool needs (lesson 10); workers with different parts of a model (lesson 11);
# what happens when one of the two dies in the middle (lesson 14).

# %% [markdown]
# ## How do we split the phases: the answer in numbers
#
# Yours, from this notebook:

# %%
print(f"Keys and values equal: {same_kv}; scores: {happened.lower()}.")
for label, outcome in served.outcomes.items():
    print(f"{label}: chats froze for {served.freeze_tokens(outcome):.1f} tokens at most,")
    print(f"   and the second document waited {second[label]:.1f} s for its first token.")
print(f"Both workers hold {served.copies:.1f} times the weights.")

# %% [markdown]
# And recorded elsewhere, on a virtual machine with two cores of an Intel Xeon, one core for each
# worker, on 29 November 2026 (raw file: `benchmarks/raw/demo.json`). It served a longer trace,
# eight chats and ten documents of 576 tokens [two-pools-recorded]:
#
# - one gap in a hundred between two tokens of a chat was longer than 1,407 ms together, and longer
#   than 209 ms apart [two-pools-recorded];
# - half of the documents waited longer than 1.3 s for their first token together, and longer than
#   5.8 s apart, since ten of them queued in front of one reader [two-pools-recorded];
# - the hand-offs took 0.6 % of the time that reading took [two-pools-recorded].
#
# The first line is why people do it, the second is why it must be sized (lesson 10), and the third
# holds as long as both workers sit in one computer (lesson 08).

# %% [markdown]
# ## A line for your bench sheet

# %%
from minipd.measure import sheet
from minipd.measure.machine import describe_machine

freezes = [served.freeze_tokens(outcome) for outcome in served.outcomes.values()]
note = f"lesson 07: freeze {freezes[0]:.0f} -> {freezes[1]:.0f} tokens, {served.copies:.1f} copies"
line = sheet.SheetLine(
    machine=describe_machine().summary,
    model=model.name,
    dtype="float32",
    threads=1,
    note=note,
)

# %%
kept = sheet.append(line)
show_table({"model": [kept.model], "note": [kept.note]})

# %% [markdown]
# ## How well do you predict?

# %%
calibration()

# %% [markdown]
# ## Quiz
#
# Every wrong answer is explained, and you can try again. Two questions go back to earlier lessons.

# %%
quiz("07")

# %% [markdown]
# ## Next
#
# Open [the exercises](../exercises/07_two_pools.ipynb): catch half a KV cache, catch bytes in the
# wrong number format, and decide who may be read next. Then lesson 08 puts a price on the luggage.
