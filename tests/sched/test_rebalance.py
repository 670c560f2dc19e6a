"""The policy of live re-balancing: whom it finds short, when it acts, and that it is steady."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from minipd.sched.rebalance import Move, Observation, RebalanceError, Rebalancer
from minipd.sched.router import WorkerLoad


def pool(*running: int) -> list[WorkerLoad]:
    return [WorkerLoad(f"w{n}", num_running=count) for n, count in enumerate(running)]


def readers(*tokens: int) -> list[WorkerLoad]:
    return [WorkerLoad(f"r{n}", queued_prefill_tokens=count) for n, count in enumerate(tokens)]


CALM = Observation(0.0, readers(0, 0), pool(3, 1, 2), 0.5, 0.05, 0.3)
PREFILL_SHORT = replace(CALM, ttft_s=2.0, waiting_for_reader=5, prefill_busy=1.0)
TPOT_LATE = replace(CALM, tpot_s=0.2)
NO_PLACE = replace(CALM, ttft_s=2.0, waiting_for_place=4, prefill_busy=0.2)


def policy(**changes: object) -> Rebalancer:
    return Rebalancer(**({"ttft_s": 1.0, "tpot_s": 0.1, "confirm": 1} | changes))  # type: ignore[arg-type]


def test_a_calm_cluster_stays_as_it_is() -> None:
    assert policy().decide(CALM) is None
    assert policy().decide(replace(CALM, ttft_s=None, tpot_s=None)) is None


@pytest.mark.parametrize(
    ("seen", "worker", "role"),
    [
        (PREFILL_SHORT, "w1", "prefill"),  # the decode worker with least to finish
        (TPOT_LATE, "r1", "decode"),
        (NO_PLACE, "r1", "decode"),  # late first tokens, and yet it is decode that is short
    ],
)
def test_who_is_short_and_who_gives(seen: Observation, worker: str, role: str) -> None:
    move = policy().decide(replace(seen, prefill=readers(90, 7)))
    assert move == Move(worker, role, move.reason)  # type: ignore[union-attr,arg-type]
    assert move.reason.startswith(f"{role} is short: TTFT")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "seen",
    [
        replace(PREFILL_SHORT, decode=pool(1)),  # the last of its role
        replace(TPOT_LATE, prefill=readers(0)),
        replace(PREFILL_SHORT, tpot_s=0.12),  # both are short
        replace(PREFILL_SHORT, tpot_s=0.08),  # decode would be, with one worker less
        replace(TPOT_LATE, prefill_busy=0.6),  # prefill would be
        replace(TPOT_LATE, waiting_for_reader=2),
        replace(PREFILL_SHORT, waiting_for_reader=0),  # late, but nobody waits any more
    ],
)
def test_no_move_that_would_not_help(seen: Observation) -> None:
    assert policy().decide(seen) is None


def test_what_grows_with_the_batch_decides_whether_decode_can_spare_a_worker() -> None:
    seen = replace(PREFILL_SHORT, tpot_s=0.08)
    assert policy(decode_growth=0.1).decide(seen) is not None
    assert policy(decode_growth=1.0).decide(replace(seen, tpot_s=0.05)) is not None
    assert policy(decode_growth=1.0).decide(replace(seen, tpot_s=0.07)) is None


def test_a_need_must_be_confirmed_in_a_row() -> None:
    asked = policy(confirm=3)
    looks = [PREFILL_SHORT, PREFILL_SHORT, CALM, PREFILL_SHORT, TPOT_LATE, PREFILL_SHORT]
    assert [asked.decide(seen) for seen in looks] == [None] * 6
    assert asked.decide(PREFILL_SHORT) is None and asked.decide(PREFILL_SHORT) is not None


def test_after_a_move_it_waits() -> None:
    asked = policy(cooldown_s=5.0)
    assert asked.decide(replace(PREFILL_SHORT, now_s=100.0)) is not None
    for now_s in (100.5, 102.0, 104.9):
        assert asked.decide(replace(TPOT_LATE, now_s=now_s)) is None
    move = asked.decide(replace(TPOT_LATE, now_s=105.0))
    assert move is not None and move.role == "decode"


def test_a_load_at_the_limit_does_not_send_workers_to_and_fro() -> None:
    """TTFT and TPOT that jump about their limits at random, for ten minutes of two looks a second.

    Each move makes the pool that gave a little slower, as in life."""
    rng, asked = random.Random(0), policy(confirm=3)
    sizes, moves = {"prefill": 3, "decode": 3}, 0
    for look in range(1200):
        late = rng.gauss(1.0, 0.05)
        seen = Observation(
            look * 0.5,
            readers(*[0] * sizes["prefill"]),
            pool(*[2] * sizes["decode"]),
            ttft_s=late * 3 / sizes["prefill"],
            tpot_s=0.1 * rng.gauss(1.0, 0.05) * 3 / sizes["decode"],
            prefill_busy=min(1.0, 0.7 * 3 / sizes["prefill"]),
            waiting_for_reader=2 if late > 1.0 else 0,
        )
        move = asked.decide(seen)
        if move is not None:
            moves += 1
            sizes[move.role] += 1
            sizes["decode" if move.role == "prefill" else "prefill"] -= 1
    assert moves <= 2 and min(sizes.values()) >= 1


@pytest.mark.parametrize("seed", range(20))
def test_the_last_worker_of_a_role_never_moves(seed: int) -> None:
    rng, asked = random.Random(seed), policy(cooldown_s=0.0, spare=1.0)
    sizes = {"prefill": rng.randint(1, 3), "decode": rng.randint(1, 3)}
    for look in range(300):
        seen = Observation(
            float(look),
            readers(*[rng.randrange(99) for _ in range(sizes["prefill"])]),
            pool(*[rng.randrange(9) for _ in range(sizes["decode"])]),
            rng.choice([None, 0.5, 3.0]),
            rng.choice([None, 0.02, 0.3]),
            rng.random(),
            rng.randrange(5),
            rng.randrange(5),
        )
        move = asked.decide(seen)
        if move is not None:
            giver = "decode" if move.role == "prefill" else "prefill"
            assert move.worker in {x.name for x in getattr(seen, giver)}
            sizes[move.role], sizes[giver] = sizes[move.role] + 1, sizes[giver] - 1
        assert min(sizes.values()) >= 1


@pytest.mark.parametrize(
    "changes", [{"ttft_s": 0.0}, {"tpot_s": -1.0}, {"confirm": 0}, {"spare": 0.0}, {"spare": 1.1}]
)
def test_settings_that_mean_nothing(changes: dict[str, object]) -> None:
    with pytest.raises(RebalanceError, match="limits for TTFT and TPOT above 0"):
        policy(**changes)
