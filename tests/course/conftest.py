"""Shared by the course's tests: the repository's root, and a progress file of their own."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


@pytest.fixture(autouse=True)
def own_files(tmp_path, monkeypatch):
    """No test reads or writes the developer's own progress or bench sheet."""
    monkeypatch.setenv("MINIPD_PROGRESS", str(tmp_path / "learner" / "progress.json"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("MINIPD_SHEET", str(tmp_path / "learner" / "sheet.jsonl"))


@pytest.fixture
def root():
    """The repository."""
    return ROOT
