"""One cluster of each kind per module, and the reference that every answer is held against."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from minipd.llm import LLM
from minipd.pools.cluster import Cluster, Setup


@pytest.fixture(scope="session")
def llm() -> LLM:
    """One request at a time, both phases on one worker."""
    return LLM("tiny", num_kv_blocks=256)


@pytest.fixture(scope="module")
def threads() -> Iterator[Cluster]:
    with Cluster(Setup(model="tiny", pool="threads", num_blocks=256)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def processes() -> Iterator[Cluster]:
    with Cluster(Setup(model="tiny", num_blocks=256)) as cluster:
        yield cluster


@pytest.fixture
def start() -> Iterator[Callable[..., Cluster]]:
    """Clusters of `tiny` in threads, unless told otherwise, closed after the test."""
    opened: list[Cluster] = []

    def make(**changes: object) -> Cluster:
        setup = {"model": "tiny", "pool": "threads", "num_blocks": 256} | changes
        router = setup.pop("router", None)
        opened.append(Cluster(Setup(**setup), router))  # type: ignore[arg-type]
        return opened[-1]

    yield make
    for cluster in opened:
        cluster.close()
