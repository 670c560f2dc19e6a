"""The benchmark: what is counted, what is timed, and what becomes of the samples."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from minipd.engine.batch import Chunk
from minipd.engine.executor import Executor
from minipd.measure import bench, counts, peer, phases
from minipd.measure.bench import BenchError, run_bench
from minipd.measure.ceilings import Ceilings
from minipd.measure.machine import MachineError, usable_cpus
from minipd.measure.peer import TransformersEngine
from minipd.measure.phases import MinipdEngine, random_tokens
from minipd.measure.record import RawRuns, build_record, spread_remarks
from minipd.measure.report import ReportError, write_json
from minipd.measure.sheet import read
from minipd.measure.stats import Samples
from minipd.model.config import ModelConfig
from minipd.model.decoder import Decoder
from minipd.model.load import LoadedModel, load
from minipd.request import SamplingParams


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return load("tiny")


def config(tied: bool = True) -> ModelConfig:
    return ModelConfig(
        architecture="LlamaForCausalLM",
        num_layers=3,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        hidden_size=32,
        ffn_size=48,
        vocab_size=96,
        max_context=4096,
        tie_word_embeddings=tied,
    )


def ceilings(flops: float = 1e9, read_bytes_per_s: float = 1e9) -> Ceilings:
    products, reads = {"64": Samples((flops,))}, {"sum": Samples((read_bytes_per_s,))}
    return Ceilings("cpu", "float32", 1, products, reads, 1, "", None)


# --- counts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_prefill_flops_are_those_of_every_matrix_and_every_visible_pair(tied: bool) -> None:
    """The obvious count: two per weight and token, and a loop over all pairs of tokens."""
    c, num_tokens = config(tied), 48
    matrices = {n: p.numel() for n, p in Decoder(c).named_parameters() if p.dim() == 2}
    rows = {"head": 1, "embed": 0}
    products = sum(2 * size * rows.get(name, num_tokens) for name, size in matrices.items())
    pairs = sum(1 for query in range(num_tokens) for key in range(num_tokens) if key <= query)
    attention = pairs * c.num_layers * c.num_heads * 2 * (2 * c.head_dim)
    assert counts.prefill_flops(c, num_tokens) == products + attention


def test_a_prompt_in_two_chunks_is_the_same_work_plus_one_more_head() -> None:
    c = config()
    head = 2 * c.hidden_size * c.vocab_size
    whole = counts.prefill_flops(c, 100)
    parts = counts.prefill_flops(c, 60) + counts.prefill_flops(c, 40, start=60)
    assert parts == whole + head


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("size", [1, 16])
def test_weights_are_read_once_per_step_whatever_the_batch(tied: bool, size: int) -> None:
    decoder = Decoder(config(tied))
    stored = {name: p.numel() * 4 for name, p in decoder.named_parameters()}
    row = 0 if tied else config().hidden_size * 4
    expected = sum(n for name, n in stored.items() if name != "embed") + size * row
    assert counts.weight_bytes(config(tied), 4, size) == expected


def test_decode_also_reads_the_kv_of_every_sequence() -> None:
    c = config()
    kv = 2 * c.num_layers * c.num_kv_heads * c.head_dim * 2
    assert counts.decode_bytes(c, 2, 4, 10.0) == counts.weight_bytes(c, 2, 4) + 4 * 10 * kv


def test_one_decode_step_is_a_prefill_of_one_token() -> None:
    assert counts.decode_flops(config(), 1, 8) == counts.prefill_flops(config(), 1, start=7)
    assert counts.decode_flops(config(), 5, 8) == 5 * counts.decode_flops(config(), 1, 8)


def test_the_mean_context_counts_each_step() -> None:
    assert counts.mean_context(128) == sum(range(1, 129)) / 128
    assert counts.mean_context(3, depth=10) == (11 + 12 + 13) / 3


# --- what is timed ----------------------------------------------------------------------------


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[list[Chunk]]:
    """Every call of the executor, in order; the calls still run."""
    seen: list[list[Chunk]] = []
    forward = Executor.forward

    def spy(self: Executor, chunks: list[Chunk]) -> torch.Tensor:
        seen.append(list(chunks))
        return forward(self, chunks)

    monkeypatch.setattr(Executor, "forward", spy)
    return seen


def test_pp512_is_one_pass_that_wants_one_row(tiny: LoadedModel, passes: list[list[Chunk]]) -> None:
    tokens = random_tokens(tiny.config.vocab_size, 512)
    assert MinipdEngine(tiny, 512, 1).prefill(tokens) > 0
    ((chunk,),) = passes
    assert (chunk.token_ids, chunk.start) == (tokens, 0)
    assert chunk.sampling is not None
    assert len(chunk.block_ids) * phases.BLOCK_SIZE >= 512


def test_tg128_is_128_single_tokens_from_depth_0(
    tiny: LoadedModel, passes: list[list[Chunk]]
) -> None:
    tokens = random_tokens(tiny.config.vocab_size, 128)
    MinipdEngine(tiny, 512, 4).decode(tokens, 4)
    assert len(passes) == 128
    for depth, chunks in enumerate(passes):
        assert [(c.token_ids, c.start) for c in chunks] == [([tokens[depth]], depth)] * 4
        assert all(c.sampling is not None for c in chunks)
    owned = [set(chunk.block_ids) for chunk in passes[-1]]
    assert len(set.union(*owned)) == sum(map(len, owned)), "sequences never share a block"


def test_tokens_are_the_same_each_time_and_in_the_vocabulary() -> None:
    tokens = random_tokens(50, 500)
    assert tokens == random_tokens(50, 500)
    assert set(tokens) <= set(range(50)) and len(set(tokens)) > 40


def test_the_peer_runs_the_same_weights(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its logits are ours, after a prefill and after each token of a decode."""
    seen: list[torch.Tensor] = []
    engine = TransformersEngine(tiny)
    forward = engine._model.forward

    def spy(*args: Any, **kwargs: Any) -> Any:
        out = forward(*args, **kwargs)
        seen.append(out.logits)
        return out

    monkeypatch.setattr(engine._model, "forward", spy)
    tokens = random_tokens(tiny.config.vocab_size, 24)
    engine.prefill(tokens)
    engine.decode(tokens)
    assert [tuple(logits.shape[:2]) for logits in seen] == [(1, 1)] * 25, "one row of logits each"
    executor = Executor(tiny, 2)
    ours = executor.forward([Chunk("a", tokens, 0, [0, 1], SamplingParams())])
    torch.testing.assert_close(seen[0][0], ours, atol=1e-3, rtol=0)
    torch.testing.assert_close(seen[-1][0], ours, atol=1e-3, rtol=0)


def test_the_peer_is_given_a_fresh_cache_each_time(tiny: LoadedModel) -> None:
    engine = TransformersEngine(tiny)
    caches: list[Any] = []
    lengths: list[int] = []

    def hook(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        caches.append(kwargs[engine._cache_name])
        lengths.append(caches[-1].get_seq_length())

    handle = engine._model.register_forward_pre_hook(hook, with_kwargs=True)
    engine.decode([1, 2, 3])
    engine.prefill([1, 2, 3])
    handle.remove()
    assert lengths == [0, 1, 2, 0]
    assert caches[0] is caches[2] and caches[2] is not caches[3]


# --- a whole run ------------------------------------------------------------------------------


class Scripted:
    """An engine whose runs last what its script says; it notes when it ran."""

    def __init__(self, name: str, prefill_s: list[float], decode_s: list[float]) -> None:
        self.name, self.log = name, LOG
        self._prefill_s, self._decode_s = iter([1.0, *prefill_s]), iter(decode_s)

    def prefill(self, token_ids: list[int]) -> float:
        self.log.append(f"{self.name} pp{len(token_ids)}")
        return next(self._prefill_s)

    def decode(self, token_ids: list[int], num_sequences: int = 1) -> float:
        self.log.append(f"{self.name} tg{len(token_ids)} x {num_sequences}")
        if len(token_ids) < bench.DECODE_STEPS:
            return 1.0
        return next(self._decode_s) if num_sequences == 1 else 4.0


LOG: list[str] = []


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """Both engines and the ceilings play known parts: rates 512, 256 and so on."""
    LOG.clear()
    rounds = iter([ceilings(1e9, 8e9), ceilings(2e9, 9e9), ceilings(4e9, 7e9)])

    def measure(device: str, dtype: str, threads: int, quick: bool) -> Ceilings:
        LOG.append("ceilings")
        return next(rounds)

    ours, theirs = (
        Scripted("ours", [1.0, 2.0], [2.0, 4.0]),
        Scripted("theirs", [2.0, 2.0], [4.0, 16.0]),
    )
    monkeypatch.setattr(bench, "measure_ceilings", measure)
    monkeypatch.setattr(bench, "MinipdEngine", lambda *args: ours)
    monkeypatch.setattr(bench, "TransformersEngine", lambda *args: theirs)
    monkeypatch.setenv("MINIPD_SHEET", str(tmp_path / "sheet.jsonl"))
    yield LOG


def test_runs_alternate_between_ceilings(scripted: list[str]) -> None:
    run_bench("tiny", threads=1, vs="transformers", repetitions=2)
    once = ["ceilings", "ours pp512", "theirs pp512", "ours tg128 x 1", "theirs tg128 x 1"]
    once += ["ours tg128 x 4", "ours tg128 x 16"]
    warm_up = ["ours pp512", "ours tg8 x 1", "ours tg8 x 4", "ours tg8 x 16"]
    warm_up += ["theirs pp512", "theirs tg8 x 1"]
    assert scripted == [*warm_up, *once, *once, "ceilings"]


def test_every_figure_follows_from_the_samples(scripted: list[str], tiny: LoadedModel) -> None:
    record = run_bench("tiny", threads=1, vs="transformers", repetitions=2)
    assert record["samples"]["pp512"]["samples"] == [512.0, 256.0]
    assert record["samples"]["peer tg128"]["samples"] == [32.0, 8.0]
    assert record["pp512"] == 384.0, "the mean of rates, as llama-bench has it"
    assert record["tg128"] == 48.0
    assert record["batch"] == {"1": 48.0, "4": 128.0, "16": 512.0}
    assert record["ratio"]["pp512"] == (512 / 256 + 256 / 256) / 2
    assert record["ratio"]["tg128"] == (64 / 32 + 32 / 8) / 2
    assert record["ratio"]["batch16_vs_single"] == (512 / 32 + 512 / 8) / 2
    assert record["ceilings"]["flops"] == 2e9
    assert record["ceilings"]["read_bytes_per_s"] == 8e9
    assert len(record["ceilings"]["rounds"]) == 3
    per_token = counts.prefill_flops(tiny.config, 512) / 512
    assert record["mfu"] == pytest.approx(per_token * 384 / 2e9)
    step = counts.decode_bytes(tiny.config, 4, 1, 64.5)
    assert record["mbu"] == pytest.approx(step * 48 / 8e9)
    assert record["batch_use"]["16"]["mbu"] == pytest.approx(
        counts.decode_bytes(tiny.config, 4, 16, 64.5) * 32 / 8e9
    )


def test_a_run_is_kept_in_json_and_on_the_sheet(
    scripted: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = run_bench("tiny", threads=1, repetitions=2, json_path=tmp_path / "out" / "b.json")
    assert json.loads((tmp_path / "out" / "b.json").read_text()) == record
    assert record["peer"] is None and record["ratio"]["pp512"] is None
    assert set(record["model"]) == {"name", "fingerprint", "dtype"}
    assert {"machine", "threads", "pin", "date", "rule", "work"} <= set(record)
    (line,) = read().lines
    assert (line.model, line.prefill_tok_s, line.decode_tok_s) == ("tiny", 384.0, 48.0)
    assert (line.mfu, line.mbu) == (record["mfu"], record["mbu"])
    shown = capsys.readouterr().out
    for word in ("384.00", "48.00", "MFU", "mean context is 64.5", "Indicative only"):
        assert word in shown


def test_the_sheet_can_be_another_or_none(scripted: list[str], tmp_path: Path) -> None:
    run_bench("tiny", threads=1, repetitions=1, sheet=False)
    assert read().lines == []


def test_a_comparison_is_told_in_words(
    scripted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run_bench("tiny", threads=1, vs="transformers", repetitions=2)
    shown = " ".join(capsys.readouterr().out.split())
    assert "prefill 1.50 x, decode 3.00 x" in shown
    assert "40.00 x" in shown


def test_a_real_run_of_both_engines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bench, "measure_ceilings", lambda *args, **kwargs: ceilings())
    before, cpus = torch.get_num_threads(), usable_cpus()
    record = run_bench(
        "tiny",
        pin=cpus[:1],
        vs="transformers",
        repetitions=1,
        json_path=tmp_path / "b.json",
        sheet=tmp_path / "s.jsonl",
    )
    assert record["threads"] == 1 and record["pin"] == cpus[:1]
    assert all(record["batch"][size] > 0 for size in ("1", "4", "16"))
    assert all(value > 0 for value in record["ratio"].values())
    assert len(read(tmp_path / "s.jsonl").lines) == 1
    assert (torch.get_num_threads(), usable_cpus()) == (before, cpus)


def test_what_scatters_is_remarked() -> None:
    runs = RawRuns([100.0, 50.0, 100.0, 50.0], {1: [10.0] * 4}, [], [], [ceilings()] * 5)
    (remark,) = spread_remarks(runs)
    assert remark.startswith("pp512 spread by")
    assert build_record(config(), 4, runs)["pp512"] == 75.0


# --- refusals ---------------------------------------------------------------------------------


def test_no_repetitions_are_refused() -> None:
    with pytest.raises(BenchError, match="at least 1"):
        run_bench("tiny", repetitions=0)


def test_cores_that_are_none_are_refused() -> None:
    with pytest.raises(MachineError, match="list of cores"):
        run_bench("tiny", pin="first")


def test_a_context_too_short_for_pp512_is_refused(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = replace(tiny, config=replace(tiny.config, max_context=256))
    monkeypatch.setattr(bench, "load", lambda *args: short)
    with pytest.raises(BenchError, match="context of 256"):
        run_bench("tiny", threads=1, repetitions=1)


def test_a_folder_transformers_cannot_open_is_named(tiny: LoadedModel, tmp_path: Path) -> None:
    with pytest.raises(peer.PeerError, match="without --vs"):
        TransformersEngine(replace(tiny, folder=tmp_path))


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="choose another file"):
        write_json(tmp_path, {})
