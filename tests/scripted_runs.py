"""Timelines of three modes from a tiny scripted machine: no model, no clock, same every time.

Every worker takes 1.2 ms per prefill token and 30 ms + 0.5 ms per sequence for a decode step.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from minipd.measure.demo_trace import demo_trace
from minipd.measure.rows import TraceRow
from minipd.timeline import Event

CHUNK = 64


@dataclass
class Job:
    name: str
    row: TraceRow
    done_prompt: int = 0
    tokens: int = 0
    ready_s: float = 0.0


@dataclass
class Worker:
    name: str
    role: str
    now_s: float = 0.0
    waiting: deque[Job] = field(default_factory=deque)
    running: list[Job] = field(default_factory=list)
    chunked: bool = False


def scripted_run(mode: str, rows: list[TraceRow] | None = None) -> list[Event]:
    """Events of `colocated`, `chunked` or `disaggregated` on two workers."""
    rows = rows or demo_trace(seed=1, chats=10, documents=2, duration_s=8.0, chat_output_tokens=60)
    events: list[Event] = []
    jobs = [Job(f"{row.kind}-{n}", row) for n, row in enumerate(rows)]
    for job in jobs:
        data = {"prompt_tokens": job.row.prompt_tokens, "max_tokens": job.row.output_tokens}
        events.append(Event(job.row.arrival_s, "arrived", "", job.name, data))
    if mode == "disaggregated":
        prefill, decode = Worker("prefill-0", "prefill"), Worker("decode-0", "decode")
        prefill.waiting.extend(jobs)
        events += [_started(prefill), _started(decode)]
        arrivals = _run_prefill_pool(prefill, decode, events)
        decode.waiting.extend(sorted(arrivals, key=lambda job: job.ready_s))
        _run(decode, events)
        return events
    for number in range(2):
        worker = Worker(f"worker-{number}", "both", chunked=mode == "chunked")
        worker.waiting.extend(jobs[number::2])
        events.append(_started(worker))
        _run(worker, events)
    return events


def _started(worker: Worker) -> Event:
    return Event(0.0, "worker_started", worker.name, "", {"role": worker.role, "epoch": 1})


def _run_prefill_pool(prefill: Worker, decode: Worker, events: list[Event]) -> list[Job]:
    arrivals: list[Job] = []
    for job in prefill.waiting:
        start_s = max(prefill.now_s, job.row.arrival_s)
        events.append(Event(start_s, "reserved", decode.name, job.name, {"blocks": 4}))
        _prefill(prefill, job, start_s, events)
        kv_bytes, end_s = job.row.prompt_tokens * 46_080, prefill.now_s
        begin = Event(end_s - 0.01, "handoff_started", prefill.name, job.name)
        begin.data.update({"target": decode.name, "bytes": kv_bytes})
        done = Event(end_s + 0.002, "handoff_finished", prefill.name, job.name)
        done.data.update({"target": decode.name, "bytes": kv_bytes})
        done.data.update({"exposed_s": 0.002, "copy_s": 0.012})
        events += [begin, done]
        if job.tokens >= job.row.output_tokens:
            events.append(_finished(end_s, prefill.name, job))
            continue
        job.ready_s = end_s + 0.004
        data = {"bytes": kv_bytes, "verify_s": 0.002}
        events.append(Event(job.ready_s, "committed", decode.name, job.name, data))
        arrivals.append(job)
    return arrivals


def _prefill(worker: Worker, job: Job, start_s: float, events: list[Event]) -> None:
    tokens = job.row.prompt_tokens
    worker.now_s = start_s + 0.0012 * tokens
    data = {"tokens": tokens, "cached_tokens": 0, "reason": "prompt"}
    events.append(Event(start_s, "prefill_started", worker.name, job.name, data))
    events.append(_step(worker, start_s, tokens, 0))
    events.append(Event(worker.now_s, "prefill_finished", worker.name, job.name, data))
    job.done_prompt = tokens
    _token(worker, job, events)


def _step(worker: Worker, start_s: float, prefill_tokens: int, decode_seqs: int) -> Event:
    data = {"start_s": start_s, "prefill_tokens": prefill_tokens, "decode_seqs": decode_seqs}
    return Event(worker.now_s, "step", worker.name, "", data)


def _token(worker: Worker, job: Job, events: list[Event]) -> None:
    data = {"index": job.tokens, "token_id": 7}
    events.append(Event(worker.now_s, "token", worker.name, job.name, data))
    job.tokens += 1


def _finished(t_s: float, worker: str, job: Job) -> Event:
    return Event(
        t_s, "finished", worker, job.name, {"reason": "length", "output_tokens": job.tokens}
    )


def _run(worker: Worker, events: list[Event]) -> None:
    while worker.waiting or worker.running:
        ready = worker.waiting and _ready_s(worker.waiting[0]) <= worker.now_s
        if not ready and not worker.running:
            worker.now_s = _ready_s(worker.waiting[0])
        elif ready and worker.waiting[0].tokens:  # its KV came from elsewhere
            worker.running.append(worker.waiting.popleft())
        elif ready and not worker.chunked:
            job = worker.waiting.popleft()
            _prefill(worker, job, worker.now_s, events)
            worker.running.append(job)
        else:
            _decode(worker, CHUNK if ready else 0, events)
        for job in [job for job in worker.running if job.tokens >= job.row.output_tokens]:
            events.append(_finished(worker.now_s, worker.name, job))
            worker.running.remove(job)


def _ready_s(job: Job) -> float:
    return job.ready_s or job.row.arrival_s


def _decode(worker: Worker, budget: int, events: list[Event]) -> None:
    """One step: every running sequence gets a token, and a chunk of the first prompt runs along."""
    job = worker.waiting[0] if budget else None
    tokens = min(budget, job.row.prompt_tokens - job.done_prompt) if job else 0
    start_s, batch = worker.now_s, list(worker.running)
    data = {"tokens": job.row.prompt_tokens if job else 0, "cached_tokens": 0, "reason": "prompt"}
    if job and not job.done_prompt:
        events.append(Event(start_s, "prefill_started", worker.name, job.name, data))
    worker.now_s += 0.0012 * tokens + (0.030 + 0.0005 * len(batch) if batch else 0.0)
    events.append(_step(worker, start_s, tokens, len(batch)))
    for other in batch:
        _token(worker, other, events)
    if job:
        job.done_prompt += tokens
        if job.done_prompt == job.row.prompt_tokens:
            events.append(Event(worker.now_s, "prefill_finished", worker.name, job.name, data))
            _token(worker, job, events)
            worker.running.append(worker.waiting.popleft())
