"""What a user installs: one set of requirements in three files, and a wheel that has the course."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import minipd
from minipd import cli, paths

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[1]
CONDA_NAMES = {
    "pytorch-cpu": "torch",
    "matplotlib-base": "matplotlib",
    "python-xxhash": "xxhash",
}
CONDA_KEYS = {"name", "channels", "dependencies", "variables"}


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def requirements() -> dict[str, Requirement]:
    found = map(Requirement, pyproject()["project"]["dependencies"])
    return {canonicalize_name(r.name): r for r in found}


def environment() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))


def conda_faults(env: dict[str, Any]) -> list[str]:
    """Breaches of the shape that conda accepts."""
    faults = [f"unknown key {key}" for key in env.keys() - CONDA_KEYS]
    pip_parts = [d for d in env["dependencies"] if isinstance(d, dict)]
    specs = [d for d in env["dependencies"] if isinstance(d, str)]
    faults += [
        f"bad spec {spec!r}"
        for spec in specs
        if not re.fullmatch(r"[a-z0-9_.-]+((=|==|>=|<=|<|>|!=)[0-9][0-9a-z.*,<>=!]*)?", spec)
    ]
    if any(set(part) != {"pip"} for part in pip_parts) or len(pip_parts) > 1:
        faults.append("only one pip: section may follow")
    if pip_parts and not any(re.split(r"[=<>!]", spec)[0] == "pip" for spec in specs):
        faults.append("pip itself is missing")
    return faults


def conda_requirements(env: dict[str, Any]) -> dict[str, Requirement]:
    """The conda lines as pip requirements under their PyPI names, python and pip left out."""
    found = {}
    for spec in env["dependencies"]:
        if not isinstance(spec, str):
            continue
        name, bounds = re.fullmatch(r"([a-z0-9_.-]+)(.*)", spec).groups()
        if name not in {"python", "pip"}:
            name = CONDA_NAMES.get(name, name)
            found[canonicalize_name(name)] = Requirement(name + bounds)
    return found


def test_environment_yml_has_the_shape_conda_accepts():
    assert conda_faults(environment()) == []


def test_the_shape_rules_catch_what_conda_would_refuse():
    env = environment()
    broken = {
        "unknown key": env | {"requires": []},
        "bad spec": env | {"dependencies": [*env["dependencies"], "numpy >> 1"]},
        "pip itself": env | {"dependencies": [{"pip": ["-e ."]}]},
        "only one pip": env | {"dependencies": ["pip", {"pip": []}, {"pip": []}]},
    }
    for said, wrong in broken.items():
        assert any(fault.startswith(said) for fault in conda_faults(wrong)), said


def test_environment_yml_parses_as_conda_specs():
    rattler = pytest.importorskip("rattler", reason="py-rattler has no build for this system")
    for spec in environment()["dependencies"]:
        if isinstance(spec, str):
            rattler.MatchSpec(spec, strict=True)
    with pytest.raises(Exception, match="spec|version|parse|invalid"):
        rattler.MatchSpec("numpy>>1", strict=True)


def test_environment_yml_agrees_with_pyproject():
    wanted = {name: str(r.specifier) for name, r in requirements().items()}
    conda = {name: str(r.specifier) for name, r in conda_requirements(environment()).items()}
    assert conda == wanted
    python = next(d for d in environment()["dependencies"] if str(d).startswith("python="))
    assert python.removeprefix("python=") in pyproject()["project"]["requires-python"] or (
        tuple(map(int, python.removeprefix("python=").split("."))) >= (3, 10)
    )


def test_binder_gets_the_cpu_build_and_minipd_itself():
    dependencies = environment()["dependencies"]
    assert any(str(d).startswith("pytorch-cpu") for d in dependencies)
    assert {"pip": ["-e ."]} in dependencies


def pins() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]
    return {canonicalize_name(r.name): r for r in found}


def test_every_requirement_is_pinned_within_its_bounds():
    project = pyproject()["project"]
    extras = [Requirement(line) for line in project["optional-dependencies"]["dev"]]
    pinned = pins()
    for wanted in [*requirements().values(), *extras]:
        version = str(pinned[canonicalize_name(wanted.name)].specifier).removeprefix("==")
        assert wanted.specifier.contains(version), f"{wanted} against {version}"
    assert str(pinned["torch"].specifier) == "==2.13.0"
    assert pinned["torch"].marker is None, "torch is pinned everywhere: its builds are the largest"


def test_no_import_lacks_a_requirement():
    """Each third-party module that the package imports is required, or in an extra."""
    modules = {"yaml": "pyyaml", "IPython": "ipykernel", "jupyter_client": "nbclient"}
    project = pyproject()["project"]
    extras = [Requirement(r) for group in project["optional-dependencies"].values() for r in group]
    known = set(requirements()) | {canonicalize_name(r.name) for r in extras}
    known |= {"tokenizers", "traitlets"}  # parts of transformers and of ipywidgets
    known |= {"typing-extensions"}  # read by type checkers alone, which bring it themselves
    missing = set()
    for path in (ROOT / "minipd").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            tops = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names)
            for top in tops - {"minipd", "course"}:
                if canonicalize_name(modules.get(top, top)) not in known:
                    missing.add(f"{path.name}: {top}")
    assert not missing


def test_versions_agree():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[.*{re.escape(minipd.__version__)}", changelog, re.M)


def documents() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_links_between_documents_lead_somewhere():
    for document in documents():
        for target in re.findall(r"\]\(([^)#\s]+)", document.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_documents_name_only_commands_and_targets_that_exist():
    commands = {c.name or c.callback.__name__ for c in cli.app.registered_commands}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    seen = 0
    for document in documents():
        text = document.read_text(encoding="utf-8")
        shell = re.findall(r"^```bash\n(.*?)^```", text, re.M | re.S)
        quoted = "\n".join([*shell, *re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)])
        for name in re.findall(r"(?:^|python -m )minipd ([a-z]+)", quoted, re.M):
            assert name in commands, f"{document.name}: minipd {name}"
        for name in re.findall(r"^make ([a-z-]+)", quoted, re.M):
            assert name in targets, f"{document.name}: make {name}"
        seen += len(quoted)
    assert seen > 0


def test_paths_follow_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("MINIPD_SHEET", raising=False)
    monkeypatch.delenv("MINIPD_CACHE", raising=False)
    assert paths.cache_dir() != paths.sheet_path().parent, "clearing the cache must keep the sheet"
    monkeypatch.setenv("MINIPD_CACHE", str(tmp_path / "moved"))
    assert paths.cache_dir() == tmp_path / "moved"
    assert paths.sheet_path().parent == tmp_path / "moved"
    monkeypatch.setenv("MINIPD_SHEET", str(tmp_path / "sheet.jsonl"))
    assert paths.sheet_path() == tmp_path / "sheet.jsonl"
    monkeypatch.setenv("MINIPD_CACHE", "  ")
    assert paths.cache_dir().name == "minipd" or "minipd" in paths.cache_dir().parts


def test_importing_minipd_does_not_import_torch():
    probe = "import sys, minipd; assert 'torch' not in sys.modules; minipd.SamplingParams()"
    subprocess.run([sys.executable, "-c", probe], check=True)
    with pytest.raises(AttributeError, match="no attribute 'LLMs'"):
        _ = minipd.LLMs


def test_the_ci_script_is_sound_bash():
    script = ROOT / ".ci" / "run"
    if os.name == "nt" or not shutil.which("bash"):
        pytest.skip("bash is not here; the CI script runs on Debian")
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)


@pytest.mark.slow
def test_the_wheel_carries_the_course(tmp_path):
    pytest.importorskip("hatchling", reason="hatchling builds the wheel; install minipd[dev]")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    for room in ("notebooks", "exercises", "solutions"):
        built = sorted(p.name for p in (ROOT / room).glob("*.ipynb"))
        packed = sorted(p.name for p in (installed / "minipd/_course" / room).glob("*.ipynb"))
        assert packed == built != []
    banks = sorted(p.name for p in (ROOT / "minipd/lab/banks").glob("*.json"))
    assert sorted(p.name for p in (installed / "minipd/lab/banks").glob("*.json")) == banks != []
    assert list((installed / "minipd/lab/jupyter").rglob("default_setting_overrides.json"))
    assert not (installed / "tests").exists()
    probe = "from minipd.paths import course_root; print(course_root())"
    done = subprocess.run(
        [sys.executable, "-c", probe],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(done.stdout.strip()) == (installed / "minipd" / "_course").resolve()
