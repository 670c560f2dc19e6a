"""Counts the code of minipd against its size budget; exits 1 when something is over.

Run `python scripts/count_lines.py`. A line counts when it is neither blank nor a comment, and
docstrings are comments. A function is as long as the lines of code of its body.
"""

from __future__ import annotations

import argparse
import ast
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

BUDGETS = {
    # One worker: what a reader needs to follow one request. Raised from 1,600 for two parts of
    # sched that engine and simulator share: live re-balancing, and steps that lie ahead.
    # And by 155 for experts (experts.py, expert_config.py, the sparse layer).
    # And for blocks that go down to a tier and come back (allocator, worker, schedulers).
    # And by 35 for the rule of step times, which paced and simulated workers had each.
    # And by 20 for a whole prompt's attention prepared once per batch, and unheard interrupts.
    "engine": 2090,
    # Several workers: hand-off, coordinator, supervision. Raised from 1,800 for roles that change
    # while requests run (roles.py) and for what watches and decides (watch.py, controller.py).
    # And from 2,000 for tiers of workers, for what a prefix-aware router hears of them, and for a
    # roster that a fleet of hundreds does not make anew for every request.
    "pools": 2085,
    # KV below the device, and who holds which prefix: optional, and read after the engine.
    "tiers": 540,
    # Loaders, and links and workers of special kinds. Raised from 1,400 for weights in large pages.
    # And by 90 for experts: their names and stacks in checkpoints, and the built-in `tiny-moe`.
    # And by 20 for checkpoints that name files outside their folder, or one tensor twice.
    "adapters": 1560,
}
MAX_FILE_LINES = 250
MAX_FUNCTION_LINES = 50
MAX_MEDIAN_FUNCTION_LINES = 8

ENGINE_FILES = {"request.py", "timeline.py"}
ENGINE_MODEL_FILES = {
    *("__init__.py", "config.py", "families.py", "layers.py", "decoder.py"),
    *("experts.py", "expert_config.py"),
}
ENGINE_ROOMS = {"cache", "engine", "sched"}
TIERS = {"books", "disk", "tier_sizes", "tiers", "prefix_router"}  # in `cache` and `sched`
ADAPTERS = {"nixl", "cuda_ipc", "emulated", "streams", "paced"}  # in `pools`, by file name


@dataclass(frozen=True)
class Measured:
    """One source file: lines in all, lines of code, and (name, lines of code) per function."""

    path: Path
    lines: int
    code_lines: int
    functions: list[tuple[str, int]]


def room_of(relative: Path) -> str:
    """The budget that a file counts for, or `other`; the path is relative to the package."""
    top = relative.parts[0]
    if len(relative.parts) == 1:
        return "engine" if top in ENGINE_FILES else "other"
    if top == "model":
        return "engine" if relative.name in ENGINE_MODEL_FILES else "adapters"
    if top == "pools":
        return "adapters" if relative.stem in ADAPTERS else "pools"
    if top in ENGINE_ROOMS:
        return "tiers" if relative.stem in TIERS else "engine"
    return "other"


def docstring_lines(tree: ast.AST) -> set[int]:
    """Numbers of all lines that belong to a docstring."""
    found: set[int] = set()
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            head = node.body[0]
            found.update(range(head.lineno, (head.end_lineno or head.lineno) + 1))
    return found


def is_code(line: str) -> bool:
    stripped = line.strip()
    return bool(stripped) and not stripped.startswith("#")


def measure(path: Path) -> Measured:
    source = path.read_text(encoding="utf-8")
    lines, tree = source.splitlines(), ast.parse(source)
    skipped = docstring_lines(tree)
    code = {n for n, line in enumerate(lines, 1) if is_code(line) and n not in skipped}
    functions = [
        (node.name, len(code.intersection(range(node.body[0].lineno, (node.end_lineno or 0) + 1))))
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return Measured(path, len(lines), len(code), functions)


def faults(package: Path, files: list[Measured], totals: dict[str, int]) -> list[str]:
    """Every breach of the budget, as one sentence each."""
    found: list[str] = []
    for name, budget in BUDGETS.items():
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
    totals = dict.fromkeys([*BUDGETS, "other"], 0)
    for file in files:
        totals[room_of(file.path.relative_to(package))] += file.code_lines
    for name, budget in BUDGETS.items():
        print(f"{name:9} {totals[name]:5} of {budget} lines of code")
    print(f"other     {totals['other']:5}")
    print(f"functions {median_function_lines(files):5g} lines of code, the median")
    found = faults(package, files, totals)
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
