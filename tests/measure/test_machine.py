"""What the system says about itself, and pinning."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import psutil
import pytest

from minipd.measure import hardware, machine
from minipd.measure.hardware import Noise, NoiseMeter
from minipd.measure.machine import (
    MachineError,
    describe_machine,
    parse_cpus,
    pin_to,
    pinned,
    usable_cpus,
)


@pytest.mark.parametrize(
    ("text", "cpus"), [("0", [0]), ("0,2-3", [0, 2, 3]), (" 1 , 1-2 ", [1, 2]), ("5-5", [5])]
)
def test_cores_are_read_as_people_write_them(text: str, cpus: list[int]) -> None:
    assert parse_cpus(text) == cpus


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "0,,1", "0-999999", "1.5", "0 1"])
def test_what_is_no_list_of_cores_is_refused(text: str) -> None:
    with pytest.raises(MachineError):
        parse_cpus(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0-99999999", "beyond core 65535; choose from"),
        ("99999999", "beyond core 65535"),
        ("3-1", "write the lower number first"),
        ("\u0663", "write it like"),
        ("9" * 5000, "write it like"),
    ],
)
def test_each_mistake_in_a_list_of_cores_has_its_own_words(text: str, told: str) -> None:
    with pytest.raises(MachineError, match=told) as caught:
        parse_cpus(text)
    assert len(str(caught.value)) < 300 + 6 * len(usable_cpus())


def test_the_description_is_plausible() -> None:
    found = describe_machine()
    assert 1 <= found.usable_cores <= found.physical_cores <= found.logical_cores
    assert 0 < found.available_bytes <= found.memory_bytes
    assert found.devices[0].name == "cpu"
    assert found.cpu and found.cpu in found.to_dict()["cpu"]


@pytest.mark.skipif(not machine.can_pin(), reason="this system cannot pin")
def test_pinning_moves_the_process_and_is_undone() -> None:
    before = machine.usable_cpus()
    with pinned([before[0]]) as remark:
        assert remark is None
        assert machine.usable_cpus() == before[:1]
    assert machine.usable_cpus() == before
    with pinned(None):
        assert machine.usable_cpus() == before


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere affinity belongs to the process")
def test_threads_that_already_run_are_pinned_too() -> None:
    ready, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (ready.set(), done.wait()))
    thread.start()
    ready.wait()
    try:
        with pinned([machine.usable_cpus()[0]]):
            assert len(os.sched_getaffinity(thread.native_id or 0)) == 1
    finally:
        done.set()
        thread.join()


@pytest.mark.skipif(not machine.can_pin(), reason="this system cannot pin")
@pytest.mark.parametrize("cpus", [[], [100_000]])
def test_cores_that_are_not_here_are_refused(cpus: list[int]) -> None:
    before = machine.usable_cpus()
    with pytest.raises(MachineError, match="choose from"):
        pin_to(cpus)
    assert machine.usable_cpus() == before


def test_a_system_that_cannot_pin_says_what_is_weaker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "can_pin", lambda: False)
    with pinned([0]) as remark:
        assert remark and "indicative" in remark


@pytest.mark.parametrize(
    ("text", "size"), [("307200K", 300 * 2**20), ("8M", 8 * 2**20), ("64", 64), ("", None)]
)
def test_cache_sizes(text: str, size: int | None) -> None:
    assert hardware.parse_size(text) == size


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + "\n")


@pytest.mark.parametrize(
    ("files", "cores", "memory"),
    [
        ({}, None, None),
        ({"cpu.max": "150000 100000", "memory.max": "1073741824"}, 1.5, 2**30),
        ({"cpu.max": "max 100000", "memory.max": "max"}, None, None),
        (
            {
                "cpu/cpu.cfs_quota_us": "50000",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "4096",
            },
            0.5,
            4096,
        ),
        (
            {
                "cpu/cpu.cfs_quota_us": "-1",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "9223372036854771712",
            },
            None,
            None,
        ),
    ],
)
def test_limits_of_a_container(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    cores: float | None,
    memory: int | None,
) -> None:
    monkeypatch.setattr(hardware, "CGROUP_FOLDER", tmp_path)
    write(tmp_path, files)
    assert hardware.cpu_limit() == cores
    assert hardware.memory_limit_bytes() == memory


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="reads Linux' files")
def test_caches_and_siblings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "CPU_FOLDER", tmp_path)
    assert hardware.last_level_cache_bytes() is None
    for index, (kind, size) in enumerate([("Instruction", "999M"), ("Unified", "2048K")]):
        write(tmp_path / f"cpu0/cache/index{index}", {"type": kind, "size": size})
    for cpu, group in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        write(tmp_path / f"cpu{cpu}/topology", {"thread_siblings_list": group})
    assert hardware.last_level_cache_bytes() == 2 * 2**20
    assert hardware.smt_siblings() == [[0, 2], [1, 3]]


def test_only_the_work_of_others_is_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([(0.0, 10.0, 1.0, 0.0), (2.0, 13.0, 2.0, 0.5)])
    monkeypatch.setattr(NoiseMeter, "_now", staticmethod(lambda: next(readings)))
    assert NoiseMeter().read() == Noise(other_cores=1.0, stolen_cores=0.25)


@pytest.mark.parametrize(
    ("noise", "word"),
    [(Noise(0.1, 0.0), None), (Noise(1.2, 0.0), "1.2 cores"), (Noise(0.0, 0.2), "host")],
)
def test_noise_is_remarked_when_it_disturbs(noise: Noise, word: str | None) -> None:
    assert (word is None) == (noise.remark is None)
    assert word is None or word in (noise.remark or "")


def test_memory_of_a_container_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    own = psutil.Process().memory_info().rss
    monkeypatch.setattr(hardware, "memory_limit_bytes", lambda: own + 10**6)
    assert machine.available_memory_bytes() <= 10**8  # what this process gave back meanwhile
