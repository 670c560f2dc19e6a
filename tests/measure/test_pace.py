"""Step times measured for workers that replay them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minipd.measure import pace as pace_module
from minipd.measure.contest import Cores
from minipd.measure.pace import BATCH_SIZES, PROMPT_TOKENS, _fit, measure_pace
from minipd.model.load import LoadedModel, load

ONE = Cores((), 1)


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return load("tiny")


def test_tiny_gets_a_pace(tiny: LoadedModel) -> None:
    pace = measure_pace(tiny, ONE, repetitions=1)
    assert [n for n, _ in pace.prefill] == list(PROMPT_TOKENS)
    assert [b for b, _ in pace.decode] == list(BATCH_SIZES)
    assert all(s > 0 for _, s in pace.prefill) and pace.per_context_token_s >= 0


def test_each_step_is_timed_for_itself(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a watch that counts a millisecond for every token that is read."""
    read = [0]
    forward = pace_module.Executor.forward

    def watched(self, chunks):
        read[0] += sum(len(c.token_ids) for c in chunks)
        return forward(self, chunks)

    def counted(action, device) -> float:
        before = read[0]
        action()
        return 0.001 * (read[0] - before)

    monkeypatch.setattr(pace_module.Executor, "forward", watched)
    monkeypatch.setattr(pace_module, "seconds", counted)
    pace = measure_pace(tiny, ONE, repetitions=1)
    for steps in (pace.prefill, pace.decode):
        assert [s for _, s in steps] == pytest.approx([0.001 * n for n, _ in steps])


def test_a_short_context_is_kept(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing beyond the model's context is run, and two context lengths remain to compare."""
    lengths: list[int] = []
    forward = pace_module.Executor.forward

    def watched(self, chunks):
        lengths.extend(c.start + len(c.token_ids) for c in chunks)
        return forward(self, chunks)

    monkeypatch.setattr(pace_module.Executor, "forward", watched)
    short = replace(tiny, config=replace(tiny.config, max_context=24))
    pace = measure_pace(short, ONE, repetitions=1)
    assert [n for n, _ in pace.prefill] == [1, 8, 16, 23]
    assert max(lengths) == 24


def test_the_fit_finds_known_times() -> None:
    """Steps of 2 ms + 1 ms per sequence + 1 us per token of context."""
    decode = {
        (b, context): 0.002 + 0.001 * b + 1e-6 * b * context
        for b in (1, 2, 4)
        for context in (32, 512)
    }
    pace = _fit([(1, 0.003), (512, 1.0)], decode, 32, 512)
    assert pace.per_context_token_s == pytest.approx(1e-6)
    assert [s for _, s in pace.decode] == pytest.approx([0.003, 0.004, 0.006])


def test_noise_gives_no_negative_times() -> None:
    faster_when_longer = {(1, 32): 0.01, (1, 512): 0.001, (2, 32): 0.01, (2, 512): 0.001}
    pace = _fit([(1, 0.003), (512, 1.0)], faster_when_longer, 32, 512)
    assert pace.per_context_token_s == 0.0
    only_context = {(1, 32): 0.0, (1, 512): 0.5, (2, 32): 0.0, (2, 512): 1.0}
    assert min(s for _, s in _fit([(1, 0.003), (512, 1.0)], only_context, 32, 512).decode) >= 0
