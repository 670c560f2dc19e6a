"""The same tokens in every mode, in threads and processes, over every link."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from minipd.llm import LLM
from minipd.pools.cluster import Cluster, Mode, Setup
from minipd.pools.links.emulated import Network
from minipd.request import Request, SamplingParams
from minipd.timeline import Event
from tests.pools.helpers import answers, ask, check_same, check_sound, events, mixed

MODES: list[Mode] = ["disaggregated", "colocated", "decode_first", "chunked"]
NETWORKS = {"direct": None, "emulated": Network(1e-3, 20e6)}


@pytest.fixture(
    scope="module", params=["threads", pytest.param("processes", marks=pytest.mark.slow)]
)
def pool(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module", params=list(NETWORKS))
def cluster(request: pytest.FixtureRequest, pool: str) -> Iterator[Cluster]:
    network = NETWORKS[request.param]
    setup = Setup(model="tiny", pool=pool, num_blocks=256, network=network)  # type: ignore[arg-type]
    with Cluster(setup) as made:
        yield made


@pytest.fixture(scope="module")
def expected(llm: LLM) -> dict[str, list[int]]:
    return answers(llm, mixed(20))


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_answers_alike(
    cluster: Cluster, llm: LLM, expected: dict[str, list[int]], mode: Mode
) -> None:
    requests = mixed(20)
    cluster.reconfigure(mode)
    run = cluster.run(requests, timeout_s=120)
    check_sound(run, requests)
    check_same(llm, requests, expected, run)
    if mode == "disaggregated":
        several = [r for r in requests if r.sampling.max_tokens > 1]
        assert {e.request_id for e in events(run, "committed")} == {r.id for r in several}
        assert {e.data["reason"] for e in events(run, "prefill_started")} == {"prompt"}
        assert {e.worker for e in events(run, "prefill_started")} == {"worker-0"}


@pytest.mark.parametrize(("num_prefill", "num_decode"), [(1, 2), (2, 1), (2, 2)])
def test_any_number_of_each(
    start: Callable[..., Cluster], llm: LLM, num_prefill: int, num_decode: int
) -> None:
    requests = mixed(24, gap_s=0.002)
    cluster = start(num_prefill=num_prefill, num_decode=num_decode)
    run = cluster.run(requests, timeout_s=120)
    check_sound(run, requests)
    check_same(llm, requests, answers(llm, requests), run)
    assert len({e.worker for e in events(run, "prefill_started")}) == num_prefill
    assert len({e.worker for e in events(run, "committed")}) == num_decode


@pytest.mark.parametrize("network", NETWORKS.values(), ids=list(NETWORKS))
def test_deterministic_runs_are_equal_to_the_last_token(
    start: Callable[..., Cluster], network: Network | None
) -> None:
    """No near-tie is excused; whole prompts per step, so the chunks are the same everywhere."""
    requests = [
        Request(r.id, r.prompt_ids, SamplingParams(12, 0.8, seed=n, ignore_eos=True), r.arrival_s)
        for n, r in enumerate(mixed(12))
    ]
    alone = LLM("tiny", num_kv_blocks=256, deterministic=True)
    cluster = start(deterministic=True, network=network, chunk_tokens=2048)
    expected = answers(alone, requests)
    for mode in MODES:
        cluster.reconfigure(mode)
        run = cluster.run(requests, timeout_s=120)
        check_sound(run, requests)
        assert run.outputs == expected, mode


def test_two_clusters_at_once(threads: Cluster, start: Callable[..., Cluster], llm: LLM) -> None:
    """Two runs share nothing: the events of each are its own, though all ids are the same."""
    other, requests = start(), [ask(f"same{n}", 40 + n) for n in range(6)]
    heard: dict[Cluster, list[Event]] = {threads: [], other: []}
    for cluster in (threads, other):
        cluster.on_event = heard[cluster].append
        for request in requests:
            cluster.submit(request)
    while threads.num_unfinished or other.num_unfinished:
        threads.poll(0.001)
        other.poll(0.001)
    expected = answers(llm, requests)
    for cluster in (threads, other):
        cluster.on_event = None
        told = [e for e in heard[cluster] if e.kind == "finished"]
        assert sorted(e.request_id for e in told) == sorted(expected)
        assert set(cluster.audit().values()) == {0}
