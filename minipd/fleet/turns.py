"""The loop of a simulated worker: when it decides, what it takes in one go, how long that is.

A step takes the time that a timer says. Where several decode steps are sure to be alike they are
taken as one row, and a message that comes meanwhile takes effect after the step that is under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from minipd.engine.batch import Batch, Chunk
from minipd.fleet.events import Agenda
from minipd.fleet.kvpool import SharedBlocks
from minipd.fleet.timers import Line, Read, Timer
from minipd.fleet.under_way import Costs, Observer, Row, Step
from minipd.pools import messages as m
from minipd.request import Sequence
from minipd.sched.ahead import UNKNOWN_TOKEN, steps_until_change, write
from minipd.sched.base import Scheduler
from minipd.sched.prefix_router import forgotten_by
from minipd.sched.split import PrefillOnly


class Turning:
    """A worker's loop. With an `observer` it skips ahead; without one it takes every step by
    itself and tells all events, as the engine does. Subclasses handle messages and hand-offs."""

    scheduler: Scheduler

    def __init__(
        self, name: str, timer: Timer, costs: Costs, agenda: Agenda, observer: Observer | None
    ) -> None:
        self.name, self.timer, self.costs = name, timer, costs
        self.agenda, self.observer = agenda, observer
        self.is_dead = False
        self.inbox: deque[m.ToWorker] = deque()
        self.outbox: list[m.FromWorker] = []
        self.row: Row | None = None
        self._is_idle = True
        self._number = 0  # of what is under way; what carries an older number is void

    # -- for subclasses -----------------------------------------------------------------------

    def handle(self, message: m.ToWorker) -> float:
        """Act on a message; returns the seconds that it keeps the worker from its next step."""
        raise NotImplementedError

    def reserve(self) -> list[m.Reserved]:
        raise NotImplementedError

    def extra_s(self, batch: Batch) -> float:
        """What a step costs beyond computing it."""
        raise NotImplementedError

    def after_step(self, step: Step, end_s: float) -> None:
        """The step is booked; its last token is out at `end_s`, now or a little later."""
        raise NotImplementedError

    def flush(self) -> None:
        """Send what is in the outbox."""
        raise NotImplementedError

    # -- the loop -----------------------------------------------------------------------------

    def send(self, message: m.ToWorker) -> None:
        """Called by the coordinator; never answers at once."""
        if self.is_dead:
            return
        self.inbox.append(message)
        self.wake()

    def wake(self) -> None:
        """Something has changed: decide anew, after the step that is under way."""
        if self._is_idle:
            self._is_idle = False
            self.agenda.soon(self._turn)
        elif self.row is not None and not self.row.is_cut:
            self._cut(self.row)

    def _cut(self, row: Row) -> None:
        """Only the step under way is still sure: what comes after it may differ now."""
        row.is_cut, step = True, row.step_at(self.agenda.now)
        if step < row.steps:
            row.steps = step
            self._due(row.end_s(step), self._row_done)

    def _due(self, time_s: float, act: Callable[[Any], None], what: Any = None) -> None:
        """Go on with this, and with nothing that was due before."""
        self._number += 1
        now = self.agenda.now
        due = (self._number, act, what)
        self.agenda.at(time_s if time_s > now else now, self._unless_void, due)

    def _unless_void(self, due: tuple[int, Callable[[Any], None], Any]) -> None:
        number, act, what = due
        if number == self._number and not self.is_dead:
            act(what)

    def _turn(self) -> None:
        """Read what has come, then decide; checking hand-offs may take time."""
        delay_s = 0.0
        while self.inbox and not self.is_dead:
            delay_s += self.handle(self.inbox.popleft())
        if delay_s > 0.0:
            self._tell_events()
            self.flush()
            self._due(self.agenda.now + delay_s, self._begin)
        elif not self.is_dead:
            self._begin()

    def _begin(self, _: Any = None) -> None:
        reserved = self.reserve()
        steps = steps_until_change(self.scheduler) if self.observer is not None else 0
        if steps:
            self._begin_row(steps)
        else:
            self._begin_step()
        self._tell_events()
        self.outbox += reserved
        if self.outbox:
            self.flush()

    def _tell_events(self) -> None:
        if self.scheduler.allocator.forgotten and (gone := forgotten_by(self.scheduler.allocator)):
            self.outbox.append(m.Forgotten(self.name, gone))
        events = self.scheduler.drain_events()
        if events:
            self.outbox.append(m.Happened(tuple(events)))

    def stop(self) -> None:
        """The worker is lost now; steps that had ended still count."""
        row, self.row, self.is_dead = self.row, None, True
        if row is not None and row.step_at(self.agenda.now) > 1:
            row.steps = row.step_at(self.agenda.now) - 1
            self._book(row)

    # -- decode steps in a row ----------------------------------------------------------------

    def _begin_row(self, steps: int) -> None:
        running = list(self.scheduler.running)
        context = sum([sequence.num_cached_tokens for sequence in running])
        line = self.timer.decode_line(len(running), context)
        if self.costs.step_s:
            line = Line(line.first_s + self.costs.step_s, line.growth_s, line.steps)
        if self.inbox:  # it came while hand-offs were being checked
            steps = 1
        steps = steps if steps < line.steps else line.steps
        self.row = row = Row(self.agenda.now, line, steps, running)
        self._due(row.end_s(steps), self._row_done)

    def _row_done(self, _: Any) -> None:
        row, self.row = self.row, None
        assert row is not None, "only the row under way can end"
        self._book(row)
        self._tell_events()
        self._turn()

    def _book(self, row: Row) -> None:
        assert self.observer is not None, "rows are taken where somebody counts them"
        self.observer.first_gaps(self.name, row.end_s(1), row.sequences)
        self.observer.row(self.name, row)
        write(self.scheduler, row.sequences, row.steps, self.agenda.now)

    # -- one step -----------------------------------------------------------------------------

    def _begin_step(self) -> None:
        step = self._decide()
        if step is None:
            self._is_idle = True
            return
        reads = isinstance(self.scheduler, PrefillOnly)
        occupied_s = step.seconds / self.timer.pipelined if reads else step.seconds
        self._due(self.agenda.now + occupied_s, self._step_done, step)

    def _decide(self) -> Step | None:
        """What the scheduler picks, and how long it takes."""
        now, writes = self.agenda.now, list[Sequence]()
        if self.observer is None:
            batch = self.scheduler.schedule(now)
        else:  # decodes beside prompts are booked without a chunk, an event and a token each
            picks = self.scheduler.pick(now)
            writes = [sequence for sequence, _ in picks if sequence.is_decoding]
            reads = [(s, count) for s, count in picks if s.is_prefilling]
            num_read = sum([count for _, count in reads])
            chunks = [_chunk_of(s, count) for s, count in reads]
            batch = Batch(chunks, now, num_read, len(writes)) if picks else None
        return Step(batch, writes, self._seconds(batch, writes)) if batch is not None else None

    def _seconds(self, batch: Batch, writes: list[Sequence]) -> float:
        reads: list[Read] = []
        num_writes, context = len(writes), sum([s.num_cached_tokens for s in writes])
        for chunk in batch.chunks:
            if self.scheduler.sequences[chunk.request_id].is_decoding:
                num_writes, context = num_writes + 1, context + chunk.start
            else:
                reads.append(Read(len(chunk.token_ids), chunk.start))
        seconds = self.timer.seconds(reads, num_writes, context) + self.costs.step_s
        blocks = self.scheduler.allocator
        if isinstance(blocks, SharedBlocks):
            seconds, blocks.loading_s = seconds + blocks.loading_s, 0.0
        return seconds + self.extra_s(batch)

    def _step_done(self, step: Step) -> None:
        batch, now = step.batch, self.agenda.now
        end_s = max(now, batch.start_s + step.seconds)  # later than now in a pipeline
        wanted = [c.request_id for c in batch.chunks if c.sampling is not None]
        self.scheduler.complete(batch, [UNKNOWN_TOKEN] * len(wanted), end_s)
        if self.observer is not None:
            if step.writes:
                self.observer.first_gaps(self.name, now, step.writes)
                write(self.scheduler, step.writes, 1, now)
            if not isinstance(self.scheduler, PrefillOnly):  # there, nobody stays to decode
                for request_id in wanted:
                    self.observer.joined(self.name, request_id)
        self.after_step(step, end_s)
        self._turn()


def _chunk_of(sequence: Sequence, count: int) -> Chunk:
    """As in the engine, but nobody looks at the tokens: only their number counts."""
    start = sequence.num_cached_tokens
    is_last = start + count == sequence.num_tokens
    sampling = sequence.request.sampling if is_last else None
    return Chunk(sequence.id, [UNKNOWN_TOKEN] * count, start, sequence.block_ids, sampling)
