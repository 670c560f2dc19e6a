"""What lesson 07 runs: one trace served together and apart, by workers that hold the weights twice.

The rows of the trace are the lesson's; workers, links and schedulers are the engine's own.
"""

from __future__ import annotations

import difflib
import inspect
import multiprocessing
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import psutil

from minipd.lab.pictures import Picture, timelines_svg
from minipd.lab.show import Table
from minipd.measure.contest import (
    COLOCATED,
    DISAGGREGATED,
    Outcome,
    blocks_for,
    compare_tokens,
    hold,
    notes_of,
    requests_of,
    split_cores,
)
from minipd.measure.rows import TraceRow
from minipd.measure.same_tokens import Summary, logits_of
from minipd.measure.stalls import Gap, token_gaps
from minipd.model.load import LoadedModel
from minipd.pools.cluster import Cluster, Setup
from minipd.timeline import Event

TOGETHER, APART = "both do everything", "one reads, one writes"
# A worker with next to no weights: what Python and its libraries take by themselves.
BARE = (
    "import os; os.environ['OMP_NUM_THREADS'] = '1'\n"
    "import psutil, minipd.pools.build\n"
    "from minipd import LLM, SamplingParams\n"
    "LLM('tiny', num_kv_blocks=8).generate([[1] * 64], SamplingParams(2))\n"
    "from minipd.lab.two_pools import memory_of\n"
    "print(memory_of(os.getpid()).private)\n"
)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one process: `rss` all that it has mapped, `uss` what would be free without it.

    `private` leaves out every file, shared or not, and so the KV stores, where the system tells
    (Linux); elsewhere it is `uss`.
    """

    rss: int
    uss: int
    private: int


def memory_of(pid: int) -> Memory:
    info = psutil.Process(pid).memory_full_info()
    shared = getattr(info, "shared", None)
    return Memory(info.rss, info.uss, info.uss if shared is None else info.rss - shared)


def memory_of_workers() -> dict[str, Memory]:
    """Of every worker process that this program has started, by name."""
    children = {p.name: p.pid for p in multiprocessing.active_children()}
    workers = {name: pid for name, pid in sorted(children.items()) if name.startswith("worker-")}
    return {name: memory_of(pid) for name, pid in workers.items() if pid is not None}


def bare_bytes() -> int:
    """Private memory of a worker's program with a model of next to nothing."""
    told = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, check=True)
    return int(told.stdout.split()[-1])


@dataclass(frozen=True, slots=True)
class Served:
    """Both runs of one trace. `note` says what this machine cannot show; empty where it can."""

    together: Outcome
    apart: Outcome
    step_s: float
    tokens: Summary
    workers: dict[str, Memory]
    bare_bytes: int
    weight_bytes: int
    note: str

    @property
    def outcomes(self) -> dict[str, Outcome]:
        return {TOGETHER: self.together, APART: self.apart}

    @property
    def copies(self) -> float:
        """What the workers hold beside an empty program, in units of the weights."""
        own = sum(worker.private - self.bare_bytes for worker in self.workers.values())
        return own / self.weight_bytes

    def freeze_tokens(self, outcome: Outcome) -> float:
        """The longest wait of any chat, in tokens that an undisturbed reader would have got."""
        return longest_wait(outcome.run.timeline).length_s / self.step_s

    def timelines(self) -> Picture:
        runs = {name: outcome.run.timeline for name, outcome in self.outcomes.items()}
        return timelines_svg(runs, "The same requests, before and after", undisturbed_s=self.step_s)

    def waits_table(self) -> Table:
        """The chats' longest waits, as columns by heading."""
        waits = [longest_wait(o.run.timeline).length_s for o in self.outcomes.values()]
        return {
            "run": list(self.outcomes),
            "longest wait of a chat (s)": [round(wait, 2) for wait in waits],
            "in tokens": [round(self.freeze_tokens(o), 1) for o in self.outcomes.values()],
        }

    def first_tokens_table(self) -> Table:
        """How long everybody but the chats waited for a first token, as columns by heading."""
        waits = [first_token_waits(o.run.timeline) for o in self.outcomes.values()]
        return {"run": list(self.outcomes)} | {
            f"{name} (s)": [round(each[name], 2) for each in waits] for name in waits[0]
        }

    def memory_table(self) -> Table:
        """What each worker's process holds, MB."""
        sizes = list(self.workers.values())
        return {
            "process": list(self.workers),
            "all that it has mapped, RSS (MB)": [round(w.rss / 1e6) for w in sizes],
            "free without it, USS (MB)": [round(w.uss / 1e6) for w in sizes],
            "neither file nor store (MB)": [round(w.private / 1e6) for w in sizes],
        }


def longest_wait(events: Iterable[Event]) -> Gap:
    """The longest gap between two tokens of any chat."""
    gaps = [gap for gap in token_gaps(events) if gap.request_id.startswith("chat")]
    return max(gaps, key=lambda gap: gap.length_s)


def first_token_waits(events: Iterable[Event]) -> dict[str, float]:
    """Seconds from arrival to first token of all but the chats, by kind and number within it."""
    arrived_s: dict[str, float] = {}
    names: dict[str, str] = {}
    waits: dict[str, float] = {}
    for event in events:
        name = event.request_id
        if event.kind == "arrived" and not name.startswith("chat"):
            kind = name.split("-")[0]
            number = 1 + sum(other.startswith(kind) for other in arrived_s)
            arrived_s[name], names[name] = event.t_s, f"{kind} {number}"
        elif event.kind == "token" and name in arrived_s:
            waits.setdefault(names[name], event.t_s - arrived_s[name])
    return {name: waits[name] for name in names.values()}


def serve_both(model: LoadedModel, rows: list[TraceRow]) -> Served:
    """Start two workers, serve the rows together and apart, look at their memory, end them."""
    cores = split_cores(2)
    requests = requests_of(rows, model.config, model.eos_ids)
    setup = Setup(
        model=str(model.folder),
        num_blocks=blocks_for(requests, model.config, 16, 2),
        cpus=cores.cpus,
        threads=cores.threads,
    )
    print("Starting two workers, each a process with weights of its own ...", flush=True)
    with Cluster(setup) as cluster:
        print(f"Serving {len(requests)} requests, together and then apart ...", flush=True)
        outcomes = hold(cluster, (COLOCATED, DISAGGREGATED), requests, keep=None)
        workers, note = memory_of_workers(), " ".join(notes_of(cluster, cores))
    together, apart = outcomes[COLOCATED.name], outcomes[DISAGGREGATED.name]
    step_s = together.summary.undisturbed_step_s
    assert step_s is not None, "a run with chats has steps that only write"
    tokens = compare_tokens(requests, outcomes, logits_of(model.decoder))
    weight_bytes = model.config.num_parameters * model.decoder.head.dtype.itemsize
    served = Served(together, apart, step_s, tokens, workers, bare_bytes(), weight_bytes, note)
    print("Done; both workers have ended.")
    return served


def diff_of(before: Callable[..., object], after: Callable[..., object]) -> str:
    """What changed from one function to another, line by line: - went, + came."""
    texts = [inspect.getsource(one).rstrip().split("\n") for one in (before, after)]
    changed = difflib.unified_diff(texts[0], texts[1], lineterm="", n=20)
    return "\n".join(line for line in changed if not line.startswith(("---", "+++", "@@")))
