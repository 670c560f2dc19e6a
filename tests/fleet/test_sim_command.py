"""`minipd simulate`: statistics, runs, JSON, and one clear sentence for each mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from minipd.cli import app
from minipd.fleet import sources
from minipd.fleet.sources import Reshaping, from_file
from minipd.measure.rows import TraceError
from minipd.measure.traces import write_trace
from minipd.measure.workloads import generate

SMALL = ["--requests", "40", "--rate", "20", "--seed", "1"]


def run(*arguments: str) -> str:
    """The command's words; fails where it does."""
    result = CliRunner().invoke(app, ["simulate", *arguments])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.output


def refused(folder: Path, *arguments: str) -> str:
    """The sentence with which it is refused: exit code 2, and nothing is written."""
    out = folder / "out.json"
    result = CliRunner().invoke(app, ["simulate", *arguments, "--json", str(out)])
    assert result.exit_code == 2, result.output + repr(result.exception)
    assert not out.exists()
    return result.output.strip()


def mooncake_file(folder: Path) -> Path:
    """Two requests that share their first two blocks, and one of its own."""
    rows = [
        {"timestamp": 0, "input_length": 1600, "output_length": 5, "hash_ids": [0, 1, 2, 3]},
        {"timestamp": 1000, "input_length": 1400, "output_length": 5, "hash_ids": [0, 1, 4]},
        {"timestamp": 3000, "input_length": 500, "output_length": 1, "hash_ids": [5]},
    ]
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_three_modes_side_by_side(tmp_path: Path) -> None:
    out = tmp_path / "runs.json"
    modes = ["disaggregated", "colocated", "chunked"]
    chosen = [word for mode in modes for word in ("--mode", mode)]
    words = run(*SMALL, *chosen, "--ttft", "0.5", "--tpot", "0.02", "--json", str(out))
    told = json.loads(out.read_text("utf-8"))
    assert list(told["modes"]) == modes
    for result in told["modes"].values():
        assert result["summary"]["finished"] == 40 and result["leaked_blocks"] == 0
        assert result["goodput_per_device"] > 0
    assert "TTFT" in words and "busy: both" in words


def test_a_trace_with_prefix_reuse_failures_and_unlike_pools(tmp_path: Path) -> None:
    out = tmp_path / "runs.json"
    pools = ["--tp", "2", "--decode-gpu", "A100", "--decode-tp", "1", "--fail", "0@0.5+1"]
    trace = str(mooncake_file(tmp_path))
    run("--trace", trace, "--prefix-reuse", *pools, "--json", str(out))
    told = json.loads(out.read_text("utf-8"))["modes"]["disaggregated"]
    assert told["summary"]["finished"] == 3 and told["num_devices"] == 3


def test_a_single_request() -> None:
    assert "1 of 1" in run("--requests", "1")
    assert "1 of 1" in run("--isl", "10", "--osl", "1", "--requests", "1")
    assert "nan" in run("--requests", "1", "--stats")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--model", "lama-3.1"], "nearest is meta-llama/Llama-3.1"),
        (["--gpu", "h10"], "nearest is h100"),
        (["--mode", "colocatd"], "did you mean 'colocated'"),
        (["--workload", "chatt"], "did you mean 'chat'"),
        (["--router", "nearest"], "no router"),
        (["--link", "infiniband"], "did you mean"),
        (["--rate", "0"], "above 0"),
        (["--rate", "nan"], "above 0"),
        (["--arrivals", "gamma", "--cv", "nan"], "burstiness"),
        (["--ttft", "nan"], "seconds above 0"),
        (["--requests", "0"], "at least 1"),
        (["--isl", "100"], "both --isl and --osl"),
        (["--isl", "0", "--osl", "5"], "prompt tokens"),
        (["--kv-tokens", "50"], "No request could be served"),
        (["--kv-tokens", "5"], "not one block"),
        (["--model", "Llama-3.1-405B"], "spread it over more devices"),
        (["--trunk", "nan"], "above 0"),
        (["--fail", "x"], "WORKER@SECONDS"),
        (["--fail", "7@1"], "workers 0 to 1"),
        (["--prefill", "0"], "at least 1 prefill"),
        (["--router", "threshold", "--mode", "chunked"], "needs a prefill pool"),
        (["--rebalance"], "both --ttft and --tpot"),
        (["--trace", "nowhere.csv"], "check the path"),
        (["--max-running", "0"], "whole number from 1"),
        (["--tpot", "1e-6"], "one decode step of Llama-3.1-8B takes 0.0"),
        (["--ttft", "1e-6"], "reading one token"),
        (["--mode", "chunked", "--tpot", "1e-6"], "give more seconds"),
    ],
)
def test_mistakes_get_one_sentence(tmp_path: Path, arguments: list[str], says: str) -> None:
    words = refused(tmp_path, *arguments)
    assert says in words and "\n" not in words


BAD_FILES = {
    "config.json": (
        '{"hidden_size": 64, "num_attention_heads": 4, "vocab_size": 9}',
        "no num_hidden_layers",
    ),
    "nan.json": ('{"hidden_size": NaN, "num_hidden_layers": 2}', "hidden_size = nan"),
    "nan.jsonl": ('{"timestamp": NaN, "input_length": 4, "output_length": 1}', "Line 1 of nan"),
    "none.jsonl": ("", "none.jsonl is empty"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_named(tmp_path: Path, name: str) -> None:
    path, (content, says) = tmp_path / name, BAD_FILES[name]
    path.write_text(content, "utf-8")
    option = "--trace" if name.endswith("l") else "--model"
    assert says in refused(tmp_path, option, str(path))


def test_a_trace_ten_times_the_kv_of_a_worker(tmp_path: Path) -> None:
    """Every request fits alone, all together do not: they wait, and all are served."""
    rows = [{"timestamp": 0, "input_length": 700, "output_length": 50, "hash_ids": [0, 1]}] * 20
    path, out = tmp_path / "trace.jsonl", tmp_path / "out.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    run("--trace", str(path), "--kv-tokens", "1500", "--json", str(out))
    told = json.loads(out.read_text("utf-8"))["modes"]["disaggregated"]
    assert (told["summary"]["finished"], told["leaked_blocks"]) == (20, 0)


# -- where requests come from ---------------------------------------------------------------------


@pytest.fixture
def own_trace(tmp_path: Path) -> Path:
    path = tmp_path / "own.jsonl"
    write_trace(path, generate("multi_turn", 60, 5.0, seed=2))
    return path


def test_long_files_are_streamed_alike(monkeypatch: pytest.MonkeyPatch, own_trace: Path) -> None:
    change = Reshaping(time_factor=2.0, length_factor=0.5, max_output_tokens=40, limit=50)
    held = list(from_file(own_trace, change).rows)
    monkeypatch.setattr(sources, "SHORT_BYTES", 10)
    streamed = from_file(own_trace, change)
    assert streamed.count is None
    start_s = 2.0 * generate("multi_turn", 60, 5.0, seed=2)[0].arrival_s
    found = list(streamed.rows)
    assert len(found) == len(held) == 50
    for row, other in zip(held, found, strict=True):
        assert row.arrival_s - start_s == pytest.approx(other.arrival_s, abs=3e-6)
        assert (row.prompt_tokens, row.output_tokens) == (other.prompt_tokens, other.output_tokens)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hello\n", "a trace begins with"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,NaN,5\n", "Line 2"),
        ('{"timestamp": NaN, "input_length": 4, "output_length": 1}\n', "Line 1"),
    ],
)
def test_streamed_files_name_the_bad_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text, "utf-8")
    monkeypatch.setattr(sources, "SHORT_BYTES", 0)
    with pytest.raises(TraceError, match=says):
        list(from_file(path).rows)


def test_what_is_written_is_json(tmp_path: Path) -> None:
    """Infinity and NaN, which JSON does not know, become null."""
    out = tmp_path / "one.json"
    run("--requests", "1", "--json", str(out))

    def fail(word: str) -> Any:
        raise AssertionError(word)

    told = json.loads(out.read_text("utf-8"), parse_constant=fail)
    assert told["asked"]["trunk_bytes_per_s"] is None
