"""The floors of docs/architecture.md: a room imports only from the floors below it."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(importlib.util.find_spec("minipd").origin).parent  # type: ignore[union-attr,arg-type]
FLOORS = ["request", "values", "timeline", "paths", "interrupts", "model", "cache", "engine"]
FLOORS += ["sched", "prompts", "llm", "pools", "measure", "fleet", "lab", "cli"]
WITHOUT_TENSORS = [
    "minipd",
    "minipd.request",
    "minipd.timeline",
    "minipd.cache.allocator",
    "minipd.cache.books",
    "minipd.engine.batch",
    "minipd.sched.*",
    "minipd.measure.metrics",
    "minipd.measure.workloads",
    "minipd.measure.traces",
    "minipd.measure.slo",
    "minipd.fleet.*",
]


def room_of(module: str) -> str:
    parts = module.split(".")
    room = parts[1] if len(parts) > 1 else "minipd"
    return "cli" if room.startswith("cli_") else room  # the commands, spread over several files


def imports_of(tree: ast.AST, package: str) -> set[str]:
    """Names of all minipd modules that a file imports, wherever in the file it does."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            base = ".".join(part for part in (above, node.module) if part)
            if base == "minipd":
                found |= {f"minipd.{alias.name}" for alias in node.names}
            found.add(base)
    return {name for name in found if name.startswith("minipd.")}


def files() -> list[tuple[str, Path]]:
    found = [p for p in sorted(ROOT.rglob("*.py")) if "_course" not in p.parts]
    names = [".".join(("minipd", *p.relative_to(ROOT).with_suffix("").parts)) for p in found]
    return [(n, p) for n, p in zip(names, found) if room_of(n) not in ("__init__", "__main__")]


def violations(module: str, tree: ast.AST) -> list[str]:
    room = room_of(module)
    height = FLOORS.index(room)
    reached = {(room_of(name), name) for name in imports_of(tree, module.rpartition(".")[0])}
    return [
        f"{module} imports {name}"
        for other, name in sorted(reached)
        if other in FLOORS and other != room and FLOORS.index(other) > height
    ]


def test_every_room_has_a_floor() -> None:
    unknown = {room_of(name) for name, _ in files()} - set(FLOORS)
    assert not unknown, f"say on which floor {unknown} stands"


def test_rooms_import_only_from_the_floors_below() -> None:
    wrong = [
        v for name, path in files() for v in violations(name, ast.parse(path.read_text("utf-8")))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "line", ["import minipd.lab.show", "from minipd.lab import show", "from minipd import lab"]
)
def test_the_check_sees_an_import_upwards(line: str) -> None:
    assert violations("minipd.engine.worker", ast.parse(f"def late():\n    {line}\n"))
    assert not violations("minipd.cli", ast.parse(line))
    assert violations("minipd.engine.worker", ast.parse("from ..lab import show"))


BLOCKED = """
import importlib, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "numpy"):
            raise ImportError(f"{name} is blocked in this test")

sys.meta_path.insert(0, Blocked())
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        sys.exit(f"{name}: {error}")
assert not {"torch", "numpy"} & set(sys.modules)
"""


def expand(pattern: str) -> list[str]:
    """Modules behind a name; a room or file that is not written yet has none."""
    if pattern.endswith(".*"):
        return [n for n, _ in files() if n.startswith(pattern[:-1]) and "__init__" not in n]
    path = ROOT.joinpath(*pattern.split(".")[1:])
    return [pattern] if path.is_dir() or path.with_suffix(".py").is_file() else []


def import_without_tensors(modules: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BLOCKED, *modules]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT.parent, check=False)


def test_what_must_be_free_of_torch_and_numpy_is() -> None:
    modules = [name for pattern in WITHOUT_TENSORS for name in expand(pattern)]
    assert {"minipd.sched.base", "minipd.cache.allocator"} <= set(modules)
    done = import_without_tensors(modules)
    assert done.returncode == 0, done.stderr


def test_the_block_is_real() -> None:
    assert "blocked" in import_without_tensors(["minipd.cache.store"]).stderr


@pytest.mark.parametrize("word", ["import time", "from time", "sleep("])
def test_schedulers_read_no_clock(word: str) -> None:
    for name, path in files():
        if room_of(name) == "sched":
            assert word not in path.read_text("utf-8"), f"{name} must be given the time"
