"""`steps_until_change` promises only what is sure; the simulator needs no package but Python."""

from __future__ import annotations

import subprocess
import sys

import pytest

from minipd.cache.allocator import BlockAllocator
from minipd.fleet.kvpool import CountedBlocks
from minipd.request import Request, SamplingParams
from minipd.sched.ahead import steps_until_change, write
from minipd.sched.base import Scheduler
from minipd.sched.colocated import Chunked, DecodeFirst, PrefillFirst
from minipd.sched.limits import Limits
from minipd.timeline import Event


def decoding(
    policy: type[Scheduler] = PrefillFirst,
    blocks: int = 100,
    outputs: tuple[int, ...] = (9, 5),
    eos_ids: frozenset[int] = frozenset(),
    deadline_s: float | None = None,
) -> Scheduler:
    """Prompts of 6 tokens that have all been read, blocks of 4."""
    limits = Limits(len(outputs), 1000)
    scheduler = policy("w", BlockAllocator(blocks, 4, prefix_reuse=False), limits, eos_ids)
    for n, most in enumerate(outputs):
        request = Request(f"r{n}", (1,) * 6, SamplingParams(most), deadline_s=deadline_s)
        scheduler.add(request, 0.0)
    batch = scheduler.schedule(0.0)
    assert batch is not None
    scheduler.complete(batch, [3] * len(outputs), 1.0)
    return scheduler


def test_until_the_first_answer_ends() -> None:
    assert steps_until_change(decoding()) == 4  # one of its 5 tokens is out


def test_nothing_is_promised_where_a_prompt_comes_next() -> None:
    scheduler = decoding()
    assert steps_until_change(PrefillFirst("w", BlockAllocator(9, 4))) == 0
    scheduler.add(Request("new", (1,) * 6), 2.0)
    assert steps_until_change(scheduler) == 4  # no place for it: both are taken
    scheduler.limits = Limits(3, 1000)
    assert steps_until_change(scheduler) == 0


@pytest.mark.parametrize(("policy", "steps"), [(Chunked, 0), (DecodeFirst, 4)])
def test_policies_differ_when_something_waits(policy: type[Scheduler], steps: int) -> None:
    scheduler = decoding(policy)
    scheduler.limits = Limits(3, 1000)
    scheduler.add(Request("new", (1,) * 6), 2.0)
    assert steps_until_change(scheduler) == steps


def test_ends_that_cannot_be_foreseen() -> None:
    assert steps_until_change(decoding(eos_ids=frozenset({7}))) == 1
    assert steps_until_change(decoding(deadline_s=99.0)) == 1


@pytest.mark.parametrize("blocks", range(5, 12))
def test_no_promise_beyond_the_blocks(blocks: int) -> None:
    """As many steps as really run before someone has to give way or ends."""
    promised = steps_until_change(decoding(blocks=blocks, outputs=(30, 30)))
    scheduler, taken = decoding(blocks=blocks, outputs=(30, 30)), 0
    events: list[Event] = scheduler.drain_events()
    while taken < 29:
        batch = scheduler.schedule(2.0)
        assert batch is not None
        events += scheduler.drain_events()
        if any(event.kind == "preempted" for event in events):
            break
        scheduler.complete(batch, [3] * 2, 2.0)
        taken += 1
    assert taken - 3 <= promised <= taken  # the search may stop a little early, never late


def test_writing_is_what_steps_would_do() -> None:
    fast, slow = decoding(), decoding()
    steps = steps_until_change(fast)
    write(fast, fast.running, steps, 5.0)
    for _ in range(steps):
        batch = slow.schedule(5.0)
        assert batch is not None
        slow.complete(batch, [0] * len(batch.chunks), 5.0)
    for scheduler in (fast, slow):
        assert [s.id for s in scheduler.running] == ["r0"]
    a, b = fast.running[0], slow.running[0]
    assert (a.num_cached_tokens, len(a.output_ids)) == (b.num_cached_tokens, len(b.output_ids))
    assert fast.allocator.num_used_blocks == slow.allocator.num_used_blocks
    assert [e.kind for e in fast.drain_events()][-1] == "finished"


def test_counted_blocks_answer_as_the_engines() -> None:
    """Admit, grow and release at random: the same numbers, and the same refusals."""
    from random import Random

    from minipd.request import Sequence

    rng = Random(5)
    pools = (BlockAllocator(20, 4, prefix_reuse=False), CountedBlocks(20, 4))
    held: list[tuple[Sequence, Sequence]] = []
    for n in range(400):
        request = Request(f"r{n}", (1,) * rng.randint(1, 30))
        pair = (Sequence(request), Sequence(request))
        can = [pool.can_admit(s) for pool, s in zip(pools, pair, strict=True)]
        assert can[0] == can[1]
        if can[0]:
            for pool, sequence in zip(pools, pair, strict=True):
                pool.admit(sequence)
            held.append(pair)
        if held and rng.random() < 0.6:
            for pool, sequence in zip(pools, held.pop(rng.randrange(len(held))), strict=True):
                pool.release(sequence)
        assert pools[0].num_free_blocks == pools[1].num_free_blocks


SCRIPT = """
import sys

class Only:
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top != "minipd" and top not in sys.stdlib_module_names:
            raise ImportError(f"{name} is not of the standard library")

sys.meta_path.insert(0, Only())
import minipd.fleet.simulate, minipd.fleet.sources, minipd.fleet.simulate_fleet
import minipd.fleet.distserve
"""


def test_the_standard_library_is_enough() -> None:
    """So that it runs in a browser."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
