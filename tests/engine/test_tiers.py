"""The engine with tiers below a cache that is far too small: the same tokens, and nothing leaks."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minipd import LLM, SamplingParams
from minipd.cache.allocator import BlockAllocator
from minipd.cache.books import FetchPolicy
from minipd.cache.store import KVLayout
from minipd.cache.tier_sizes import TierError, TierSizes
from minipd.cache.tiers import KVTiers
from minipd.engine.batch import Chunk
from minipd.engine.executor import Executor
from minipd.engine.worker import Worker
from minipd.measure.metrics import summarise
from minipd.measure.same_tokens import compare, logits_of
from minipd.measure.same_tokens import summarise as summarise_tokens
from minipd.model.load import LoadedModel
from minipd.request import Request
from minipd.sched.base import Scheduler
from minipd.sched.colocated import Chunked, DecodeFirst, PrefillFirst
from minipd.sched.limits import Limits
from minipd.timeline import Event

P = 8
GREEDY = SamplingParams(5, ignore_eos=True)
SIZES = ["host", "disk", "both"]


def text_of(length: int, seed: int = 0) -> list[int]:
    return Random(f"{seed}:{length}").choices(range(4, 512), k=length)


def block_bytes(model: LoadedModel) -> int:
    config = model.config
    return config.kv_bytes_per_token(4) * P


def engine(model: LoadedModel, kind: str, folder: Path, blocks: int = 12, **more: object) -> LLM:
    """`host`: plenty of it; `disk`: plenty of that alone; `both`: three slots above plenty."""
    sizes: dict[str, object] = {"host": {"host_kv_bytes": 1 << 24}}.get(kind, {"disk_kv": folder})
    if kind == "both":
        sizes = {"host_kv_bytes": 3 * block_bytes(model), "disk_kv": folder}
    if kind == "none":
        sizes = {}
    return LLM(model, num_kv_blocks=blocks, block_size=P, **(sizes | more))  # type: ignore[arg-type]


def assert_clean(llm: LLM) -> None:
    allocator = llm.scheduler.allocator
    assert allocator.num_used_blocks == 0
    assert not any(allocator.references(b) for b in range(allocator.num_blocks))
    assert not llm.scheduler.has_work and (allocator.books is None or not allocator.books.moves)


def told(llm: LLM, kind: str) -> list[Event]:
    return [event for event in llm.timeline if event.kind == kind]


# -- bit by bit -----------------------------------------------------------------------------------


class Noted:
    """An executor that keeps what it ran, with `deterministic` sums."""

    def __init__(self, model: LoadedModel, blocks: int) -> None:
        self.executor = Executor(model, blocks, P, deterministic=True)
        self.starts: list[tuple[str, int]] = []

    def run(self, chunks: list[Chunk]) -> list[int]:
        self.starts += [(c.request_id, c.start) for c in chunks if len(c.token_ids) > 1]
        return self.executor.run(chunks)


def by_hand(
    model: LoadedModel, blocks: int, sizes: TierSizes
) -> tuple[Noted, Worker, PrefillFirst]:
    """Reuse of prefixes with deterministic sums, which `LLM` does not offer together."""
    noted = Noted(model, blocks)
    tiers = KVTiers(noted.executor.store, model.fingerprint, sizes, time.monotonic)
    allocator = BlockAllocator(blocks, P, books=tiers.books)
    scheduler = PrefillFirst("w", allocator)
    return noted, Worker(noted, scheduler, time.monotonic, tiers), scheduler


def turns(worker: Worker, scheduler: PrefillFirst, prompts: list[list[int]]) -> list[int]:
    """One request after another; the tokens of all answers."""
    tokens: list[int] = []
    for number, prompt in enumerate(prompts):
        scheduler.add(Request(f"r{number}", tuple(prompt), GREEDY), 0.0)
        while len(tokens) < 5 * (number + 1):
            tokens += [int(str(e.data["token_id"])) for e in worker.step() if e.kind == "token"]
    return tokens


@pytest.mark.parametrize("disk", [False, True])
def test_fetched_kv_is_as_good_as_kept_kv(tiny: LoadedModel, disk: bool, tmp_path: Path) -> None:
    """A cache with room for all reuses the same prefixes, so that every chunk is the same."""
    sizes = TierSizes(0, tmp_path) if disk else TierSizes(1 << 24)
    prompts = [text_of(60, seed) for seed in (1, 2, 3, 1, 2, 3, 1)]
    roomy, *right = by_hand(tiny, 200, TierSizes(1 << 24))
    small, *worker = by_hand(tiny, 12, sizes)
    expected = turns(*right, prompts)  # type: ignore[arg-type]
    assert turns(*worker, prompts) == expected  # type: ignore[arg-type]
    assert worker[1].allocator.num_used_blocks == 0
    assert small.starts == roomy.starts, "the same tokens were computed"
    assert sum(start > 0 for _, start in small.starts) == 4


# -- any prompts ----------------------------------------------------------------------------------

WORDS = [text_of(length, 50 + length) for length in (3, 8, 16, 21)]
PROMPTS = st.lists(
    st.lists(st.sampled_from(range(4)), min_size=1, max_size=4), min_size=1, max_size=7
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    shapes=PROMPTS,
    kind=st.sampled_from(SIZES),
    policy=st.sampled_from([PrefillFirst, DecodeFirst, Chunked]),
    at_once=st.integers(1, 4),
    blocks=st.integers(14, 24),
    cancel=st.sets(st.integers(0, 6), max_size=2),
)
def test_same_tokens_whatever_is_evicted_and_fetched(
    tiny: LoadedModel,
    reference: LLM,
    shapes: list[list[int]],
    kind: str,
    policy: type[Scheduler],
    at_once: int,
    blocks: int,
    cancel: set[int],
) -> None:
    """Prompts of shared pieces, through few blocks, several at a time; some are cancelled."""
    prompts = [[token for word in shape for token in WORDS[word]] for shape in shapes]
    right = [reference.generate([prompt], GREEDY)[0].token_ids for prompt in prompts]
    score = logits_of(tiny.decoder)
    with TemporaryDirectory() as folder:
        limits = Limits(max_running=at_once, max_batch_tokens=40)
        llm = engine(tiny, kind, Path(folder), blocks, policy=policy, limits=limits)
        asked = [llm.submit(prompt, GREEDY) for prompt in prompts]
        steps = 0
        while any(sequence.finish_reason is None for sequence in asked):
            llm.step()
            steps += 1
            if steps in cancel and steps < len(asked):
                llm.scheduler.cancel(asked[steps].id, time.monotonic())
    whole = [
        (p, r, s.output_ids)
        for p, r, s in zip(prompts, right, asked, strict=True)
        if s.finish_reason == "length"
    ]
    assert summarise_tokens(compare(p, r, got, score, score) for p, r, got in whole).passed
    assert len(whole) >= len(asked) - len(cancel)
    assert_clean(llm)


@pytest.fixture(scope="module")
def reference(tiny: LoadedModel) -> LLM:
    return LLM(tiny, num_kv_blocks=64, block_size=P)


# -- what is told ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SIZES)
def test_timeline_and_metrics_say_where_tokens_came_from(
    tiny: LoadedModel, kind: str, tmp_path: Path
) -> None:
    llm = engine(tiny, kind, tmp_path)
    for seed in (1, 2, 1):
        llm.generate([text_of(60, seed)], GREEDY)
    fetched = told(llm, "kv_fetched")
    assert {event.request_id for event in fetched} == {"req-2"}
    for event in [*fetched, *told(llm, "kv_evicted")]:
        tokens, num_bytes = int(str(event.data["tokens"])), int(str(event.data["bytes"]))
        assert (
            num_bytes == tokens * block_bytes(tiny) // P and float(str(event.data["seconds"])) > 0
        )
    (use,) = summarise(llm.timeline).workers
    places = use.tokens_by_place
    tiers = ["host", "disk"] if kind == "both" else [kind]
    assert sum(places[tier] for tier in tiers) > 0, places
    assert sum(places.values()) == 180 and places["computed"] == 124
    assert use.unreasoned_prefill_tokens == 0


def test_a_policy_leaves_what_is_not_worth_it(tiny: LoadedModel) -> None:
    """Host memory as slow as a modem, prefill fast: everything is computed again."""
    slow = FetchPolicy(prefill_tokens_per_s=1e6, host_bytes_per_s=1e3)
    llm = LLM(tiny, num_kv_blocks=12, block_size=P, host_kv_bytes=1 << 24, fetch=slow)
    for seed in (1, 2, 1):
        llm.generate([text_of(60, seed)], GREEDY)
    assert not told(llm, "kv_fetched") and not told(llm, "kv_evicted")
    assert_clean(llm)


def test_without_tiers_nothing_is_noted(tiny: LoadedModel, tmp_path: Path) -> None:
    llm = engine(tiny, "none", tmp_path)
    for seed in (1, 2, 1):
        llm.generate([text_of(60, seed)], GREEDY)
    assert llm.worker.tiers is None and llm.scheduler.allocator.books is None
    assert not any(event.kind.startswith("kv_") for event in llm.timeline)


# -- trouble --------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [PrefillFirst, Chunked])
def test_a_damaged_file_is_computed_again(
    tiny: LoadedModel, reference: LLM, policy: type[Scheduler], tmp_path: Path
) -> None:
    """Several prompts that build on the damaged block at once are all let in anew."""
    llm = engine(tiny, "disk", tmp_path, 20, policy=policy)
    beginning = text_of(40, 1)
    prompts = [beginning + text_of(9, seed) for seed in (5, 6)]
    llm.generate(prompts, GREEDY)
    for seed in range(20, 28):  # push everything out
        llm.generate([text_of(60, seed)], GREEDY)
    for path in tmp_path.rglob("*.kv"):
        raw = bytearray(path.read_bytes())
        raw[-1] ^= 1
        path.write_bytes(raw)
    llm.timeline.clear()
    answers = llm.generate(prompts, GREEDY)
    right = reference.generate(prompts, GREEDY)
    assert [a.token_ids for a in answers] == [r.token_ids for r in right]
    assert told(llm, "kv_lost") and not told(llm, "kv_fetched")
    begun = {e.request_id: e.data["cached_tokens"] for e in told(llm, "prefill_started")}
    assert len(told(llm, "prefill_started")) == 2, "what was not begun is not told"
    assert sorted(begun.values()) == [0, 0]
    assert summarise(llm.timeline).workers[0].unreasoned_prefill_tokens == 0
    assert_clean(llm)


def test_a_folder_that_goes_away(tiny: LoadedModel, reference: LLM, tmp_path: Path) -> None:
    import shutil

    llm = engine(tiny, "disk", tmp_path / "kv")
    for seed in (1, 2):
        llm.generate([text_of(60, seed)], GREEDY)
    shutil.rmtree(tmp_path / "kv")
    for seed in (1, 2, 1):
        (answer,) = llm.generate([text_of(60, seed)], GREEDY)
        (right,) = reference.generate([text_of(60, seed)], GREEDY)
        assert answer.token_ids == right.token_ids
    assert told(llm, "kv_lost")
    assert_clean(llm)


def test_a_restart_finds_its_kv(tiny: LoadedModel, tmp_path: Path) -> None:
    first = engine(tiny, "disk", tmp_path)
    for seed in (1, 2, 3, 4):
        first.generate([text_of(60, seed)], GREEDY)
    second = engine(tiny, "disk", tmp_path)
    (answer,) = second.generate([text_of(60, 3)], GREEDY)
    assert answer.token_ids == first.generate([text_of(60, 3)], GREEDY)[0].token_ids
    assert [e.data["tier"] for e in told(second, "kv_fetched")] == ["disk"]


def test_two_engines_on_one_folder(tiny: LoadedModel, reference: LLM, tmp_path: Path) -> None:
    llms = [engine(tiny, "disk", tmp_path) for _ in range(2)]
    for seed in (1, 2, 3, 1, 2, 3):
        (right,) = reference.generate([text_of(60, seed)], GREEDY)
        for llm in llms:
            assert llm.generate([text_of(60, seed)], GREEDY)[0].token_ids == right.token_ids
    for llm in llms:
        assert_clean(llm)


def test_cancelled_while_its_kv_is_fetched(
    tiny: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing the stream from another thread waits for the copy, then gives everything back."""
    llm = engine(tiny, "disk", tmp_path)
    for seed in (1, 2):
        llm.generate([text_of(60, seed)], GREEDY)
    tiers = llm.worker.tiers
    assert tiers is not None and tiers.folder is not None
    is_reading, may_go_on, read = threading.Event(), threading.Event(), tiers.folder.read

    def slowly(name: bytes, into: object) -> None:
        is_reading.set()
        may_go_on.wait(120)
        read(name, into)

    monkeypatch.setattr(tiers.folder, "read", slowly)
    sequence = llm.submit(text_of(60, 1), GREEDY)
    stepping = threading.Thread(target=llm.step)
    stepping.start()
    assert is_reading.wait(120)
    cancelling = threading.Thread(target=llm._withdraw, args=([sequence.id],))
    cancelling.start()
    may_go_on.set()
    stepping.join(120)
    cancelling.join(120)
    assert sequence.finish_reason == "cancelled"
    assert_clean(llm)


def test_preempted_sequences_come_back_from_a_tier(
    tiny: LoadedModel, reference: LLM, tmp_path: Path
) -> None:
    llm = engine(tiny, "host", tmp_path, 12)
    prompts, long = [text_of(30, seed) for seed in (1, 2)], SamplingParams(30, ignore_eos=True)
    answers = llm.generate(prompts, long)
    assert [a.token_ids for a in answers] == [
        reference.generate([p], long)[0].token_ids for p in prompts
    ]
    assert told(llm, "preempted")
    assert [e.request_id for e in told(llm, "kv_fetched")], "not computed again"
    assert_clean(llm)


def test_tiers_and_deterministic_exclude_each_other(tiny: LoadedModel) -> None:
    with pytest.raises(TierError, match="reuses no KV"):
        LLM(tiny, num_kv_blocks=8, deterministic=True, host_kv_bytes=1 << 20)


def test_layout_names_differ_by_block_size(tiny: LoadedModel, tmp_path: Path) -> None:
    """A folder written with other blocks is another folder: nothing of it is seen."""
    first = engine(tiny, "disk", tmp_path)
    for seed in (1, 2):
        first.generate([text_of(60, seed)], GREEDY)
    other = LLM(tiny, num_kv_blocks=12, block_size=2 * P, disk_kv=tmp_path)
    assert other.worker.tiers is not None and not other.worker.tiers.books.names("disk")
    assert isinstance(other.executor.store.layout, KVLayout)
