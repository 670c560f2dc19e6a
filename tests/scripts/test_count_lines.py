"""The size budget: what counts as a line, and that each breach is named and fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import count_lines

SCRIPT = Path(count_lines.__file__)

SAMPLE = '''"""Two
lines."""

# only a comment
import os  # code with a comment


@decorator
def one(a,
        b):
    """Not
    counted."""

    # neither is this
    return a + b


class Thing:
    def two(self): return 2
'''


def run(package: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(package)], capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def package(tmp_path: Path) -> Path:
    root = tmp_path / "minipd"
    for name in ("request.py", "cli.py", "model/decoder.py", "model/gguf.py", "pools/paced.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x = 1\n")
    return root


def test_lines_are_counted_without_blanks_and_comments(tmp_path):
    path = tmp_path / "sample.py"
    path.write_text(SAMPLE)
    found = count_lines.measure(path)
    assert found.lines == 19
    assert found.code_lines == 7  # docstrings are comments
    assert found.functions == [("one", 1), ("two", 1)]  # bodies, without signatures


@pytest.mark.parametrize(
    ("name", "room"),
    [
        ("request.py", "engine"),
        ("cli.py", "other"),
        ("model/decoder.py", "engine"),
        ("model/load.py", "adapters"),
        ("engine/deep/er.py", "engine"),
        ("pools/links/nixl.py", "adapters"),
        ("pools/coordinator.py", "pools"),
        ("cache/books.py", "tiers"),
        ("lab/show.py", "other"),
    ],
)
def test_rooms(name, room):
    assert count_lines.room_of(Path(name)) == room


def test_within_budget_is_exit_code_0(package):
    code, out, err = run(package)
    assert (code, err) == (0, "")
    assert [line.split()[1] for line in out.splitlines()[:4]] == ["2", "0", "0", "2"]


def long_function(lines: int) -> str:
    return "def f():\n" + "    x = 1\n" * lines


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("engine/many.py", "x = 1\n" * 2100, "engine has 2102 lines"),
        ("model/gguf.py", "x = 1\n" * 1600, "adapters has 1601 lines"),
        ("lab/long.py", "# a comment\n" * 251, "lab/long.py has 251 lines"),
        ("lab/long.py", long_function(51), "f has 51 lines"),
        ("lab/long.py", long_function(9), "median function has 9 lines"),
    ],
)
def test_each_breach_is_named_and_fails(package, name, text, said):
    (package / name).parent.mkdir(exist_ok=True)
    (package / name).write_text(text)
    code, _, err = run(package)
    assert code == 1
    assert said in err


def test_minipd_is_within_its_budget():
    code, out, err = run(SCRIPT.parents[1] / "minipd")
    assert code == 0, out + err
