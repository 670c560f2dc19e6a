"""Files and folders that planner and simulator are given: each fault one sentence, exit code 2."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from minipd.cli import app
from minipd.fleet.calibrate import CalibrationError, calibrate_from_bench, read_bench
from minipd.fleet.configs import ConfigError, find_model
from minipd.fleet.json_files import JsonFileError, read_json

LOAD = ["--isl", "1000", "--osl", "250", "--ttft", "1", "--tpot", "50ms", "--rate", "10"]
PLAN = ["plan", "--model", "Llama-3.1-8B", "--gpu", "L40S", *LOAD]
SIMULATE = ["simulate", "--requests", "3"]
DENSE: dict[str, Any] = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "vocab_size": 90,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
}
SPARSE = DENSE | {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


def config_of(folder: Path, **changed: Any) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(SPARSE | changed), "utf-8")
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def refused(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 2, (result.output, result.exception)
    assert isinstance(result.exception, SystemExit)
    words = result.output.strip()
    assert words.startswith("minipd: ") and "\n" not in words
    return words


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_hidden_layers", 10**30),
        ("num_hidden_layers", float("inf")),
        ("num_experts", 10**9),
        ("num_experts", "8"),
        ("num_experts_per_tok", 9),
        ("num_key_value_heads", 99),
        ("first_k_dense_replace", "abc"),
        ("first_k_dense_replace", float("nan")),
        ("first_k_dense_replace", -3),
        ("decoder_sparse_step", [1]),
        ("decoder_sparse_step", -1),
        ("moe_layer_freq", [0, 1]),
        ("mlp_only_layers", 5),
        ("mlp_only_layers", "0"),
        ("layer_types", 5),
        ("n_shared_experts", -4),
        ("shared_expert_intermediate_size", "a"),
        ("text_config", [1]),
        ("tie_word_embeddings", "no"),
    ],
)
def test_a_field_of_another_kind_is_named(tmp_path: Path, field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=field):
        find_model(config_of(tmp_path, **{field: value}))


def test_fields_that_say_nothing_count_as_absent(tmp_path: Path) -> None:
    plain = find_model(config_of(tmp_path))
    nothing = dict.fromkeys(("n_shared_experts", "mlp_only_layers", "layer_types", "text_config"))
    assert find_model(config_of(tmp_path, **nothing, model_type=None)) == plain


BAD_JSON = {
    "no JSON (": b"hello",
    "no text file": b'{"a": "\xff"}',
    "nested too deeply": b"[" * 200_000 + b"]" * 200_000,
    "4300 digits": b'{"hidden_size": ' + b"9" * 5000 + b"}",
    "no JSON (Expecting value": b"",
}


@pytest.mark.parametrize("says", BAD_JSON)
def test_what_is_no_json_is_said_by_every_reader(tmp_path: Path, says: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(BAD_JSON[says])
    assert says in refused(*PLAN, "--model", str(path))
    assert says in refused(*PLAN, "--gpu", "this machine", "--bench", str(path))
    assert says in refused("plan", "--check-steps", str(path))
    assert says in refused(*SIMULATE, "--model", str(tmp_path))


def test_a_byte_order_mark_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(SPARSE).encode())
    assert find_model(str(path)).num_layers == 2


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(JsonFileError, match="no ordinary file"):
        read_json(tmp_path / "config.json")


@pytest.mark.parametrize("name", ["", " ", "a" * 5000, "/" + "a/" * 3000, "x\0y.json", "\udcff"])
def test_names_that_no_path_can_have(name: str) -> None:
    with pytest.raises(ConfigError):
        find_model(name)


def test_folders_without_a_config_and_files_that_are_not_there(tmp_path: Path) -> None:
    for name in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(ConfigError, match="No such file"):
            find_model(str(name))
    (tmp_path / "config.json").mkdir()
    with pytest.raises(ConfigError, match="directory"):
        find_model(str(tmp_path))


@pytest.mark.parametrize(
    "changed",
    [
        {"ceilings": {"flops": float("nan"), "read_bytes_per_s": 1.0}},
        {"ceilings": {"flops": 1e400, "read_bytes_per_s": 1.0}},
        {"ceilings": 5},
        {"samples": {"pp512": {"median": "fast"}}},
        {"samples": {"pp512": {"median": float("nan")}}},
        {"samples": {"pp512": {"median": -5.0}}},
        {"samples": {"pp512": {"median": 9.0}, "tg128 x many": {"median": 1.0}}},
        {"samples": []},
    ],
)
def test_records_that_no_bench_wrote(changed: dict[str, Any]) -> None:
    record = {
        "model": {"name": "SmolLM2-135M", "dtype": "float32"},
        "ceilings": {"flops": 1e11, "read_bytes_per_s": 1e10},
        "samples": {"pp512": {"median": 500.0}},
    }
    assert calibrate_from_bench(record).factors
    with pytest.raises(ValueError, match="minipd bench") as caught:
        calibrate_from_bench(record | changed)
    assert type(caught.value).__module__.startswith("minipd.")


def test_a_bench_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="No such file"):
        read_bench(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--link", "1e-308"], "--link"),
        (["--link", "1e400"], "--link"),
        (["--price", "1e308"], "--price"),
        (["--ttft", "1e-308"], "1e-308"),
        (["--compare", "x"], "aiconfigurator"),
        (["--bench", "none.json"], "--gpu 'this machine'"),
    ],
)
def test_plans_that_cannot_be_made(arguments: list[str], says: str) -> None:
    assert says in refused(*PLAN, *arguments)


@pytest.mark.parametrize("option", ["--model", "--gpu", "--ttft", "--tpot"])
def test_an_empty_option_is_a_missing_one(option: str) -> None:
    result = run(*PLAN, option, "")
    assert result.exit_code == 2 and f"give {option} too" in " ".join(result.output.split())


@pytest.mark.parametrize("option", ["--trunk", "--link"])
@pytest.mark.parametrize("rate", ["1e-308", "nan", "-1"])
def test_wires_that_carry_nothing(option: str, rate: str) -> None:
    assert "above 0" in refused(*SIMULATE, f"{option}={rate}")


@pytest.mark.parametrize("command", [PLAN, SIMULATE])
def test_results_that_cannot_be_written(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "file").write_text("kept")
    for path in (tmp_path, tmp_path / "file" / "x.json", tmp_path / ("a" * 300)):
        assert "choose another file" in refused(*command, "--json", str(path))
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_is_named_with_the_file() -> None:
    result = run(*SIMULATE, "--json", "/dev/full")
    assert result.exit_code == 2
    last = result.output.strip().splitlines()[-1]
    assert last.startswith("minipd: Cannot write /dev/full (No space left")
