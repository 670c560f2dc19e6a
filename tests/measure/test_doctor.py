"""The doctor: each finding has a status, each bad one a remedy, and the JSON holds everything."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from minipd.measure import ceilings, checks, doctor
from minipd.measure.checks import Check, Package
from minipd.measure.machine import Device, Machine, describe_machine


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """This machine, with an empty cache and nothing heard from other programs."""
    monkeypatch.setenv("MINIPD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(doctor, "listen", lambda seconds: None)
    monkeypatch.setattr(ceilings, "PRODUCT_SIZES", (64,))
    monkeypatch.setattr(ceilings, "choose_read_bytes", lambda device: (10**6, "small"))
    return describe_machine()


def test_a_healthy_machine_passes_and_the_json_holds_everything(
    here: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "new" / "doctor.json"
    assert doctor.run_doctor(target, quick=True)
    record = json.loads(target.read_text())
    assert record["ok"] is True
    names = {check["name"] for check in record["checks"]}
    assert {"Python", "JupyterLab", "devices", "cores", "memory", "disk", "model"} <= names
    assert {check["status"] for check in record["checks"]} <= {"OK", "NOTE"}
    threads = {entry["threads"] for entry in record["ceilings"]}
    assert threads == {1, here.usable_cores}
    assert {entry["dtype"] for entry in record["ceilings"]} == {"float32", "bfloat16"}
    assert all("flops" in entry or "error" in entry for entry in record["ceilings"])
    shown = capsys.readouterr().out
    for word in ("GFLOP/s", "GB/s", "spread", "JupyterLab", "Reads cover 1 MB"):
        assert word in shown


def test_one_failure_is_enough_to_fail(
    here: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = Check("memory", "FAIL", "none", "Buy some.")
    monkeypatch.setattr(doctor, "run_checks", lambda *args: [Check("Python", "OK", "3"), bad])
    assert doctor.run_doctor(None, quick=True) is False
    assert "Buy some." in capsys.readouterr().out


def test_a_model_that_can_be_fetched_is_no_failure(here: Machine) -> None:
    model = next(iter(checks.check_model_and_disk()))
    assert model.status == "NOTE"
    assert "minipd bench" in model.remedy


def test_a_dtype_that_does_not_run_is_a_row_not_an_end(
    here: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_float32(device: str, dtype: str, threads: int, quick: bool) -> ceilings.Ceilings:
        if dtype != "float32":
            raise ceilings.CeilingError("no bfloat16 here")
        return real(device, dtype, threads, quick)

    real = ceilings.measure_ceilings
    monkeypatch.setattr(ceilings, "measure_ceilings", only_float32)
    assert doctor.run_doctor(tmp_path / "d.json", quick=True)
    found = json.loads((tmp_path / "d.json").read_text())["ceilings"]
    assert ["error" in entry for entry in found] == [e["dtype"] == "bfloat16" for e in found]


@pytest.mark.parametrize(
    ("found", "fits", "status"),
    [("2.13.0", True, "OK"), ("1.0", False, "FAIL"), (None, False, "FAIL")],
)
def test_packages_are_compared_with_what_is_needed(
    found: str | None, fits: bool, status: str
) -> None:
    rows = checks.check_packages([Package("torch", ">=2.11", found, fits)])
    assert [row.status for row in rows] == [status]
    assert status == "OK" or 'pip install "torch>=2.11"' in rows[0].remedy


def test_requirements_are_those_of_the_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = ["rich>=1", "rich>999", "nowhere-to-be-found>=1", "pytest; extra == 'dev'"]
    monkeypatch.setattr(metadata, "requires", lambda name: needed)
    found = checks.package_versions()
    assert [package.fits for package in found] == [True, False, False]
    assert [check.status for check in checks.check_packages(found)] == ["OK", "FAIL", "FAIL"]


def test_a_checkout_that_is_not_installed_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    (row,) = checks.check_packages(checks.package_versions())
    assert row.status == "NOTE" and "install -e ." in row.remedy


@pytest.mark.parametrize(("gib", "status"), [(1, "FAIL"), (3, "NOTE"), (16, "OK")])
def test_memory(gib: int, status: str) -> None:
    check = checks.check_memory(gib * 2**30)
    assert check.status == status
    assert bool(check.remedy) == (status != "OK")


def test_a_full_or_unusable_disk_fails_with_the_way_out(tmp_path: Path) -> None:
    assert checks.check_disk(tmp_path / "not" / "there", 0).status == "OK"
    full = checks.check_disk(tmp_path, 2**70)
    assert full.status == "FAIL" and "MINIPD_CACHE" in full.remedy


@pytest.mark.parametrize(("battery", "status"), [(True, "NOTE"), (False, "OK"), (None, "OK")])
def test_power(here: Machine, battery: bool | None, status: str) -> None:
    assert checks.check_power(replace(here, on_battery=battery)).status == status


def test_cores_and_siblings(here: Machine) -> None:
    two = replace(here, physical_cores=2, logical_cores=4, usable_cpus=[0, 1, 2, 3], cpu_limit=None)
    siblings = checks.check_cores(replace(two, smt_siblings=[[0, 2], [1, 3]]))
    assert siblings.status == "OK" and "0+2, 1+3" in siblings.found and siblings.remedy
    quota = checks.check_cores(replace(two, cpu_limit=1.5))
    assert quota.status == "NOTE" and "1.5 allowed" in quota.found
    assert replace(two, usable_cpus=[3]).usable_cores == 1


def test_pinning(here: Machine) -> None:
    can = checks.check_pinning(replace(here, can_pin=True, usable_cpus=[0, 1, 2, 5]))
    cannot = checks.check_pinning(replace(here, can_pin=False))
    assert (can.status, cannot.status) == ("OK", "NOTE")
    assert "0-2,5" in can.found and "indicative" in cannot.remedy


def test_noise_is_noted() -> None:
    assert checks.check_quiet(None).status == "OK"
    assert checks.check_quiet("other programs kept 1.0 cores busy").status == "NOTE"


def test_a_gpu_is_measured_beside_the_cpu(here: Machine) -> None:
    gpu = Device("cuda:0", "a GPU", 2**34, 2**33)
    both = replace(here, devices=[*here.devices, gpu])
    assert ("cuda:0", "bfloat16", 1) in list(doctor.cases(both))
    assert ("cpu", "float32", here.usable_cores) in list(doctor.cases(both))


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from minipd.measure.doctor import run_doctor
sys.exit(0 if run_doctor(None, True) else 3)
"""


def test_a_broken_torch_is_a_finding_not_a_crash(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "torch does not start" in " ".join(done.stdout.split())
