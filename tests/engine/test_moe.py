"""The engine on `tiny-moe`: transformers' tokens, no influence of company, experts counted."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch

from minipd.engine import executor
from minipd.engine.executor import Executor
from minipd.llm import LLM
from minipd.model.experts import watch_experts
from minipd.model.load import LoadedModel, load
from minipd.request import SamplingParams
from minipd.sched.base import Scheduler
from minipd.sched.colocated import Chunked, DecodeFirst, PrefillFirst
from minipd.sched.limits import Limits
from tests.engine.test_deterministic import all_logits, assert_bit_equal, prompts_for
from tests.engine.test_engine import all_policies, assert_clean, assert_same, slow_greedy
from tests.engine.test_transformers import judge

LENGTHS = [1, 2, 15, 16, 17, 33, 64, 3, 90, 1, 40, 8, 31, 5, 70, 9, 12, 2, 6, 4, 120]


@pytest.fixture(scope="module")
def moe() -> LoadedModel:
    return load("tiny-moe")


@pytest.mark.slow
def test_the_tokens_of_transformers(moe: LoadedModel) -> None:
    from transformers import AutoModelForCausalLM

    theirs: Any = AutoModelForCausalLM.from_pretrained(moe.folder, dtype=torch.float32).eval()
    assert type(theirs).__name__ == "Qwen3MoeForCausalLM"
    summary, _ = judge(moe, theirs, prompts_for(moe, LENGTHS))
    assert summary.num_sequences >= 20
    assert summary.passed and summary.max_logit_difference < 1e-3, summary


@pytest.mark.slow
@all_policies
def test_together_as_alone(moe: LoadedModel, policy: type[Scheduler]) -> None:
    prompts = prompts_for(moe, LENGTHS)
    params = SamplingParams(12, ignore_eos=True)
    limits = Limits(max_running=24, max_batch_tokens=32)
    llm = LLM(moe, num_kv_blocks=80, block_size=8, policy=policy, limits=limits)
    together = [c.token_ids for c in llm.generate(prompts, params)]
    assert_same(moe, prompts, [slow_greedy(moe, p, 12) for p in prompts], together)
    assert_clean(llm)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [PrefillFirst, DecodeFirst, Chunked])
@pytest.mark.parametrize("together", [2, 5, 20])
def test_deterministic_bits(moe: LoadedModel, policy: type[Scheduler], together: int) -> None:
    """Though an expert gets other tokens, and other numbers of them, in every company."""
    prompts = prompts_for(moe, LENGTHS[:20])
    alone = all_logits(moe, prompts, 1, 12)
    assert_bit_equal(alone, all_logits(moe, prompts, together, 12, policy))


def test_a_batch_reads_more_experts_than_a_token(moe: LoadedModel) -> None:
    prompts = prompts_for(moe, [10] * 8)
    means: dict[int, float] = {}
    for size in (1, 8):
        llm = LLM(moe, num_kv_blocks=64)
        with watch_experts(moe.decoder) as passes:
            llm.generate(prompts[:size], SamplingParams(20, ignore_eos=True))
        decodes = [p.mean_touched for p in passes if p.num_tokens == size]
        means[size] = sum(decodes) / len(decodes)
    assert means[1] == 8
    assert means[8] == pytest.approx(51.6, rel=0.08)


def test_graphs_are_off(
    moe: LoadedModel, tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "why_not_paged", lambda *args: None)
    assert Executor(tiny, 8).graphs is not None
    assert Executor(moe, 8).graphs is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
def test_on_a_gpu_in_float32(moe: LoadedModel) -> None:
    on_gpu = load("tiny-moe", "cuda", "float32")
    prompts = [Random(n).choices(range(8, 512), k=n) for n in (1, 16, 40)]
    params = SamplingParams(8, ignore_eos=True)
    answers: Callable[[LoadedModel], list[list[int]]] = lambda m: [  # noqa: E731
        c.token_ids for c in LLM(m, num_kv_blocks=64).generate(prompts, params)
    ]
    assert_same(moe, prompts, answers(moe), answers(on_gpu))
