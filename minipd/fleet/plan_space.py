"""What a planner chooses from: a workload, ways to spread a replica, and how fast each one steps.

Step times are asked for at a few batch sizes only and remembered; lines are drawn between them.
Standard library only.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import NormalDist

from minipd.fleet.factors import Factors
from minipd.fleet.gpus import Device
from minipd.fleet.kvpool import CapacityError, kv_tokens
from minipd.fleet.models import Model
from minipd.fleet.steps import StepModel
from minipd.fleet.work import Chunk, Parallel, decode_step, prefill_step

MAX_TP = 16
PIPELINES = (1, 2, 4)
DEEP_PIPELINES = (8, 16)  # only where nothing flatter holds the weights
MAX_EP = 128
PREFILL_BATCHES = (1, 2, 4, 8, 16)
PREFILL_TOKENS = 2048  # prompts are read together up to here; a longer one is read alone
CHUNK_BUDGETS = (256, 512, 1024, 2048, 4096, 8192)
MAX_BATCH = 1 << 14  # sequences of one worker
_KNOTS = sorted({n for i in range(15) for n in (1 << i, 3 << i >> 1) if n <= MAX_BATCH})


class PlanError(ValueError):
    """A plan that cannot be made from what was given; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests per second over the whole fleet, their lengths in tokens, and the SLOs in seconds.

    `attainment` is the share of requests that must be within each SLO (DistServe, OSDI'24, takes
    0.9); `prefix_hit` the share of prompt tokens that a cache holds already.
    """

    isl: int
    osl: int
    rate_per_s: float
    ttft_s: float
    tpot_s: float
    prefix_hit: float = 0.0
    attainment: float = 0.9

    def __post_init__(self) -> None:
        for name, tokens in (("--isl", self.isl), ("--osl", self.osl)):
            if tokens < 1:
                raise PlanError(f"{name} is {tokens}; use 1 token or more.")
        checks = (("--rate", self.rate_per_s), ("--ttft", self.ttft_s), ("--tpot", self.tpot_s))
        for name, value in checks:
            if not 0.0 < value < math.inf:
                raise PlanError(f"{name} is {value:g}; use a number above 0.")
        if not 0.0 <= self.prefix_hit < 1.0:
            raise PlanError(f"--prefix-hit is {self.prefix_hit:g}; use a share from 0 to below 1.")
        if not 0.5 <= self.attainment <= 0.999:
            raise PlanError(f"--attainment is {self.attainment:g}; use a share from 0.5 to 0.999.")

    @property
    def cached_tokens(self) -> int:
        """Never the whole prompt: only a token that is run yields logits."""
        return min(self.isl - 1, round(self.isl * self.prefix_hit))

    @property
    def new_tokens(self) -> int:
        return self.isl - self.cached_tokens

    @property
    def gaps(self) -> int:
        """Decode steps of one request: the first token comes from its prefill."""
        return self.osl - 1

    @property
    def z(self) -> float:
        """How many standard deviations above the mean `attainment` lies."""
        return NormalDist().inv_cdf(self.attainment)


@dataclass(slots=True)
class Speeds:
    """One way to spread a replica: how long its steps take under one workload's lengths.

    Batches count the sequences of the whole replica. Its attention replicas and pipeline stages
    share them evenly, as in `timers.ModelTimer`.
    """

    steps: StepModel
    work: Workload
    kv_tokens: int
    _times: dict[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])
    _prefills: dict[int, float] = field(default_factory=dict[int, float])

    def under(self, work: Workload) -> Speeds:
        """The same steps under another rate or other SLOs; lengths must be the same."""
        mine = self.work
        assert (work.isl, work.osl, work.cached_tokens) == (mine.isl, mine.osl, mine.cached_tokens)
        return Speeds(self.steps, work, self.kv_tokens, self._times, self._prefills)

    @property
    def parallel(self) -> Parallel:
        return self.steps.parallel

    @property
    def max_sequences(self) -> int:
        """Requests whose whole KV, prompt and answer, fits at once."""
        return min(MAX_BATCH, self.kv_tokens // (self.work.isl + self.work.osl))

    def share(self, batch: float) -> float:
        return max(1.0, batch / (self.parallel.pp * self.parallel.attention_replicas))

    def prefill_s(self, prompts: int) -> float:
        """`prompts` prompts read together, on each attention replica."""
        if prompts not in self._prefills:
            chunks = prefill_step(self.work.new_tokens, prompts, self.work.cached_tokens)
            self._prefills[prompts] = self.steps.step(chunks).seconds
        return self._prefills[prompts]

    def decode_s(self, batch: float) -> float:
        """One decode step; answers are half written on average."""
        return self._between(self.share(batch), 0)

    def mixed_s(self, batch: float, budget: int) -> float:
        """A step of `budget` tokens: decodes first, then a piece of a prompt."""
        return self._between(self.share(batch), budget)

    def _between(self, share: float, budget: int) -> float:
        at = min(bisect_right(_KNOTS, share), len(_KNOTS) - 1)
        low, high = _KNOTS[at - 1], _KNOTS[at]
        low_s, high_s = self._at(low, budget), self._at(high, budget)
        return low_s + (high_s - low_s) * (share - low) / (high - low)

    def _at(self, share: int, budget: int) -> float:
        key = (share, budget)
        if key not in self._times:
            chunks = decode_step(self.work.isl + self.work.osl / 2, share)
            if budget:
                piece = max(1, budget - share)
                mean_context = self.work.cached_tokens + max(0, self.work.new_tokens - piece) / 2
                chunks.append(Chunk(max(2, piece), mean_context))
            self._times[key] = self.steps.step(chunks).seconds
        return self._times[key]


def build_speeds(
    model: Model, device: Device, factors: Factors, work: Workload, most_devices: int
) -> list[Speeds]:
    """Every spread of at most `most_devices` devices that holds the weights and one request.

    Raises `PlanError` when there is none, with what the model would need.
    """
    if model.max_context and work.isl + work.osl > model.max_context:
        raise PlanError(
            f"{work.isl} + {work.osl} tokens are more than the {model.max_context} tokens of "
            f"{model.name}'s context; shorten --isl or --osl."
        )
    for pipelines in (PIPELINES, DEEP_PIPELINES):
        fitting = [
            Speeds(StepModel(model, device, factors, parallel), work, room)
            for parallel, room in _fitting(model, device, work, pipelines)
            if parallel.devices <= most_devices
        ]
        if fitting:
            return fitting
    raise PlanError(_too_large(model, device, work, most_devices))


def _fitting(
    model: Model, device: Device, work: Workload, pipelines: tuple[int, ...]
) -> Iterator[tuple[Parallel, int]]:
    """Spreads that hold the weights and one request on each attention replica, with their room."""
    for parallel in spreads(model, device, pipelines):
        try:
            room = kv_tokens(model, device.memory_bytes, parallel)
        except CapacityError:
            continue
        if room >= (work.isl + work.osl) * parallel.attention_replicas:
            yield parallel, room


def spreads(model: Model, device: Device, pipelines: tuple[int, ...]) -> Iterator[Parallel]:
    """Tensor parallelism inside the fast link, pipelines of two or more such groups, and for models
    with experts, experts spread over devices that each attend to requests of their own."""
    heads = model.layers[0].attention.heads
    tps = [1 << i for i in range(6) if 1 << i <= min(MAX_TP, device.link_devices)]
    tps = [tp for tp in tps if heads % tp == 0]
    experts = max((g.experts.count for g in model.layers if g.experts), default=0)
    for tp in tps:
        deepest = model.num_layers if device.link_devices > 1 else 1  # no known way between them
        yield from (Parallel(tp, pp) for pp in pipelines if pp <= deepest)
        ep = 2
        while ep <= min(MAX_EP, experts) and device.link_devices > 1:
            if ep >= tp:
                yield Parallel(tp, 1, ep)
            ep *= 2


def _too_large(model: Model, device: Device, work: Workload, most: int) -> str:
    fitting = [p for p, _ in _fitting(model, device, work, PIPELINES + DEEP_PIPELINES)]
    size = f"{model.name} has {model.parameters * model.weight_bytes / 1e9:.0f} GB of weights"
    if not fitting:
        return (
            f"{size} and no spread over {device.name} devices ({device.memory_bytes / 1e9:g} GB "
            "each) holds them and one request; choose a larger device or --dtype fp8."
        )
    fewest = min(p.devices for p in fitting)
    return (
        f"{size}: with one request they need {fewest} x {device.name}, the fleet has {most}; raise "
        "--gpus, choose a larger device or --dtype fp8."
    )


def smallest_root(ask: Callable[[float], float], most: float) -> float | None:
    """The least x up to `most` with `ask(x) <= x`, to a millionth; None when there is none.

    `ask` grows with x: the batch that a worker would be left with if it stepped as slowly as with a
    batch of x. Asking again and again comes ever closer from below; each time, a guess ahead is
    tried where that lands if the steps keep shrinking at the same pace.
    """
    low, next_low = 0.0, ask(0.0)
    while next_low - low > 1e-6 * next_low:
        if next_low > most:
            return None
        first, second = next_low, ask(next_low)
        pace = (second - first) / (first - low)
        guess = first + (second - first) / (1.0 - pace) if pace < 1.0 else 2.0 * second
        guess = min(max(second, 1.000001 * guess), most)
        if ask(guess) <= guess:
            return _halve(ask, first, guess)
        low, next_low = (guess, ask(guess)) if ask(guess) < math.inf else (first, second)
    return next_low if next_low <= most else None


def _halve(ask: Callable[[float], float], low: float, high: float) -> float:
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if ask(middle) <= middle else (middle, high)
    return high
