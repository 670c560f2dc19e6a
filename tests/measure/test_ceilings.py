"""The two ceilings: what is counted, how much is read, and when a result is only indicative."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from minipd.measure import ceilings as module
from minipd.measure.ceilings import CeilingError, Ceilings, measure_ceilings
from minipd.measure.stats import Samples, StatsError, paired_ratios
from minipd.measure.stopwatch import kernel_seconds, num_threads, seconds

MB = 10**6


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PRODUCT_SIZES", (64, 128))
    monkeypatch.setattr(module, "choose_read_bytes", lambda device: (2 * MB, "small for a test"))


def pretend_every_run_takes(duration_s: float, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Each timed action runs, and is said to take `duration_s`; returns a list that counts them."""
    timed: list[int] = []

    def fake(action: Callable[[], object], device: torch.device) -> float:
        action()
        timed.append(1)
        return duration_s

    monkeypatch.setattr(module, "kernel_seconds", fake)
    return timed


@pytest.mark.parametrize(
    ("cache_bytes", "free_bytes", "size", "word"),
    [
        (None, 64 * 10**9, 512 * MB, "512 MB"),
        (32 * 2**20, 64 * 10**9, 512 * MB, "512 MB"),
        (300 * 2**20, 64 * 10**9, 8 * 300 * 2**20, "virtual machine"),
        (300 * 2**20, 4 * 10**9, 10**9, "a quarter of free memory"),
        (None, 10**9, 250 * MB, "a quarter of free memory"),
    ],
)
def test_reads_are_larger_than_any_cache_and_fit_in_memory(
    cache_bytes: int | None, free_bytes: int, size: int, word: str
) -> None:
    chosen, reason = module._choose_read_bytes(cache_bytes, free_bytes)
    assert chosen == size
    assert word in reason


def test_samples_beside_a_run_have_the_shapes_of_the_ceilings(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = pretend_every_run_takes(0.125, monkeypatch)
    beside = module.Beside(measure_ceilings())
    timed.clear()
    # At 8 products of 128 a second, half a second holds 4 of them, or 32 of half the size.
    assert beside.flops() == {"64": 32 * 2 * 64**3 * 8, "128": 4 * 2 * 128**3 * 8}
    assert len(timed) == 2
    assert beside.read_bytes_per_s() == pytest.approx(2 * MB * 8, rel=0.01) and len(timed) == 3


def test_a_product_of_n_by_n_counts_2_n_cubed(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_every_run_takes(0.125, monkeypatch)
    measured = measure_ceilings()
    assert set(measured.products["64"].values) == {2 * 64**3 * 8}
    assert measured.flops == 2 * 128**3 * 8


@pytest.mark.parametrize(("dtype", "itemsize"), [("float32", 4), ("bfloat16", 2)])
def test_a_read_counts_every_byte_once(
    dtype: str, itemsize: int, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_every_run_takes(0.25, monkeypatch)
    measured = measure_ceilings(dtype=dtype)
    rows = 2 * MB // (module.ROW_LENGTH * itemsize)
    assert measured.read_bytes_per_s == rows * module.ROW_LENGTH * itemsize * 4
    assert set(measured.reads) == {"matrix_vector", "vector_matrix", "sum"}


def test_products_stop_growing_before_one_takes_too_long(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_every_run_takes(module.LONGEST_PRODUCT_S, monkeypatch)
    assert set(measure_ceilings().products) == {"64"}


@pytest.mark.parametrize(("duration_s", "runs"), [(0.001, 7), (0.9, 3), (60.0, 2)])
def test_long_runs_are_repeated_less(
    duration_s: float, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = pretend_every_run_takes(duration_s, monkeypatch)
    calls: list[int] = []
    rates = module._rates(lambda: calls.append(1), torch.device("cpu"), 7, 2.0)
    assert len(rates) == len(timed) == runs
    assert len(calls) == runs + 1, "one run before the clock starts"
    assert rates == [1 / duration_s] * runs


def test_a_real_measurement_is_complete(small: None) -> None:
    measured = measure_ceilings("cpu", "float32", 1, quick=True)
    record = json.loads(json.dumps(measured.to_dict()))
    assert record["flops"] > 0
    assert record["read_bytes_per_s"] > 0
    assert record["read_bytes_reason"] == "small for a test"
    for way in [*record["products"].values(), *record["reads"].values()]:
        assert way["best"] == max(way["samples"])
        assert len(way["samples"]) >= 2
    assert record["indicative"] == (record["indicative_reason"] is not None)


def example(products: tuple[float, ...], noise_remark: str | None = None) -> Ceilings:
    steady = {"sum": Samples((10.0, 10.0, 10.0))}
    return Ceilings("cpu", "float32", 1, {"64": Samples(products)}, steady, 1, "", noise_remark)


@pytest.mark.parametrize(
    ("products", "indicative"),
    [
        ((100.0, 101.0, 99.0, 100.0), False),
        ((100.0, 100.0, 100.0, 100.0, 100.0, 5.0), False),  # one interrupted sample
        ((100.0, 80.0, 100.0, 80.0), True),  # two states of the clock
    ],
)
def test_a_wide_middle_half_makes_a_result_indicative(
    products: tuple[float, ...], indicative: bool
) -> None:
    assert example(products).indicative is indicative


def test_noise_makes_a_result_indicative_and_says_why() -> None:
    quiet = example((100.0, 100.0))
    noisy = replace(quiet, noise_remark="other programs kept 1.0 cores busy")
    assert not quiet.indicative
    assert "other programs" in (noisy.indicative_reason or "")


def test_the_ridge_is_where_both_ceilings_meet() -> None:
    assert example((150.0, 140.0)).ridge_flops_per_byte == 15.0


def test_a_dtype_nobody_knows_is_refused() -> None:
    with pytest.raises(CeilingError, match="float32"):
        measure_ceilings(dtype="float31")


def test_a_dtype_that_does_not_run_is_said_to_be_one(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("no kernel")

    monkeypatch.setattr(torch, "mm", broken)
    with pytest.raises(CeilingError, match="bfloat16 does not run on cpu here: no kernel"):
        measure_ceilings(dtype="bfloat16")


def test_threads_are_set_and_given_back(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[int] = set()

    def fake(action: Callable[[], object], device: torch.device) -> float:
        seen.add(torch.get_num_threads())
        return 1.0

    monkeypatch.setattr(module, "kernel_seconds", fake)
    before = torch.get_num_threads()
    with num_threads(1):
        measure_ceilings(threads=2)
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
    assert seen == {2}


def test_samples_describe_themselves() -> None:
    samples = Samples((1.0, 2.0, 3.0, 4.0, 5.0))
    assert (samples.mean, samples.median, samples.best) == (3.0, 3.0, 5.0)
    assert samples.sd == pytest.approx(2.5**0.5)
    assert samples.spread == pytest.approx((4.0 - 2.0) / 3.0)
    assert Samples((7.0,)).sd == Samples((7.0,)).spread == 0.0
    with pytest.raises(StatsError, match="at least once"):
        Samples(())


def test_ratios_go_pair_by_pair() -> None:
    assert paired_ratios([2.0, 4.0, 9.0], [1.0, 4.0, 3.0]).values == (2.0, 1.0, 3.0)
    with pytest.raises(StatsError, match="paired"):
        paired_ratios([1.0], [1.0, 2.0])


@pytest.mark.parametrize("watch", [seconds, kernel_seconds])
def test_both_watches_run_the_action_once(
    watch: Callable[[Callable[[], object], torch.device], float],
) -> None:
    calls: list[int] = []
    assert watch(lambda: calls.append(1), torch.device("cpu")) > 0
    assert calls == [1]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_measured_by_the_same_class() -> None:
    measured = measure_ceilings("cuda", "bfloat16", quick=True)
    assert measured.flops > measured.read_bytes_per_s > 0
