"""The page's table is what benchmarks/simulate.py made of the raw figures, row by row."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RAW = ROOT / "benchmarks" / "raw" / "simulate.json"


def rows_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "simulate_rows", ROOT / "benchmarks" / "simulate_rows.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def raw() -> dict[str, Any]:
    return json.loads(RAW.read_text("utf-8"))


def test_the_page_shows_the_raw_figures(raw: dict[str, Any]) -> None:
    module = rows_module()
    page = (ROOT / "docs" / "fleet.md").read_text("utf-8").splitlines()
    assert page[module.table_of(page)] == module.doc_rows(raw)


def test_no_part_was_a_quick_one(raw: dict[str, Any]) -> None:
    assert raw and not any(part["quick"] for part in raw.values())
