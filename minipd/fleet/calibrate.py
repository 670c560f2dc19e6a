"""Factors of a device from step times: a reference file's rows, or a `minipd bench` made here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from minipd.fleet.configs import ConfigError, find_model
from minipd.fleet.factors import CPU_PRIOR, GPU_PRIOR, UNLISTED_PRIOR, Factors, Prior, committed
from minipd.fleet.fit import fit
from minipd.fleet.gpus import Device, DeviceError, find_device, this_machine, unlisted
from minipd.fleet.json_files import JsonFileError, read_json
from minipd.fleet.models import Model
from minipd.fleet.reference import Row
from minipd.fleet.steps import work_time
from minipd.fleet.work import Chunk, Parallel, decode_step, prefill_step, step_work

MOST_FOLDS = 64  # leave-one-out up to so many rows; beyond, so many folds of equal size
ONE_DEVICE = Parallel()
BENCH_PROMPT, BENCH_STEPS = 512, 128
BENCH_DTYPES = {"float32": (4.0, "float32"), "bfloat16": (2.0, "bf16"), "float16": (2.0, "bf16")}
Predictor = Callable[[Factors], float]


class CalibrationError(ValueError):
    """Measurements that no factors can be read from; the message says what to run instead."""


def device_for(system: str) -> Device:
    """The table's device of that name, or a stand-in that only fitting makes sense of."""
    try:
        return find_device(system)
    except DeviceError:
        return unlisted(system)


def prior_for(device: Device) -> Prior:
    kinds = {"unlisted": UNLISTED_PRIOR, "measured": CPU_PRIOR}
    return kinds.get(device.status, GPU_PRIOR)


def factors_for(device: Device) -> Factors:
    """Committed factors of the device, or for one never measured the centre of the prior."""
    return committed().get(device.key, prior_for(device).centre)


def predictor(
    model: Model, device: Device, chunks: Sequence[Chunk], parallel: Parallel = ONE_DEVICE
) -> Predictor:
    """Seconds of one step as a function of the factors; what they do not change is counted once."""
    work = step_work(model, chunks, parallel)
    rate = device.flops_for(model.arithmetic)
    return lambda factors: work_time(work, device, rate, factors).seconds


def row_predictor(row: Row, device: Device) -> Predictor:
    return predictor(row.shape, device, row.chunks, row.parallel)


def fit_rows(rows: Sequence[Row], device: Device, start: Factors | None = None) -> Factors:
    """Factors that fit rows of one device."""
    predict = [row_predictor(row, device) for row in rows]
    return fit(predict, [row.ms / 1e3 for row in rows], prior_for(device), start)


def left_out_predictions(rows: Sequence[Row], device: Device) -> list[float]:
    """Milliseconds predicted for each row with factors fitted on the *other* rows only."""
    predict = [row_predictor(row, device) for row in rows]
    seconds = [row.ms / 1e3 for row in rows]
    prior = prior_for(device)
    start = fit(predict, seconds, prior)  # only where the search starts; each fit ends on its own
    folds = min(len(rows), MOST_FOLDS)
    predicted = [math.nan] * len(rows)
    for fold in range(folds):
        kept = [i for i in range(len(rows)) if i % folds != fold]
        factors = fit([predict[i] for i in kept], [seconds[i] for i in kept], prior, start)
        for i in range(fold, len(rows), folds):
            predicted[i] = predict[i](factors) * 1e3
    return predicted


@dataclass(frozen=True, slots=True)
class Calibration:
    """This machine as a device: its factors, and how far the fit is from each measured step."""

    device: Device
    factors: Factors
    errors: Mapping[str, float]


def calibrate_from_bench(
    record: Mapping[str, Any], memory_bytes: float = 0.0, model: Model | None = None
) -> Calibration:
    """From the record of `minipd bench` (its return value, or the file of `--json`).

    It holds the two ceilings and, for one model, the rates of a 512-token prefill and of decoding
    with several batch sizes: some four step times. They settle the shares of arithmetic and memory
    and the cost of a kernel; the prior holds the rest. Takes well under a second; a quick
    measurement is `minipd bench --repetitions 1`.
    """
    try:
        dtype = str(record["model"]["dtype"])
        shape = model or find_model(str(record["model"]["name"]))
        weight_bytes, arithmetic = BENCH_DTYPES[dtype]
        device = this_machine(
            float(record["ceilings"]["flops"]),
            float(record["ceilings"]["read_bytes_per_s"]),
            memory_bytes,
            dtype=dtype,
        )
        steps = _bench_steps(record)
    except (ConfigError, DeviceError, CalibrationError):
        raise
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        raise CalibrationError(
            f"This is no record of `minipd bench` ({error}); run `minipd bench --json FILE`."
        ) from None
    shape = _with_precision(shape, weight_bytes, arithmetic)
    predict = {name: predictor(shape, device, chunks) for name, (chunks, _) in steps.items()}
    seconds = {name: measured for name, (_, measured) in steps.items()}
    factors = fit(list(predict.values()), list(seconds.values()), prior_for(device))
    errors = {name: predict[name](factors) / seconds[name] - 1.0 for name in predict}
    return Calibration(device, factors, errors)


def read_bench(path: Path) -> dict[str, Any]:
    """The record that `minipd bench --json` wrote."""
    try:
        raw: Any = read_json(path)
    except JsonFileError as error:
        raise CalibrationError(f"{error}; give what `minipd bench --json FILE` wrote.") from None
    if not isinstance(raw, dict):
        raise CalibrationError(f"{path} is no record of `minipd bench`; run it with --json FILE.")
    return raw


def _bench_steps(record: Mapping[str, Any]) -> dict[str, tuple[list[Chunk], float]]:
    """Each test's step, and its median seconds: rates are tokens/s of all sequences together."""
    samples = record["samples"]
    steps = {
        "pp512": (prefill_step(BENCH_PROMPT), BENCH_PROMPT / float(samples["pp512"]["median"]))
    }
    depth = (BENCH_STEPS - 1) / 2  # cached tokens on average, over steps from an empty cache
    for name, entry in samples.items():
        if name.startswith("tg128 x "):
            size = int(name.removeprefix("tg128 x "))
            steps[name] = (decode_step(depth, size), size / float(entry["median"]))
    for name, (_, seconds) in steps.items():
        if not 0.0 < seconds < math.inf:
            raise CalibrationError(
                f"The bench's median of {name} gives steps of {seconds:g} s; run `minipd bench "
                "--json FILE` again."
            )
    return steps


def _with_precision(model: Model, weight_bytes: float, arithmetic: str) -> Model:
    return replace(model, weight_bytes=weight_bytes, kv_bytes=weight_bytes, arithmetic=arithmetic)
