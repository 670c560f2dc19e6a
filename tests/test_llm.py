"""The three-line API: answers, streams, stop strings, refusals, and nothing left behind."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from minipd.cache.allocator import CacheSizeError
from minipd.cache.store import CacheTooSmallError
from minipd.engine.batch import Chunk
from minipd.llm import LLM
from minipd.model.load import LoadedModel, load
from minipd.request import MAX_SEED, Request, RequestError, SamplingParams

LONG = SamplingParams(24, ignore_eos=True)
PROMPTS = [[5, 6, 7], list(range(10, 45)), [300]]


@pytest.fixture(scope="module")
def tiny() -> Iterator[LoadedModel]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # small products gain nothing from more
    yield load("tiny")
    torch.set_num_threads(before)


@pytest.fixture
def llm(tiny: LoadedModel) -> Iterator[LLM]:
    """An engine that must be empty again after every test."""
    llm = LLM(tiny, num_kv_blocks=40)
    yield llm
    allocator = llm.scheduler.allocator
    assert allocator.num_used_blocks == 0
    assert not any(allocator.references(b) for b in range(allocator.num_blocks))
    assert not llm.scheduler.has_work
    assert not llm.scheduler.running and not llm.scheduler.waiting


def test_no_prompts_no_answers(llm: LLM) -> None:
    assert llm.generate([]) == [] and llm.timeline == []


def test_answers_come_in_the_order_asked(llm: LLM) -> None:
    together = llm.generate(PROMPTS, LONG)
    assert [c.token_ids for c in together] == [
        llm.generate([p], LONG)[0].token_ids for p in PROMPTS
    ]
    decoded = [llm.model.tokenizer.decode(c.token_ids) for c in together]
    assert [c.text for c in together] == decoded
    assert len({c.request_id for c in together}) == 3


def test_a_stream_says_what_generate_says(llm: LLM) -> None:
    whole = llm.generate(PROMPTS[:1], LONG)[0]
    pieces = list(llm.stream(PROMPTS[0], LONG))
    assert "".join(p.text for p in pieces) == whole.text
    assert [p.token_id for p in pieces] == whole.token_ids
    assert [p.finish_reason for p in pieces] == [None] * 23 + ["length"]


def test_a_stream_closed_early_leaves_nothing(llm: LLM) -> None:
    stream = llm.stream(PROMPTS[1], LONG)
    next(stream)
    assert llm.scheduler.allocator.num_used_blocks > 0
    stream.close()
    assert llm.timeline[-1].kind == "cancelled"
    llm.stream(PROMPTS[1], LONG).close()  # never begun


def test_a_stream_loses_no_token_while_generate_runs(llm: LLM) -> None:
    expected = llm.generate(PROMPTS[:1], LONG)[0]
    stream = llm.stream(PROMPTS[0], LONG)
    pieces = [next(stream)]
    llm.generate(PROMPTS[1:], SamplingParams(40, ignore_eos=True))
    pieces += stream
    assert [p.token_id for p in pieces] == expected.token_ids
    assert "".join(p.text for p in pieces) == expected.text
    assert [p.finish_reason for p in pieces if p.finish_reason] == ["length"]


def test_generate_does_not_wait_for_an_open_stream(llm: LLM) -> None:
    stream = llm.stream(PROMPTS[0], SamplingParams(200, ignore_eos=True))
    next(stream)
    llm.generate([[9]], SamplingParams(2, ignore_eos=True))
    assert llm.scheduler.has_work, "the stream is still being written"
    stream.close()


def test_a_cancelled_stream_says_so(llm: LLM) -> None:
    stream = llm.stream(PROMPTS[0], LONG)
    next(stream)
    llm.scheduler.cancel(next(iter(llm.scheduler.sequences)), 0.0)
    last = list(stream)[-1]
    assert (last.token_id, last.finish_reason) == (None, "cancelled")


def test_a_deadline_ends_a_request(llm: LLM) -> None:
    now = llm.worker.clock()
    late = llm.scheduler.add(Request("late", (5, 6), LONG, now, deadline_s=now - 1), now)
    fine = llm.scheduler.add(Request("fine", (5, 6), LONG, now, deadline_s=now + 600), now)
    llm._texts.update({"late": None, "fine": _Silent()})  # type: ignore[dict-item]
    while llm.scheduler.has_work:
        llm.step()
    assert late.finish_reason == "deadline" and late.output_ids == []
    assert fine.finish_reason == "length"


class _Silent:
    def push(self, token_id: int) -> bool:
        return False


@pytest.mark.parametrize("failing_step", [0, 1, 5])
def test_ctrl_c_leaves_an_engine_that_works(llm: LLM, failing_step: int) -> None:
    expected = llm.generate(PROMPTS, LONG)
    stream = llm.stream(PROMPTS[2], LONG)
    run, steps = llm.executor.run, iter(range(100))
    open_pieces = [next(stream)] if failing_step == 5 else []

    def interrupted(chunks: list[Chunk]) -> list[int]:
        if next(steps) == failing_step:
            raise KeyboardInterrupt
        return run(chunks)

    llm.executor.run = interrupted  # type: ignore[method-assign,assignment]
    with pytest.raises(KeyboardInterrupt):
        llm.generate(PROMPTS, LONG)
    open_pieces += stream  # another user's request goes on
    assert [p.token_id for p in open_pieces] == expected[2].token_ids
    assert llm.scheduler.allocator.num_used_blocks == 0
    assert [c.token_ids for c in llm.generate(PROMPTS, LONG)] == [c.token_ids for c in expected]


def test_ctrl_c_while_another_prompt_is_first_read(llm: LLM) -> None:
    other = llm.submit(PROMPTS[1], LONG)
    run = llm.executor.run

    def interrupted(chunks: list[Chunk]) -> list[int]:
        llm.executor.run = run  # type: ignore[method-assign]
        raise KeyboardInterrupt

    llm.executor.run = interrupted  # type: ignore[method-assign,assignment]
    with pytest.raises(KeyboardInterrupt):
        llm.generate(PROMPTS[:1], LONG)
    answers = llm.generate([PROMPTS[1]], LONG)
    while llm.scheduler.has_work:
        llm.step()
    assert other.output_ids == answers[0].token_ids


@pytest.mark.parametrize(
    "prompt", ["Hello, world", "안녕하세요, 서버", "def f(x):\n    return x\n"]
)
def test_stop_strings_across_tokens(llm: LLM, prompt: str) -> None:
    free = llm.generate([prompt], SamplingParams(40, ignore_eos=True))[0].text
    for start in range(0, len(free) - 3, 1 + len(free) // 5):
        stop = free[start : start + 3]
        if "\N{REPLACEMENT CHARACTER}" in stop:
            continue  # half characters are never matched
        params = SamplingParams(40, ignore_eos=True, stop=("never said", stop))
        answer = llm.generate([prompt], params)[0]
        assert answer.finish_reason == "stop"
        assert answer.text == free[: free.index(stop)]
        assert "".join(p.text for p in llm.stream(prompt, params)) == answer.text


def test_eos_ends_an_answer_unless_ignored(llm: LLM) -> None:
    free = llm.generate(PROMPTS[:1], LONG)[0].token_ids
    llm.scheduler.eos_ids = frozenset({free[4]})
    first = free.index(free[4])
    answer = llm.generate(PROMPTS[:1], SamplingParams(24))[0]
    assert (answer.token_ids, answer.finish_reason) == (free[: first + 1], "eos")
    assert llm.generate(PROMPTS[:1], LONG)[0].token_ids == free
    assert llm.generate(PROMPTS[:1], SamplingParams(first + 1))[0].finish_reason == "eos"


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(12, temperature=1.0, seed=3, ignore_eos=True),
        SamplingParams(12, temperature=0.8, top_k=20, seed=MAX_SEED, ignore_eos=True),
        SamplingParams(12, temperature=1.5, top_p=0.9, top_k=100, ignore_eos=True),
    ],
    ids=str,
)
def test_a_draw_does_not_depend_on_the_batch(tiny: LoadedModel, params: SamplingParams) -> None:
    llm = LLM(tiny, num_kv_blocks=60, deterministic=True)
    alone = [llm.generate([p], params)[0].token_ids for p in PROMPTS]
    many = llm.generate([*PROMPTS, [1, 2], [9], *PROMPTS], params)
    assert [c.token_ids for c in many[:3]] == [c.token_ids for c in many[5:]] == alone
    other = SamplingParams(12, temperature=1.0, seed=4, ignore_eos=True)
    assert [llm.generate([p], other)[0].token_ids for p in PROMPTS] != alone


@pytest.mark.parametrize(
    "prompt",
    ["", [], [True], [1.0], [1.5], [math.nan], ["5"], [512], [-1], [10**30], 3, None, "\ud800x"]
    + [b"abc", {5: 6}, {5, 6}, iter([5]), np.ones((2, 2), int), np.array(5), torch.tensor(5)]
    + [[torch.tensor(1.9)], [torch.tensor(True)], [np.bool_(True)], torch.ones(2), [[5], [6]]]
    + [torch.tensor([[5], [6]]), [torch.tensor([5])], [10**5000]],
    ids=lambda prompt: type(prompt).__name__,
)
def test_absurd_prompts_are_refused(llm: LLM, prompt: object) -> None:
    with pytest.raises(RequestError) as caught:
        llm.generate([[5, 6], prompt])  # type: ignore[list-item]
    assert len(str(caught.value)) < 250 and "\n" not in str(caught.value)


@pytest.mark.parametrize("prompts", [None, 5, b"ab", {5: 6}, {"a"}], ids=repr)
def test_what_is_no_list_of_prompts_is_refused(llm: LLM, prompts: object) -> None:
    with pytest.raises(RequestError, match="list of prompts"):
        llm.generate(prompts)  # type: ignore[arg-type]


@pytest.mark.parametrize("params", [None, {"max_tokens": 3}, 5], ids=repr)
def test_params_of_another_type_are_refused(llm: LLM, params: object) -> None:
    with pytest.raises(RequestError, match=r"use SamplingParams"):
        llm.generate([[5]], params)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=r"use SamplingParams"):
        next(llm.stream([5], params))  # type: ignore[arg-type]


def test_a_text_that_is_too_long_is_refused_once(
    llm: LLM, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RequestError, match="over the context of 4096"):
        llm.generate(["ab " * 9000])
    assert caplog.text == ""


def test_a_question_that_no_chat_format_holds(llm: LLM) -> None:
    with pytest.raises(RequestError, match="chat format"):
        llm.chat_ids(5)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="half a character"):
        llm.chat_ids("\udc00")


def test_a_model_may_be_a_path(tiny: LoadedModel) -> None:
    llm = LLM(tiny.folder, num_kv_blocks=4)
    assert llm.model.fingerprint == tiny.fingerprint
    with pytest.raises(ValueError, match="no model or file 'None'"):
        LLM(None)  # type: ignore[arg-type]


def test_requests_run_by_hand_leave_nothing(llm: LLM) -> None:
    sequences = [llm.submit(p, LONG) for p in PROMPTS]
    llm.scheduler.cancel(sequences[0].id, 0.0)
    while llm.scheduler.has_work:
        llm.step()
    assert [len(s.output_ids) for s in sequences] == [0, 24, 24]
    assert llm._texts == {}


def test_threads_share_an_engine(llm: LLM) -> None:
    expected = {str(p): llm.generate([p], LONG)[0].token_ids for p in PROMPTS}
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda p: llm.generate([p], LONG)[0], PROMPTS * 4))
        streams = list(pool.map(lambda p: list(llm.stream(p, LONG)), PROMPTS * 2))
    assert [a.token_ids for a in answers] == [expected[str(p)] for p in PROMPTS * 4]
    assert [[x.token_id for x in s] for s in streams] == [expected[str(p)] for p in PROMPTS * 2]
    assert len({a.request_id for a in answers}) == 12
    assert llm._texts == {}


def test_a_lone_text_is_not_taken_for_a_list(llm: LLM) -> None:
    with pytest.raises(RequestError, match="list of prompts"):
        llm.generate("Hello")


def test_integers_of_numpy_and_torch_are_token_ids(llm: LLM) -> None:
    plain = llm.generate([[5, 6]], LONG)[0].token_ids
    for ids in (np.array([5, 6]), torch.tensor([5, 6])):
        assert llm.generate([ids], LONG)[0].token_ids == plain  # type: ignore[list-item]


@pytest.mark.parametrize(
    "sizes",
    [(0, 16), (-3, 16), (4, 0), (None, 0), (1.5, 16), ("5", 16), (True, 16), (4, 1.5), (None, "5")],
    ids=str,
)
def test_a_cache_of_nothing_is_refused(tiny: LoadedModel, sizes: Any) -> None:
    with pytest.raises(CacheSizeError, match=r"needs blocks|is none"):
        LLM(tiny, num_kv_blocks=sizes[0], block_size=sizes[1])


@pytest.mark.parametrize("sizes", [(10**9, 16), (3, 10**8), (None, 10**9), (10**5000, 16)])
def test_a_cache_that_memory_cannot_hold_is_refused_at_once(tiny: LoadedModel, sizes: Any) -> None:
    with pytest.raises(CacheTooSmallError, match="MiB"):
        LLM(tiny, num_kv_blocks=sizes[0], block_size=sizes[1])


def test_chat_ids_end_where_the_answer_begins(llm: LLM) -> None:
    ids = llm.chat_ids("Hi", system="")
    text = llm.model.tokenizer.decode(ids)
    assert text == "<|system|><|end|><|user|>Hi<|end|><|assistant|>"
