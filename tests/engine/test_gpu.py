"""The real kernels on a real device; skipped, with the reason, where there is none."""

from __future__ import annotations

from random import Random

import pytest
import torch

from minipd.cache.store import KVLayout
from minipd.engine.attention import GatherAttention
from minipd.engine.batch import Chunk
from minipd.engine.paged import why_not_paged
from minipd.llm import LLM
from minipd.measure.same_tokens import teacher_forced_logits
from minipd.model.load import LoadedModel, load
from minipd.request import SamplingParams

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device"),
]
TOLERANCE = 0.35  # bfloat16 keeps 8 bits: logits of size 10 to 20 move by a few tenths
PARAMS = SamplingParams(32, ignore_eos=True)


@pytest.fixture(scope="module")
def on_gpu(smollm2: LoadedModel) -> LoadedModel:
    return load(smollm2.folder, "cuda", "bfloat16")


def prompts() -> list[list[int]]:
    return [Random(n).choices(range(10, 40_000), k=n) for n in (1, 15, 16, 17, 200, 700)]


def engine(model: LoadedModel, **options: bool) -> LLM:
    return LLM(model, num_kv_blocks=400, **options)


def test_the_trial_call_says_why_not(on_gpu: LoadedModel) -> None:
    layout = KVLayout.of(on_gpu.config, 8, 16, torch.bfloat16)
    reason = why_not_paged(layout, on_gpu.config.num_heads, torch.device("cuda"))
    assert reason is None or reason.startswith("varlen_attn")
    full = KVLayout.of(on_gpu.config, 8, 16, torch.float32)
    assert why_not_paged(full, on_gpu.config.num_heads, torch.device("cuda")) is not None


def test_every_token_is_one_the_float32_model_might_choose(
    smollm2: LoadedModel, on_gpu: LoadedModel
) -> None:
    """Teacher-forced: the chosen token scores within the tolerance of the best, in float32."""
    llm = engine(on_gpu)
    for prompt, answer in zip(prompts(), llm.generate(prompts(), PARAMS)):
        text = [*prompt, *answer.token_ids]
        rows = range(len(prompt) - 1, len(text) - 1)
        scores = teacher_forced_logits(smollm2.decoder, text, rows)  # (R, V)
        chosen = scores.gather(1, torch.tensor(answer.token_ids)[:, None])[:, 0]
        assert float((scores.max(dim=1).values - chosen).max()) < 2 * TOLERANCE
    assert llm.scheduler.allocator.num_used_blocks == 0


def logits_by_step(llm: LLM, tokens: int = 8) -> list[torch.Tensor]:
    """Logits after each token of one fixed text, so that both sides read the same."""
    text, blocks = prompts()[4], list(range(20, 40))
    out = [llm.executor.forward([Chunk("r", text, 0, blocks, PARAMS)]).float().clone()]
    for step in range(tokens):
        position = len(text) + step
        one = Chunk("r", [100 + step], position, blocks, PARAMS)
        out.append(llm.executor.forward([one]).float().clone())
    return out


@pytest.mark.parametrize("without", ["graphs", "paged attention"])
def test_fast_against_plain(on_gpu: LoadedModel, without: str) -> None:
    fast, plain = engine(on_gpu), engine(on_gpu)
    if fast.executor.why_not_paged is not None:
        pytest.skip(fast.executor.why_not_paged)
    plain.executor.graphs = None
    if without == "paged attention":
        store = plain.executor.store
        plain.executor.attention = lambda chunks: GatherAttention(store, chunks)  # type: ignore[method-assign,assignment]
    for a, b in zip(logits_by_step(fast), logits_by_step(plain)):
        torch.testing.assert_close(a, b, atol=TOLERANCE, rtol=0)


def test_deterministic_answers_do_not_depend_on_the_batch(on_gpu: LoadedModel) -> None:
    llm = engine(on_gpu, deterministic=True)
    alone = [llm.generate([p], PARAMS)[0].token_ids for p in prompts()]
    together = llm.generate(prompts(), PARAMS)
    agree = sum(a == c.token_ids for a, c in zip(alone, together))
    assert agree >= len(alone) - 1, "16-bit products of other shapes may flip a rare near-tie"
