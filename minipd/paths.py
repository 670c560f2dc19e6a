"""Where minipd keeps things on this computer: the model cache and the learner's bench sheet.

Set `MINIPD_CACHE` to move all of it to another folder; set `MINIPD_SHEET` to choose the bench
sheet's file alone. Nothing here creates a folder: whoever writes does, and reports why it cannot.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

SHEET_NAME = "bench-sheet.jsonl"


def _from_environment(name: str) -> Path | None:
    value = os.environ.get(name, "").strip()
    return Path(value).expanduser() if value else None


def cache_dir() -> Path:
    """Folder for downloaded and converted models; safe to delete at any time."""
    return _from_environment("MINIPD_CACHE") or Path(platformdirs.user_cache_dir("minipd"))


def sheet_path() -> Path:
    """File of the bench sheet; outside the cache by default, since it holds measurements.

    When `MINIPD_CACHE` is set the sheet moves there too, so that one variable moves everything.
    """
    chosen = _from_environment("MINIPD_SHEET")
    if chosen:
        return chosen
    moved = _from_environment("MINIPD_CACHE")
    return (moved or Path(platformdirs.user_data_dir("minipd"))) / SHEET_NAME


def course_root() -> Path | None:
    """Folder that holds the built `notebooks/`, `exercises/` and `solutions/`.

    In an installed package that is `minipd/_course`, in a checkout the repository itself; None
    when neither is there.
    """
    package = Path(__file__).resolve().parent
    candidates = (package / "_course", package.parent)
    return next((root for root in candidates if (root / "notebooks").is_dir()), None)
