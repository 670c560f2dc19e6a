"""What scheduling and messages cost per decode step of 16 sequences, as a share of the step.

    python benchmarks/overhead.py --out benchmarks/overhead.json

Timed are the scheduler's two calls, the report of a step through a pipe (pickled, sent, received
and unpickled), the coordinator's reading of it, and the step itself: one of the model, with 16
sequences of the given context on one thread. Each step takes all five in turn, so that a busy
moment hits them alike. The medians are printed; raw samples are kept.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch

from minipd.cache.allocator import BlockAllocator
from minipd.engine.batch import Batch
from minipd.engine.executor import Executor
from minipd.model.load import load
from minipd.pools import messages as m
from minipd.pools.coordinator import Coordinator
from minipd.pools.tickets import Member
from minipd.request import Request, SamplingParams
from minipd.sched.limits import Limits
from minipd.sched.router import NeverRemote
from minipd.sched.split import DecodeOnly

BLOCK_SIZE = 16
Result = TypeVar("Result")


class Decoding:
    """A decode worker's scheduler in the middle of its work, and a coordinator that listens."""

    def __init__(self, num_seqs: int, context: int, steps: int) -> None:
        num_blocks = num_seqs * (-(-(context + steps + 1) // BLOCK_SIZE) + 1)
        limits = Limits(max_running=num_seqs, max_batch_tokens=num_seqs * context)
        self.num_blocks = num_blocks
        self.scheduler = DecodeOnly("worker-1", BlockAllocator(num_blocks, BLOCK_SIZE), limits)
        self.coordinator = Coordinator(NeverRemote(), time.monotonic, lambda event: None)
        self.coordinator.admit_member(Member("worker-1", 0, "both", lambda message: None))
        self.coordinator.member_ready("worker-1")
        params = SamplingParams(steps + 1, ignore_eos=True)
        for n in range(num_seqs):
            request = Request(f"request-{n}", tuple(range(n + 1, n + context + 1)), params)
            self.coordinator.submit(request)
            self.scheduler.request_reservation(request)
        for sequence in self.scheduler.reserve_pending(0.0):
            self.scheduler.commit(sequence.id, 5)

    def schedule(self) -> Batch:
        batch = self.scheduler.schedule(time.monotonic())
        assert batch is not None, "all sequences are in the middle of their answers"
        return batch


def timed(samples: list[float], action: Callable[[], Result]) -> Result:
    began = time.perf_counter()
    result = action()
    samples.append(time.perf_counter() - began)
    return result


def measure(model_name: str, num_seqs: int, context: int, steps: int) -> dict[str, list[float]]:
    """Seconds of each part, one sample per step."""
    torch.set_num_threads(1)
    decoding = Decoding(num_seqs, context, steps)
    executor = Executor(load(model_name), decoding.num_blocks, BLOCK_SIZE)
    ours, theirs = multiprocessing.Pipe()
    found: dict[str, list[float]] = {
        part: [] for part in ("schedule", "step", "complete", "message", "coordinator")
    }
    for _ in range(steps):
        batch = timed(found["schedule"], decoding.schedule)
        tokens = timed(found["step"], partial(executor.run, batch.chunks))
        now = time.monotonic()
        timed(found["complete"], partial(decoding.scheduler.complete, batch, tokens, now))
        told = m.Happened(tuple(decoding.scheduler.drain_events()))

        def send_and_receive(told: m.Happened = told) -> m.FromWorker:
            ours.send(told)
            return theirs.recv()

        heard = timed(found["message"], send_and_receive)
        timed(found["coordinator"], partial(decoding.coordinator.handle, heard))
    return found


def summary(samples: dict[str, list[float]]) -> dict[str, float]:
    """Medians in microseconds. The worker's share is what a step waits for; the coordinator works
    in another process, and where it has a core of its own nothing waits for it."""
    medians = {part: statistics.median(values) * 1e6 for part, values in samples.items()}
    worker = medians["schedule"] + medians["complete"] + medians["message"]
    total = worker + medians["coordinator"]
    return {f"{part}_us": value for part, value in medians.items()} | {
        "worker_share": worker / medians["step"],
        "total_share": total / medians["step"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--seqs", type=int, default=16)
    parser.add_argument("--context", type=int, default=128, help="tokens per sequence at first")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", type=Path, help="raw samples and summary as JSON")
    args = parser.parse_args()
    samples = measure(args.model, args.seqs, args.context, args.steps)
    result = summary(samples)
    for name, value in result.items():
        print(f"{name:16} {value:10.2%}" if "share" in name else f"{name:16} {value:10.1f}")
    if args.out is not None:
        about = {"model": args.model, "seqs": args.seqs, "context": args.context}
        machine = {
            "machine": platform.processor() or platform.machine(),
            "torch": torch.__version__,
        }
        args.out.write_text(
            json.dumps(about | machine | {"summary": result, "samples_s": samples}) + "\n"
        )


if __name__ == "__main__":
    main()
