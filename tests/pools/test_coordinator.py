"""The coordinator alone, with members that only write down what they are told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from minipd.pools import messages as m
from minipd.pools.coordinator import GRACE_S, Coordinator
from minipd.pools.tickets import Member
from minipd.request import Request, SamplingParams
from minipd.sched.router import AlwaysRemote, NeverRemote, Router
from minipd.timeline import TERMINAL_KINDS, Event, EventKind


@dataclass
class Desk:
    """A coordinator whose members' mail can be read."""

    router: Router = field(default_factory=AlwaysRemote)
    now: float = 0.0
    events: list[Event] = field(default_factory=list)
    mail: dict[str, list[m.ToWorker]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.coordinator = Coordinator(self.router, lambda: self.now, self.events.append)

    def member(self, name: str, role: m.Role, epoch: int = 0) -> Member:
        self.mail[name] = []
        return Member(name, epoch, role, self.mail[name].append)

    def join(self, name: str, role: m.Role) -> None:
        self.coordinator.admit_member(self.member(name, role))
        self.coordinator.member_ready(name)

    def read(self, name: str) -> list[m.ToWorker]:
        letters = list(self.mail[name])
        self.mail[name].clear()
        return letters

    def happened(self, request_id: str, *kinds: EventKind, worker: str = "w") -> None:
        told = tuple(Event(self.now, k, worker, request_id, {"token_id": 7}) for k in kinds)
        self.coordinator.handle(m.Happened(told))

    def ends(self) -> list[tuple[str, str, str]]:
        return [
            (e.request_id, e.kind, str(e.data.get("reason", "")))
            for e in self.events
            if e.kind in TERMINAL_KINDS
        ]


REQUEST = Request("r", (1, 2, 3), SamplingParams(5))
RESERVED = m.Reserved("r", (4, 5), 0)


@pytest.fixture
def desk() -> Desk:
    made = Desk()
    made.join("p", "prefill")
    made.join("d", "decode")
    return made


def manifest(epoch: int = 0) -> m.Manifest:
    return m.Manifest("r", "p", 0, "d", epoch, "f", "l", (4, 5), 0, 3, (), 0, 7)


def test_a_hand_off_in_messages(desk: Desk) -> None:
    desk.coordinator.submit(REQUEST)
    assert desk.read("d") == [m.Reserve(REQUEST)] and desk.read("p") == []
    desk.coordinator.handle(RESERVED)
    assert desk.read("p") == [m.Prefill(REQUEST, "d", 0, (4, 5), 0)] and desk.read("d") == []
    desk.coordinator.handle(m.HandedOff(manifest()))
    assert desk.read("d") == [m.Commit(manifest())]
    desk.happened("r", "token", "finished")
    assert desk.ends() == [("r", "finished", "")] and not desk.coordinator.is_busy


def test_the_books_of_the_router(desk: Desk) -> None:
    desk.coordinator.submit(REQUEST)
    reader, writer = (desk.coordinator.members[x].load for x in "pd")
    assert (reader.queued_prefill_tokens, reader.num_waiting_prefills) == (3, 1)
    assert (writer.num_running, writer.queued_prefill_tokens) == (1, 0)
    desk.coordinator.handle(RESERVED)
    desk.happened("r", "prefill_finished", "token")
    assert (reader.queued_prefill_tokens, reader.num_waiting_prefills) == (0, 0)
    desk.coordinator.handle(m.HandedOff(manifest()))
    desk.happened("r", "finished")
    assert (writer.num_running, reader.num_running) == (0, 0)


def test_only_the_first_terminal_event_counts(desk: Desk) -> None:
    desk.coordinator.submit(REQUEST)
    desk.happened("r", "cancelled", "finished")
    desk.happened("r", "failed")
    assert desk.ends() == [("r", "cancelled", "")]
    desk.happened("unheard-of", "finished")
    assert len(desk.ends()) == 1


def test_a_reused_id_waits_for_the_link(desk: Desk) -> None:
    desk.coordinator.submit(REQUEST)
    desk.coordinator.handle(RESERVED)
    desk.happened("r", "token", "finished")  # on the prefill worker, which still sends
    assert desk.coordinator.is_busy and not desk.coordinator.tickets
    desk.read("d")
    second = replace(REQUEST, prompt_ids=(9, 9))
    desk.coordinator.submit(second)
    assert desk.read("d") == []
    desk.coordinator.handle(m.Drained("r"))
    assert desk.read("d") == [m.Drop("r"), m.Reserve(second)]


def test_a_prefill_worker_dies_while_it_drains(desk: Desk) -> None:
    desk.coordinator.submit(REQUEST)
    desk.coordinator.handle(RESERVED)
    desk.happened("r", "token", "finished")
    desk.read("d")
    desk.coordinator.member_died("p", "killed")
    assert desk.read("d") == [m.Drop("r")] and not desk.coordinator.is_busy


@pytest.mark.parametrize(("published", "token_id"), [((), None), (("token",), 7)])
def test_recovery_knows_the_token_that_is_out(
    desk: Desk, published: tuple[EventKind, ...], token_id: int | None
) -> None:
    desk.coordinator.submit(REQUEST)
    desk.coordinator.handle(RESERVED)
    desk.happened("r", *published)
    desk.read("d")
    desk.coordinator.member_died("p", "killed", desk.member("p", "prefill", 1))
    assert desk.read("d") == [m.Recover("r", token_id)]


def test_a_lost_reservation_is_made_anew_once_nobody_writes_for_it(desk: Desk) -> None:
    desk.join("d2", "decode")
    desk.coordinator.submit(REQUEST)
    desk.coordinator.handle(RESERVED)
    desk.read("p")
    desk.coordinator.member_died("d", "killed")
    assert desk.read("p") == [m.Cancel("r", "cancelled")] and desk.read("d2") == []
    desk.happened("r", "cancelled")  # of the lost attempt, not of the request
    desk.coordinator.handle(m.Drained("r"))
    assert desk.read("d2") == [m.Reserve(REQUEST)] and desk.ends() == []
    desk.coordinator.handle(RESERVED)
    (order,) = desk.read("p")
    assert isinstance(order, m.Prefill) and order.reason == "recovered" and order.target == "d2"


def test_tokens_that_are_out_go_along_to_the_next_worker(desk: Desk) -> None:
    desk.join("d2", "decode")
    desk.coordinator.submit(REQUEST)
    desk.coordinator.handle(RESERVED)
    desk.happened("r", "token")
    desk.coordinator.handle(m.HandedOff(manifest()))
    desk.happened("r", "token", "token")
    desk.coordinator.member_died("d", "killed")
    assert desk.read("d2") == [m.Reserve(REQUEST, (7, 7, 7))]


def test_a_reader_that_died_before_its_turn_is_replaced_by_another(desk: Desk) -> None:
    desk.join("p2", "prefill")
    desk.coordinator.submit(REQUEST)
    routed = next(e for e in desk.events if e.kind == "routed").worker
    other = {"p": "p2", "p2": "p"}[routed]
    desk.coordinator.member_died(routed, "killed", desk.member(routed, "prefill", 1))
    desk.coordinator.handle(RESERVED)
    assert [type(x) for x in desk.read(other)] == [m.Prefill] and desk.read(routed) == []
    assert desk.coordinator.members[routed].load.num_waiting_prefills == 0
    assert desk.coordinator.members[other].load.num_waiting_prefills == 1


def test_nobody_left_to_read(desk: Desk) -> None:
    desk.coordinator.submit(REQUEST)
    desk.coordinator.member_died("p", "killed")
    desk.coordinator.handle(RESERVED)
    desk.read("p")
    assert desk.read("d")[-1] == m.Recover("r")
    desk.coordinator.submit(replace(REQUEST, id="s"))
    assert desk.read("d") == [m.Submit(replace(REQUEST, id="s"), (), "local")]
    assert desk.events[-1].data["reason"] == "no prefill worker is ready"


def test_waiting_for_a_worker_that_comes_and_for_one_that_does_not(desk: Desk) -> None:
    successor = desk.member("d", "decode", 1)
    desk.coordinator.member_died("d", "killed", successor)
    desk.coordinator.submit(REQUEST)
    assert desk.coordinator.tickets["r"].state == "parked" and desk.ends() == []
    desk.coordinator.member_ready("d")
    assert desk.read("d") == [m.Reserve(REQUEST)]
    desk.coordinator.member_died("d", "killed", desk.member("d", "decode", 2))
    assert desk.coordinator.tickets["r"].state == "parked"
    desk.coordinator.member_died("d", "could not start again")
    reason = "no decode worker is left, and none can be restarted"
    assert desk.ends() == [("r", "failed", reason)] and not desk.coordinator.is_busy


def test_nobody_waits_for_a_prefill_worker_that_starts_again(desk: Desk) -> None:
    desk.coordinator.member_died("p", "killed", desk.member("p", "prefill", 1))
    desk.coordinator.submit(REQUEST)
    assert desk.read("d") == [m.Submit(REQUEST, (), "local")]
    desk.coordinator.member_ready("p")
    desk.coordinator.submit(replace(REQUEST, id="s"))
    assert desk.read("d") == [m.Reserve(replace(REQUEST, id="s"))]


def test_a_worker_that_does_not_answer_cannot_keep_a_request_beyond_its_deadline(
    desk: Desk,
) -> None:
    """Its user is told in time; what the worker says later of the request is heard by nobody."""
    desk.coordinator.submit(replace(REQUEST, deadline_s=3.0))
    desk.coordinator.handle(RESERVED)
    desk.happened("r", "token")
    desk.coordinator.handle(m.HandedOff(manifest()))
    desk.now = 3.0 + GRACE_S / 2
    desk.coordinator.tend()
    assert desk.ends() == []  # it may still do so itself
    desk.now = 3.0 + GRACE_S
    desk.coordinator.tend()
    desk.coordinator.tend()
    assert desk.ends() == [("r", "cancelled", "deadline")]
    assert desk.events[-1].data["output_tokens"] == 1
    assert desk.read("d")[-1] == m.Cancel("r", "deadline")
    assert desk.coordinator.is_busy  # it may still hold blocks
    told = len(desk.events)
    desk.happened("r", "token", "cancelled")
    assert len(desk.events) == told and not desk.coordinator.is_busy


def test_the_holder_of_an_expired_request_dies(desk: Desk) -> None:
    desk.coordinator.submit(replace(REQUEST, deadline_s=3.0))
    desk.now = 9.0
    desk.coordinator.tend()
    desk.read("d")
    desk.coordinator.member_died("d", "hung", desk.member("d", "decode", 1))
    desk.coordinator.member_ready("d")
    assert desk.ends() == [("r", "cancelled", "deadline")]
    assert desk.read("d") == [] and not desk.coordinator.is_busy


def test_a_hand_off_to_a_dead_target_has_not_finished(desk: Desk) -> None:
    desk.join("d2", "decode")
    desk.coordinator.submit(REQUEST)
    desk.coordinator.handle(RESERVED)
    desk.coordinator.member_died("d", "killed")
    told = Event(1.0, "handoff_finished", "p", "r", {"target": "d", "bytes": 9, "exposed_s": 0.0})
    desk.coordinator.handle(m.Happened((told,)))
    last = desk.events[-1]
    assert last.kind == "handoff_failed" and last.t_s == 1.0
    assert last.data == {"target": "d", "reason": "its target died"}


def test_a_parked_request_ends_at_its_deadline_or_when_cancelled(desk: Desk) -> None:
    desk.coordinator.member_died("d", "killed", desk.member("d", "decode", 1))
    desk.coordinator.submit(replace(REQUEST, deadline_s=3.0))
    desk.coordinator.submit(replace(REQUEST, id="s"))
    desk.coordinator.tend()
    assert desk.ends() == []
    desk.now = 3.0
    desk.coordinator.tend()
    desk.coordinator.cancel("s")
    desk.coordinator.cancel("s")
    assert desk.ends() == [("r", "cancelled", "deadline"), ("s", "cancelled", "cancelled")]
    desk.coordinator.member_ready("d")
    assert desk.read("d") == []


def test_cancel_reaches_whoever_can_end_it(desk: Desk) -> None:
    desk.coordinator.submit(REQUEST)
    desk.coordinator.cancel("r")
    assert desk.read("d") == [m.Reserve(REQUEST), m.Cancel("r")]
    desk.coordinator.handle(RESERVED)  # it was reserved before it heard
    assert desk.read("d") == [m.Drop("r")] and desk.read("p") == []
    assert desk.ends() == [("r", "cancelled", "cancelled")] and not desk.coordinator.is_busy


def test_cancel_during_the_hand_off_follows_the_commit(desk: Desk) -> None:
    desk.coordinator.submit(REQUEST)
    desk.coordinator.handle(RESERVED)
    desk.coordinator.cancel("r", "deadline")
    assert desk.read("p")[-1] == m.Cancel("r", "deadline")
    desk.read("d")
    desk.coordinator.handle(m.HandedOff(manifest()))
    assert desk.read("d") == [m.Commit(manifest()), m.Cancel("r", "deadline")]


def test_both_phases_on_one_worker() -> None:
    desk = Desk(NeverRemote())
    desk.join("a", "both")
    desk.coordinator.submit(REQUEST)
    assert desk.read("a") == [m.Submit(REQUEST, (), "prompt")]
    desk.happened("r", "token")
    desk.coordinator.member_died("a", "killed", desk.member("a", "both", 1))
    desk.coordinator.member_ready("a")
    assert desk.read("a") == [m.Submit(REQUEST, (7,), "recovered")]
