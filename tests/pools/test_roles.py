"""Roles change while requests run: nothing is lost, the tokens are the same, nothing is left."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from minipd.llm import LLM
from minipd.pools import messages as m
from minipd.pools.cluster import Cluster, ClusterError, Setup
from minipd.pools.links.emulated import Network
from minipd.pools.paced import Pace
from minipd.request import Request
from minipd.sched.limits import Limits
from minipd.sched.router import AlwaysRemote, RoundRobin, Threshold
from tests.pools.by_hand import HandDriven
from tests.pools.helpers import answers, ask, check_same, check_sound, ending, events, when
from tests.pools.scripted import ScriptedExecutor, expected

TWO_OF_EACH = Setup(model="tiny", num_prefill=2, num_decode=2, num_blocks=64)
ROLES: tuple[m.Role, ...] = ("prefill", "decode", "both")
LAST_TURN = 22


def three() -> list[Request]:
    return [ask("a", 40, 6), ask("b", 17, 6), ask("c", 33, 1), ask("d", 20, 9)]


def driven_by_script(llm: LLM, setup: Setup = TWO_OF_EACH, **more: object) -> HandDriven:
    def executor(_: str) -> ScriptedExecutor:
        return ScriptedExecutor(llm.model.config, setup.num_blocks, setup.block_size)

    return HandDriven(llm.model, setup, executor_for=executor, **more)  # type: ignore[arg-type]


def finish(driven: HandDriven) -> None:
    give_up = driven.now + 600
    while driven.coordinator.is_busy:
        driven.turn()
        assert driven.now < give_up, "this does not come to an end"


def check_even(driven: HandDriven) -> None:
    """The router's books of every worker are back at zero."""
    for member in driven.coordinator.members.values():
        load = member.load
        assert (load.queued_prefill_tokens, load.num_waiting_prefills) == (0, 0), load
        assert load.num_running == 0, load


# -- at every point of a request's life -------------------------------------------------------

CHANGES: list[tuple[str, m.Role]] = [
    ("worker-0", "decode"),
    ("worker-0", "both"),
    ("worker-2", "prefill"),
    ("worker-2", "both"),
]


@pytest.mark.parametrize("patience_s", [math.inf, 3.0, 0.0])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: "-".join(change))
def test_at_every_turn(llm: LLM, change: tuple[str, m.Role], patience_s: float) -> None:
    name, role = change
    for turn in range(int(patience_s == 0.0), LAST_TURN, 2):
        driven = driven_by_script(llm, polls=4)
        for request in three():
            driven.coordinator.submit(request)
        for _ in range(turn):
            driven.turn()
        assert driven.change_role(name, role, patience_s)
        late = ask("late", 50, 5)
        driven.coordinator.submit(late)
        finish(driven)
        requests = [*three(), late]
        run = driven.result()
        check_sound(run, requests)
        check_even(driven)
        assert run.outputs == {r.id: expected(r) for r in requests}
        assert {ending(run, r.id) for r in requests} == {("finished", "length")}
        (draining,), (changed,), (resumed,) = (
            events(run, kind) for kind in ("worker_draining", "role_changed", "worker_resumed")
        )
        assert draining.t_s <= changed.t_s < resumed.t_s
        assert (draining.data["to"], changed.data["role"], resumed.data["role"]) == (role,) * 3
        assert changed.data["drained_s"] == changed.t_s - draining.t_s
        assert resumed.data["paused_s"] == resumed.t_s - draining.t_s
        between = [e for e in run.timeline if draining.t_s < e.t_s <= resumed.t_s]
        assert not [e for e in between if e.kind == "routed" and e.worker == name]
        assert not [e for e in between if e.kind == "routed" and e.data["decode"] == name]


def test_the_new_role_is_really_played(llm: LLM) -> None:
    """One prefill worker turns to decoding, one decode worker to prefill, and back."""
    driven = driven_by_script(llm)
    worked: list[tuple[set[str], set[str]]] = []
    for n, roles in enumerate(
        [("prefill", "decode"), ("decode", "prefill"), ("prefill", "decode")]
    ):
        for name, role in zip(("worker-0", "worker-2"), roles, strict=True):
            driven.change_role(name, role)  # type: ignore[arg-type]
        finish(driven)
        driven.events.clear()
        requests = [ask(f"r{n}-{i}", 20 + 9 * i, 8) for i in range(8)]
        run = driven.run(requests)
        check_sound(run, requests)
        assert run.outputs == {r.id: expected(r) for r in requests}
        readers = {e.worker for e in events(run, "prefill_started")}
        worked.append((readers, {e.worker for e in events(run, "committed")}))
    first = ({"worker-0", "worker-1"}, {"worker-2", "worker-3"})
    assert worked == [first, ({"worker-1", "worker-2"}, {"worker-0", "worker-3"}), first]


def test_patience_moves_a_long_answer_and_reads_its_tokens_again(llm: LLM) -> None:
    driven, request = driven_by_script(llm), ask("long", 40, 60)
    driven.coordinator.submit(request)
    for _ in range(20):
        driven.turn()
    (writer,) = {e.worker for e in driven.events if e.kind == "committed"}
    assert driven.change_role(writer, "prefill", patience_s=2.0)
    finish(driven)
    run = driven.result()
    check_sound(run, [request])
    assert run.outputs["long"] == expected(request)
    (changed,) = events(run, "role_changed")
    assert changed.data["drained_s"] <= 4.0
    second = events(run, "prefill_started")[1]
    (moved,) = [e for e in events(run, "token") if e.t_s <= changed.t_s][-1:]
    held = 40 + int(str(moved.data["index"])) + 1
    assert second.data["reason"] == "recovered"
    assert int(str(second.data["tokens"])) + int(str(second.data["cached_tokens"])) == held
    assert ending(run, "long") == ("finished", "length")


@pytest.mark.parametrize("name", ["worker-2", "worker-0"])
def test_a_drain_does_not_wait_for_the_queue_of_another_pool(llm: LLM, name: str) -> None:
    """Reservations behind a long prefill queue are made anew elsewhere, and keep their turn."""
    setup = replace(TWO_OF_EACH, limits=Limits(max_batch_tokens=40))  # one prompt per step
    driven = driven_by_script(llm, setup)
    requests = [ask(f"r{n:02}", 40, 4, at_s=n / 100) for n in range(16)]
    for request in requests:
        driven.coordinator.submit(request)
    for _ in range(3):
        driven.turn()
    role: m.Role = "prefill" if name == "worker-2" else "decode"
    assert driven.change_role(name, role)
    finish(driven)
    run = driven.result()
    check_sound(run, requests)
    check_even(driven)
    assert run.outputs == {r.id: expected(r) for r in requests}
    (changed,) = events(run, "role_changed")
    assert changed.data["drained_s"] <= 8.0
    assert {e.data["reason"] for e in events(run, "prefill_started")} == {"prompt"}
    first = {e.request_id: e.t_s for e in events(run, "token") if e.data["index"] == 0}
    order = sorted(first, key=lambda name: first[name])
    assert all(abs(order.index(r.id) - n) <= 4 for n, r in enumerate(requests)), order


def test_moves_are_not_counted_as_deaths(llm: LLM) -> None:
    driven, request = driven_by_script(llm), ask("long", 20, 80)
    driven.coordinator.submit(request)
    for turn in range(60):
        driven.turn()
        if turn % 8 == 7:
            holder = driven.coordinator.tickets["long"].writer
            if holder is not None and holder.is_ready:
                other: m.Role = "both" if holder.role == "decode" else "decode"
                assert driven.change_role(holder.name, other, 0.0)
    finish(driven)
    run = driven.result()
    assert len(events(run, "prefill_started")) > 4
    assert ending(run, "long") == ("finished", "length")
    assert run.outputs["long"] == expected(request)


def test_with_one_worker_of_each_role_requests_wait_for_the_swap(llm: LLM) -> None:
    driven = driven_by_script(llm, replace(TWO_OF_EACH, num_prefill=1, num_decode=1))
    driven.coordinator.submit(ask("a", 30, 6))
    for _ in range(4):
        driven.turn()
    assert not driven.change_role("worker-1", "prefill")  # nobody would write
    assert driven.change_role("worker-0", "decode") and driven.change_role("worker-1", "prefill")
    driven.coordinator.submit(ask("b", 30, 6))
    finish(driven)
    run, requests = driven.result(), [ask("a", 30, 6), ask("b", 30, 6)]
    check_sound(run, requests)
    assert run.outputs == {r.id: expected(r) for r in requests}
    assert {e.worker for e in events(run, "finished", "b")} == {"worker-0"}


# -- at random --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_random_changes_deaths_and_cancels(llm: LLM, seed: int) -> None:
    """In any order: answers are right as far as they go, and everything is given back."""
    rng = random.Random(seed)
    setup = replace(
        TWO_OF_EACH,
        num_prefill=rng.randint(1, 3),
        num_decode=rng.randint(1, 3),
        num_blocks=rng.choice([12, 24, 64]),
        limits=Limits(max_running=rng.choice([2, 4, 16])),
    )
    router = rng.choice([AlwaysRemote(), Threshold(40), RoundRobin()])
    driven = driven_by_script(llm, setup, polls=rng.choice([1, 4]), router=router)
    requests: list[Request] = []
    num_changes = 0
    for turn in range(120):
        if rng.random() < 0.25 and len(requests) < 25:
            deadline_s = rng.choice([None, None, None, driven.now + rng.randrange(60)])
            sizes = rng.randint(1, 90), rng.randint(1, 25)
            requests.append(ask(f"r{turn}", *sizes, at_s=driven.now, deadline_s=deadline_s))
            driven.coordinator.submit(requests[-1])
        if rng.random() < 0.1:
            patience_s = rng.choice([0.0, 2.0, math.inf])
            name = f"worker-{rng.randrange(setup.num_workers)}"
            num_changes += driven.change_role(name, rng.choice(ROLES), patience_s)
        if requests and rng.random() < 0.04:
            driven.coordinator.cancel(rng.choice(requests).id)
        if seed % 2 and rng.random() < 0.02:
            driven.kill(f"worker-{rng.randrange(setup.num_workers)}")
        driven.hung = {n for n in driven.workers if rng.random() < 0.1}  # it misses this turn
        driven.turn()
    driven.hung = set()
    finish(driven)
    run = driven.result()
    check_sound(run, requests)
    check_even(driven)
    assert num_changes > 0
    for request in requests:
        got, (kind, reason) = run.outputs.get(request.id, []), ending(run, request.id)
        assert got == expected(request)[: len(got)]
        assert kind == "cancelled" or reason in ("length", "its worker died 3 times")
        assert kind != "finished" or len(got) == request.sampling.max_tokens


@pytest.mark.parametrize("victim", ["worker-0", "worker-2"])
@pytest.mark.parametrize("turn", range(0, 16, 3))
def test_a_death_while_draining(llm: LLM, victim: str, turn: int) -> None:
    """Its next life has the new role from the start."""
    role: m.Role = "decode" if victim == "worker-0" else "prefill"
    driven = driven_by_script(llm, polls=4)
    for request in three():
        driven.coordinator.submit(request)
    for _ in range(turn):
        driven.turn()
    driven.change_role(victim, role)
    driven.kill(victim)
    finish(driven)
    run = driven.result()
    check_sound(run, three())
    check_even(driven)
    assert run.outputs == {r.id: expected(r) for r in three()}
    assert not events(run, "worker_resumed")
    assert (victim, role, 1) in {
        (e.worker, e.data["role"], e.data["epoch"]) for e in events(run, "worker_started")
    }


@pytest.mark.parametrize("hung", ["worker-0", "worker-1"])
@pytest.mark.parametrize("turn", [2, 4, 6, 10])
def test_deadlines_hold_while_a_worker_hangs(llm: LLM, hung: str, turn: int) -> None:
    setup = replace(TWO_OF_EACH, num_prefill=1, num_decode=1)
    driven = driven_by_script(llm, setup, polls=4)
    requests = [replace(r, deadline_s=15.0) for r in three()]
    for request in requests:
        driven.coordinator.submit(request)
    for _ in range(turn):
        driven.turn()
    driven.hung.add(hung)
    while driven.now < 20:
        driven.turn()
    ends = {e.request_id: e.t_s for e in driven.events if e.kind in ("finished", "cancelled")}
    assert ends.keys() == {r.id for r in requests} and max(ends.values()) <= 17
    driven.hung.clear()  # it wakes up and says what it had to say
    finish(driven)
    run = driven.result()
    check_sound(run, requests)
    check_even(driven)


# -- threads, processes, paced ----------------------------------------------------------------


def changing_at_random(cluster: Cluster, rng: random.Random, patience_s: float) -> list[str]:
    """Changes a role at every 10th event or so of the next run; returns what was done, and when."""
    done: list[str] = []

    def act(event: object) -> None:
        if rng.random() > 0.1 or len(cluster.roles) < 4:
            return
        name, role = rng.choice(sorted(cluster.roles)), rng.choice(ROLES)
        try:
            cluster.change_role(name, role, patience_s)
        except ClusterError:
            return
        done.append(f"{name} {role}")

    cluster.on_event = act  # type: ignore[assignment]
    return done


def check_live_changes(cluster: Cluster, llm: LLM, seed: int) -> None:
    rng = random.Random(seed)
    for n in range(2):
        requests = [ask(f"x{n}-{i}", 5 + 13 * i % 150, 4 + 7 * i % 30, 0.02 * i) for i in range(16)]
        done = changing_at_random(cluster, rng, rng.choice([0.05, math.inf]))
        run = cluster.run(requests, timeout_s=120)
        cluster.on_event = None
        check_sound(run, requests)
        check_same(llm, requests, answers(llm, requests), run)
        assert {ending(run, r.id) for r in requests} == {("finished", "length")}
        assert done and len(events(run, "worker_draining")) == len(events(run, "role_changed"))
        assert len(events(run, "role_changed")) == len(events(run, "worker_resumed")) >= 1
    cluster.reconfigure("disaggregated")
    assert sorted(cluster.roles.values()) == ["decode", "decode", "prefill", "prefill"]


@pytest.mark.parametrize("seed", range(2))
def test_threads(start: Callable[..., Cluster], llm: LLM, seed: int) -> None:
    check_live_changes(start(num_prefill=2, num_decode=2), llm, seed)


@pytest.mark.slow
def test_over_a_slow_network(start: Callable[..., Cluster], llm: LLM) -> None:
    cluster = start(num_prefill=2, num_decode=2, network=Network(0.02, 5e6))
    check_live_changes(cluster, llm, 7)


@pytest.fixture(scope="module")
def four() -> Iterator[Cluster]:
    setup = Setup(model="tiny", num_prefill=2, num_decode=2, num_blocks=256)
    with Cluster(setup) as cluster:
        yield cluster


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_processes(four: Cluster, llm: LLM) -> None:
    check_live_changes(four, llm, 3)


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
@pytest.mark.skipif(os.name != "posix", reason="a process is killed")
def test_a_process_killed_while_it_drains(four: Cluster, llm: LLM) -> None:
    four.reconfigure("disaggregated")
    requests = [ask(n, 60, 40) for n in "abc"]

    def change_and_kill() -> None:
        four.change_role("worker-2", "prefill")
        four.supervisor.handles["worker-2"].process.kill()  # type: ignore[attr-defined]

    when(four, lambda e: (e.kind, e.worker) == ("token", "worker-2"), change_and_kill)
    run = four.run(requests, timeout_s=120)
    four.on_event = None
    check_sound(run, requests)
    check_same(llm, requests, answers(llm, requests), run)
    four._until_ready()
    assert four.roles["worker-2"] == "prefill"
    again = [ask("later", 30, 3)]
    check_sound(four.run(again, timeout_s=60), again)


PACE = Pace(((0.0, 0.001), (100.0, 0.01)), ((1.0, 0.004), (16.0, 0.006)))


def test_paced(start: Callable[..., Cluster]) -> None:
    cluster = start(num_prefill=2, num_decode=2, pace=PACE)
    requests = [ask(f"p{i}", 40, 10, 0.01 * i) for i in range(20)]
    undisturbed = cluster.run(requests, timeout_s=60)
    when(cluster, lambda e: e.kind == "token", lambda: cluster.change_role("worker-3", "prefill"))
    run = cluster.run(requests, timeout_s=60)
    cluster.on_event = None
    check_sound(run, requests)
    assert run.outputs == undisturbed.outputs
    assert cluster.roles["worker-3"] == "prefill"
    assert [e.worker for e in events(run, "role_changed")] == ["worker-3"]


def test_from_colocated_and_back(threads: Cluster, llm: LLM) -> None:
    threads.reconfigure("colocated")
    requests = [ask(f"q{i}", 30 + i, 10, 0.01 * i) for i in range(10)]
    for role in ("decode", "both"):
        when(
            threads, lambda e: e.kind == "token", lambda r=role: threads.change_role("worker-1", r)
        )
        run = threads.run(requests, timeout_s=60)
        check_sound(run, requests)
        check_same(llm, requests, answers(llm, requests), run)
        assert threads.roles["worker-1"] == role
    threads.on_event = None
    threads.reconfigure("disaggregated")


@pytest.mark.parametrize(
    ("name", "role", "words"),
    [
        ("worker-9", "prefill", "'worker-9' cannot change its role: it is no worker"),
        ("worker-1", "prefill", "worker-1 must go on writing"),
        ("worker-0", "reader", "no role 'reader'; use one of prefill, decode, both"),
    ],
)
def test_changes_that_are_refused(threads: Cluster, name: str, role: m.Role, words: str) -> None:
    threads.reconfigure("disaggregated")
    with pytest.raises(ClusterError, match=words):
        threads.change_role(name, role)
    assert threads.roles == {"worker-0": "prefill", "worker-1": "decode"}
    threads.change_role("worker-0", "prefill")  # it has it already
    assert threads.roles == {"worker-0": "prefill", "worker-1": "decode"}
