"""`minipd bench`: the two phases measured apart, as shares of ceilings measured in the same run.

`pp512` and `tg128` are llama-bench's tests: prefill tokens/s of a 512-token prompt, and decode
tokens/s over 128 single-token passes from depth 0; the mean of the runs' rates and its standard
deviation. A repetition runs pp512 three times and tg128 once. Batched decode runs the same 128
passes with more sequences in each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal

from rich.console import Console

from minipd.measure import sheet as bench_sheet
from minipd.measure.ceilings import Beside, measure_ceilings
from minipd.measure.hardware import NoiseMeter
from minipd.measure.machine import describe_machine, parse_cpus, pinned
from minipd.measure.peer import TransformersEngine
from minipd.measure.phases import Engine, MinipdEngine, random_tokens
from minipd.measure.record import (
    BATCH_SIZES,
    DECODE_STEPS,
    PROMPT_TOKENS,
    RawRuns,
    build_record,
    spread_remarks,
)
from minipd.measure.report import bench_table, progress_bar, write_json
from minipd.measure.stopwatch import num_threads
from minipd.model.load import LoadedModel, load

WARM_UP_STEPS = 8
PREFILL_TURNS = 3  # passes of each engine per repetition: one lasts a second, too short to trust
TURN_PASSES = 8  # about half a second at one sequence, two at sixteen


class BenchError(ValueError):
    """A benchmark that cannot be run as asked; the message says what to change."""


def run_bench(
    model: str = "smollm2-135m",
    device: str = "cpu",
    dtype: str = "float32",
    threads: int | None = None,
    pin: str | Sequence[int] | None = None,
    vs: Literal["transformers"] | None = None,
    repetitions: int = 5,
    json_path: Path | None = None,
    sheet: bool | Path | None = True,
) -> dict[str, Any]:
    """Measure, print a table, add a line to the bench sheet; returns what `json_path` receives.

    `sheet` is True for the learner's own sheet, a path for another one, False for none.
    """
    if repetitions < 1:
        raise BenchError(f"{repetitions} repetitions measure nothing; ask for at least 1.")
    cpus = parse_cpus(pin) if isinstance(pin, str) else pin
    machine = describe_machine()
    threads = threads or (len(cpus) if cpus else machine.usable_cores)
    with pinned(cpus) as pin_remark, num_threads(threads):
        loaded = load(model, device, dtype)
        meter = NoiseMeter()
        runs = _measure(loaded, device, dtype, threads, vs, repetitions)
        noise_remark = meter.read().remark
    battery_remark = "the computer runs on battery" if machine.on_battery else None
    remarks = [r for r in (pin_remark, battery_remark, noise_remark) if r]
    record = build_record(loaded.config, loaded.decoder.head.dtype.itemsize, runs) | {
        "model": {"name": loaded.name, "fingerprint": loaded.fingerprint, "dtype": dtype},
        "device": device,
        "threads": threads,
        "pin": list(cpus) if cpus else None,
        "vs": vs,
        "repetitions": repetitions,
        "remarks": remarks + spread_remarks(runs),
        "machine": machine.to_dict() | {"summary": machine.summary},
        "date": bench_sheet.now(),
    }
    _publish(record, json_path, sheet)
    return record


def _publish(record: dict[str, Any], json_path: Path | None, sheet: bool | Path | None) -> None:
    """The table first: a file that cannot be written must not cost the learner the figures."""
    Console().print(bench_table(record))
    if json_path:
        write_json(json_path, record)
    if sheet is not False:
        bench_sheet.append(_sheet_line(record), sheet if isinstance(sheet, Path) else None)


def _sheet_line(record: dict[str, Any]) -> bench_sheet.SheetLine:
    return bench_sheet.SheetLine(
        machine=record["machine"]["summary"],
        model=record["model"]["name"],
        dtype=record["model"]["dtype"],
        threads=record["threads"],
        prefill_tok_s=record["samples"]["pp512"]["median"],
        decode_tok_s=record["samples"]["tg128 x 1"]["median"],
        mfu=record["mfu"],
        mbu=record["mbu"],
        device=record["device"],
        note="indicative" if record["remarks"] else "",
        date=record["date"],
    )


def _measure(
    loaded: LoadedModel, device: str, dtype: str, threads: int, vs: str | None, repetitions: int
) -> RawRuns:
    """All timed runs: a round of ceilings, then in each repetition the engines, and a round."""
    if loaded.config.max_context < PROMPT_TOKENS:
        raise BenchError(
            f"{loaded.name} has a context of {loaded.config.max_context} tokens and pp512 needs "
            f"{PROMPT_TOKENS}; choose another model."
        )
    runs, peer = RawRuns(), TransformersEngine(loaded) if vs else None
    ours = MinipdEngine(loaded, PROMPT_TOKENS, max(BATCH_SIZES))
    tokens = random_tokens(loaded.config.vocab_size, PROMPT_TOKENS)

    def ceilings() -> None:
        runs.ceilings.append(measure_ceilings(device, dtype, threads, quick=True))

    with progress_bar() as progress:
        task = progress.add_task("warm-up", total=repetitions * 3 + 1)
        _warm_up(ours, tokens, BATCH_SIZES)
        if peer:
            _warm_up(peer, tokens, (1,))
        if loaded.config.experts:
            steps = tokens[:DECODE_STEPS]
            runs.experts_read = {size: ours.experts_read(steps, size) for size in BATCH_SIZES}
        ceilings()
        progress.advance(task)
        tests = _tests(ours, peer, tokens, runs, Beside(runs.ceilings[0]))
        for number in range(repetitions):
            for name, action in [*tests, ("ceilings", ceilings)]:
                progress.update(task, description=f"{name}, {number + 1} of {repetitions}")
                action()
                progress.advance(task)
    return runs


def _tests(
    ours: Engine, peer: Engine | None, tokens: list[int], runs: RawRuns, beside: Beside
) -> list[tuple[str, Callable[[], None]]]:
    """What one repetition runs, in order; each action appends rates to `runs`."""
    steps = tokens[:DECODE_STEPS]

    def prefill() -> None:
        turns = [(ours, runs.prefill, runs.prefill_flops)]
        if peer:
            turns.append((peer, runs.peer_prefill, runs.peer_prefill_flops))
        _prefill_in_turns(turns, tokens, beside)

    def decode() -> None:
        turns = [(ours, size, runs.decode.setdefault(size, [])) for size in BATCH_SIZES]
        if peer:
            turns.insert(1, (peer, 1, runs.peer_decode))
        runs.decode_reads.append(_decode_in_turns(turns, steps, beside))

    return [("pp512 in turns", prefill), ("tg128 in turns", decode)]


def _prefill_in_turns(
    turns: list[tuple[Engine, list[float], list[dict[str, float]]]],
    tokens: list[int],
    beside: Beside,
) -> None:
    """`PREFILL_TURNS` passes of each engine, a sample of the ceiling before and after each one.
    Appends each pass's rate, and the mean of its two samples by size of product (FLOP/s)."""
    before = beside.flops()
    for _ in range(PREFILL_TURNS):
        for engine, rates, flops in turns:
            rates.append(len(tokens) / engine.prefill(tokens))
            after = beside.flops()
            flops.append({size: (before[size] + after[size]) / 2 for size in after})
            before = after


def _decode_in_turns(
    turns: list[tuple[Engine, int, list[float]]], steps: list[int], beside: Beside
) -> float:
    """One tg128 of each engine and size, a few passes at a time: what disturbs the machine for a
    second or more then disturbs them all. Appends each one's rate over all its passes; returns the
    reading ceiling (byte/s), the median of a sample in each turn."""
    parts = [engine.decode_in_parts(steps, size, TURN_PASSES) for engine, size, _ in turns]
    rounds: list[tuple[float, ...]] = []
    reads: list[float] = []
    for one in zip(*parts, strict=True):  # zip asks each of them in turn for its next part
        rounds.append(one)
        reads.append(beside.read_bytes_per_s())
    taken = [sum(seconds) for seconds in zip(*rounds, strict=True)]
    for (_, size, rates), taken_s in zip(turns, taken, strict=True):
        rates.append(size * len(steps) / taken_s)
    return median(reads)


def _warm_up(engine: Engine, tokens: list[int], sizes: Sequence[int]) -> None:
    """Caches filled, kernels chosen: what only a first run pays is not a rate."""
    engine.prefill(tokens)
    for size in sizes:
        engine.decode(tokens[:WARM_UP_STEPS], size)
