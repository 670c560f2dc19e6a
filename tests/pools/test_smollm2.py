"""The real model through real workers: 40 requests in three modes, the same tokens, no leaks."""

from __future__ import annotations

import pytest

from benchmarks.same_tokens import mixed_requests
from minipd.measure.contest import (
    CHUNKED,
    COLOCATED,
    DISAGGREGATED,
    compare_tokens,
    fair_pair,
    hold,
    split_cores,
)
from minipd.measure.invariants import check_timeline
from minipd.measure.same_tokens import logits_of
from minipd.model.load import load
from minipd.pools.cluster import Cluster


@pytest.mark.slow
@pytest.mark.serial
def test_40_requests_in_three_modes_give_the_same_tokens() -> None:
    model, cores = load("smollm2-135m"), split_cores(2)
    requests = mixed_requests(40, model.config.vocab_size, seed=1)
    setup = fair_pair(model, requests, cores)
    with Cluster(setup) as cluster:
        outcomes = hold(cluster, [COLOCATED, CHUNKED, DISAGGREGATED], requests, keep=None)
    verdict = compare_tokens(requests, outcomes, logits_of(model.decoder))
    assert verdict.num_sequences == 80
    assert verdict.passed, verdict
    for outcome in outcomes.values():
        assert not any(outcome.run.leaked_blocks.values())
        assert check_timeline(outcome.run.timeline) == []
        assert outcome.summary.unreasoned_prefill_tokens == 0
    assert outcomes["disaggregated"].summary.handoffs.count == sum(
        r.sampling.max_tokens > 1 for r in requests
    )
