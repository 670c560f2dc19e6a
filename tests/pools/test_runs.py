"""Whole runs in threads: pressure, ends of every kind, odd lists of requests, odd speeds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from minipd.llm import LLM
from minipd.pools.cluster import Cluster, ClusterError, Setup
from minipd.pools.links.emulated import Network
from minipd.pools.paced import Pace
from minipd.request import RequestError
from minipd.sched.limits import Limits
from minipd.sched.router import Threshold
from minipd.timeline import Event
from tests.counted_clock import count_time
from tests.pools.helpers import answers, ask, check_same, check_sound, ending, events, mixed, when

SLOW = Network(0.2, 5e6)  # a hand-off takes at least 0.2 s


def test_a_thousand_requests_of_one_token(start: Callable[..., Cluster], llm: LLM) -> None:
    requests = [ask(f"r{n}", 1 + n % 7, 1) for n in range(1000)]
    run = start().run(requests, timeout_s=200)
    check_sound(run, requests)
    some = requests[::100]
    check_same(llm, some, answers(llm, some), run)


def test_too_few_blocks_to_decode_all_at_once(start: Callable[..., Cluster], llm: LLM) -> None:
    requests = [ask(f"r{n}", 60, 40) for n in range(12)]
    run = start(num_blocks=10).run(requests, timeout_s=120)
    check_sound(run, requests)
    check_same(llm, requests, answers(llm, requests), run)
    assert {e.data["reason"] for e in events(run, "prefill_started")} == {"prompt", "preempted"}


FAST, LATE = ((0.0, 0.0005), (1000.0, 0.002)), ((0.0, 0.01), (1000.0, 0.3))
QUICK, SLUGGISH = ((1.0, 0.0005), (16.0, 0.001)), ((1.0, 0.03), (16.0, 0.05))


@pytest.mark.parametrize(
    ("prefill", "decode"), [(FAST, SLUGGISH), (LATE, QUICK)], ids=["decode lags", "prefill lags"]
)
def test_one_phase_far_faster_than_the_other(
    monkeypatch: pytest.MonkeyPatch, start: Callable[..., Cluster], prefill: object, decode: object
) -> None:
    """The queue forms before the slow pool, nothing is lost, and tokens are as in any other run."""
    count_time(monkeypatch)
    setup = {"pace": Pace(prefill, decode), "limits": Limits(max_running=4)}  # type: ignore[arg-type]
    cluster, requests = start(**setup), [ask(f"r{n}", 40, 6) for n in range(16)]
    run = cluster.run(requests, timeout_s=60)
    check_sound(run, requests)
    cluster.reconfigure("colocated")
    assert cluster.run(requests, timeout_s=60).outputs == run.outputs
    assert any("paced" in note for note in cluster.notes)
    steps = [e for e in events(run, "step") if e.worker == "worker-1"]
    decoding = [int(str(e.data["decode_seqs"])) for e in steps]
    assert max(decoding) <= 4
    if prefill is FAST:  # reservations wait for a place in the batch
        assert sorted(decoding)[len(decoding) // 2] == 4


def test_cancelled_during_the_hand_off(
    monkeypatch: pytest.MonkeyPatch, start: Callable[..., Cluster]
) -> None:
    count_time(monkeypatch)
    cluster, requests = start(network=SLOW), [ask("a", 60, 20), ask("b", 60, 3)]
    first_token: Callable[[Event], bool] = lambda e: (e.kind, e.request_id) == ("token", "a")  # noqa: E731
    when(cluster, first_token, lambda: cluster.cancel("a"))
    run = cluster.run(requests, timeout_s=60)
    check_sound(run, requests)
    assert ending(run, "a") == ("cancelled", "cancelled") and len(run.outputs["a"]) == 1
    assert ending(run, "b") == ("finished", "length")


@pytest.mark.parametrize("deadline_s", [0.0, 0.1, 0.35])
def test_deadline_over_a_slow_link(start: Callable[..., Cluster], deadline_s: float) -> None:
    requests = [ask("a", 60, 500, deadline_s=deadline_s), ask("b", 60, 3)]
    run = start(network=SLOW).run(requests, timeout_s=60)
    check_sound(run, requests)
    assert ending(run, "a") == ("cancelled", "deadline")
    assert ending(run, "b") == ("finished", "length")


def test_a_run_is_over_when_nothing_is_on_the_wire(start: Callable[..., Cluster]) -> None:
    """One-token answers end before their KV has arrived; the next mode must not find it."""
    cluster, requests = start(network=SLOW), [ask(f"r{n}", 60, 1) for n in range(3)]
    run = cluster.run(requests, timeout_s=60)
    check_sound(run, requests)
    cluster.reconfigure("colocated")
    check_sound(cluster.run(requests, timeout_s=60), requests)


def test_a_second_long_prompt_sends_little(threads: Cluster, llm: LLM) -> None:
    threads.reconfigure("disaggregated")
    request = ask("long", 500, 5)
    runs = [threads.run([replace(request, id=name)]) for name in ("long", "again")]
    sent = [int(str(events(run, "committed")[0].data["bytes"])) for run in runs]
    assert sent[0] == 32 * sent[1]
    assert runs[0].outputs["long"] == runs[1].outputs["again"] == answers(llm, [request])["long"]


def test_short_prompts_are_read_locally_where_the_router_says_so(
    threads: Cluster, llm: LLM
) -> None:
    threads.reconfigure("disaggregated", Threshold(max_local_prefill_tokens=64))
    requests = mixed(20)
    run = threads.run(requests, timeout_s=60)
    check_sound(run, requests)
    check_same(llm, requests, answers(llm, requests), run)
    reasons = {(e.worker, e.data["reason"]) for e in events(run, "prefill_started")}
    assert reasons == {("worker-0", "prompt"), ("worker-1", "local")}


def test_roles_are_told_at_the_start_of_every_run(threads: Cluster) -> None:
    for mode, roles in (("disaggregated", {"prefill", "decode"}), ("chunked", {"both"})):
        threads.reconfigure(mode)  # type: ignore[arg-type]
        for _ in range(2):
            run = threads.run([ask("a", 5, 2)])
            assert {e.data["role"] for e in events(run, "worker_started")} == roles


def test_lists_of_requests(threads: Cluster, llm: LLM) -> None:
    threads.reconfigure("disaggregated")
    assert threads.run([]).outputs == {}
    unsorted = [ask("late", 20, 3, 0.2), ask("early", 20, 3, 0.0), ask("mid", 20, 3, 0.1)]
    run = threads.run(unsorted)
    check_sound(run, unsorted)
    arrivals = [(e.request_id, round(e.t_s, 6)) for e in events(run, "arrived")]
    assert arrivals == [("early", 0.0), ("mid", 0.1), ("late", 0.2)]
    again = threads.run(unsorted)  # the same ids, once they have finished
    assert again.outputs == run.outputs == answers(llm, unsorted)


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ([ask("a", 5), ask("a", 6)], "Two requests have the id 'a'"),
        ([ask("a", 5, at_s=-1.0)], "arrives at -1.0 s"),
        ([ask("a", 5, at_s=math.nan)], "arrives at nan s"),
        ([ask("a", 5, at_s=math.inf)], "arrives at inf s"),
        ([ask("a", 5, 10_000)], "over the context"),
        ([replace(ask("a", 5), prompt_ids=())], "empty prompt"),
    ],
)
def test_requests_refused_at_the_door(threads: Cluster, requests: list[object], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        threads.run([ask("good", 5), *requests])  # type: ignore[list-item]
    assert threads.num_unfinished == 0


def test_an_id_in_use_is_refused(threads: Cluster) -> None:
    threads.reconfigure("disaggregated")
    threads.submit(ask("a", 5))
    with pytest.raises(RequestError, match="'a' is in use"):
        threads.submit(ask("a", 5))
    while threads.num_unfinished:
        threads.poll(0.01)


def test_an_interrupted_run_leaves_nothing_behind(threads: Cluster, llm: LLM) -> None:
    threads.reconfigure("disaggregated")

    def interrupt() -> None:
        raise KeyboardInterrupt

    requests = [ask(f"r{n}", 30, 100) for n in range(6)]
    when(threads, lambda e: e.kind == "token", interrupt)
    with pytest.raises(KeyboardInterrupt):
        threads.run(requests)
    assert threads.num_unfinished
    run = threads.run(requests, timeout_s=60)
    threads.on_event = None
    check_sound(run, requests)
    assert run.outputs == answers(llm, requests)


def test_a_run_that_takes_too_long_says_so(threads: Cluster) -> None:
    threads.reconfigure("disaggregated")
    with pytest.raises(ClusterError, match="not over after 0 s"):
        threads.run([ask("a", 5, 3000)], timeout_s=0.3)
    threads.run([])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_prefill": 0}, "at least 1 prefill and 1 decode"),
        ({"cpus": ((0,),)}, "2 workers but cores for 1"),
    ],
)
def test_setups_that_cannot_be(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Setup(**changes)  # type: ignore[arg-type]


def test_a_router_that_needs_a_prefill_pool(threads: Cluster) -> None:
    with pytest.raises(ClusterError, match="Threshold needs a prefill pool; 'chunked' has none"):
        threads.reconfigure("chunked", Threshold())
    threads.reconfigure("disaggregated")


def test_what_shared_cores_cannot_show_is_said() -> None:
    (note,) = Setup(cpus=((0,), (0,))).caveats
    assert "2 workers share 1 core" in note
    assert Setup(cpus=((0,), (1,))).caveats == []
