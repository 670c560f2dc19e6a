"""Workers that fail and change sides, and fleets, traces and networks that make no sense."""

from __future__ import annotations

from typing import Any

import pytest

from minipd.fleet.failures import Failure, FailureError, random_failures
from minipd.fleet.fleet import FleetError, Mode, WorkerKind
from minipd.fleet.network import Network, NetworkError
from minipd.fleet.simulate import simulate
from minipd.measure.rows import TraceRow
from minipd.measure.slo import SLO, SLOError
from minipd.pools.controller import Controller
from minipd.sched.rebalance import Rebalancer
from minipd.sched.router import Threshold
from minipd.timeline import Event
from tests.fleet.simulated import MODES, TIMER, fleet, rows


@pytest.mark.parametrize("mode", MODES)
def test_a_failure_costs_time_and_no_answer(mode: Mode) -> None:
    events: list[Event] = []
    result = simulate(
        fleet(mode), rows(), failures=[Failure(3, 25.0, 27.0)], on_event=events.append
    )
    assert result.summary.finished == 120
    died = [event for event in events if event.kind == "worker_died"]
    assert [(event.t_s, event.worker) for event in died] == [(25.0, "worker-3")]
    again = [e for e in events if e.kind == "worker_started" and e.worker == "worker-3"]
    assert [event.t_s for event in again] == [0.0, 27.0]
    recovered = [e for e in events if e.data.get("reason") == "recovered"]
    assert recovered, "what it was writing is read again elsewhere"


def test_without_a_decode_worker_requests_fail() -> None:
    lost = [Failure(n, 3.0) for n in (2, 3)]
    result = simulate(fleet(), rows(), failures=lost)
    assert result.summary.failed > 0
    assert result.summary.finished + result.summary.failed == 120


def test_random_failures_depend_on_the_seed_alone() -> None:
    made = random_failures(4, 50.0, 10.0, 500.0, seed=7)
    assert made == random_failures(4, 50.0, 10.0, 500.0, seed=7)
    assert made != random_failures(4, 50.0, 10.0, 500.0, seed=8)
    up_s = 4 * 500.0 - 10.0 * len(made)
    assert up_s / len(made) == pytest.approx(50.0, rel=0.5)


@pytest.mark.parametrize(
    "failure", [Failure(9, 1.0), Failure(0, -1.0), Failure(0, 2.0, 1.0), Failure(0, float("nan"))]
)
def test_failures_that_cannot_be(failure: Failure) -> None:
    with pytest.raises(FailureError):
        simulate(fleet(), rows(), failures=[failure])


def test_a_worker_changes_sides_when_prompts_pile_up() -> None:
    """Long prompts, short answers: one prefill worker of four is too few."""
    made = fleet(num_prefill=1, num_decode=3, network=Network())
    crowd = [TraceRow(0.12 * n, 900, 4) for n in range(200)]
    slo = SLO(ttft_s=0.5, tpot_s=0.1)
    controller = Controller(Rebalancer(0.5, 0.1))
    fixed = simulate(made, crowd, slo=slo).summary
    moving = simulate(made, crowd, slo=slo, controller=controller).summary
    assert controller.moves and controller.moves[0].role == "prefill"
    assert moving.finished == fixed.finished == 200
    assert (moving.attainment or 0) > (fixed.attainment or 0) + 0.2


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_prefill": 0}, "at least 1 prefill"),
        ({"mode": "colocated", "num_prefill": 0, "num_decode": 0}, "at least 1 worker"),
        ({"block_size": 0}, "at least 1 token"),
        ({"decode": WorkerKind(TIMER, 3)}, "not one block"),
        ({"mode": "chunked", "router": Threshold}, "needs a prefill pool"),
    ],
)
def test_fleets_that_cannot_serve(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(FleetError, match=says):
        simulate(fleet(**changes), rows())


def test_rows_that_cannot_be_served() -> None:
    with pytest.raises(FleetError, match="there are none"):
        simulate(fleet(), [])
    for late in (0.5, float("nan"), float("inf")):
        with pytest.raises(FleetError, match="order of arrival"):
            simulate(fleet(), [TraceRow(1.0, 10, 5), TraceRow(late, 10, 5)])
    one = simulate(fleet(), [TraceRow(3.0, 10, 1)]).summary
    assert one.finished == 1 and one.latency["tpot_s"] is None


def test_networks_that_carry_nothing() -> None:
    for bad in ((-1.0, 1.0, 1.0), (0.0, 0.0, 1.0), (0.0, 1.0, -1.0), (float("nan"), 1.0, 1.0)):
        with pytest.raises(NetworkError):
            Network(*bad)
    with pytest.raises(SLOError):
        simulate(fleet(), rows(), slo=SLO(itl_p99_s=0.1))
