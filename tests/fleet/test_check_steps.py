"""Fitting and `minipd plan --check-steps`, on files made from the model itself, and bad files."""

from __future__ import annotations

import json
import os
import random
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from minipd.cli import app
from minipd.fleet.calibrate import (
    CalibrationError,
    calibrate_from_bench,
    device_for,
    fit_rows,
    left_out_predictions,
    read_bench,
)
from minipd.fleet.check_steps import check_steps
from minipd.fleet.configs import find_model
from minipd.fleet.factors import GPU_PRIOR, Factors, committed
from minipd.fleet.fit import fit
from minipd.fleet.reference import ReferenceFileError, Row, read_reference
from minipd.fleet.steps import StepModel

TRUTH = Factors(0.70, 0.75, 0.60, 0.70, 0.60, 0.70, 0.30, 8e-6, 0.60, 9e-6)
GOOD: dict[str, Any] = {
    "system": "h200_sxm",
    "model": "Qwen/Qwen3-8B",
    "tp": 1,
    "mode": "static_gen",
    "isl": 512,
    "batch": 1,
    "ms": 5.0,
}
SHAPES = [("static_ctx", 512, 1), ("static_ctx", 4096, 1), ("static_ctx", 2048, 4)]
SHAPES += [("static_gen", 512, 1), ("static_gen", 1024, 32), ("static_gen", 8192, 16)]
MODELS = [("Llama-3.1-8B", 1), ("Llama-3.1-70B", 4), ("Qwen3-32B", 2), ("Qwen3-30B-A3B", 1)]


def made_rows(system: str, noise: float = 0.0) -> list[dict[str, Any]]:
    """Rows that the model itself gives with `TRUTH`, disturbed by `noise`."""
    rng, device = random.Random(5), device_for(system)
    rows: list[dict[str, Any]] = []
    for name, tp in MODELS:
        for mode, isl, batch in SHAPES:
            row = Row(system, name, find_model(name), tp, mode, isl, batch, 1.0)
            seconds = StepModel(row.shape, device, TRUTH, row.parallel).step(row.chunks).seconds
            ms = seconds * 1e3 * rng.lognormvariate(0.0, noise)
            rows.append({**row.key(), "ms": ms})
    return rows


def write(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "steps.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_factors_are_found_again(tmp_path: Path) -> None:
    rows = read_reference(write(tmp_path, made_rows("h200_sxm"))).rows
    found = fit_rows(rows, device_for("h200_sxm"))
    for name, value in asdict(TRUTH).items():
        assert asdict(found)[name] == pytest.approx(value, rel=0.1), name


def test_without_rows_the_prior_is_the_answer() -> None:
    found = asdict(fit([], [], GPU_PRIOR))
    assert found == pytest.approx(asdict(GPU_PRIOR.centre))


def test_one_odd_row_does_not_bend_the_others(tmp_path: Path) -> None:
    rows = made_rows("h200_sxm")
    rows[3]["ms"] *= 3
    report = check_steps(write(tmp_path, rows))
    assert report["median_error"] < 0.03
    assert report["worst"][0]["ms"] == rows[3]["ms"]


def test_a_row_never_helps_to_predict_itself(tmp_path: Path) -> None:
    rows = read_reference(write(tmp_path, made_rows("h200_sxm", 0.05))).rows
    device = device_for("h200_sxm")
    changed = (replace(rows[0], ms=rows[0].ms * 1.5), *rows[1:])
    before, after = left_out_predictions(rows, device), left_out_predictions(changed, device)
    assert after[0] == pytest.approx(before[0], rel=2e-3)  # as far as a fit is carried
    assert any(abs(a / b - 1) > 1e-3 for a, b in zip(after[1:], before[1:]))


@pytest.mark.parametrize("system", ["h200_sxm", "a-device-nobody-knows"])
def test_unknown_hardware_is_predicted_from_the_other_rows(tmp_path: Path, system: str) -> None:
    report = check_steps(write(tmp_path, made_rows(system, 0.02)))
    assert report["by_system"][system]["factors_from"] == "the file's other rows"
    assert report["median_error"] < 0.05 and report["p90_error"] < 0.12


def test_known_hardware_uses_committed_factors(tmp_path: Path) -> None:
    report = check_steps(write(tmp_path, made_rows("H100")))
    assert report["by_system"]["H100"]["factors_from"] == "committed"
    assert report["by_system"]["H100"]["factors"] == asdict(committed()["h100_sxm"])
    assert report["median_error"] > 0.05  # the rows were made with other factors


def test_one_row_of_unknown_hardware_rests_on_the_prior(tmp_path: Path) -> None:
    report = check_steps(write(tmp_path, [GOOD]))
    assert report["rows"] == 1 and report["max_error"] < 0.3


def test_the_command_writes_what_it_promises(tmp_path: Path) -> None:
    source, out = write(tmp_path, [{**GOOD, "osl": 3}]), tmp_path / "out.json"
    done = CliRunner().invoke(app, ["plan", "--check-steps", str(source), "--json", str(out)])
    assert done.exit_code == 0, done.output
    report = json.loads(out.read_text())
    assert {"median_error", "p90_error", "worst", "rows", "by_system", "by_model"} <= set(report)
    assert "Fields not used: osl" in done.output and "Worst rows" in done.output


def test_the_command_asks_for_something_to_do() -> None:
    done = CliRunner().invoke(app, ["plan"])
    assert done.exit_code == 2 and "--check-steps FILE" in done.output


def without(name: str) -> list[dict[str, Any]]:
    return [GOOD, {key: value for key, value in GOOD.items() if key != name}]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ({"rows": [GOOD]}, "holds one object"),
        ("3", "holds a int"),
        ([], "no rows"),
        ([GOOD, 7], "row 2: a row must be an object"),
        (without("ms"), "row 2: ms missing"),
        ([{**GOOD, "ms": float("nan")}], "ms is nan"),
        ([{**GOOD, "ms": 0}], "ms is 0"),
        ([{**GOOD, "ms": -1.0}], "ms is -1.0"),
        ([{**GOOD, "ms": "5"}], "ms is 5"),
        ([{**GOOD, "ms": True}], "ms is True"),
        ([{**GOOD, "isl": 0}], "isl is 0"),
        ([{**GOOD, "batch": 1.5}], "batch is 1.5"),
        ([{**GOOD, "tp": 10**9}], "tp is 1000000000"),
        ([{**GOOD, "tp": 64}], "at most 32"),
        ([{**GOOD, "tp": 2, "ep": 3}], "multiple of tp"),
        ([{**GOOD, "mode": "static_ctxt"}], "did you mean static_ctx"),
        ([{**GOOD, "model": "Qwen/Qwen3-9B"}], "nearest is Qwen/Qwen3-8B"),
        ([{**GOOD, "model": None}], "model is None"),
        ([{**GOOD, "system": ""}], "system is empty"),
    ],
)
def test_a_bad_file_says_where_and_why(tmp_path: Path, content: Any, words: str) -> None:
    with pytest.raises(ReferenceFileError, match=words):
        read_reference(write(tmp_path, content))


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReferenceFileError, match="cannot be read"):
        read_reference(tmp_path / "none.json")
    with pytest.raises(ReferenceFileError, match="cannot be read"):
        read_reference(tmp_path)
    (tmp_path / "b").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ReferenceFileError, match="no text file"):
        read_reference(tmp_path / "b")


def bench_record() -> dict[str, Any]:
    """Rates of a machine of 100 GFLOP/s and 10 GB/s, about as `minipd bench` sees them."""
    rates = {"pp512": 300.0, "tg128 x 1": 13.0, "tg128 x 4": 30.0, "tg128 x 16": 75.0}
    return {
        "model": {"name": "smollm2-135m", "dtype": "float32"},
        "ceilings": {"flops": 100e9, "read_bytes_per_s": 10e9},
        "samples": {name: {"median": rate} for name, rate in rates.items()},
    }


def test_this_machine_is_calibrated_from_a_bench() -> None:
    found = calibrate_from_bench(bench_record())
    assert found.device.status == "measured"
    assert set(found.errors) == {"pp512", "tg128 x 1", "tg128 x 4", "tg128 x 16"}
    assert max(map(abs, found.errors.values())) < 0.1
    assert 0.3 < found.factors.matrix < 1.2 and 0.3 < found.factors.memory < 1.2


@pytest.mark.parametrize("part", ["model", "ceilings", "samples"])
def test_what_is_no_bench_is_refused(part: str, tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="minipd bench"):
        calibrate_from_bench({k: v for k, v in bench_record().items() if k != part})
    (tmp_path / "x").write_text("[]")
    with pytest.raises(CalibrationError, match="no record"):
        read_bench(tmp_path / "x")


REFERENCE = Path(os.environ.get("MINIPD_STEP_TIMES", ""))


@pytest.mark.skipif(not REFERENCE.is_file(), reason="set MINIPD_STEP_TIMES to a reference file")
def test_the_bars_on_the_reference_file() -> None:
    report = check_steps(REFERENCE)
    assert report["median_error"] <= 0.05 and report["p90_error"] <= 0.12
