"""Sweeps survive Ctrl-C, kill -9 and half-written lines, and measure nothing twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from minipd.measure import sweep as module
from minipd.measure.goodput import Goodput, GoodputError, find_goodput
from minipd.measure.sweep import Sweep, SweepError, cross, grid, time_left


class Counted:
    """Squares x; counts how often each point was measured; may be told to stop."""

    def __init__(self, stop_at: object = None, error: type[BaseException] = KeyboardInterrupt):
        self.seen: list[dict[str, Any]] = []
        self.stop_at, self.error = stop_at, error

    def __call__(self, point: dict[str, Any]) -> dict[str, Any]:
        if point["x"] == self.stop_at:
            raise self.error
        self.seen.append(point)
        return {"square": point["x"] ** 2}


POINTS = grid(x=[1, 2, 3], seed=[0, 1])


def test_grid_and_cross() -> None:
    assert POINTS[:3] == [{"x": 1, "seed": 0}, {"x": 1, "seed": 1}, {"x": 2, "seed": 0}]
    pairs = [{"prefill": 1, "decode": 3}, {"prefill": 2, "decode": 2}]
    assert cross(grid(rate=[0.5]), pairs)[1] == {"rate": 0.5, "prefill": 2, "decode": 2}
    assert len(cross(POINTS, pairs)) == 12 and grid() == [{}]


def test_every_point_is_in_the_file_when_it_is_done(tmp_path: Path) -> None:
    path, measure = tmp_path / "new" / "s.jsonl", Counted()
    done = Sweep(path, measure, {"model": "tiny"}).run(POINTS)
    assert [(d.point, d.result["square"]) for d in done] == [(p, p["x"] ** 2) for p in POINTS]  # type: ignore[operator]
    header, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert header == {"format": "minipd-sweep", "version": 1, "about": {"model": "tiny"}}
    assert [line["point"] for line in lines] == POINTS


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_interrupted_and_resumed(tmp_path: Path, error: type[BaseException]) -> None:
    path, first = tmp_path / "s.jsonl", Counted(3, error)
    with pytest.raises(error):
        Sweep(path, first).run(POINTS)
    second = Counted()
    done = Sweep(path, second).run(POINTS)
    assert first.seen + second.seen == POINTS and len(done) == 6
    third = Counted()
    more = Sweep(path, third).run([{"seed": 0, "x": 1}, {"x": 9, "seed": 0}])
    assert third.seen == [{"x": 9, "seed": 0}] and more[0].result == {"square": 1}


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "s.jsonl"
    Sweep(path, Counted()).run(POINTS)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    again = Counted()
    Sweep(path, again).run(POINTS)
    assert again.seen == POINTS[-1:]
    assert [json.loads(x)["point"] for x in path.read_text().splitlines()[1:]] == POINTS


def test_a_header_that_was_cut_off_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"about": {')
    Sweep(path, Counted()).run(POINTS)
    assert len(path.read_text().splitlines()) == 7


SCRIPT = """
    import itertools, sys, time
    from minipd.measure.sweep import Sweep, grid
    path, log = sys.argv[1:]
    calls = itertools.count(1)

    def measure(point):
        with open(log, "a") as file:
            file.write(f"{point['x']}\\n")
        time.sleep(600 if next(calls) == 4 else 0.01)  # the fourth of a life never ends
        return {"done": point["x"]}

    Sweep(path, measure).run(grid(x=range(12)))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals are sent to a process")
@pytest.mark.parametrize("number", ["SIGKILL", "SIGINT"])
def test_a_process_that_is_killed_again_and_again(tmp_path: Path, number: str) -> None:
    """Only the point that was being measured is measured again."""
    path, log = tmp_path / "s.jsonl", tmp_path / "log"
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(path), str(log)]
    kills = 0
    while True:
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        before = len(log.read_text().split()) if log.exists() else 0
        give_up = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < give_up:
            begun = len(log.read_text().split()) if log.exists() else 0
            if begun - before >= 4:
                process.send_signal(getattr(signal, number))
                process.wait()
                kills += 1
                break
            time.sleep(0.01)
        if process.wait() == 0:
            break
    measured = [int(x) for x in log.read_text().split()]
    assert sorted(set(measured)) == list(range(12)) and kills == 3
    assert len(measured) <= 12 + kills
    found = [json.loads(x) for x in path.read_text().splitlines()[1:]]
    assert [x["result"]["done"] for x in found] == list(range(12))


def broken(text: str) -> str:
    return '{"format":"minipd-sweep","version":1,"about":{}}\n' + text


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("TIMESTAMP,ContextTokens\n", "is no sweep"),
        ('{"format":"minipd-sweep","version":9}\n', "is no sweep"),
        (broken('{"point":{"x":1}}\n'), "Line 2 of .* remove that line"),
        (broken('{"point":{"x":1},"result":{}}\noops\n'), "Line 3 of .* remove that line"),
        (broken("").replace("{}", '{"model":"x"}'), "begun with another model"),
        ("a stranger's notes", "is no sweep"),
        (broken("").replace("mini", "maxi") + "cut off", "is no sweep"),
        (b"\xff\xfe\n", "Cannot use"),
        (broken("").replace("{}", "[1]").replace("{}", "5"), "begun with another model"),
        (broken('{"point":{"x":NaN},"result":{}}\n'), "plain, finite"),
        (broken("[" * 100_000 + "\n"), "Line 2 of .* remove that line"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, content: str | bytes, told: str) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = path.read_bytes()
    about = {"model": "y"} if "another model" in told else None
    with pytest.raises(SweepError, match=told):
        Sweep(path, Counted(), about)
    assert path.read_bytes() == before


@pytest.mark.parametrize("took", ['"long"', "NaN", "-1", "1e400", "null", "[]"])
def test_a_length_of_time_that_is_none_spoils_nothing(tmp_path: Path, took: str) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(broken('{"point":{"x":3},"result":{"square":9},"took_s":' + took + "}\n"))
    measure = Counted()
    found = Sweep(path, measure).run(grid(x=[3, 4]))
    assert [x.result["square"] for x in found] == [9, 16] and len(measure.seen) == 1


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is freed later is used: the same sweep goes on in the same file."""
    path = tmp_path / "s.jsonl"
    sweep = Sweep(path, Counted())
    sweep.at({"x": 1, "seed": 0})
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SweepError, match="No space left"):
        sweep.at({"x": 2, "seed": 0})
    assert path.read_bytes() == before
    monkeypatch.undo()
    sweep.at({"x": 3, "seed": 0})
    assert len(Sweep(path, Counted()).finished) == 2


@pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")
def test_two_processes_at_one_file_keep_each_line_whole(tmp_path: Path) -> None:
    path, log = tmp_path / "s.jsonl", tmp_path / "log"
    script = textwrap.dedent(SCRIPT).replace("600 if", "0 if").replace("done", "x" * 5000)
    command = [sys.executable, "-c", script, str(path), str(log)]
    both = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait(120) for process in both] == [0, 0]
    assert len(Sweep(path, Counted()).finished) == 12


def test_points_and_results_that_cannot_be_written(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "s.jsonl", lambda _: {"rate": float("nan")})
    with pytest.raises(SweepError, match="result at .* must be plain, finite values"):
        sweep.at({"x": 1})
    with pytest.raises(SweepError, match="point must be plain"):
        sweep.at({"x": {1, 2}})  # type: ignore[dict-item]
    with pytest.raises(SweepError, match="there twice; add a seed"):
        sweep.run([{"x": 1}, {"x": 1}])
    with pytest.raises(SweepError, match="Cannot"):
        Sweep(tmp_path, Counted())


def test_the_bar_tells_the_time_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, str]] = []

    class Bar:
        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None: ...

        def add_task(self, title: str, **fields: Any) -> int:
            told.append((fields["completed"], fields["left"]))
            return 0

        def update(self, task: int, **fields: Any) -> None:
            told.append((fields["completed"], fields["left"]))

    clock = iter(range(0, 10_000, 60))  # each point takes a minute
    monkeypatch.setattr(module, "_bar", Bar)
    monkeypatch.setattr(module, "perf_counter", lambda: float(next(clock)))
    Sweep(tmp_path / "s.jsonl", Counted()).run(POINTS[:4])
    left = ["", "about 3 min left", "about 2 min left", "about 60 s left", ""]
    assert told == list(enumerate(left))
    told.clear()
    Sweep(tmp_path / "s.jsonl", Counted()).run(POINTS)  # what is in the file takes no time
    assert told[0] == (0, "about 2 min left")
    assert time_left(7300.0) == "about 2.0 h left"


# -- goodput ----------------------------------------------------------------------------------


def falling(limit: float):
    """Attainment that falls below 0.9 just above `limit`."""
    return lambda rate: 1.0 if rate <= limit else max(0.0, 0.89 - (rate - limit) / 10)


@pytest.mark.parametrize("limit", [0.2, 0.55, 1.0, 2.3, 7.9, 15.0, 40.0])
@pytest.mark.parametrize("tolerance", [0.2, 0.05, 0.01])
def test_goodput_lies_between_the_two_ends(limit: float, tolerance: float) -> None:
    found = find_goodput(falling(limit), 0.1, 8.0, tolerance=tolerance)
    assert found.rate_per_s is not None and found.missed_per_s is not None
    assert found.rate_per_s <= limit < found.missed_per_s
    assert (found.missed_per_s - found.rate_per_s) / found.missed_per_s <= max(tolerance, 0.01)
    assert len(found.looks) <= 18 and list(found.looks) == sorted(found.looks)


def test_goodput_beyond_both_ends() -> None:
    assert find_goodput(falling(0.01), 0.1, 8.0) == Goodput(None, 0.1, ((0.1, 0.881),))
    found = find_goodput(lambda _: 1.0, 1.0, 2.0)
    assert (found.rate_per_s, found.missed_per_s) == (128.0, None)


def test_a_search_is_resumed_like_a_sweep(tmp_path: Path) -> None:
    measure = Counted()
    sweep = Sweep(tmp_path / "s.jsonl", measure)

    def attainment_at(rate: float) -> float:
        found = [sweep.at({"x": rate, "seed": s}).result["square"] for s in (0, 1)]
        return 1.0 if sum(found) / 2 <= 9.0 else 0.0

    found = find_goodput(attainment_at, 1.0, 5.0)
    assert found.rate_per_s == pytest.approx(3.0, rel=0.05)
    looked = len(measure.seen)
    assert find_goodput(attainment_at, 1.0, 5.0) == found and len(measure.seen) == looked


@pytest.mark.parametrize("changes", [(0.0, 1.0), (2.0, 1.0), (float("nan"), 1.0)])
def test_rates_that_mean_nothing(changes: tuple[float, float]) -> None:
    with pytest.raises(GoodputError, match="0 < low < high"):
        find_goodput(falling(1.0), *changes)
