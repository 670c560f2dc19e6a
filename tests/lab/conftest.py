"""Tests of the lab never touch the developer's own progress or bench sheet."""

import pytest


@pytest.fixture(autouse=True)
def own_files(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIPD_PROGRESS", str(tmp_path / "learner" / "progress.json"))
    monkeypatch.setenv("MINIPD_SHEET", str(tmp_path / "learner" / "sheet.jsonl"))
