"""The break-even, run: the same prompt read by the decode worker itself, and by another worker.

Real processes, a real hand-off over an emulated network, and chats that write all the time. Nothing
is scheduled by the clock: each prompt waits until the one before it has ended.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

import torch

from minipd.cache.store import KVLayout
from minipd.lab.break_even import Server, measured_server
from minipd.lab.link_trials import time_emulated
from minipd.measure.contest import Cores, split_cores
from minipd.measure.links import LinkFit, fit_link
from minipd.measure.machine import pinned
from minipd.measure.phases import MinipdEngine, random_tokens
from minipd.measure.stopwatch import num_threads
from minipd.model.load import LoadedModel, load
from minipd.pools.cluster import Cluster, ClusterError, Setup
from minipd.pools.links.emulated import Network
from minipd.request import Request, SamplingParams
from minipd.sched.router import Route, WorkerLoad
from minipd.timeline import Event

CHATS, LENGTHS, ROUNDS = 4, (32, 64, 96, 128, 192, 256), 4
CHAT_TOKENS, LONGEST_CHAT, QUIET_TOKENS = 32, 3000, 3
SLOWER_THAN_READING = 1.5  # how many times as long a token travels as it is read
STEPS_AWAY = 6
STEPS, RECENT = 16, 40
PATIENCE_S = 120.0


@dataclass(slots=True)
class AsTold:
    """A router that sends every prompt where the experiment wants it."""

    remote: bool = False

    def route(
        self, num_uncached_tokens: int, prefill: list[WorkerLoad], decode: list[WorkerLoad]
    ) -> Route:
        reader = prefill[0].name if self.remote else None
        return Route(decode[0].name, reader, "as the experiment says")


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt, both ways. Waits until the decode worker has the first token; what all running
    chats together lost to it. Seconds."""

    tokens: int
    local_wait_s: float
    remote_wait_s: float
    local_loss_s: float
    remote_loss_s: float

    @property
    def added_s(self) -> float:
        return self.remote_wait_s - self.local_wait_s

    @property
    def spared_s(self) -> float:
        return self.local_loss_s - self.remote_loss_s


@dataclass(slots=True)
class Trial:
    """All pairs, and what this machine cannot show (empty: nothing)."""

    pairs: list[Pair]
    note: str = ""
    points: list[tuple[int, float, float]] = field(default_factory=list[tuple[int, float, float]])

    def __post_init__(self) -> None:
        """Per length the medians of what was added and what was spared."""
        for tokens in sorted({pair.tokens for pair in self.pairs}):
            same = [pair for pair in self.pairs if pair.tokens == tokens]
            added, spared = (median(getattr(p, x) for p in same) for x in ("added_s", "spared_s"))
            self.points.append((tokens, added, spared))

    @property
    def break_even(self) -> float | None:
        """Where what is spared outgrows what is added, in tokens; None outside of what was run.

        Of the straight line through all differences that no single pair can move: its slope is the
        median over all pairs of points (Theil and Sen), and so is its crossing over all points.
        """
        gains = [(pair.tokens, pair.spared_s - pair.added_s) for pair in self.pairs]
        both = itertools.combinations(gains, 2)
        slopes = [(g1 - g0) / (n1 - n0) for (n0, g0), (n1, g1) in both if n0 != n1]
        if not slopes or (slope := median(slopes)) <= 0:
            return None
        found = median(tokens - gain / slope for tokens, gain in gains)
        return found if self.points[0][0] <= found <= self.points[-1][0] else None


def measure_server(
    model: LoadedModel, cores: Cores, chats: int = CHATS, repetitions: int = 6
) -> Server:
    """A short and a long reading pass, which give a line, and a decode step, of one worker alone;
    medians over both workers' cores."""
    short, long = LENGTHS[0], LENGTHS[-1]
    engine, tokens = MinipdEngine(model, long, chats), random_tokens(model.config.vocab_size, long)
    times: list[tuple[float, float, float]] = []
    for number in range(1 + repetitions):  # the first one warms up
        with pinned(cores.cpus[number % 2] if cores.cpus else None), num_threads(cores.threads):
            short_s = min(engine.prefill(tokens[:short]) for _ in range(2))
            long_s = min(engine.prefill(tokens) for _ in range(2))
            times.append((short_s, long_s, engine.decode(tokens[:STEPS], chats) / STEPS))
    short_s, long_s, step_s = (median(column) for column in zip(*times[1:]))
    per_token_s = max((long_s - short_s) / (long - short), 1e-9)
    pass_s = max(0.0, short_s - short * per_token_s)
    config = model.config
    kv_bytes, layers = config.kv_bytes_per_token(4), config.num_layers
    return measured_server(
        f"{model.name} here", kv_bytes, layers, chats, 1 / per_token_s, step_s, pass_s
    )


def slow_network(server: Server) -> Network:
    """A network on which a token travels 1.5 times as long as it is read, six steps away."""
    per_token_s = (server.prefill_s(1) - server.prefill_s(0)) * SLOWER_THAN_READING
    return Network(STEPS_AWAY * server.step_s, server.kv_bytes_per_token / per_token_s)


class Experiment:
    """A running cluster with chats on its decode worker; `pairs` measures one after the other."""

    def __init__(self, cluster: Cluster, router: AsTold, vocab_size: int) -> None:
        self.cluster, self.router, self.vocab_size = cluster, router, vocab_size
        self.tokens: dict[str, list[float]] = {}
        self.marks: dict[tuple[str, str], float] = {}
        self._numbers = itertools.count()
        cluster.on_event = self._hear

    def _hear(self, event: Event) -> None:
        if event.kind == "token":
            self.tokens.setdefault(event.request_id, []).append(event.t_s)
        self.marks.setdefault((event.request_id, event.kind), event.t_s)

    def _submit(self, tokens: int, max_tokens: int, kind: str) -> str:
        number = next(self._numbers)
        ids = tuple(random.Random(number).choices(range(3, self.vocab_size), k=tokens))
        sampling = SamplingParams(max_tokens, ignore_eos=True)
        name = f"{kind}-{number}"
        self.cluster.submit(Request(name, ids, sampling, self.cluster.clock()))
        return name

    def _wait(self, name: str, count: int) -> None:
        """Until a request has `count` more tokens than now; raises `ClusterError`."""
        goal, give_up = len(self.tokens.get(name, [])) + count, time.monotonic() + PATIENCE_S
        while len(self.tokens.get(name, [])) < goal:
            self.cluster.poll(0.002)
            if time.monotonic() > give_up:
                raise ClusterError(
                    f"{name} got no token for {PATIENCE_S:.0f} s; close other programs, run again."
                )

    def pairs(self, lengths: Sequence[int], chats: int) -> Iterator[Pair]:
        """One round: fresh chats, then every length both ways; the chats are cancelled after it."""
        self.router.remote = False
        names = [self._submit(CHAT_TOKENS, LONGEST_CHAT, "chat") for _ in range(chats)]
        for name in names:
            self._wait(name, 2 * QUIET_TOKENS)
        for tokens in lengths:
            local, frozen = self._ask(tokens, names, remote=False)
            remote, undisturbed = self._ask(tokens, names, remote=True)
            yield Pair(tokens, local, remote, frozen, undisturbed)
        for name in names:
            self.cluster.cancel(name)
        while self.cluster.num_unfinished:
            self.cluster.poll(0.01)

    def _ask(self, tokens: int, chats: list[str], *, remote: bool) -> tuple[float, float]:
        """The new reader's wait, and what the chats lost meanwhile, summed."""
        self.router.remote = remote
        asked_s = self.cluster.clock()
        name = self._submit(tokens, 2, "prompt")
        self._wait(name, 2)
        self._wait(chats[0], QUIET_TOKENS)
        kinds = ("reserved", "committed") if remote else ("prefill_finished",)
        moments = [self.marks[name, kind] for kind in kinds]
        return moments[-1] - asked_s, sum(self._lost(chat, moments) for chat in chats)

    def _lost(self, chat: str, moments: Sequence[float]) -> float:
        """How much longer than usual a chat's gaps were in which its worker dealt with the prompt.

        Other gaps would only add what else the machine was doing.
        """
        gaps = list(itertools.pairwise(self.tokens[chat]))
        usual = median(b - a for a, b in gaps[-RECENT:])
        held = {(a, b) for a, b in gaps for moment in moments if a < moment <= b}
        return sum(b - a - usual for a, b in held)


def run_trial(
    network: Network, model: str = "mini", lengths: Sequence[int] = LENGTHS, rounds: int = ROUNDS
) -> Trial:
    """Two workers, each a process on its own core where there are two; about 20 s."""
    loaded, cores, router = load(model), split_cores(2), AsTold()
    setup = Setup(
        model=str(loaded.folder),
        num_blocks=2048,
        cpus=cores.cpus,
        threads=cores.threads,
        chunk_tokens=4096,  # a local prompt is read in one go
        network=network,
        prefix_reuse=False,
    )
    pairs: list[Pair] = []
    with Cluster(setup, router) as cluster:
        experiment = Experiment(cluster, router, loaded.config.vocab_size)
        list(experiment.pairs(lengths[:1], CHATS))  # warms everything up
        for _ in range(rounds):
            pairs += experiment.pairs(lengths, CHATS)
    return Trial(pairs, cores.note)


def probe(network: Network, model: LoadedModel) -> LinkFit:
    """Latency and bandwidth as timed hand-offs of this model's KV show them."""
    config = model.config
    layout = KVLayout(
        config.num_layers, 16, 16, config.num_kv_heads, config.head_dim, torch.float32
    )
    return fit_link(time_emulated(network, (1, 4, 8, 16), rounds=2, layout=layout))
