"""What the planner says to SLOs that cannot be kept, and to bad input: one sentence each."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from minipd.cli import app
from minipd.fleet.calibrate import factors_for
from minipd.fleet.configs import ConfigError
from minipd.fleet.gpus import DeviceError, find_device
from minipd.fleet.plan_command import Asked, answer
from minipd.fleet.plan_space import PlanError
from minipd.fleet.planner import make_plan

CHAT = Asked("Llama-3.1-8B", "L40S", 1000, 250, "1", "50ms", 10.0)
H100 = find_device("H100")
LOAD = {"--isl": "1000", "--osl": "250", "--ttft": "1", "--tpot": "50ms", "--rate": "10"}
COMMAND = {"--model": "Llama-3.1-8B", "--gpu": "L40S"} | LOAD


def test_impossible_slos_get_the_nearest_that_can_be_kept() -> None:
    found = answer(replace(CHAT, gpu="H100", tpot="1ms"))
    assert found.best is None and "below one decode step" in found.why_not
    near = found.nearest[0]
    assert near.changed == "TPOT" and near.plan.tpot_s <= near.work.tpot_s
    tighter = replace(near.work, tpot_s=near.work.tpot_s / 1.05)
    assert make_plan(found.model, found.terms, factors_for(H100), tighter).best is None


def test_a_rate_beyond_the_fleet_gets_the_nearest_rate() -> None:
    found = answer(replace(CHAT, rate=1000.0, gpus=4))
    assert found.best is None and found.nearest[0].changed == "rate"
    assert 1.0 < found.nearest[0].work.rate_per_s < 1000.0


@pytest.mark.parametrize(
    ("changed", "error", "says"),
    [
        ({"model": "Llama-3.1-8X"}, ConfigError, "nearest is meta-llama/Llama-3.1-8B"),
        ({"gpu": "H10"}, DeviceError, "nearest is h100_sxm"),
        ({"rate": 0.0}, PlanError, "--rate is 0"),
        ({"rate": -1.0}, PlanError, "--rate is -1"),
        ({"rate": math.nan}, PlanError, "--rate is nan"),
        ({"rate": math.inf}, PlanError, "--rate is inf"),
        ({"isl": 0}, PlanError, "--isl is 0"),
        ({"osl": -5}, PlanError, "--osl is -5"),
        ({"ttft": "soon"}, PlanError, "500ms"),
        ({"ttft": "2000"}, PlanError, "2000ms"),
        ({"tpot": "nan"}, PlanError, "above 0"),
        ({"prefix_hit": 1.0}, PlanError, "--prefix-hit"),
        ({"attainment": 1.0}, PlanError, "--attainment"),
        ({"gpus": 0}, PlanError, "--gpus is 0"),
        ({"price": math.nan}, PlanError, "--price"),
        ({"dtype": "int3"}, PlanError, "--dtype"),
        ({"link": "ethernet_26"}, PlanError, "nearest is ethernet_25"),
        ({"link": "-5"}, PlanError, "above 0"),
        ({"isl": 200_000}, PlanError, "context"),
        ({"gpu": "this machine"}, PlanError, "--bench"),
        ({"model": "Llama-3.1-405B", "gpus": 4}, PlanError, "812 GB"),
        ({"model": "Llama-3.1-405B", "gpu": "groq_lpu"}, PlanError, "larger device"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(
    changed: dict[str, object], error: type[Exception], says: str
) -> None:
    with pytest.raises(error) as caught:
        answer(replace(CHAT, **changed))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_config_without_a_needed_field_names_it(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"hidden_size": 64, "num_attention_heads": 4, "vocab_size": 9}))
    with pytest.raises(ConfigError, match="num_hidden_layers"):
        answer(replace(CHAT, model=str(path)))


def plan(*changed: str) -> Result:
    given = COMMAND | dict(zip(changed[::2], changed[1::2], strict=True))
    return CliRunner().invoke(app, ["plan", *(word for pair in given.items() for word in pair)])


def command(folder: Path, *changed: str) -> tuple[int, str]:
    """Exit code and words of `minipd plan`, which must not have written anything."""
    out = folder / "out.json"
    result = plan(*changed, "--json", str(out))
    assert not out.exists()
    return result.exit_code, result.output.strip()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (("--model", "Llama-3.1-8X"), "nearest is meta-llama/Llama-3.1-8B"),
        (("--rate", "0"), "--rate is 0"),
        (("--rate", "nan"), "--rate is nan"),
        (("--model", "Llama-3.1-405B", "--gpus", "4"), "812 GB"),
    ],
)
def test_the_command_refuses_with_exit_code_2(
    tmp_path: Path, changed: tuple[str, ...], says: str
) -> None:
    code, words = command(tmp_path, *changed)
    assert code == 2 and says in words and "\n" not in words


@pytest.mark.parametrize("content", ["", '{"timestamp": NaN, "input_length": 4}\n'])
def test_a_bad_trace_is_told_before_anything_is_planned(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content, "utf-8")
    code, words = command(tmp_path, "--trace", str(path))
    assert code == 2 and "bad.jsonl" in words and "\n" not in words


def test_a_trace_of_one_request_is_verified(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 9, "output_length": 2}\n', "utf-8")
    result = plan("--trace", str(path))
    assert result.exit_code == 0, result.output
    assert "1 request of one.jsonl" in result.output
