"""Tiers and prefix-aware routing in pools: real workers turned by hand, and one real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from minipd import LLM, SamplingParams
from minipd.cache.tier_sizes import TierSizes
from minipd.measure.metrics import summarise
from minipd.pools.cluster import Cluster
from minipd.pools.setup import Mode, Setup
from minipd.request import Request
from minipd.sched.prefix_router import PrefixAware
from minipd.timeline import Event
from tests.pools.by_hand import HandDriven
from tests.pools.helpers import check_sound, prompt

GREEDY = SamplingParams(4, ignore_eos=True)
TIERS = TierSizes(1 << 24)


def turn(conversation: int, number: int, tokens: int = 64) -> Request:
    """The conversation's `number`-th prompt: all of the one before, and `tokens` more."""
    ids = prompt(conversation, tokens * (number + 1))
    return Request(f"c{conversation}-{number}", ids, GREEDY)


def routed(events: list[Event]) -> dict[str, str]:
    return {e.request_id: e.worker for e in events if e.kind == "routed"}


def cached(events: list[Event], request_id: str) -> int:
    (found,) = [e for e in events if e.kind == "prefill_started" and e.request_id == request_id]
    return int(str(found.data["cached_tokens"]))


def setup(mode: Mode = "colocated", num_blocks: int = 16, **more: object) -> Setup:
    return Setup(model="tiny", mode=mode, num_blocks=num_blocks, **more)  # type: ignore[arg-type]


def wide(mode: Mode = "colocated", **more: object) -> Setup:
    return setup(mode, 64, **more)


def one_by_one(driven: HandDriven, requests: list[Request]) -> None:
    for request in requests:
        driven.coordinator.submit(request)
        while driven.coordinator.is_busy:
            driven.turn()


# -- tiers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["colocated", "chunked", "disaggregated"])
@pytest.mark.parametrize("disk", [False, True])
def test_the_same_tokens_in_every_mode(llm: LLM, mode: Mode, disk: bool, tmp_path: Path) -> None:
    """A cache of 16 blocks and conversations of 12: each turn pushes out the one before."""
    tiers = TierSizes(0, tmp_path) if disk else TIERS
    driven = HandDriven(llm.model, setup(mode, tiers=tiers))
    requests = [turn(conversation, number) for number in range(3) for conversation in range(4)]
    one_by_one(driven, requests)
    run = driven.result()
    check_sound(run, requests)
    for request in requests:
        (right,) = llm.generate([list(request.prompt_ids)], GREEDY)
        assert run.outputs[request.id] == right.token_ids, request.id
    fetched = [e for e in run.timeline if e.kind == "kv_fetched"]
    assert {e.data["tier"] for e in fetched} == {"disk" if disk else "host"}
    if mode == "disaggregated":
        assert {e.worker for e in fetched} == {"worker-0", "worker-1"}, "both halves have tiers"
        sent = sum(int(str(e.data["bytes"])) for e in run.timeline if e.kind == "handoff_finished")
        whole = sum(-(-r.num_prompt_tokens // 16) for r in requests)
        assert sent < whole * 16 * llm.model.config.kv_bytes_per_token(4), "less than all was sent"
    assert not any(use.unreasoned_prefill_tokens for use in summarise(run.timeline).workers)


def test_a_damaged_reservation_is_made_again(llm: LLM, tmp_path: Path) -> None:
    """A decode worker's tier fails while it reserves: it asks for the KV it lacks instead."""
    driven = HandDriven(llm.model, setup("disaggregated", tiers=TierSizes(0, tmp_path)))
    one_by_one(driven, [turn(c, 2) for c in (1, 2, 3)])
    for path in tmp_path.rglob("*.kv"):
        path.write_bytes(path.read_bytes()[:-1])
    last = Request("again", turn(1, 2).prompt_ids, GREEDY)
    one_by_one(driven, [last])
    run = driven.result()
    (right,) = llm.generate([list(last.prompt_ids)], GREEDY)
    assert run.outputs["again"] == right.token_ids
    assert {e.worker for e in run.timeline if e.kind == "kv_lost"} == {"worker-0", "worker-1"}
    assert len([e for e in run.timeline if e.kind == "reserved" and e.request_id == "again"]) == 1
    assert not any(run.leaked_blocks.values())


def test_a_real_cluster_with_tiers(tmp_path: Path) -> None:
    requests = [turn(conversation, number) for number in range(2) for conversation in range(4)]
    asked = setup("disaggregated", pool="threads", tiers=TierSizes(1 << 22, tmp_path))
    with Cluster(asked, PrefixAware()) as cluster:
        run = cluster.run(requests)
        check_sound(run, requests)
        again = cluster.run(requests)
        check_sound(again, requests)
        assert any(e.kind == "kv_fetched" for e in again.timeline)
    assert again.outputs.keys() == run.outputs.keys()


# -- where prompts go -----------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [64, 60])
def test_follow_up_turns_go_to_the_holder(llm: LLM, tokens: int) -> None:
    driven = HandDriven(llm.model, wide(), router=PrefixAware())
    one_by_one(driven, [turn(c, n, tokens) for n in range(3) for c in range(2)])
    where = routed(driven.events)
    for conversation in range(2):
        assert len({where[f"c{conversation}-{n}"] for n in range(3)}) == 1
        assert cached(driven.events, f"c{conversation}-2") >= 2 * tokens // 16 * 16
    reasons = [str(e.data["reason"]) for e in driven.events if e.kind == "routed"]
    assert "are held there" in reasons[-1]


def test_a_crowd_with_one_beginning_is_spread(llm: LLM) -> None:
    """What they share is worth less than the wait: eight at once do not all go to the holder."""
    driven = HandDriven(llm.model, wide(), router=PrefixAware())
    one_by_one(driven, [turn(1, 0)])
    crowd = [Request(f"x{n}", turn(1, 0).prompt_ids + prompt(n, 32), GREEDY) for n in range(8)]
    run = driven.run(crowd)
    assert {routed(run.timeline)[f"x{n}"] for n in range(8)} == {"worker-0", "worker-1"}
    assert not any(run.leaked_blocks.values())


def test_a_holder_that_dies_is_not_believed_in_any_more(llm: LLM) -> None:
    driven = HandDriven(llm.model, wide(), router=PrefixAware())
    one_by_one(driven, [turn(1, 0)])
    holder = routed(driven.events)["c1-0"]
    driven.kill(holder, again=False)
    one_by_one(driven, [turn(1, 1)])
    run = driven.result()
    assert routed(run.timeline)["c1-1"] != holder
    (right,) = llm.generate([list(turn(1, 1).prompt_ids)], GREEDY)
    assert run.outputs["c1-1"] == right.token_ids


def test_its_next_life_begins_with_nothing(llm: LLM) -> None:
    router = PrefixAware()
    driven = HandDriven(llm.model, wide(), router=router)
    one_by_one(driven, [turn(1, 0)])
    holder, names = routed(driven.events)["c1-0"], router.names_of(turn(1, 0))
    assert router.known.num_held(holder, names) == 4
    driven.kill(holder)
    driven.turn()
    assert router.known.num_held(holder, names) == 0


def test_what_is_pushed_out_is_told(llm: LLM) -> None:
    router = PrefixAware()
    driven = HandDriven(llm.model, setup(), router=router)
    one_by_one(driven, [turn(1, 0)])
    holder, names = routed(driven.events)["c1-0"], router.names_of(turn(1, 0))
    others = [turn(c, 2) for c in range(2, 8)]
    one_by_one(driven, others)
    allocator = driven.workers[holder].scheduler.allocator
    held = next((i for i, name in enumerate(names) if not allocator.holds(name)), len(names))
    assert router.known.num_held(holder, names) == held < 4
    assert not any(driven.result().leaked_blocks.values())


def test_in_a_split_the_reader_that_knows_the_beginning_reads_on(llm: LLM) -> None:
    asked = wide("disaggregated", num_prefill=2, num_decode=2)
    driven = HandDriven(llm.model, asked, router=PrefixAware())
    one_by_one(driven, [turn(c, n) for n in range(3) for c in range(2)])
    where = routed(driven.events)
    for conversation in range(2):
        assert len({where[f"c{conversation}-{n}"] for n in range(3)}) == 1
    assert cached(driven.events, "c1-2") >= 128
    reserved = {
        e.request_id: e.data["cached_tokens"] for e in driven.events if e.kind == "reserved"
    }
    assert int(str(reserved["c1-2"])) >= 128, "nor is it sent again"


def test_prompts_without_a_common_beginning_are_spread(
    tiny_requests: list[Request], llm: LLM
) -> None:
    driven = HandDriven(llm.model, wide(), router=PrefixAware())
    run = driven.run(tiny_requests)
    check_sound(run, tiny_requests)
    assert len(set(routed(run.timeline).values())) == 2


@pytest.fixture
def tiny_requests() -> list[Request]:
    return [turn(conversation, 0) for conversation in range(6)]
