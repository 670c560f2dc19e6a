"""A model with experts through the pools: loaded by name, handed off, the same tokens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minipd.llm import LLM
from minipd.pools.cluster import Cluster, Mode, Setup
from minipd.request import Request, SamplingParams
from tests.pools.helpers import answers, check_same, check_sound, events, mixed

MODEL = "tiny-moe"
MODES: list[Mode] = ["disaggregated", "colocated", "decode_first", "chunked"]


@pytest.fixture(scope="module")
def alone() -> LLM:
    return LLM(MODEL, num_kv_blocks=256)


@pytest.fixture(
    scope="module", params=["threads", pytest.param("processes", marks=pytest.mark.slow)]
)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(Setup(model=MODEL, pool=request.param, num_blocks=256)) as made:
        yield made


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_answers_alike(cluster: Cluster, alone: LLM, mode: Mode) -> None:
    requests = mixed(20)
    cluster.reconfigure(mode)
    run = cluster.run(requests, timeout_s=180)
    check_sound(run, requests)
    check_same(alone, requests, answers(alone, requests), run)
    several = {r.id for r in requests if r.sampling.max_tokens > 1}
    handed_off = {e.request_id for e in events(run, "committed")}
    assert handed_off == (several if mode == "disaggregated" else set())


@pytest.mark.slow
def test_deterministic_runs_are_equal_to_the_last_token() -> None:
    requests = [
        Request(r.id, r.prompt_ids, SamplingParams(12, 0.8, seed=n, ignore_eos=True), r.arrival_s)
        for n, r in enumerate(mixed(10))
    ]
    expected = answers(LLM(MODEL, num_kv_blocks=256, deterministic=True), requests)
    sizes = {"num_blocks": 256, "chunk_tokens": 2048}
    with Cluster(Setup(model=MODEL, pool="threads", deterministic=True, **sizes)) as cluster:  # type: ignore[arg-type]
        for mode in MODES:
            cluster.reconfigure(mode)
            assert cluster.run(requests, timeout_s=180).outputs == expected, mode
