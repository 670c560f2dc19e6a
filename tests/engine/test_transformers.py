"""The proof: SmolLM2's greedy answers are those of transformers' `generate`.

Scores agree within 1e-3. A text for which rounding alone moves them further (the token 0, which is
no beginning of any real text) must not take us further from float64 than transformers itself is.
"""

from __future__ import annotations

import copy
from random import Random
from typing import Any

import pytest
import torch

from minipd.llm import LLM
from minipd.measure.same_tokens import (
    MAX_LOGIT_DIFFERENCE,
    LogitsOf,
    Summary,
    compare,
    logits_of,
    summarise,
)
from minipd.model.load import LoadedModel
from minipd.request import SamplingParams

NUM_TOKENS = 24
TEXTS = [
    "The capital of Korea is",
    "대한민국의 수도는",
    "안녕하세요! 오늘 날씨가",
    "def fibonacci(n):\n    ",
    "#include <stdio.h>\nint main(void) {\n",
    "SELECT name, age FROM",
    '{"id": 7, "tags": ["a",',
    "| a | b |\n|---|---|\n| 1 |",
    "1 2 3 4 5 6 7",
    "Once upon a time",
    "Les feuilles mortes se ramassent",
    "東京は日本の",
    "🙂🙃🙂🙃",
    "    \n\n\t",
    "AAAAAAAAAAAAAAAAAAAAAAAA",
    "E = mc^2 means that",
    "http://example.org/index.html?q=",
    "To be, or not to be, that is the question:",
]
CHATS = [("Why is the sky blue?", ""), ("Say hello in Korean.", None), ("2+2?", "Be brief.")]


@pytest.fixture(scope="module")
def theirs(smollm2: LoadedModel) -> Any:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(smollm2.folder, dtype=torch.float32)
    return model.eval()


@torch.inference_mode()
def generate(theirs: Any, prompt: list[int]) -> list[int]:
    ids = torch.tensor([prompt])
    out = theirs.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NUM_TOKENS
    )
    return out[0, len(prompt) :].tolist()


def scores_of(theirs: Any) -> LogitsOf:
    @torch.inference_mode()
    def logits(token_ids: list[int], rows: range) -> torch.Tensor:
        return theirs(torch.tensor([token_ids])).logits[0, rows.start : rows.stop]

    return logits


def judge(
    model: LoadedModel, theirs: Any, prompts: list[list[int]]
) -> tuple[Summary, list[list[int]]]:
    """The verdict, and the texts whose scores differ by more than 1e-3."""
    llm = LLM(model, num_kv_blocks=400)
    ours = [c.token_ids for c in llm.generate(prompts, SamplingParams(NUM_TOKENS))]
    expected = [generate(theirs, prompt) for prompt in prompts]
    found = [
        compare(p, e, o, scores_of(theirs), logits_of(model.decoder), measure_equal=True)
        for p, e, o in zip(prompts, expected, ours)
    ]
    far = [
        p + e
        for p, e, one in zip(prompts, expected, found)
        if (one.max_logit_difference or 0.0) > MAX_LOGIT_DIFFERENCE
    ]
    return summarise(found), far


def furthest(a: LogitsOf, b: LogitsOf, text: list[int]) -> torch.Tensor:
    """By how much two models' scores differ at most, at each place of a text: (T,)."""
    rows = range(len(text))
    return (a(text, rows).double() - b(text, rows).double()).abs().amax(-1)


@pytest.mark.slow
def test_a_few_prompts(smollm2: LoadedModel, theirs: Any) -> None:
    prompts = [smollm2.tokenizer.encode(text) for text in TEXTS[:2]]
    summary, _ = judge(smollm2, theirs, [*prompts, [1]])
    assert summary.passed and summary.max_logit_difference < MAX_LOGIT_DIFFERENCE, summary


@pytest.mark.slow
def test_varied_prompts(smollm2: LoadedModel, theirs: Any) -> None:
    llm = LLM(smollm2, num_kv_blocks=1)
    prompts = [llm.token_ids(text) for text in TEXTS]
    prompts += [llm.chat_ids(user, system) for user, system in CHATS]
    prompts += [[504], [1], [0]]
    prompts += [llm.token_ids("The quick brown fox jumps over the lazy dog. " * 300)[:2000]]
    prompts += [Random(3).choices(range(10, smollm2.config.vocab_size), k=300)]
    assert len(prompts) >= 20
    summary, far = judge(smollm2, theirs, prompts)
    assert summary.passed and [text[:1] for text in far] in ([], [[0]]), (summary, far)
    for text in far:
        exact, ours = scores_of(copy.deepcopy(theirs).double()), logits_of(smollm2.decoder)
        apart = furthest(ours, scores_of(theirs), text) > MAX_LOGIT_DIFFERENCE
        we, they = furthest(ours, exact, text), furthest(scores_of(theirs), exact, text)
        assert (we[apart] <= they[apart]).all(), (we, they)
