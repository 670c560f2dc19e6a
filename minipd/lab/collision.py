"""What lesson 06 runs: one short trace on two real workers, by one scheduler after the other.

Each worker does everything, reading and writing; only the order of its work changes between runs.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from minipd.lab.pictures import Picture, timelines_svg
from minipd.lab.show import Table
from minipd.measure.contest import Cores, notes_of, requests_of
from minipd.measure.demo import Phases
from minipd.measure.metrics import run_metrics
from minipd.measure.ordering import count, number
from minipd.measure.quantiles import percentile
from minipd.measure.real_hardware import A100X8, H100X8
from minipd.measure.rows import TraceRow
from minipd.measure.stalls import Gap, token_gaps, undisturbed_step_s
from minipd.model.load import LoadedModel
from minipd.pools.cluster import Cluster, Mode, Run, Setup

DOCUMENT_TOKENS, SUMMARY_TOKENS = 512, 4
CHAT_TOKENS, QUESTION_TOKENS, SHORT_TOKENS = 40, 24, 16
# Requests go to the two workers in turn; times are in undisturbed steps of writing.
TRACE = (
    *((2.0 * n, QUESTION_TOKENS, CHAT_TOKENS, "chat") for n in range(4)),
    (14.0, DOCUMENT_TOKENS, SUMMARY_TOKENS, "document"),  # to the first worker
    (18.0, SHORT_TOKENS, SUMMARY_TOKENS, "question"),  # to the second one, which is free to read
    (18.2, SHORT_TOKENS, SUMMARY_TOKENS, "question"),  # to the first one, behind the document
    (26.0, DOCUMENT_TOKENS, SUMMARY_TOKENS, "document"),  # to the second worker
)
NUM_BLOCKS = 256  # of 16 tokens for each worker: several times what the trace needs
RECORDED_ON = "recorded on an Intel Xeon, 1 core each, 2026-11-29"
RECORDED_FILE = "benchmarks/raw/demo.json"
# Of that run (SmolLM2-135M, documents of 576 tokens, budget 64); a test reads them from the file.
RECORDED_DOCUMENT, RECORDED_FREEZE = 576, 17.9  # tokens; its longest gap in undisturbed steps
RECORDED: dict[str, tuple[float, float]] = {  # ITL p99 of the chats (ms), documents' TTFT p50 (s)
    "read first": (1407.2, 1.321),
    "pieces, budget 64": (260.6, 1.868),
}


@dataclass(frozen=True, slots=True)
class Freeze:
    """A wait of the chats on one worker. `step_s` is an undisturbed step of writing; `read_tokens`
    of prompts went through that worker meanwhile."""

    worker: str
    length_s: float
    step_s: float
    read_tokens: int

    @property
    def tokens(self) -> float:
        """Tokens that a reader would have got meanwhile."""
        return self.length_s / self.step_s

    def expected_s(self, speed: Phases) -> float:
        """What lesson 03 predicts: reading at the measured speed, then the step that ends it."""
        return self.read_tokens / speed.prefill_tok_s + self.step_s


@dataclass(frozen=True, slots=True)
class Morning:
    """One run of the trace. All runs of a lesson share the first one's `step_s`."""

    name: str
    run: Run
    step_s: float

    @property
    def freezes(self) -> list[Freeze]:
        """For each worker, by name, the wait of a chat in which most was read: the document's."""
        worst: dict[str, Freeze] = {}
        for gap in self._chat_gaps():
            found = Freeze(gap.worker, gap.length_s, self.step_s, self._read_during(gap))
            so_far = worst.setdefault(gap.worker, found)
            if (found.read_tokens, found.length_s) > (so_far.read_tokens, so_far.length_s):
                worst[gap.worker] = found
        return [worst[worker] for worker in sorted(worst)]

    @property
    def longest_s(self) -> float:
        """The longest wait of any chat, whatever its cause."""
        return max(gap.length_s for gap in self._chat_gaps())

    def gap_s(self, p: float) -> float:
        """The p-th percentile of the gaps between tokens of the chats."""
        return percentile([gap.length_s for gap in self._chat_gaps()], p)

    @property
    def duration_s(self) -> float:
        return max(event.t_s for event in self.run.timeline)

    def ttft_s(self, kind: str) -> list[float]:
        """Waits for the first token of all requests of a kind, in order of arrival."""
        found = sorted(run_metrics(self.run.timeline).requests, key=lambda request: request.id)
        return [r.ttft_s or 0.0 for r in found if r.id.startswith(kind)]

    def _chat_gaps(self) -> list[Gap]:
        return [gap for gap in token_gaps(self.run.timeline) if gap.request_id.startswith("chat")]

    def _read_during(self, gap: Gap) -> int:
        """Prompt tokens of the worker's steps that began and ended within the gap."""
        return sum(
            count(event, "prefill_tokens")
            for event in self.run.timeline
            if event.kind == "step"
            and event.worker == gap.worker
            and number(event, "start_s", event.t_s) >= gap.start_s - 1e-6
            and event.t_s <= gap.end_s + 1e-6
        )


class Servers:
    """Two workers, each a process with cores of its own, that stand ready until `close`."""

    def __init__(self, model: LoadedModel, cores: Cores, step_s: float) -> None:
        self.requests = requests_of(morning_rows(step_s), model.config, model.eos_ids)
        self._step_s: float | None = None
        print("Starting two servers, each a process of its own ...", flush=True)
        setup = Setup(
            model=str(model.folder),
            mode="colocated",
            num_blocks=NUM_BLOCKS,
            cpus=cores.cpus,
            threads=cores.threads,
        )
        self.cluster = Cluster(setup)
        self.close_once = weakref.finalize(self, self.cluster.close)  # also when a cell is rerun
        self.note = " ".join(notes_of(self.cluster, cores)) or "Each has cores of its own."
        print(f"Ready. {self.note}")

    def serve(self, mode: Mode, budget: int = 64) -> Morning:
        """The trace, by one scheduler; `budget` is the tokens of a step where it is chunked."""
        self.cluster.reconfigure(mode, None, chunk_tokens=budget)
        run = self.cluster.run(self.requests, timeout_s=600.0)
        self._step_s = self._step_s or undisturbed_step_s(run.timeline)
        assert self._step_s, "a run of the trace has steps that only write"
        name = f"pieces, budget {budget}" if mode == "chunked" else NAMES[mode]
        leaked = sum(run.leaked_blocks.values())
        print(f"Served {len(run.outputs)} requests ({name}); blocks leaked: {leaked}.")
        return Morning(name, run, self._step_s)

    def close(self) -> None:
        """End both processes; nothing is left behind."""
        self.close_once()
        print("Both servers have ended.")


NAMES: dict[Mode, str] = {
    "colocated": "read first",
    "decode_first": "write first",
    "disaggregated": "apart",
}


def morning_rows(step_s: float) -> list[TraceRow]:
    """The trace on a machine whose undisturbed step of writing takes `step_s`."""
    return [TraceRow(steps * step_s, prompt, answer, kind) for steps, prompt, answer, kind in TRACE]


def trace_table(step_s: float) -> Table:
    """Who comes when, and to which of the two servers."""
    rows = morning_rows(step_s)
    return {
        "who": [f"{row.kind} {index}" for index, row in enumerate(rows)],
        "arrives (s)": [round(row.arrival_s, 2) for row in rows],
        "server": [index % 2 for index in range(len(rows))],
        "tokens to read": [row.prompt_tokens for row in rows],
        "tokens to write": [row.output_tokens for row in rows],
    }


def morning_picture(mornings: Sequence[Morning], title: str) -> Picture:
    """The workers' timelines of one run or several, one under the other."""
    runs = {morning.name: morning.run.timeline for morning in mornings}
    answers = len(TRACE) if len(runs) == 1 else 4
    return timelines_svg(runs, title, sequences=answers, undisturbed_s=mornings[0].step_s)


def freezes_table(morning: Morning, speed: Phases) -> Table:
    """Each server's longest freeze: what reading speed predicts, and what was measured."""
    freezes = morning.freezes
    expected = [freeze.expected_s(speed) for freeze in freezes]
    return {
        "server": [freeze.worker for freeze in freezes],
        "tokens read meanwhile": [freeze.read_tokens for freeze in freezes],
        "predicted (s)": expected,
        "measured (s)": [freeze.length_s for freeze in freezes],
        "measured / predicted": [f.length_s / e for f, e in zip(freezes, expected)],
        "tokens lost by each reader": [freeze.tokens for freeze in freezes],
    }


def agreement(morning: Morning, speed: Phases, again_tok_s: float) -> str:
    """How well the prediction held, and whether the machine itself was steady meanwhile."""
    ratios = [freeze.length_s / freeze.expected_s(speed) for freeze in morning.freezes]
    worst = max(ratios, key=lambda ratio: abs(ratio - 1))
    drift = max(speed.prefill_tok_s / again_tok_s, again_tok_s / speed.prefill_tok_s)
    writing = morning.step_s * speed.decode_tok_s  # two answers share a step: a little over 1
    said = f"Measured over predicted: {worst:.2f} where it fits worst."
    if drift > 1.15 or writing > 1.8:
        return (
            f"{said} Indicative only: the reading speed changed by a factor of {drift:.2f}, and a "
            f"step of writing took {writing:.1f} times as long as alone. Other programs are busy; "
            "close them and start again."
        )
    fits = "within a quarter" if abs(worst - 1) <= 0.25 else "off by more than a quarter"
    return f"{said} That is {fits}; the reading speed changed by {drift - 1:.0%} meanwhile."


def mornings_table(mornings: Sequence[Morning]) -> Table:
    """What each way of serving does to readers, to documents and to short questions."""
    return {
        "way": [m.name for m in mornings],
        "longest wait of a chat (ms)": [1000 * m.longest_s for m in mornings],
        "in tokens": [m.longest_s / m.step_s for m in mornings],
        "p99 of their gaps (ms)": [1000 * m.gap_s(99) for m in mornings],
        "documents: TTFT (s)": [mean(m.ttft_s("document")) for m in mornings],
        "question behind a document: TTFT (s)": [m.ttft_s("question")[-1] for m in mornings],
        "all done (s)": [m.duration_s for m in mornings],
    }


def elsewhere_table(tokens: float) -> Table:
    """A freeze in tokens: here, in a recorded run, and from published step times."""
    rows: list[tuple[str, int, float]] = [
        ("here, measured", DOCUMENT_TOKENS, tokens),
        (f"SmolLM2-135M, {RECORDED_ON}", RECORDED_DOCUMENT, RECORDED_FREEZE),
    ]
    for machine in (A100X8, H100X8):
        rows += [(machine.name, size, machine.freeze_tokens(size)) for size in (512, 2048, 8192)]
    columns = ("machine", "document (tokens)", "tokens lost by each reader")
    return {name: [row[i] for row in rows] for i, name in enumerate(columns)}


def recorded_table(mornings: Sequence[Morning]) -> Table:
    """This machine's two figures for readers and documents, beside a recorded, longer run."""
    here = {m.name: (1000 * m.gap_s(99), mean(m.ttft_s("document"))) for m in mornings}
    ways = [name for name in RECORDED if name in here]
    columns: dict[str, Sequence[object]] = {"way": ways}
    for label, source in (("here", here), ("recorded", RECORDED)):
        columns[f"{label}: ITL p99 (ms)"] = [source[name][0] for name in ways]
        columns[f"{label}: documents' TTFT (s)"] = [source[name][1] for name in ways]
    return columns
