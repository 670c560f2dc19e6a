"""The freeze, watched: four chats, two long documents, served in two ways by real processes.

`minipd demo` in small: the same classes, a small random model (its answers mean nothing, its times
do), arrivals that follow the speed of the machine at hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minipd.lab.pictures import Picture, timelines_svg
from minipd.lab.pictures.svg import INK, MUTED, Canvas, nice_ticks
from minipd.measure.contest import (
    COLOCATED,
    DISAGGREGATED,
    Outcome,
    fair_pair,
    hold,
    is_chat,
    notes_of,
    requests_of,
    split_cores,
)
from minipd.measure.demo import measure_phases
from minipd.measure.real_hardware import H100X8
from minipd.measure.rows import TraceRow
from minipd.measure.stalls import Gap, token_gaps
from minipd.model.load import load
from minipd.pools.cluster import Cluster
from minipd.timeline import Event

CHATS, CHAT_TOKENS, QUESTION_TOKENS = 4, 120, 24
DOCUMENTS, DOCUMENT_TOKENS, SUMMARY_TOKENS = 2, 512, 4
DOCUMENT_AFTER_STEPS = 50  # steps of undisturbed writing before the documents arrive
WIDTH, LEFT, RIGHT, ROW = 1000.0, 100.0, 26.0, 34.0


@dataclass(frozen=True, slots=True)
class Watched:
    """Both runs. `note` says what this machine cannot show; empty where it can."""

    together: Outcome
    apart: Outcome
    step_s: float
    note: str

    @property
    def longest(self) -> Gap:
        """The longest wait between two tokens of any chat while both kinds shared a worker."""
        return max(_chat_gaps(self.together), key=lambda gap: gap.length_s)

    @property
    def tokens(self) -> float:
        """That wait in tokens that an undisturbed reader would have got."""
        return self.longest.length_s / self.step_s

    def screens(self) -> Picture:
        """What the readers of the first run saw: their tokens, and nothing about the server."""
        return screens_svg(self.together.run.timeline)

    def workers(self) -> Picture:
        """What the workers did in both runs, one under the other."""
        runs = {
            "both workers do everything": self.together.run.timeline,
            "one worker reads, one writes": self.apart.run.timeline,
        }
        title = "The same requests, served in two ways"
        return timelines_svg(runs, title, undisturbed_s=self.step_s)

    def compared(self) -> dict[str, list[object]]:
        """The longest wait of both runs, as columns by heading."""
        rows = [
            ("both workers do everything", self.together),
            ("one reads, one writes", self.apart),
        ]
        waits = [max(gap.length_s for gap in _chat_gaps(outcome)) for _, outcome in rows]
        return {
            "run": [name for name, _ in rows],
            "longest wait of a chat (s)": [round(wait, 3) for wait in waits],
            "in tokens": [round(wait / self.step_s, 1) for wait in waits],
        }


def watch_freeze(model: str = "mini") -> Watched:
    """Start two workers, serve the same requests in both ways, end the workers; prints its steps.

    About 15 s on two cores. Works on one core too and says in `note` what that cannot show.
    """
    loaded, cores = load(model), split_cores(2)
    print("Measuring one step of writing ...", flush=True)
    step_s = 1.0 / measure_phases(loaded, cores, repetitions=1).decode_tok_s
    requests = requests_of(rows(step_s), loaded.config, loaded.eos_ids)
    setup = fair_pair(loaded, requests, cores)
    print("Starting two workers, each a process of its own ...", flush=True)
    outcomes: dict[str, Outcome] = {}
    with Cluster(setup) as cluster:
        for told, contender in (("everything on both", COLOCATED), ("apart", DISAGGREGATED)):
            print(f"Serving {len(requests)} requests, {told} ...", flush=True)
            outcomes |= hold(cluster, (contender,), requests)
        note = " ".join(notes_of(cluster, cores))
    together, apart = outcomes[COLOCATED.name], outcomes[DISAGGREGATED.name]
    undisturbed_s = together.summary.undisturbed_step_s or step_s
    print("Done; both workers have ended.")
    return Watched(together, apart, undisturbed_s, note)


def rows(step_s: float) -> list[TraceRow]:
    """Four chats in a row, then a document for each worker while all of them are writing."""
    chats = [TraceRow(i * 2 * step_s, QUESTION_TOKENS, CHAT_TOKENS, "chat") for i in range(CHATS)]
    at = DOCUMENT_AFTER_STEPS * step_s
    documents = [
        TraceRow(at + i * step_s / 10, DOCUMENT_TOKENS, SUMMARY_TOKENS, "document")
        for i in range(DOCUMENTS)
    ]
    return chats + documents


def on_real_hardware(tokens: float) -> str:
    """A freeze of so many tokens here beside data-centre hardware (published step times)."""
    short, long = H100X8.freeze_tokens(DOCUMENT_TOKENS), H100X8.freeze_tokens(8192)
    how = "This computer exaggerates" if tokens > short else "Elsewhere"
    return (
        f"{how}: on {H100X8.name}, a prompt of {DOCUMENT_TOKENS} tokens costs everybody else "
        f"{short:.1f} tokens, one of 8,192 tokens {long:.0f}."
    )


def _chat_gaps(outcome: Outcome) -> list[Gap]:
    return [gap for gap in token_gaps(outcome.run.timeline) if is_chat(gap.request_id)]


def screens_svg(events: Iterable[Event]) -> Picture:
    """One row for each chat, one stroke for each token that appeared on its screen."""
    events = list(events)
    tokens: dict[str, list[float]] = {}
    for event in events:
        if event.kind == "token" and is_chat(event.request_id):
            tokens.setdefault(event.request_id, []).append(event.t_s)
    if not tokens:
        raise ValueError("There is nothing to draw; give a timeline in which chats got tokens.")
    start_s, end_s = (pick(e.t_s for e in events) for pick in (min, max))
    per_second = (WIDTH - LEFT - RIGHT) / max(end_s - start_s, 1e-9)
    canvas, y, title = Canvas(WIDTH), 52.0, "What four readers saw: one stroke for each token"
    canvas.text(20, 30, title, 18, bold=True)
    table: list[tuple[str, ...]] = []
    for letter, times in zip("ABCDEFGH", tokens.values()):
        canvas.text(LEFT - 12, y + 18, f"screen {letter}", 13, "end")
        for t_s in times:
            x = LEFT + (t_s - start_s) * per_second
            canvas.line([(x, y + 3), (x, y + ROW - 8)], INK, 1.2)
        table.append(_screen_row(letter, times, start_s))
        y += ROW
    _draw_seconds(canvas, y, end_s - start_s, per_second)
    alt = f"{title}. " + " ".join(
        f"Screen {row[0]}: {row[1]} tokens, longest pause {row[2]} s, from {row[3]} s."
        for row in table
    )
    columns = ("screen", "tokens", "longest pause (s)", "from (s)")
    return Picture(canvas.render(y + 34, title, alt), alt, columns, tuple(table))


def _screen_row(letter: str, times: list[float], start_s: float) -> tuple[str, ...]:
    pauses = [(later - earlier, earlier) for earlier, later in zip(times, times[1:])]
    longest_s, since_s = max(pauses, default=(0.0, start_s))
    return letter, str(len(times)), f"{longest_s:.2f}", f"{since_s - start_s:.2f}"


def _draw_seconds(canvas: Canvas, y: float, length_s: float, per_second: float) -> None:
    canvas.line([(LEFT, y), (WIDTH - RIGHT, y)], MUTED)
    for tick in nice_ticks(0.0, length_s):
        x = LEFT + tick * per_second
        canvas.line([(x, y), (x, y + 5)], MUTED)
        canvas.text(x, y + 19, f"{tick:g}", 12, "middle")
    canvas.text(LEFT - 24, y + 19, "seconds", 12, "end", MUTED)
