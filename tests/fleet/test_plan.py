"""The planner: figures worked out by hand, what must hold for any load, and bad input."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minipd.fleet.calibrate import factors_for
from minipd.fleet.configs import find_model
from minipd.fleet.costs import costs_of
from minipd.fleet.gpus import find_device
from minipd.fleet.pareto import Point, front
from minipd.fleet.plan_command import Asked, answer, duration
from minipd.fleet.plan_pools import both_pool, decode_pool, prefill_pool
from minipd.fleet.plan_queue import pool_wait
from minipd.fleet.plan_report import to_dict
from minipd.fleet.plan_search import Plan, Terms, handoff_of, named_link, split_plans
from minipd.fleet.plan_sizing import fewest
from minipd.fleet.plan_space import Speeds, Workload, build_speeds, smallest_root
from minipd.fleet.planner import all_plans
from minipd.fleet.queueing import OverloadError, single_ttft_s
from minipd.fleet.steps import StepModel
from minipd.fleet.work import Chunk, Parallel

CHAT = Asked("Llama-3.1-8B", "L40S", 1000, 250, "1", "50ms", 10.0)
H100, LLAMA = find_device("H100"), find_model("Llama-3.1-8B")


class ByHand(StepModel):
    """Prompts take 0.1 s each, a decode step 10 ms and 1 ms per sequence, mixed steps both."""

    def step(self, chunks: list[Chunk]) -> object:  # type: ignore[override]
        reads = sum(c.count for c in chunks if c.new > 1)
        writes = sum(c.count for c in chunks if c.new == 1)
        seconds = 0.1 * reads + (0.010 + 0.001 * writes if writes else 0.0)
        return type("Time", (), {"seconds": seconds})()


def by_hand(rate: float, ttft_s: float = 1.0, tpot_s: float = 0.05, osl: int = 101) -> Speeds:
    work = Workload(3000, osl, rate, ttft_s, tpot_s)
    steps = ByHand(LLAMA, H100, factors_for(H100), Parallel())
    return Speeds(steps, work, kv_tokens=1_000_000)


def costs(work: Workload, gpu: str = "L40S", model: str = "Llama-3.1-8B") -> float:
    device = find_device(gpu)
    terms = Terms(device)
    speeds = build_speeds(find_model(model), device, factors_for(device), work, terms.most_gpus)
    return min((p.usd_per_hour for p in all_plans(speeds, terms)), default=math.inf)


# -- by hand ------------------------------------------------------------------------------------


def test_one_prefill_worker_is_the_md1_queue() -> None:
    pool = prefill_pool(by_hand(rate=5.0), 1)
    assert pool.load == pytest.approx(0.5)
    assert pool.mean_ttft_s == pytest.approx(single_ttft_s(5.0, 0.1))
    assert pool.mean_ttft_s == pytest.approx(0.150)  # 0.1 + 5 * 0.01 / (2 * 0.5)
    assert pool.ttft_s == pytest.approx(0.1 + 0.1 * math.log(0.5 / 0.1))


def test_rates_are_matched_as_by_hand() -> None:
    """40 requests/s: prompts need 40 * 0.1 s = 4 workers' whole time, at most 90 % of which may be
    used, so 5. Answers: r per worker leaves B = r * 100 * (10 + B) ms. With 5 workers r = 8 and
    B = 0.8 (10 + B) = 40, 90th percentile 48.1, a step of 58 ms: too slow. With 6 it is B = 20,
    90th percentile 25.7, 35.7 ms, and half a step for joining: kept."""
    speeds = by_hand(rate=40.0)
    prefill = fewest(lambda n: prefill_pool(speeds, n), 100)
    decode = fewest(lambda n: decode_pool(speeds, n), 100)
    assert prefill and decode
    assert (prefill.workers, decode.workers) == (5, 6)
    assert decode.batch == pytest.approx(20.0, rel=1e-3)
    high = 20.0 + 1.2815516 * math.sqrt(20.0)
    assert decode.tpot_s == pytest.approx(0.010 + 0.001 * high + 0.030 / 2 / 100, rel=1e-3)


def test_colocated_writers_wait_for_every_prompt() -> None:
    """r = 2: load 0.2; B = 200 (10 + B) ms / 0.8 = 2.5 + 0.25 B = 3.33; a step takes 13.3 ms and a
    token 13.3 / 0.8 = 16.7 ms."""
    pool = both_pool(by_hand(rate=2.0), 1)
    assert pool.load == pytest.approx(0.2)
    assert pool.batch == pytest.approx(10 / 3, rel=1e-4)
    assert pool.mean_tpot_s == pytest.approx(0.0166667, rel=1e-4)


def test_costs_by_hand() -> None:
    """5 + 6 GPUs at $2.95: $32.45/h for 40 * 3000 input and 40 * 101 output tokens/s."""
    speeds = by_hand(rate=40.0)
    prefill, decode = prefill_pool(speeds, 5), decode_pool(speeds, 6)
    found = costs_of(Plan("disaggregated", decode, 11 * 2.95, prefill))
    assert found.input_usd == pytest.approx(5 * 2.95 / (40 * 3000 * 3600) * 1e6)
    assert found.output_usd == pytest.approx(6 * 2.95 / (40 * 101 * 3600) * 1e6)
    assert found.decode_only_usd == pytest.approx(found.output_usd)
    assert found.all_on_output_usd == pytest.approx(11 * 2.95 / (40 * 101 * 3600) * 1e6)
    bill = found.input_usd * 40 * 3000 * 3600 / 1e6 + found.output_usd * 40 * 101 * 3600 / 1e6
    assert bill == pytest.approx(32.45)


def test_a_handoff_is_the_prompts_kv_over_the_link() -> None:
    """3000 tokens of 131,072 bytes over 50 GB/s: 7.86 ms, of which one layer's part is in sight."""
    speeds = by_hand(rate=1.0)
    handoff = handoff_of(prefill_pool(speeds, 1), decode_pool(speeds, 1), named_link("5e10"))
    assert handoff.num_bytes == 3000 * 131072
    assert handoff.copy_s == pytest.approx(0.00786432)
    assert handoff.exposed_s == pytest.approx(0.38e-3 + 0.00786432 / 32)
    assert handoff.load == pytest.approx(0.00786432)


def test_more_workers_behind_one_router_wait_less_than_apart() -> None:
    assert pool_wait(0.8, 1.0, 1).mean_s == pytest.approx(2.0)  # M/D/1: 0.8 / (2 * 0.2)
    assert pool_wait(0.8, 1.0, 4).mean_s < pool_wait(0.8, 1.0, 1).mean_s / 4
    with pytest.raises(OverloadError):
        pool_wait(1.0, 1.0, 1)


def test_the_smallest_root_is_found_or_there_is_none() -> None:
    assert smallest_root(lambda b: 1.0 + b / 2, 100.0) == pytest.approx(2.0)
    assert smallest_root(lambda b: 1.0 + 2 * b, 100.0) is None
    edge = smallest_root(lambda b: 1.0 + b / 2 if b < 2.5 else math.inf, 100.0)
    assert edge == pytest.approx(2.0)  # although everything is lost a little further on


def test_a_front_keeps_what_nothing_beats() -> None:
    points = [Point(u, g, "chunked", "") for u, g in ((10, 5), (8, 4), (5, 9), (5, 8), (2, 9))]
    assert [(p.per_user, p.per_gpu) for p in front(points)] == [(10, 5), (5, 9)]


# -- whatever the load --------------------------------------------------------------------------

LOADS = st.builds(
    Workload,
    isl=st.integers(1, 8000),
    osl=st.integers(1, 800),
    rate_per_s=st.floats(0.01, 200.0),
    ttft_s=st.floats(0.2, 10.0),
    tpot_s=st.floats(0.02, 0.3),
    prefix_hit=st.floats(0.0, 0.95),
)


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(LOADS, st.floats(1.01, 8.0))
def test_a_higher_rate_never_costs_less(work: Workload, factor: float) -> None:
    more = replace(work, rate_per_s=work.rate_per_s * factor)
    assert costs(work) <= costs(more) + 1e-9


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(LOADS, st.floats(1.01, 8.0), st.booleans())
def test_a_looser_slo_never_costs_more(work: Workload, factor: float, first: bool) -> None:
    name = "ttft_s" if first else "tpot_s"
    looser = replace(work, **{name: getattr(work, name) * factor})
    assert costs(looser) <= costs(work) + 1e-9


@settings(max_examples=6, deadline=None)
@given(LOADS)
def test_every_plan_keeps_the_slos_and_bills_all_gpus(work: Workload) -> None:
    device = find_device("H100")
    terms = Terms(device)
    speeds = build_speeds(LLAMA, device, factors_for(device), work, terms.most_gpus)
    for plan in all_plans(speeds, terms):
        assert plan.ttft_s <= work.ttft_s
        assert plan.tpot_s <= work.tpot_s
        assert plan.usd_per_hour == pytest.approx(plan.gpus * device.usd_per_hour)
        assert not any(pool.broken for pool in plan.pools)


# -- when not to split --------------------------------------------------------------------------


def test_two_gpus_are_not_split() -> None:
    found = answer(replace(CHAT, rate=2.0, gpus=2))
    assert found.best is not None and found.best.mode != "disaggregated"
    assert found.advice is not None and not found.advice.split
    assert "2 GPUs" in found.advice.reason


def test_a_slow_link_is_a_reason_not_to_split() -> None:
    rag = Asked("Llama-3.1-70B", "H100", 4000, 300, "2", "50ms", 8.0)
    fast, slow = answer(rag), answer(replace(rag, link="2e8"))
    assert fast.advice is not None and fast.advice.split
    assert slow.advice is not None and not slow.advice.split
    assert "link is too slow" in slow.advice.reason


def test_aws_conditions_are_checked_one_by_one() -> None:
    found = answer(Asked("Llama-3.1-70B", "H100", 4000, 256, "2", "50ms", 8.0))
    assert found.advice is not None and found.advice.unmet == ()
    chat = answer(CHAT)
    assert chat.advice is not None and len(chat.advice.unmet) == 3


def test_one_output_token_leaves_nothing_to_split() -> None:
    found = answer(replace(CHAT, osl=1))
    assert found.advice is not None and "one token" in found.advice.reason


# -- the whole answer ---------------------------------------------------------------------------


def test_a_pool_is_as_large_as_one_worker_less_would_break_something() -> None:
    found = answer(Asked("Llama-3.1-70B", "H100", 4000, 300, "2", "50ms", 40.0))
    assert found.best is not None and found.best.prefill is not None
    assert found.best.prefill.workers == 9
    assert found.binding[0] == (
        "prefill pool: with 8 workers, prompts would fill 101% of the time; at most 90% is "
        "allowed, so 9"
    )


def test_times_are_read_with_and_without_units() -> None:
    assert duration("--ttft", "0.5") == duration("--ttft", "500ms") == 0.5
    assert duration("--ttft", "90s") == 90.0


def test_the_answer_is_plain_json() -> None:
    raw = json.loads(json.dumps(to_dict(answer(CHAT)), allow_nan=False))
    assert raw["best"]["gpus"] == sum(pool["gpus"] for pool in raw["best"]["pools"])
    assert raw["pareto"] and raw["advice"]["reason"]


def test_no_pair_of_pools_was_cut_off_too_early() -> None:
    """The search stops at the first pair that cannot be cheaper; trying them all agrees."""
    device = find_device("H100")
    work = Workload(4000, 300, 8.0, 2.0, 0.05)
    terms = Terms(device)
    model = find_model("Llama-3.1-70B")
    speeds = build_speeds(model, device, factors_for(device), work, terms.most_gpus)
    best = min(plan.gpus for plan in split_plans(speeds, terms))
    pairs = [split_plans([a, b], terms) for a in speeds for b in speeds]
    assert best == min(plan.gpus for plans in pairs for plan in plans)
