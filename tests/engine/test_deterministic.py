"""`deterministic=True`: not one bit of a sequence's logits depends on its company."""

from __future__ import annotations

from random import Random

import pytest
import torch
from torch import Tensor

from minipd.engine.batch import Chunk
from minipd.llm import LLM
from minipd.model.load import LoadedModel
from minipd.request import SamplingParams
from minipd.sched.base import Scheduler
from minipd.sched.colocated import Chunked, DecodeFirst, PrefillFirst
from minipd.sched.limits import Limits


def all_logits(
    model: LoadedModel,
    prompts: list[list[int]],
    together: int,
    num_tokens: int,
    policy: type[Scheduler] = PrefillFirst,
) -> list[Tensor]:
    """Logits (num_tokens, V) of each prompt's answer, `together` prompts sharing the engine."""
    llm = LLM(
        model, num_kv_blocks=200, deterministic=True, policy=policy, limits=Limits(max_running=32)
    )
    rows: dict[str, list[Tensor]] = {}
    forward = llm.executor.forward

    def watched(chunks: list[Chunk]) -> Tensor:
        logits = forward(chunks)
        for chunk, row in zip([c for c in chunks if c.sampling], logits, strict=True):
            rows.setdefault(chunk.request_id, []).append(row.clone())
        return logits

    llm.executor.forward = watched  # type: ignore[method-assign,assignment]
    for start in range(0, len(prompts), together):
        llm.generate(prompts[start : start + together], SamplingParams(num_tokens, ignore_eos=True))
    assert not any(e.kind == "preempted" for e in llm.timeline)
    return [torch.stack(r) for r in rows.values()]


def prompts_for(model: LoadedModel, lengths: list[int]) -> list[list[int]]:
    random = Random(7)
    return [random.choices(range(4, model.config.vocab_size), k=n) for n in lengths]


def assert_bit_equal(expected: list[Tensor], got: list[Tensor]) -> None:
    assert len(expected) == len(got)
    assert all(torch.equal(a, b) for a, b in zip(expected, got))


@pytest.mark.parametrize("policy", [PrefillFirst, DecodeFirst, Chunked])
@pytest.mark.parametrize("together", [2, 5, 20])
def test_batch_sizes_and_policies(
    tiny: LoadedModel, policy: type[Scheduler], together: int
) -> None:
    """The budget takes every prompt whole, so that all policies run the same chunks."""
    prompts = prompts_for(
        tiny, [1, 2, 15, 16, 17, 33, 64, 3, 90, 1, 40, 8, 31, 5, 70, 9, 12, 2, 6, 4]
    )
    alone = all_logits(tiny, prompts, 1, 12)
    assert_bit_equal(alone, all_logits(tiny, prompts, together, 12, policy))


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_the_real_model(smollm2: LoadedModel, threads: int) -> None:
    """With 2 threads a product of 17 to 192 rows may be summed in another order."""
    prompts = prompts_for(smollm2, [3, 20, 50])
    alone = all_logits(smollm2, prompts, 1, 4)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert_bit_equal(alone, all_logits(smollm2, prompts, 3, 4))
        assert torch.get_num_threads() == threads, "the threads are given back"
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_rows_of_a_product_on_one_thread(smollm2: LoadedModel) -> None:
    """What `deterministic` rests on: from 16 rows on, a row's result ignores the other rows."""
    layer = smollm2.decoder.layers[7]
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for weight in (layer.qkv, layer.o, layer.gate_up, layer.down):
            x = torch.randn(608, weight.shape[0], generator=torch.Generator().manual_seed(0))
            right = torch.cat([part @ weight for part in x.split(16)])
            unlike = [n for n in range(16, 601) if not torch.equal(x[:n] @ weight, right[:n])]
            assert unlike == [], f"{tuple(weight.shape)}: other sums at these numbers of rows"
    finally:
        torch.set_num_threads(before)
