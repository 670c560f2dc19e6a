"""The benchmark: what is counted, what is timed, and what becomes of the samples."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from minipd.measure import bench, counts, peer
from minipd.measure.bench import BenchError, run_bench
from minipd.measure.ceilings import Ceilings
from minipd.measure.machine import MachineError, usable_cpus
from minipd.measure.peer import TransformersEngine
from minipd.measure.record import RawRuns, build_record, spread_remarks
from minipd.measure.report import ReportError, write_json
from minipd.measure.sheet import read
from minipd.measure.stats import Samples
from minipd.model.load import LoadedModel, load


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return load("tiny")


def ceilings(flops: float = 1e9, read_bytes_per_s: float = 1e9) -> Ceilings:
    products, reads = {"64": Samples((flops,))}, {"sum": Samples((read_bytes_per_s,))}
    return Ceilings("cpu", "float32", 1, products, reads, 1, "", None)


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
        return 1.0

    def decode_in_parts(
        self, token_ids: list[int], num_sequences: int, passes: int
    ) -> Iterator[float]:
        seconds = next(self._decode_s) if num_sequences == 1 else 4.0
        for start in range(0, len(token_ids), passes):
            self.log.append(f"{self.name} part {start // passes} x {num_sequences}")
            yield seconds * passes / len(token_ids)


LOG: list[str] = []


class ScriptedBeside:
    """The machine's arithmetic doubles from sample to sample, but for one lucky moment of small
    products; its reads take turns at 2 and 8."""

    def __init__(self, ceilings: Ceilings) -> None:
        self.samples = 0

    def flops(self) -> dict[str, float]:
        LOG.append("flops")
        self.samples += 1
        now = 1e9 * 2 ** (self.samples - 1)
        return {"1024": 5 * now if self.samples == 2 else 0.9 * now, "2048": now}

    def read_bytes_per_s(self) -> float:
        LOG.append("reads")
        return 2e9 if LOG.count("reads") % 2 else 8e9


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """Both engines and the ceilings play known parts: rates 512, 256 and so on."""
    LOG.clear()
    rounds = iter([ceilings(1e9, 8e9), ceilings(2e9, 9e9), ceilings(4e9, 7e9)])

    def measure(device: str, dtype: str, threads: int, quick: bool) -> Ceilings:
        LOG.append("ceilings")
        return next(rounds)

    ours, theirs = (
        Scripted("ours", [1.0] * bench.PREFILL_TURNS + [2.0] * bench.PREFILL_TURNS, [2.0, 4.0]),
        Scripted("theirs", [2.0] * 2 * bench.PREFILL_TURNS, [4.0, 16.0]),
    )
    monkeypatch.setattr(bench, "measure_ceilings", measure)
    monkeypatch.setattr(bench, "Beside", ScriptedBeside)
    monkeypatch.setattr(bench, "MinipdEngine", lambda *args: ours)
    monkeypatch.setattr(bench, "TransformersEngine", lambda *args: theirs)
    monkeypatch.setenv("MINIPD_SHEET", str(tmp_path / "sheet.jsonl"))
    yield LOG


def test_runs_alternate_between_ceilings(scripted: list[str]) -> None:
    run_bench("tiny", threads=1, vs="transformers", repetitions=2)
    once = ["flops", *["ours pp512", "flops", "theirs pp512", "flops"] * bench.PREFILL_TURNS]
    for part in range(bench.DECODE_STEPS // bench.TURN_PASSES):
        turns = ["ours", 1], ["theirs", 1], ["ours", 4], ["ours", 16]
        once += [*(f"{name} part {part} x {size}" for name, size in turns), "reads"]
    warm_up = ["ours pp512", "ours tg8 x 1", "ours tg8 x 4", "ours tg8 x 16"]
    warm_up += ["theirs pp512", "theirs tg8 x 1"]
    assert scripted == [*warm_up, "ceilings", *once, "ceilings", *once, "ceilings"]


def test_every_figure_follows_from_the_samples(scripted: list[str], tiny: LoadedModel) -> None:
    record = run_bench("tiny", threads=1, vs="transformers", repetitions=2)
    assert record["samples"]["pp512"]["samples"] == [512.0] * 3 + [256.0] * 3
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
    # Each pass's own ceilings: 1 and 2 around ours, 2 and 4 around theirs, 4 and 8 around ours; in
    # the middle of six, 16 and 32 around ours with 512 tokens/s, 128 and 256 with 256.
    assert record["mfu"] == pytest.approx(per_token * (512 / 24e9 + 256 / 192e9) / 2)
    assert record["peer"]["mfu"] == pytest.approx(per_token * (256 / 48e9 + 256 / 384e9) / 2)
    step = counts.decode_bytes(tiny.config, 4, 1, 64.5)
    assert record["mbu"] == pytest.approx(step * (64 / 5e9 + 32 / 5e9) / 2)
    assert record["batch_use"]["16"]["mbu"] == pytest.approx(
        counts.decode_bytes(tiny.config, 4, 16, 64.5) * 32 / 5e9
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


@pytest.mark.slow
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


def test_what_scatters_is_remarked(tiny: LoadedModel) -> None:
    runs = RawRuns([100.0, 50.0, 100.0, 50.0], {1: [10.0] * 4}, [], [], [ceilings()] * 5)
    runs.prefill_flops, runs.decode_reads = [{"1024": 1e9}] * 4, [1e9] * 4
    (remark,) = spread_remarks(runs)
    assert remark.startswith("pp512 spread by")
    assert build_record(tiny.config, 4, runs)["pp512"] == 75.0


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
