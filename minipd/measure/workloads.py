"""Seeded request generators: who asks what, how long it is, how often.

`generate("chat", num_requests=100, rate_per_s=2, seed=0)` gives rows; the same arguments give the
same rows on every system. Lengths have the shape of published traces (facts section 5); where no
source is known the figure is ours and the table says so. Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from random import Random

from minipd.measure.arrivals import (
    DAY_S,
    ArrivalProcess,
    WorkloadError,
    arrival_times,
    check_day,
    check_rate,
    day_curve,
    varying_times,
)
from minipd.measure.names import no_such
from minipd.measure.rows import Segment, TraceRow


@dataclass(frozen=True, slots=True)
class Lengths:
    """Log-normal lengths in tokens: `median`, `sigma` of the logarithm, drawn again outside the
    limits (so that no heap of equal lengths stands at either end)."""

    median: float
    sigma: float
    minimum: int = 1
    maximum: int = 131_072

    def draw(self, rng: Random) -> int:
        for _ in range(64):
            length = round(rng.lognormvariate(math.log(self.median), self.sigma))
            if self.minimum <= length <= self.maximum:
                return length
        return min(max(round(self.median), self.minimum), self.maximum)


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of traffic. `turns` above 1 makes sessions whose context grows turn by turn.

    `prompt` is the first turn's own text (later turns: `turn`), without `system_tokens`, which all
    requests of the kind begin with. `documents` above 0 puts one of that many documents of
    `document` tokens in front of the question: half the questions go to a quarter of the documents.
    """

    prompt: Lengths
    output: Lengths
    system_tokens: int = 0
    document: Lengths | None = None
    documents: int = 0
    turns: float = 1.0
    turn: Lengths | None = None
    think_s: float = 0.0


# sigma from a published mean or p90: sqrt(2 ln(mean / median)) or ln(p90 / median) / 1.2816.
PROFILES: dict[str, Profile] = {
    # Azure 2023 conversation: in p50 1020, mean 1154.7; out p50 129, mean 211.1.
    "chat": Profile(Lengths(1020, 0.50, 8, 14_050), Lengths(129, 0.99, 1, 1_000)),
    # Mooncake conversation: in p50 6909, p90 27367; out: synthetic mean 149. Library size: ours.
    "rag": Profile(
        prompt=Lengths(40, 0.6, 8, 400),
        output=Lengths(110, 0.78, 4, 2_000),
        system_tokens=64,
        document=Lengths(6_800, 1.07, 512, 126_000),
        documents=1_000,
    ),
    # agentic-kvc: 33.6k in and 445 out on average, 98 % of tokens read. Turn structure: ours.
    "coding_agent": Profile(
        prompt=Lengths(2_000, 1.0, 50, 40_000),
        output=Lengths(300, 0.89, 10, 4_000),
        system_tokens=6_000,
        turns=12,
        turn=Lengths(1_150, 1.0, 20, 40_000),
        think_s=8.0,
    ),
    # Chat lengths, several turns. Turn structure: ours.
    "multi_turn": Profile(
        prompt=Lengths(200, 0.9, 10, 4_000),
        output=Lengths(129, 0.99, 1, 1_000),
        system_tokens=500,
        turns=6,
        turn=Lengths(120, 0.9, 5, 4_000),
        think_s=20.0,
    ),
    # Short question, long chain of thought: lengths are ours, for the contrast.
    "reasoning": Profile(Lengths(200, 0.7, 10, 4_000), Lengths(2_000, 0.7, 100, 32_000)),
    # Azure 2023 code: in p50 1469, p90 5194, max 7437; out p50 13, mean 27.9.
    "api": Profile(Lengths(1_469, 0.985, 3, 7_437), Lengths(13, 1.24, 1, 1_900)),
}
# Shares of requests in the mixture: ours, so that every kind is present.
MIX: dict[str, float] = {
    "chat": 0.45,
    "rag": 0.15,
    "coding_agent": 0.1,
    "multi_turn": 0.1,
    "reasoning": 0.05,
    "api": 0.15,
}
# By day documents and code, in the evening talk (ours).
DAY_MIX: dict[str, float] = {"chat": 0.2, "rag": 0.35, "coding_agent": 0.15, "api": 0.3}
NIGHT_MIX: dict[str, float] = {"chat": 0.7, "multi_turn": 0.2, "reasoning": 0.1}
# A session ends when the next turn would not fit into 128k tokens; single prompts always fit.
MAX_CONTEXT = 131_072
MIN_RATE, MAX_RATE = 1e-9, 1e9  # requests/s: beyond, sums of gaps lose their meaning
MAX_REQUESTS = 1_000_000  # rows are held in memory
KINDS: tuple[str, ...] = (*PROFILES, "mixed", "time_of_day")


@dataclass(frozen=True, slots=True)
class Workload:
    """What to generate: a kind of `KINDS`, requests/s, and how bursty they come (`cv`: gamma).

    `day_s` is the length of a day for `time_of_day`, which ignores `arrivals`. `rate_per_s` counts
    requests; kinds with several turns start fewer sessions and keep the rate once warmed up.
    """

    kind: str
    rate_per_s: float
    arrivals: ArrivalProcess = "poisson"
    cv: float = 1.0
    day_s: float = DAY_S

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise WorkloadError(no_such("workload", self.kind, KINDS))
        check_rate(self.rate_per_s)
        check_day(self.day_s)
        if not MIN_RATE <= self.rate_per_s <= MAX_RATE:
            raise WorkloadError(
                f"The request rate is {self.rate_per_s}; use {MIN_RATE:g} to {MAX_RATE:g} "
                "requests/s."
            )

    def generate(self, num_requests: int, seed: int = 0) -> list[TraceRow]:
        """The first `num_requests` rows in order of arrival, times rounded to microseconds."""
        if not 1 <= num_requests <= MAX_REQUESTS:
            raise WorkloadError(
                f"{num_requests} requests were asked for; ask for at least 1 and at most "
                f"{MAX_REQUESTS}."
            )
        rng = Random(f"minipd workload {self.kind} {seed}")
        session_rows = (
            row
            for number, (start_s, kind) in enumerate(self._session_starts(num_requests, rng))
            for row in _session(kind, f"{kind}/{number}", start_s, rng)
        )
        ordered = sorted(session_rows, key=lambda row: row.arrival_s)
        return [replace(r, arrival_s=round(r.arrival_s, 6)) for r in ordered[:num_requests]]

    def _session_starts(self, num_requests: int, rng: Random) -> Iterator[tuple[float, str]]:
        """`num_requests` sessions: enough, as each holds at least one request."""
        mix = MIX if self.kind == "mixed" else {self.kind: 1.0}
        if self.kind == "time_of_day":
            yield from islice(self._day_starts(rng), num_requests)
            return
        rate = self.rate_per_s * _sessions_per_request(mix)
        for start_s in islice(arrival_times(self.arrivals, rate, rng, self.cv), num_requests):
            yield start_s, _pick(mix, rng)

    def _day_starts(self, rng: Random) -> Iterator[tuple[float, str]]:
        """Session starts whose rate and kinds follow the hour; ends never."""
        requests_per_s = day_curve(self.rate_per_s, self.day_s)

        def sessions_per_s(t_s: float) -> float:
            mix = DAY_MIX if _is_day(t_s, self.day_s) else NIGHT_MIX
            return requests_per_s(t_s) * _sessions_per_request(mix)

        for start_s in varying_times(sessions_per_s, 1.8 * self.rate_per_s, rng):
            yield start_s, _pick(DAY_MIX if _is_day(start_s, self.day_s) else NIGHT_MIX, rng)


def generate(
    kind: str,
    num_requests: int,
    rate_per_s: float,
    seed: int = 0,
    arrivals: ArrivalProcess = "poisson",
    cv: float = 1.0,
) -> list[TraceRow]:
    """Shorthand for `Workload(kind, rate_per_s, arrivals, cv).generate(num_requests, seed)`."""
    return Workload(kind, rate_per_s, arrivals, cv).generate(num_requests, seed)


def _sessions_per_request(mix: dict[str, float]) -> float:
    return sum(share / PROFILES[kind].turns for kind, share in mix.items())


def _pick(mix: dict[str, float], rng: Random) -> str:
    """A session's kind, such that the *requests* come in the shares of `mix`."""
    if len(mix) == 1:
        return next(iter(mix))
    return rng.choices(list(mix), [share / PROFILES[kind].turns for kind, share in mix.items()])[0]


def _is_day(t_s: float, day_s: float) -> bool:
    return 8.0 <= 24.0 * (t_s % day_s) / day_s < 19.0


def _session(kind: str, name: str, start_s: float, rng: Random) -> Iterator[TraceRow]:
    """One user's requests: a single one, or turns that each repeat all that was said before.

    An open-loop trace cannot wait for answers: turns come `think_s` (exponential) apart.
    """
    profile = PROFILES[kind]
    prefix = _fixed_prefix(kind, profile, rng)
    turns = 1 if profile.turns == 1.0 else 1 + _geometric(profile.turns - 1.0, rng)
    said_tokens, now_s = 0, start_s
    for turn in range(turns):
        own_tokens = (profile.turn if turn and profile.turn else profile.prompt).draw(rng)
        output_tokens = profile.output.draw(rng)
        said_tokens += own_tokens
        segments = (*prefix, Segment(name, said_tokens)) if profile.turns > 1.0 else prefix
        prompt_tokens = sum(segment.tokens for segment in prefix) + said_tokens
        if prompt_tokens + output_tokens > MAX_CONTEXT:
            return
        yield TraceRow(now_s, prompt_tokens, output_tokens, kind, segments)
        said_tokens += output_tokens
        now_s += rng.expovariate(1.0 / profile.think_s) if profile.think_s else 0.0


def _fixed_prefix(kind: str, profile: Profile, rng: Random) -> tuple[Segment, ...]:
    prefix = (Segment(f"{kind}/system", profile.system_tokens),) if profile.system_tokens else ()
    if not profile.document:
        return prefix
    number = int(profile.documents * rng.random() ** 2)
    stream = f"{kind}/document-{number}"
    return (*prefix, Segment(stream, profile.document.draw(Random(stream))))


def _geometric(mean: float, rng: Random) -> int:
    """Whole number from 0 up with the given mean, each step with the same chance to go on."""
    return int(math.log(1.0 - rng.random()) / math.log(mean / (1.0 + mean)))
