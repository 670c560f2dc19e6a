"""Each rule, on loads made by hand."""

from __future__ import annotations

import pytest

from minipd.sched.router import (
    AlwaysRemote,
    CostBased,
    LengthAware,
    NeverRemote,
    RoundRobin,
    Route,
    Router,
    Threshold,
    WorkerLoad,
)


def pool(prefix: str, *loads: tuple[int, int, int]) -> list[WorkerLoad]:
    return [WorkerLoad(f"{prefix}{n}", *load) for n, load in enumerate(loads)]


IDLE = (0, 0, 0)


def test_the_choice_follows_from_the_reader() -> None:
    assert Route("d", None, "").choice == "local" and Route("d", "p", "").choice == "remote"


def test_always_remote_joins_the_shortest_queue_and_the_emptiest_batch() -> None:
    prefill = pool("p", (500, 1, 0), (120, 3, 0), (121, 1, 0))
    decode = pool("d", (0, 0, 4), (0, 0, 2), (0, 0, 3))
    assert AlwaysRemote().route(1, prefill, decode) == Route("d1", "p1", "always remote")


def test_never_remote_reads_where_least_is_unread() -> None:
    decode = pool("d", (90, 1, 0), (10, 1, 9))
    assert NeverRemote().route(1, [], decode) == Route("d1", None, "never remote")


def test_round_robin_takes_turns() -> None:
    router, decode = RoundRobin(), pool("d", IDLE, IDLE, IDLE)
    names = [router.route(1, [], decode).decode for _ in range(5)]
    assert names == ["d0", "d1", "d2", "d0", "d1"]
    assert router.route(1, [], decode[:1]).decode == "d0"  # also when the others have gone


def test_length_aware_keeps_long_prompts_apart() -> None:
    router, decode = LengthAware(long_tokens=100), pool("d", IDLE, IDLE, IDLE)
    where = [router.route(n, [], decode).decode for n in (99, 100, 5, 1000, 7)]
    assert where == ["d0", "d2", "d1", "d2", "d0"]
    assert router.route(5, [], decode[:1]).decode == "d0"


@pytest.mark.parametrize(
    ("tokens", "waiting", "choice"),
    [(1000, 0, "local"), (1001, 0, "remote"), (1001, 1, "remote"), (1001, 2, "local")],
)
def test_threshold_at_its_edges(tokens: int, waiting: int, choice: str) -> None:
    route = Threshold().route(tokens, pool("p", (7, waiting, 0)), pool("d", IDLE))
    assert route.choice == choice and str(waiting if waiting == 2 else tokens) in route.reason


COSTS = CostBased(prefill_tokens_per_s=1000.0, kv_bytes_per_token=1000, exposed_share=0.0)


@pytest.mark.parametrize(
    ("running", "queued", "choice"),
    [
        (0, 0, "local"),  # both cost the prefill alone: nothing is gained by sending
        (1, 0, "remote"),  # somebody's answer would stall
        (1, 499, "remote"),  # 0.999 s against 1 s
        (1, 500, "local"),
        (3, 500, "remote"),  # a second of waiting against two
    ],
)
def test_cost_weighs_stalls_against_the_queue(running: int, queued: int, choice: str) -> None:
    route = COSTS.route(500, pool("p", (queued, 1, 0)), pool("d", (0, 0, running)))
    assert route.choice == choice


def test_cost_of_the_link() -> None:
    """500 tokens: 0.5 s to read. A link of 2 s for their KV is worse than two stalled answers."""
    slow = CostBased(1000.0, 1000, link_bytes_per_s=250e3, exposed_share=0.0)
    late = CostBased(1000.0, 1000, link_latency_s=1.1, exposed_share=0.0)
    seen = CostBased(1000.0, 1000, link_bytes_per_s=1e6, exposed_share=1.0)
    prefill = pool("p", IDLE)
    for router, running in ((slow, 3), (late, 2), (seen, 1)):
        assert router.route(500, prefill, pool("d", (0, 0, running))).choice == "local"
        assert router.route(500, prefill, pool("d", (0, 0, running + 1))).choice == "remote"


@pytest.mark.parametrize(
    "router",
    [AlwaysRemote(), Threshold(), NeverRemote(), RoundRobin(), LengthAware(), COSTS],
    ids=repr,
)
def test_a_route_names_workers_that_there_are(router: Router) -> None:
    prefill, decode = pool("p", IDLE, (9, 1, 0)), pool("d", (5, 1, 2), IDLE)
    for tokens in (1, 100, 5000):
        route = router.route(tokens, prefill, decode)
        assert route.decode in {"d0", "d1"} and route.prefill in {None, "p0", "p1"}
        assert route.reason
