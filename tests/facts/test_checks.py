"""Every published figure in checks.json, computed by the package's own formulas."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minipd.fleet import formulas as f
from minipd.fleet import queueing as q
from minipd.measure import tools

CHECKS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "checks.json").read_text())


def kv(model: str, tokens: float = 1) -> float:
    return f.KV_SHAPES[model].bytes_per_token() * tokens


WORKED = tools.Stream(0.0, (tools.Chunk(1.0), tools.Chunk(1.040), tools.Chunk(1.327, tokens=3)))


def mean_ms(seconds: list[float]) -> float:
    return 1000 * sum(seconds) / len(seconds)


def qwen3_8b_bytes(tokens: int, extra: int) -> float:
    return kv("Qwen3-8B", tokens + extra)


def revenue() -> float:
    """DeepSeek's own price list per million: cached and fresh input, output (day 6)."""
    return 342e3 * 0.14 + 266e3 * 0.55 + 168e3 * 2.19


def margin() -> float:
    return (revenue() - f.usd_per_day(226.75)) / f.usd_per_day(226.75)


def rate_2p1d(p: float, d: float) -> float:
    return f.matched_rate_per_worker(2, p, 1, d)


FORMULAS: dict[str, Callable[..., float]] = {
    "kv.opt66.512": lambda tokens: kv("OPT-66B", tokens) / f.GIB,
    "kv.opt66.90Gbps": lambda rps: rps * kv("OPT-66B", 512) / f.GIB * 8,
    "kv.405b": lambda: kv("Llama-3.1-405B"),
    "kv.q72b": lambda: kv("Qwen2.5-72B"),
    "kv.70b.128k": lambda tok: kv("Llama-3-70B", tok) / f.GIB,
    "kv.qwen3-4b.2048": lambda tok: kv("Qwen3-4B", tok) / f.MIB,
    "kv.qwen3-4b.sel": lambda tok: kv("Qwen3-4B", tok) / f.MIB,
    "kv.qwen3-14b.block": lambda tok: kv("Qwen3-14B", tok) / f.MIB,
    "kv.qwen3-14b.151": lambda blocks: kv("Qwen3-14B", 256 * blocks) / f.MIB,
    "kv.qwen3-14b.io": lambda blocks, L: f.handoff_operations(blocks, L),
    "kv.llama8b.2048": lambda tok: kv("Llama-3-8B", tok) / f.MIB,
    "xfer.llama8b.10GbE": lambda GBps: 1000 * f.transfer_s(kv("Llama-3-8B", 2048), GBps * f.GB),
    "xfer.llama8b.IB": lambda GBps: 1000 * f.transfer_s(kv("Llama-3-8B", 2048), GBps * f.GB),
    "mc.te.87": lambda: f.transfer_s(kv("Llama-3-70B", 131072) / f.GIB, 87),
    "mc.thr.a800": lambda p: f.reuse_threshold_bytes_per_s(p, 8 * 312e12) / f.GB,
    "mc.thr.h800": lambda p: f.reuse_threshold_bytes_per_s(p, 8 * 990e12) / f.GB,
    "ds.fig1": rate_2p1d,
    "ds.fig1.x": lambda: rate_2p1d(5.6, 10) / 1.6,
    "ai.a100": lambda: f.ridge_point(312e12, 2.0e12),
    "ai.flash16": lambda b: f.flash_attention_intensity(b),
    "ai.flash32": lambda b: f.flash_attention_intensity(b),
    "dsk.prefill_nodes+decode_nodes": lambda inp, out, pt, dt: (
        f.nodes_for_volume(inp, pt) + f.nodes_for_volume(out, dt)
    ),
    "dsk.cost": lambda nodes: f.usd_per_day(nodes),
    "dsk.hit": lambda: 342 / 608,
    "dsk.rev": revenue,
    "dsk.margin": margin,
    "lmsys.0.20": lambda gpus, usd, tps: f.usd_per_million(gpus, usd, tps),
    "met.tpot": lambda: 1000 * (tools.vllm_tpot(WORKED) or 0),
    "met.vllm_itl_mean": lambda: mean_ms(tools.vllm_itl(WORKED)),
    "met.genai_itl_mean": lambda: mean_ms(tools.genai_perf_itl(WORKED)),
    "met.sgl_itl_mean": lambda: mean_ms(tools.sglang_itl(WORKED)),
}


def formula(check_id: str) -> Callable[..., float]:
    if check_id in FORMULAS:
        return FORMULAS[check_id]
    family, *rest = check_id.split(".")
    if family == "md1":
        return lambda K: q.parallel_crossover(K)
    if family == "nim":
        return lambda ttft, itl, tps, osl: f.concurrency_from_benchmark(
            tps, osl, ttft / 1000, itl / 1000
        )
    if rest[:2] == ["q8b", "bw"]:
        tokens = int(rest[2])
        return lambda ms: qwen3_8b_bytes(tokens, 14) / f.GIB / (ms / 1000)
    if rest[0] == "q8b":
        unit = f.MIB if int(rest[1]) < 8192 else f.GIB
        return lambda tok, extra: qwen3_8b_bytes(tok, extra) / unit
    raise KeyError(f"no formula computes the check {check_id!r}")


@pytest.mark.parametrize("check", CHECKS, ids=[check["id"] for check in CHECKS])
def test_formula_gives_the_published_figure(check: dict[str, Any]) -> None:
    computed = formula(check["id"])(**check["inputs"])
    tolerance = max(check["rtol"], 1e-12)  # rtol 0: exact up to the last bit of a float
    assert computed == pytest.approx(check["published"], rel=tolerance)


def test_every_check_is_listed_once() -> None:
    ids = [check["id"] for check in CHECKS]
    assert len(ids) == len(set(ids)) == 53
    assert set(FORMULAS) <= set(ids)


# Facts C1, bf16.
BYTES_PER_TOKEN = {
    "OPT-13B": 819_200, "OPT-66B": 2_359_296, "OPT-175B": 4_718_592, "Llama-2-7B": 524_288,
    "Llama-3-8B": 131_072, "Llama-2-70B": 327_680, "Llama-3-70B": 327_680,
    "Qwen2.5-72B": 327_680, "Llama-3.1-405B": 516_096, "Qwen2.5-0.5B": 12_288,
    "Qwen2.5-1.5B": 28_672, "Qwen2.5-7B": 57_344, "Qwen2.5-32B": 262_144, "Qwen3-0.6B": 114_688,
    "Qwen3-4B": 147_456, "Qwen3-8B": 147_456, "Qwen3-14B": 163_840, "Qwen3-235B": 192_512,
    "GPT-2": 36_864,
}  # fmt: skip


def test_kv_bytes_per_token() -> None:
    assert {name: kv(name) for name in f.KV_SHAPES} == BYTES_PER_TOKEN
    assert f.mla_bytes_per_token(61, 512, 64) == 70_272


# Facts C2, execution time 1 s.
LOADS = (0.1, 0.3, 0.5, 0.7, 0.9)


@pytest.mark.parametrize(
    ("ttft", "published"),
    [
        (lambda r: q.single_ttft_s(r, 1), (1.0556, 1.2143, 1.5, 2.1667, 5.5)),
        (lambda r: q.pipeline_ttft_s(r, 1), (1.0132, 1.0441, 1.0833, 1.1346, 1.2045)),
        (lambda r: q.tensor_ttft_s(r, 1, 1.5), (0.6905, 0.75, 0.8333, 0.9583, 1.1667)),
        (lambda r: q.tensor_ttft_s(r, 1, 1.7), (0.6066, 0.6513, 0.7108, 0.7941, 0.9191)),
    ],
    ids=["single", "pipeline", "tensor-1.5", "tensor-1.7"],
)
def test_queue_formulas(ttft: Callable[[float], float], published: tuple[float, ...]) -> None:
    assert [ttft(load) for load in LOADS] == pytest.approx(published, abs=5.1e-5)


def test_independent_queue_figure_and_overload() -> None:
    assert q.single_ttft_s(20.7, 0.0435) * 1000 == pytest.approx(240.2, abs=0.5)
    assert q.replicated_ttft_s(20.7, 0.0435, 2) < q.single_ttft_s(20.7, 0.0435)
    with pytest.raises(q.OverloadError, match="lower the rate"):
        q.single_ttft_s(30, 0.0435)


def test_single_queue_formula_against_a_simulated_queue() -> None:
    """The slow version: let 200,000 prompts queue one behind the other."""
    from random import Random

    rng, now_s, free_s, waited_s, n = Random(3), 0.0, 0.0, 0.0, 200_000
    for _ in range(n):
        now_s += rng.expovariate(0.7)
        free_s = max(now_s, free_s) + 1.0
        waited_s += free_s - now_s
    assert waited_s / n == pytest.approx(q.single_ttft_s(0.7, 1.0), rel=0.02)


# Facts C6: tokens -> milliseconds printed for the transfer.
MOONCAKE_MS = {
    128: 0.54, 256: 0.61, 512: 0.92, 1024: 1.50, 2048: 2.51, 4096: 4.75, 8192: 8.84,
    16384: 16.43, 32768: 31.65,
}  # fmt: skip


@pytest.mark.parametrize(("tokens", "milliseconds"), MOONCAKE_MS.items())
def test_link_fit(tokens: int, milliseconds: float) -> None:
    fitted_ms = 1000 * f.mooncake_link_s(qwen3_8b_bytes(tokens, 14))
    assert fitted_ms == pytest.approx(milliseconds, rel=0.07)


def test_thresholds_to_two_digits_and_who_is_billed() -> None:
    assert f.reuse_threshold_bytes_per_s(8192, 8 * 312e12) / f.GB == pytest.approx(5.86, abs=0.01)
    assert f.reuse_threshold_bytes_per_s(8192, 8 * 990e12) / f.GB == pytest.approx(18.6, abs=0.05)
    assert f.usd_per_million(96, 2, 200_538) == pytest.approx(0.266, abs=5e-4)
    assert f.usd_per_million(96, 2.3, 288_000) == pytest.approx(0.213, abs=5e-4)
    assert f.usd_per_million(128, 2.3, 288_000) == pytest.approx(0.284, abs=5e-4)


def test_reuse_threshold_follows_from_flops_and_bytes() -> None:
    """The slow version: bytes of the prefix over the time its prefill takes."""
    shape = f.KvShape(80, 8, 128)
    prefill_s = f.prefill_flops(8192, 80, 8192) / (8 * 312e12)
    slow = 8192 * shape.bytes_per_token() / prefill_s
    assert f.reuse_threshold_bytes_per_s(8192, 8 * 312e12) == pytest.approx(slow)
