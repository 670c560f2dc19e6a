"""Requests are refused at the door with one clear sentence, or can be finished."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipd.request import (
    MAX_SEED,
    Request,
    RequestError,
    SamplingParams,
    Sequence,
    shown,
    validate,
)
from minipd.sched.limits import Limits, LimitsError
from minipd.timeline import Event, TimelineError, read_jsonl

BAD_PARAMS = [
    {"max_tokens": 0},
    {"max_tokens": -5},
    {"max_tokens": True},
    {"max_tokens": 2.0},
    {"temperature": math.nan},
    {"temperature": math.inf},
    {"temperature": -0.1},
    {"temperature": 101},
    {"temperature": "warm"},
    {"temperature": None},
    {"top_k": -1},
    {"top_k": 2.5},
    {"top_p": 0.0},
    {"top_p": 1.01},
    {"top_p": math.nan},
    {"seed": -1},
    {"seed": MAX_SEED + 1},
    {"seed": 10**40},
    {"seed": 1.5},
    {"stop": "###"},
    {"stop": ("",)},
    {"stop": ["###"]},
    {"stop": (1,)},
    {"temperature": True},
    {"temperature": 10**400},
    {"top_p": True},
    {"top_p": 10**400},
    {"max_tokens": -(10**5000)},
    {"ignore_eos": "no"},
    {"ignore_eos": 1},
]


@pytest.mark.parametrize("bad", BAD_PARAMS, ids=lambda bad: f"{next(iter(bad))}-{len(bad)}")
def test_absurd_sampling_values_are_refused_by_name(bad: dict[str, object]) -> None:
    with pytest.raises(RequestError, match=next(iter(bad))) as caught:
        SamplingParams(**bad)  # type: ignore[arg-type]
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "good",
    [{"seed": MAX_SEED}, {"temperature": 100}, {"top_p": 1e-9}, {"top_k": 10**9}, {"stop": ("a",)}],
    ids=str,
)
def test_extreme_but_meaningful_sampling_values_pass(good: dict[str, object]) -> None:
    SamplingParams(**good)  # type: ignore[arg-type]


def check(prompt: tuple[object, ...], max_tokens: int = 4, **limits: int) -> None:
    sizes = {"vocab_size": 10, "max_context": 32, "cache_tokens": 64} | limits
    validate(Request("r", prompt, SamplingParams(max_tokens)), **sizes)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [-1, 10, True, 1.0, 1.5, math.nan, None, "1"], ids=repr)
def test_token_ids_out_of_range_or_of_another_type_are_refused(bad: object) -> None:
    with pytest.raises(RequestError, match="token id"):
        check((1, bad))


def test_the_limits_hold_to_the_token() -> None:
    check((1,) * 28, 4)
    with pytest.raises(RequestError, match="context of 32"):
        check((1,) * 29, 4)
    check((1,) * 13, 4, cache_tokens=16)  # the last token needs no place in the cache
    with pytest.raises(RequestError, match="16 that the whole cache holds"):
        check((1,) * 14, 4, cache_tokens=16)
    with pytest.raises(RequestError, match="empty prompt"):
        check(())


def test_a_deadline_that_is_no_time_is_refused() -> None:
    for deadline in (math.nan, "soon", True):
        request = Request("r", (1,), deadline_s=deadline)  # type: ignore[arg-type]
        with pytest.raises(RequestError, match="deadline"):
            validate(request, vocab_size=10, max_context=1000, cache_tokens=1000)
    check((1,), 4)
    sizes = {"vocab_size": 10, "max_context": 1000, "cache_tokens": 1000}
    validate(Request("r", (1,), deadline_s=10**400), **sizes)


def test_a_message_stays_short_whatever_was_given() -> None:
    for value in (10**5000, "x" * 10**6, ["a"] * 10**5, "two\nlines", math.nan):
        assert len(shown(value)) < 100 and "\n" not in shown(value)
    with pytest.raises(RequestError, match="thousands of digits output tokens, over the context"):
        check((1,), 10**5000)


@pytest.mark.parametrize("sizes", [(0, 5), (1.5, 5), (5, "5"), (True, 5), (5, None)], ids=str)
def test_limits_that_run_nothing_are_refused(sizes: tuple[Any, Any]) -> None:
    with pytest.raises(LimitsError, match="use a whole number from 1"):
        Limits(*sizes)


@given(
    st.lists(st.integers(), min_size=1, max_size=12),
    st.lists(st.integers(), max_size=12),
    st.integers(0, 24),
    st.integers(0, 24),
)
def test_token_ids_is_a_slice_of_prompt_and_output(
    prompt: list[int], output: list[int], start: int, stop: int
) -> None:
    sequence = Sequence(Request("r", tuple(prompt)), output)
    stop = min(max(start, stop), len(prompt) + len(output))
    assert sequence.token_ids(start, stop) == (prompt + output)[start:stop]


def test_events_survive_a_file() -> None:
    events = [
        Event(0.5, "token", "w", "r", {"index": 0, "token_id": 7}),
        Event(1.0, "step", "w", "", {"start_s": 0.5, "requests": ["r"]}),
    ]
    assert list(read_jsonl(e.to_json() for e in events)) == events


@pytest.mark.parametrize(
    "line",
    ["{", "[]", "3", '{"t_s": 1}', '{"t_s": "x", "kind": "token"}', '{"t_s": 1, "kind": "slept"}']
    + ['{"t_s": 1, "kind": []}', '{"t_s": 1, "kind": "token", "data": 3}'],
)
def test_a_broken_timeline_names_the_line(line: str) -> None:
    good = Event(0.0, "token", "w", "r").to_json()
    with pytest.raises(TimelineError, match="Line 3"):
        list(read_jsonl([good, "", line]))
