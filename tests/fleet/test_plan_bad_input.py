"""What the planner says to SLOs that cannot be kept, and to bad input: one sentence each."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from minipd.fleet.calibrate import factors_for
from minipd.fleet.configs import ConfigError
from minipd.fleet.gpus import DeviceError, find_device
from minipd.fleet.plan_command import Asked, answer
from minipd.fleet.plan_space import PlanError
from minipd.fleet.planner import make_plan

CHAT = Asked("Llama-3.1-8B", "L40S", 1000, 250, "1", "50ms", 10.0)
H100 = find_device("H100")


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
