"""What a fair comparison needs: equal cores, the same requests, one meaning of a stall."""

from __future__ import annotations

import pytest

from minipd.cache.store import CacheTooSmallError
from minipd.measure import contest, hardware
from minipd.measure.contest import (
    COLOCATED,
    CONTENDERS,
    DISAGGREGATED,
    Contender,
    Cores,
    blocks_for,
    check_context,
    compare_tokens,
    hold,
    is_chat,
    notes_of,
    requests_of,
    split_cores,
)
from minipd.measure.rows import TraceRow
from minipd.measure.same_tokens import logits_of
from minipd.model.load import LoadedModel, load
from minipd.pools.cluster import Cluster, Setup
from minipd.request import Request, RequestError
from minipd.sched.router import AlwaysRemote
from minipd.timeline import Event

ROWS = [TraceRow(0.0, 20, 12, "chat"), TraceRow(0.01, 90, 2, "document"), TraceRow(0.01, 30, 9)]


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return load("tiny")


def requests(model: LoadedModel, rows: list[TraceRow] = ROWS) -> list[Request]:
    return requests_of(rows, model.config, model.eos_ids)


def pretend(
    monkeypatch: pytest.MonkeyPatch,
    usable: int,
    siblings: list[list[int]] | None = None,
    limit: float | None = None,
    can_pin: bool = True,
) -> None:
    monkeypatch.setattr(contest, "usable_cpus", lambda: list(range(usable)))
    monkeypatch.setattr(contest, "can_pin", lambda: can_pin)
    monkeypatch.setattr(hardware, "smt_siblings", lambda: siblings or [])
    monkeypatch.setattr(hardware, "cpu_limit", lambda: limit)
    monkeypatch.setattr(contest.psutil, "cpu_count", lambda logical: usable)


def test_equal_parts_without_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 5)
    assert split_cores(2) == Cores(((0, 1), (2, 3)), 2, "")


def test_hyperthreads_of_one_core_go_to_one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 4, [[0, 2], [1, 3]])
    assert split_cores(2) == Cores(((0, 2), (1, 3)), 1, "")


def test_hyperthreads_count_once_where_the_system_does_not_name_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend(monkeypatch, 4)
    monkeypatch.setattr(contest.psutil, "cpu_count", lambda logical: 2)
    assert split_cores(2) == Cores(((0, 1), (2, 3)), 1, "")


def test_one_core_works_and_says_what_it_cannot_show(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 1)
    cores = split_cores(2)
    assert cores.cpus == ((0,), (0,)) and "2 workers share 1 core" in cores.note
    pretend(monkeypatch, 8, limit=1.5)
    assert "share 1 core" in split_cores(2).note


def test_a_system_that_cannot_pin_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 4, can_pin=False)
    cores = split_cores(2)
    assert cores.cpus == () and cores.threads == 2 and "cannot pin" in cores.note


def test_requests_follow_their_rows(tiny: LoadedModel) -> None:
    made = requests(tiny)
    assert [r.id for r in made] == ["chat-000", "document-001", "request-002"]
    assert [len(r.prompt_ids) for r in made] == [20, 90, 30]
    assert [r.sampling.max_tokens for r in made] == [12, 2, 9]
    assert not {t for r in made for t in r.prompt_ids} & tiny.eos_ids
    assert [is_chat(r.id) for r in made] == [True, False, True]


def test_what_no_context_holds_is_refused(tiny: LoadedModel) -> None:
    long = requests(tiny, [TraceRow(0.0, tiny.config.max_context, 1)])
    with pytest.raises(RequestError, match="cap prompts and outputs"):
        check_context(long, "tiny", tiny.config)
    check_context(requests(tiny), "tiny", tiny.config)
    check_context([], "tiny", tiny.config)


def test_blocks_leave_room_for_every_workers_weights(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = requests(tiny)
    assert blocks_for(made, tiny.config, 16, 2) == 64  # 1,024 tokens at least
    weights = tiny.config.num_parameters * 4
    monkeypatch.setattr(contest, "free_bytes", lambda device: 2 * weights)
    with pytest.raises(CacheTooSmallError, match="missing"):
        blocks_for(made, tiny.config, 16, 2)


def test_all_contenders_serve_the_same_tokens(tiny: LoadedModel) -> None:
    made, told = requests(tiny), dict[str, list[Event]]()

    def listen(contender: Contender, event: Event) -> None:
        told.setdefault(contender.name, []).append(event)

    with Cluster(Setup(model="tiny", pool="threads", num_blocks=64)) as cluster:
        outcomes = hold(cluster, CONTENDERS, made, on_event=listen)
        (streams,) = notes_of(cluster, Cores((), 1))
        assert cluster.on_event is None
    assert list(outcomes) == [c.name for c in CONTENDERS] == list(told)
    found = compare_tokens(made, outcomes, logits_of(tiny.decoder))
    assert (found.num_sequences, found.num_different) == (9, 0)
    first = outcomes["colocated"].summary
    assert {o.summary.undisturbed_step_s for o in outcomes.values()} == {first.undisturbed_step_s}
    for name, outcome in outcomes.items():
        assert set(outcome.run.leaked_blocks.values()) == {0}
        assert {e.request_id for e in told[name]} >= {r.id for r in made}
        latency = outcome.summary.latency["ttft_s"]
        assert latency is not None and latency.count == 2  # the document is not among the chats
    assert streams.startswith("Streams do nothing on a CPU") and streams.endswith(".")


def test_answers_that_differ_are_counted(tiny: LoadedModel) -> None:
    made = requests(tiny)
    with Cluster(Setup(model="tiny", pool="threads", num_blocks=64)) as cluster:
        outcomes = hold(cluster, (COLOCATED, DISAGGREGATED), made)
    outcomes["disaggregated"].run.outputs["chat-000"][3] ^= 1
    found = compare_tokens(made, outcomes, logits_of(tiny.decoder))
    assert (found.num_sequences, found.num_different, found.passed) == (3, 1, False)


def test_sharing_cores_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 1)
    setup = Setup(model="tiny", cpus=((0,), (0,)))

    class Still:
        """What `notes_of` reads of a cluster of processes on one core."""

        def __init__(self) -> None:
            self.setup, self.notes = setup, [*setup.caveats, "a remark of a worker"]

    told = notes_of(Still(), split_cores(2))  # type: ignore[arg-type]
    assert [note[:30] for note in told] == [
        "2 workers share 1 core(s): the",
        "A remark of a worker.",
    ]


def test_every_run_gets_a_fresh_router(tiny: LoadedModel) -> None:
    made: list[AlwaysRemote] = []

    def router() -> AlwaysRemote:
        made.append(AlwaysRemote())
        return made[-1]

    ways = [Contender(name, "disaggregated", router) for name in ("one", "two")]
    with Cluster(Setup(model="tiny", pool="threads", num_blocks=64)) as cluster:
        hold(cluster, ways, requests(tiny))
    assert len(made) == 2
