"""Counts the code of minipd against its size budget; exits 1 when something is over.

Run `python scripts/count_lines.py`. A line counts when it is neither blank nor only a comment;
docstrings count too. A function's length is its lines of code without docstring and decorators.
"""

from __future__ import annotations

import argparse
import ast
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

CORE_BUDGET = 2000
ADAPTER_BUDGET = 1000
MAX_FILE_LINES = 250
MAX_FUNCTION_LINES = 50
MAX_MEDIAN_FUNCTION_LINES = 8

CORE_FILES = {"llm.py", "request.py", "timeline.py"}
CORE_MODEL_FILES = {"__init__.py", "config.py", "layers.py", "decoder.py"}
CORE_ROOMS = {"cache", "engine", "sched", "pools"}
ADAPTER_WORDS = ("nixl", "ray")  # optional adapters in `pools`, by file name


@dataclass(frozen=True)
class Measured:
    """One source file: lines in all, lines of code, and (name, lines of code) per function."""

    path: Path
    lines: int
    code_lines: int
    functions: list[tuple[str, int]]


def room_of(relative: Path) -> str:
    """`core`, `adapters` (with the loaders) or `other`, for a path relative to the package."""
    top = relative.parts[0]
    if len(relative.parts) == 1:
        return "core" if top in CORE_FILES else "other"
    if top == "model":
        return "core" if relative.name in CORE_MODEL_FILES else "adapters"
    if top not in CORE_ROOMS:
        return "other"
    return "adapters" if relative.stem.startswith(ADAPTER_WORDS) else "core"


def is_code(line: str) -> bool:
    stripped = line.strip()
    return bool(stripped) and not stripped.startswith("#")


def function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> int:
    """Lines of code of a function, signature included, docstring and decorators not."""
    first, last = node.lineno, node.end_lineno or node.lineno
    skipped: set[int] = set()
    head = node.body[0]
    if ast.get_docstring(node, clean=False) is not None:
        skipped = set(range(head.lineno, (head.end_lineno or head.lineno) + 1))
    return sum(is_code(lines[n - 1]) for n in range(first, last + 1) if n not in skipped)


def measure(path: Path) -> Measured:
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    functions = [
        (node.name, function_lines(node, lines))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return Measured(path, len(lines), sum(map(is_code, lines)), functions)


def faults(package: Path, files: list[Measured], totals: dict[str, int]) -> list[str]:
    """Every breach of the budget, as one sentence each."""
    found: list[str] = []
    for name, budget in (("core", CORE_BUDGET), ("adapters", ADAPTER_BUDGET)):
        if totals[name] > budget:
            found.append(f"{name} has {totals[name]} lines of code; the budget is {budget}.")
    for file in files:
        name = file.path.relative_to(package.parent).as_posix()
        if file.lines > MAX_FILE_LINES:
            found.append(f"{name} has {file.lines} lines; a file has at most {MAX_FILE_LINES}.")
        for function, length in file.functions:
            if length > MAX_FUNCTION_LINES:
                limit = f"a function has at most {MAX_FUNCTION_LINES}"
                found.append(f"{name}: {function} has {length} lines of code; {limit}.")
    median = median_function_lines(files)
    if median > MAX_MEDIAN_FUNCTION_LINES:
        limit = f"at most {MAX_MEDIAN_FUNCTION_LINES}"
        found.append(f"The median function has {median:g} lines of code; {limit} is wanted.")
    return found


def median_function_lines(files: list[Measured]) -> float:
    lengths = [length for file in files for _, length in file.functions]
    return statistics.median(lengths) if lengths else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(__file__).resolve().parents[1] / "minipd"
    parser.add_argument("package", nargs="?", type=Path, default=default)
    package: Path = parser.parse_args().package
    files = [measure(path) for path in sorted(package.rglob("*.py"))]
    totals = {"core": 0, "adapters": 0, "other": 0}
    for file in files:
        totals[room_of(file.path.relative_to(package))] += file.code_lines
    print(f"core      {totals['core']:5} of {CORE_BUDGET} lines of code")
    print(f"adapters  {totals['adapters']:5} of {ADAPTER_BUDGET} (model loaders included)")
    print(f"other     {totals['other']:5}")
    print(f"functions {median_function_lines(files):5g} lines of code, the median")
    found = faults(package, files, totals)
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
