"""The step-time model: limits that must hold whatever the factors, and outside measurements."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minipd.fleet import collectives
from minipd.fleet.calibrate import factors_for
from minipd.fleet.configs import find_model
from minipd.fleet.factors import GPU_PRIOR, Factors
from minipd.fleet.gpus import DeviceError, find_device, load_devices, load_links, this_machine
from minipd.fleet.steps import StepModel, round_corner
from minipd.fleet.work import Chunk, Parallel, decode_step, step_work

PERFECT = Factors(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1e-9, 1e-12, 1.0, 1e-12)
H100 = find_device("H100")


def perfect(name: str) -> StepModel:
    return StepModel(find_model(name), H100, PERFECT)


def test_a_perfect_device_reads_weights_once_per_decode_step() -> None:
    model = find_model("Llama-3.1-8B")
    floor = (model.active_parameters * 2 + 1000 * 131072) / H100.bytes_per_s
    assert perfect("Llama-3.1-8B").decode_s(1000, 1) == pytest.approx(floor, rel=0.01)


def test_a_perfect_device_computes_a_long_prompt_at_its_rate() -> None:
    model, tokens = find_model("Llama-3.1-70B"), 4096
    body = model.active_parameters - model.hidden * model.vocab
    flops = 2 * body * tokens + 4 * 80 * 64 * 128 * tokens * (tokens + 1) / 2
    floor = flops / H100.flops["bf16"]
    seconds = perfect("Llama-3.1-70B").prefill_s(tokens)
    assert floor < seconds < 1.1 * floor  # norms and activations take the rest


@pytest.mark.parametrize(
    "name", ["Llama-3.1-8B", "Qwen3-30B-A3B", "DeepSeek-V3", "gemma-4-26B-A4B"]
)
def test_more_work_never_takes_less_time(name: str) -> None:
    model = StepModel(find_model(name), H100, factors_for(H100))
    assert model.decode_s(1000, 1) < model.decode_s(1000, 8) < model.decode_s(1000, 64)
    assert model.decode_s(1000, 8) < model.decode_s(9000, 8)
    assert model.prefill_s(100) < model.prefill_s(1000) < model.prefill_s(1000, 2)
    assert model.prefill_s(1000) < model.prefill_s(1000, cached=4000)


def test_a_mixed_step_is_cheaper_than_its_parts() -> None:
    """A piece of a prompt rides along while the weights are read anyway: why chunking works."""
    model = StepModel(find_model("Llama-3.1-8B"), H100, factors_for(H100))
    decode, piece = [Chunk(1, 2000.0, 32)], [Chunk(128, 512.0)]
    mixed = model.step(decode + piece).seconds
    assert max(model.step(decode).seconds, model.step(piece).seconds) < mixed
    assert mixed < model.step(decode).seconds + model.step(piece).seconds


def test_tensor_parallel_pays_for_exchanges() -> None:
    model = find_model("Llama-3.1-70B")
    times = [
        StepModel(model, H100, factors_for(H100), Parallel(tp=tp)).step(decode_step(1000, 8))
        for tp in (1, 4, 8)
    ]
    assert times[0].exchange_s == 0.0 < times[1].exchange_s < times[2].exchange_s
    assert times[2].seconds < times[1].seconds < times[0].seconds
    assert times[2].seconds > times[0].seconds / 8


def test_a_pipeline_has_the_latency_of_all_stages() -> None:
    model, factors = find_model("Llama-3.1-70B"), factors_for(H100)
    one = StepModel(model, H100, factors, Parallel(tp=4)).step(decode_step(1000, 8))
    four = StepModel(model, H100, factors, Parallel(tp=4, pp=4)).step(decode_step(1000, 8))
    assert four.seconds > one.seconds
    assert four.stage_s == pytest.approx(four.seconds / 4)


def test_wide_expert_parallelism_reads_fewer_experts_per_device() -> None:
    model = find_model("DeepSeek-V3")
    alone = StepModel(model, H100, factors_for(H100)).step(decode_step(2000, 64))
    wide = StepModel(model, H100, factors_for(H100), Parallel(ep=72)).step(decode_step(2000, 64))
    assert wide.parts["experts"] < alone.parts["experts"] / 3
    assert wide.parts["all_to_all"] > 0.0 and "all_to_all" not in alone.parts
    assert replace(wide, overlap=True).seconds < wide.seconds


def test_operations_count_what_the_model_holds() -> None:
    """The bytes of all products of a one-token step are the touched weights, and little more."""
    for name in ("Qwen3-8B", "Qwen3-30B-A3B", "DeepSeek-V3"):
        model = find_model(name)
        work = step_work(model, decode_step(1, 1), Parallel())
        read = sum(o.times * o.num_bytes for o in work if o.kind in ("matrix", "experts"))
        assert read == pytest.approx(model.active_parameters * model.weight_bytes, rel=0.02)


# LMSYS 2025-05-05, 12 x 8 H100, DeepSeek-V3: 54,543 tok/s per node prefill at EP32 with 2K prompts,
# 22,282 decode at EP72 with 256 sequences per device (facts 1.3). Balanced experts: skew 0.
# Nothing here was fitted to these.
@pytest.mark.parametrize(
    ("ep", "chunk", "tokens_per_s_node"),
    [(32, Chunk(2048, 0.0, 8), 54_543), (72, Chunk(1, 2000.0, 256), 22_282)],
)
def test_published_wide_ep_rates(ep: int, chunk: Chunk, tokens_per_s_node: float) -> None:
    model = StepModel(find_model("DeepSeek-V3"), H100, factors_for(H100), Parallel(ep=ep), skew=0.0)
    rate = chunk.new * chunk.count / model.step([chunk]).seconds
    assert rate * 8 == pytest.approx(tokens_per_s_node, rel=0.2)


def test_round_corner() -> None:
    assert round_corner(2.0, 0.0) == 2.0 == round_corner(0.0, 2.0)
    assert round_corner(1.0, 1.0) == pytest.approx(2**0.25)
    assert round_corner(0.0, 0.0) == 0.0


def test_exchange_bytes() -> None:
    assert collectives.all_reduce_bytes(100.0, 4) == 150.0
    assert collectives.all_to_all_bytes(80.0, 8, copies=8, per_node=8) == 70.0
    # Over two nodes with one copy, half the tokens have their expert on the other node.
    assert collectives.all_to_all_bytes(10.0, 16, copies=1, per_node=8) == pytest.approx(5.0)
    # With many copies nearly every token crosses, but only once.
    assert collectives.all_to_all_bytes(80.0, 16, copies=8, per_node=8) == pytest.approx(
        10, rel=0.01
    )


def test_traffic_beyond_a_node_takes_the_network() -> None:
    assert collectives.spec_rate(H100, 8) == H100.link_bytes_per_s
    assert collectives.spec_rate(H100, 16) == H100.network_bytes_per_s


def test_parallel_refuses_what_cannot_be() -> None:
    for wrong in ({"tp": 0}, {"tp": 2, "ep": 3}):
        with pytest.raises(ValueError, match="must be"):
            Parallel(**wrong)
    assert Parallel(tp=2, pp=3, ep=8).devices == 24


def test_every_device_names_source_date_and_price_source() -> None:
    for device in load_devices().values():
        assert device.source and device.date and device.price_source, device.key
        assert device.flops_for("bf16") > 0 and device.flops_for("fp8") >= device.flops_for("bf16")
    assert {d.status for d in load_devices().values()} == {"available", "announced", "withdrawn"}
    assert all(link.source for link in load_links().values())


def test_an_unknown_device_gets_the_nearest() -> None:
    with pytest.raises(DeviceError, match="nearest is h100_sxm"):
        find_device("h100-smx")
    with pytest.raises(DeviceError, match="above 0"):
        this_machine(0.0, 1.0)
    with pytest.raises(DeviceError, match="no rate for bf16"):
        replace(H100, flops={"int8": 1.0}).flops_for("bf16")


def test_the_centre_of_the_prior_is_a_rough_guess() -> None:
    known = factors_for(H100)
    guess = StepModel(find_model("Llama-3.1-8B"), H100, GPU_PRIOR.centre).decode_s(2048, 16)
    fitted = StepModel(find_model("Llama-3.1-8B"), H100, known).decode_s(2048, 16)
    assert guess == pytest.approx(fitted, rel=0.2)
