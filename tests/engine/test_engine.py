"""The paged engine against the obvious slow one, which computes everything anew for each token."""

from __future__ import annotations

from random import Random

import pytest
import torch

from minipd.llm import LLM
from minipd.measure.same_tokens import compare, logits_of, summarise, teacher_forced_logits
from minipd.model.load import LoadedModel
from minipd.request import RequestError, SamplingParams
from minipd.sched.base import Scheduler
from minipd.sched.colocated import Chunked, DecodeFirst, PrefillFirst
from minipd.sched.limits import Limits

P = 8  # block size of these tests
POLICIES: list[type[Scheduler]] = [PrefillFirst, DecodeFirst, Chunked]
all_policies = pytest.mark.parametrize("policy", POLICIES)
GREEDY = SamplingParams(6, ignore_eos=True)


def slow_greedy(model: LoadedModel, prompt: list[int], count: int) -> list[int]:
    """`count` tokens by definition: no cache, no batch, the whole text again for every token."""
    ids = list(prompt)
    for _ in range(count):
        row = teacher_forced_logits(model.decoder, ids, range(len(ids) - 1, len(ids)))
        ids.append(int(row.argmax()))
    return ids[len(prompt) :]


def text_of(length: int, seed: int = 0) -> list[int]:
    return Random(f"{seed}:{length}").choices(range(4, 512), k=length)


def assert_same(
    model: LoadedModel, prompts: list[list[int]], expected: list[list[int]], got: list[list[int]]
) -> None:
    """Rule 3 of "same tokens" over all sequences."""
    assert len(prompts) == len(expected) == len(got)
    score = logits_of(model.decoder)
    summary = summarise(compare(p, e, g, score, score) for p, e, g in zip(prompts, expected, got))
    assert summary.passed, summary


def engine(model: LoadedModel, num_blocks: int = 64, **options: object) -> LLM:
    sizes = {"num_kv_blocks": num_blocks, "block_size": P}
    return LLM(model, **(sizes | options))  # type: ignore[arg-type]


def assert_clean(llm: LLM) -> None:
    allocator = llm.scheduler.allocator
    assert allocator.num_used_blocks == 0
    assert not any(allocator.references(b) for b in range(allocator.num_blocks))
    assert not llm.scheduler.has_work and not llm.scheduler.running and not llm.scheduler.waiting


@all_policies
@pytest.mark.parametrize("length", [1, P - 1, P, P + 1, 2 * P, 5 * P + 3])
def test_paged_against_slow(tiny: LoadedModel, policy: type[Scheduler], length: int) -> None:
    llm = engine(tiny, policy=policy, limits=Limits(max_batch_tokens=P))
    prompt = text_of(length)
    right = slow_greedy(tiny, prompt, 12)
    for _ in range(2):  # the second time, the prefix is cached
        answer = llm.generate([prompt], SamplingParams(12, ignore_eos=True))[0]
        assert_same(tiny, [prompt], [right], [answer.token_ids])
        assert answer.finish_reason == "length"
    cached = [e.data["cached_tokens"] for e in llm.timeline if e.kind == "prefill_started"]
    assert cached == [0, (length - 1) // P * P]
    assert_clean(llm)


def test_the_whole_context_and_not_one_token_more(tiny: LoadedModel) -> None:
    limit = tiny.config.max_context
    llm = engine(tiny, num_blocks=limit // P)
    prompt = text_of(limit - 3)
    answer = llm.generate([prompt], SamplingParams(3, ignore_eos=True))[0]
    assert_same(tiny, [prompt], [slow_greedy(tiny, prompt, 3)], [answer.token_ids])
    with pytest.raises(RequestError, match=f"context of {limit}"):
        llm.generate([prompt], SamplingParams(4))
    with pytest.raises(RequestError, match="context"):
        llm.generate([text_of(limit + 1)], SamplingParams(1))
    assert_clean(llm)


def test_a_prompt_longer_than_the_cache_is_refused_before_it_is_queued(tiny: LoadedModel) -> None:
    llm = engine(tiny, num_blocks=4)
    fits = text_of(4 * P - 1)
    assert len(llm.generate([fits], SamplingParams(2, ignore_eos=True))[0].token_ids) == 2
    for prompts in ([text_of(4 * P + 1)], [fits, text_of(4 * P, 1)]):
        with pytest.raises(RequestError, match="whole cache"):
            llm.generate(prompts, SamplingParams(2))
    assert_clean(llm)


@all_policies
def test_two_identical_prompts_at_once(tiny: LoadedModel, policy: type[Scheduler]) -> None:
    llm = engine(tiny, policy=policy)
    prompt = text_of(2 * P)
    answers = llm.generate([prompt, prompt], GREEDY)
    right = slow_greedy(tiny, prompt, 6)
    assert_same(tiny, [prompt] * 2, [right] * 2, [a.token_ids for a in answers])
    assert_clean(llm)


@all_policies
@pytest.mark.parametrize("reuse", [True, False])
def test_200_requests_on_a_cache_of_40_blocks(
    tiny: LoadedModel, alone: dict[int, list[int]], policy: type[Scheduler], reuse: bool
) -> None:
    """All finish with the tokens they get alone, though blocks run out again and again."""
    limits = Limits(max_running=24, max_batch_tokens=160)
    llm = engine(tiny, 40, block_size=4, policy=policy, limits=limits)
    llm.scheduler.allocator.prefix_reuse = reuse
    jobs = [llm.submit(prompt, params) for prompt, params in random_jobs()]
    while llm.scheduler.has_work:
        llm.step()
    prompts = [list(s.request.prompt_ids) for s in jobs]
    assert_same(tiny, prompts, list(alone.values()), [s.output_ids for s in jobs])
    assert all(s.finish_reason == "length" for s in jobs)
    kinds = [e.kind for e in llm.timeline]
    assert kinds.count("preempted") > 0 and kinds.count("finished") == len(jobs)
    hits = sum(int(e.data["cached_tokens"]) for e in llm.timeline if e.kind == "prefill_started")  # type: ignore[arg-type]
    assert (hits > 0) == reuse
    assert_clean(llm)


def random_jobs() -> list[tuple[list[int], SamplingParams]]:
    random = Random(0)
    common = text_of(3 * P)
    return [
        (
            common[: random.choice((0, 0, P, 3 * P))] + text_of(random.randint(1, 30), i),
            SamplingParams(random.randint(1, 16), ignore_eos=True),
        )
        for i in range(200)
    ]


@pytest.fixture(scope="module")
def alone(tiny: LoadedModel) -> dict[int, list[int]]:
    llm = engine(tiny, 40)
    llm.scheduler.allocator.prefix_reuse = False
    jobs = enumerate(random_jobs())
    return {i: llm.generate([prompt], params)[0].token_ids for i, (prompt, params) in jobs}


@pytest.mark.parametrize(
    ("policy", "stage"),
    [(p, stage) for p in POLICIES for stage in ("waiting", "decoding", "finished")]
    + [(Chunked, "mid-prefill")],  # the only policy that stops within a prompt
)
def test_cancel_at_every_stage(tiny: LoadedModel, policy: type[Scheduler], stage: str) -> None:
    llm = engine(tiny, policy=policy, limits=Limits(max_batch_tokens=P))
    other = llm.submit(text_of(5, 1), GREEDY)
    sequence = llm.submit(text_of(3 * P), GREEDY)
    reached = {
        "waiting": lambda: sequence in llm.scheduler.waiting,
        "mid-prefill": lambda: sequence.is_prefilling and sequence.num_cached_tokens > 0,
        "decoding": lambda: len(sequence.output_ids) == 3,
        "finished": lambda: sequence.finish_reason is not None,
    }[stage]
    while not reached():
        llm.step()
    was_there = llm.scheduler.cancel(sequence.id, 0.0)
    assert was_there == (stage != "finished")
    while llm.scheduler.has_work:
        llm.step()
    ends = [e.kind for e in llm.timeline + llm.scheduler.drain_events() if e.kind.endswith("ed")]
    assert ends.count("cancelled") == was_there and ends.count("finished") == 2 - was_there
    assert other.output_ids == engine(tiny).generate([text_of(5, 1)], GREEDY)[0].token_ids
    assert_clean(llm)


def test_a_batch_holds_at_least_one_chunk(tiny: LoadedModel) -> None:
    with pytest.raises(AssertionError, match="at least one chunk"):
        engine(tiny).executor.run([])


@all_policies
def test_blocks_that_are_scattered_give_the_same_bits(
    tiny: LoadedModel, policy: type[Scheduler]
) -> None:
    """Runs are read in place, other tables by a gather: not one bit may differ."""
    answers = []
    for prefer_runs in (True, False):
        llm = engine(tiny, policy=policy, limits=Limits(max_batch_tokens=2 * P))
        allocator = llm.scheduler.allocator
        allocator.prefer_runs, allocator.prefix_reuse = prefer_runs, False
        for block_id in Random(1).sample(range(64), 64):
            allocator._free.move_to_end(block_id)
        rows: list[torch.Tensor] = []
        forward = llm.executor.forward
        llm.executor.forward = lambda chunks, f=forward, r=rows: r.append(f(chunks)) or r[-1]  # type: ignore[method-assign,misc,func-returns-value]
        llm.generate([text_of(3 * P + 2), text_of(5)], SamplingParams(2 * P, ignore_eos=True))
        answers.append(torch.cat(rows))
    assert torch.equal(*answers)
