"""Prefix-aware routing in the simulator: the engine's own router, fed by simulated workers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minipd.fleet.failures import Failure
from minipd.fleet.fleet import Mode
from minipd.fleet.simulate import Simulation, simulate
from minipd.measure.rows import Segment, TraceRow
from minipd.measure.summary import RunSummary
from minipd.sched.prefix_router import PrefixAware
from minipd.sched.router import RoundRobin, Router
from minipd.timeline import Event
from tests.fleet.simulated import fleet

TURNS, PEOPLE = 6, 10
GAP_S = 0.02  # several are read at once, so that no worker can take all


def rows() -> list[TraceRow]:
    """Ten people who talk in turn: each prompt is the one before and 96 tokens more."""
    found: list[TraceRow] = []
    for number in range(TURNS):
        for person in range(PEOPLE):
            said = tuple(Segment(f"{person}.{n}", 96) for n in range(number + 1))
            arrival_s = GAP_S * len(found)
            found.append(TraceRow(arrival_s, 96 * (number + 1) + 10, 8, "chat", said))
    return found


def read(summary: RunSummary) -> int:
    """Prompt tokens that were computed on all workers together."""
    return sum(worker.prefill_tokens for worker in summary.workers)


def served(router: Callable[[], Router], mode: Mode = "colocated", **more: object) -> RunSummary:
    made = fleet(mode, prefix_reuse=True, router=router, **more)
    result = simulate(made, rows())
    assert not result.leaked_blocks and result.summary.finished == TURNS * PEOPLE
    return result.summary


def test_turns_of_a_conversation_find_their_beginning() -> None:
    anywhere, holder = served(RoundRobin), served(PrefixAware)
    assert read(holder) < 0.8 * read(anywhere)


def test_readers_of_a_split_are_chosen_alike() -> None:
    alone = fleet("disaggregated", prefix_reuse=True)
    anywhere = simulate(alone, rows()).summary
    assert read(served(PrefixAware, "disaggregated")) < 0.9 * read(anywhere)


@pytest.mark.parametrize("mode", ["colocated", "chunked", "disaggregated"])
def test_steps_taken_at_once_change_no_choice(mode: Mode) -> None:
    """Whether workers tell every event or only some, the router hears the same of them."""
    found: list[tuple[float, int, int]] = []
    for skip_ahead in (False, True):
        made = fleet(mode, 6_000, prefix_reuse=True, router=PrefixAware)
        summary = Simulation(made, skip_ahead=skip_ahead).run(rows()).summary
        found.append((round(summary.duration_s, 6), read(summary), summary.finished))
    assert found[0] == found[1]


def test_a_small_cache_tells_what_it_forgets() -> None:
    """The map holds what the workers hold, no more: a name that was pushed out is not believed."""
    router = PrefixAware()
    made = fleet("colocated", 3_000, prefix_reuse=True, router=lambda: router)
    simulation = Simulation(made)
    simulation.run(rows())
    allocators = {name: w.scheduler.allocator for name, w in simulation.workers.items()}
    believed = [(a, x) for name, a in allocators.items() for x in router.known.names(name)]
    assert believed and all(allocator.holds(name) for allocator, name in believed)
    assert len(believed) < 2 * PEOPLE * TURNS * 6, "some was forgotten"


def test_a_lost_holder_is_forgotten() -> None:
    events: list[Event] = []
    made = fleet("colocated", prefix_reuse=True, router=PrefixAware)
    lost = [Failure(0, 0.4, 0.8)]
    result = simulate(made, rows(), failures=lost, on_event=events.append)
    assert result.summary.finished == TURNS * PEOPLE and not result.leaked_blocks
    later = [e for e in events if e.kind == "routed" and 0.41 < e.t_s < 0.8]
    assert later and all(e.worker != "worker-0" for e in later)


def test_without_reuse_it_goes_by_load_alone() -> None:
    made = fleet("colocated", router=PrefixAware)
    events: list[Event] = []
    simulate(made, rows(), on_event=events.append)
    reasons = {str(e.data["reason"]) for e in events if e.kind == "routed"}
    assert reasons == {"nobody holds its beginning: least work"}
