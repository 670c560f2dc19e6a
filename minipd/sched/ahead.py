"""Several decode steps at once: how many are sure to be alike, and taking them.

Between two changes a worker's decode steps have the same members, each step one token longer. A
scheduler can say how many such steps lie ahead; a simulator then skips to their end. What is
decided is the same as step by step (a test replays both). Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Sequence as Items

from minipd.request import Sequence
from minipd.sched.base import Scheduler
from minipd.sched.colocated import DecodeFirst

UNKNOWN_TOKEN = 0  # stands for tokens that nobody computes


def steps_until_change(scheduler: Scheduler) -> int:
    """How many of the next steps decode all of `running`, all alike, if no message comes before.

    The last of them may end sequences. 0 where the next step reads a prompt, preempts or does not
    come at all: then ask `schedule`. Where an answer's end cannot be foreseen, at most 1.
    """
    running = scheduler.running
    steps = _until_one_ends(scheduler)
    if not steps:
        return 0
    reads_first = bool(scheduler.waiting) and not isinstance(scheduler, DecodeFirst)
    if reads_first and scheduler.can_admit(scheduler.waiting[0]):
        return 0
    size = scheduler.allocator.block_size
    if len(running) * (steps // size + 1) <= scheduler.allocator.num_free_blocks:
        return steps  # the usual case, without counting
    return _that_fit(scheduler, steps)


def _until_one_ends(scheduler: Scheduler) -> int:
    """Steps to the first end; 0 where nothing decodes or a prompt is being read.

    An end-of-text token cannot be foreseen, and a deadline is a matter of time, not of steps.
    """
    steps, is_sure = 0, scheduler.finish_check is None
    for sequence in scheduler.running:
        if sequence.is_prefilling:
            return 0
        request = sequence.request
        left = request.sampling.max_tokens - len(sequence.output_ids)
        steps = left if not steps or left < steps else steps
        if scheduler.eos_ids and not request.sampling.ignore_eos:
            is_sure = False
        if request.deadline_s is not None:
            is_sure = False
    return steps if is_sure else min(steps, 1)


def _that_fit(scheduler: Scheduler, steps: int) -> int:
    """The most steps up to `steps` for which there are blocks enough; nobody need give way."""
    free, size = scheduler.allocator.num_free_blocks, scheduler.allocator.block_size
    while steps > 0 and _blocks_missing(scheduler, steps) > free:
        steps -= max(1, min(steps // 2, size))
    return steps


def _blocks_missing(scheduler: Scheduler, steps: int) -> int:
    """A step runs the last token of each sequence, so n steps store n tokens: n - 1 are new."""
    size = scheduler.allocator.block_size
    return sum(
        max(0, -(-(s.num_tokens + steps - 1) // size) - len(s.block_ids)) for s in scheduler.running
    )


def write(scheduler: Scheduler, sequences: Items[Sequence], steps: int, now: float) -> None:
    """Book `steps` steps in which `sequences` decoded, ended at `now`: no events but terminal ones.

    Blocks are taken as they are needed; `steps` must be within `steps_until_change`, or 1 after the
    scheduler has picked these sequences.
    """
    allocator, tokens = scheduler.allocator, [UNKNOWN_TOKEN] * steps
    size, sequences = allocator.block_size, list(sequences)
    for sequence in sequences:  # all take blocks before anyone's are given back
        cached = sequence.num_cached_tokens + steps
        if cached > len(sequence.block_ids) * size:
            allocator.grow(sequence, cached)
    for sequence in sequences:
        before = sequence.num_cached_tokens
        sequence.num_cached_tokens = before + steps
        if (before + steps) // size > before // size:
            allocator.publish(sequence)
        sequence.output_ids += tokens
        if len(sequence.output_ids) >= sequence.request.sampling.max_tokens:
            scheduler.finish(sequence, "length", now)
