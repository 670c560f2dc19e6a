"""What the learner has done so far: one small JSON file beside the bench sheet.

Notebooks and terminal share it, so every change is read, made and replaced under a lock. The file
holds the learner's own answers; deleting it starts the course afresh.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from filelock import FileLock, Timeout

from minipd.paths import sheet_path

Record = dict[str, Any]
VERSION = 1
SECTIONS = ("exercises", "quiz", "predictions")


class ProgressError(RuntimeError):
    """The progress file cannot be read or written; the message names it and says what to do."""


def progress_path() -> Path:
    """`MINIPD_PROGRESS` if set, else `progress.json` in the folder of the bench sheet."""
    chosen = os.environ.get("MINIPD_PROGRESS", "").strip()
    return Path(chosen).expanduser() if chosen else sheet_path().with_name("progress.json")


def _empty() -> Record:
    return {"version": VERSION, **{section: {} for section in SECTIONS}}


def read_progress() -> Record:
    """Everything kept so far; a damaged file is set aside as `.damaged`, leaving nothing kept."""
    path = progress_path()
    try:
        raw: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return _empty()
    except OSError as error:
        raise ProgressError(
            f"Cannot read {path} ({error.strerror}); set MINIPD_PROGRESS."
        ) from error
    except ValueError:
        raw = None
    if not isinstance(raw, dict):
        path.replace(path.with_name(path.name + ".damaged"))
        return _empty()
    record = cast(Record, raw)
    return _empty() | {k: v for k, v in record.items() if k not in SECTIONS or isinstance(v, dict)}


@contextmanager
def changed_progress() -> Generator[Record]:
    """The record to change in place; written back as a whole when the block ends well."""
    path = progress_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(path.name + ".lock"), timeout=10):
            record = read_progress()
            yield record
            fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
            fresh.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            fresh.replace(path)
    except Timeout as error:
        raise ProgressError(
            f"{path} is in use by another program; close it and try again."
        ) from error
    except OSError as error:
        raise ProgressError(
            f"Cannot write {path} ({error.strerror}); set MINIPD_PROGRESS to a file you may write."
        ) from error


def entry(record: Record, section: str, name: str) -> Record:
    """The record of one exercise, quiz or prediction, made empty where it does not exist yet."""
    return cast(Record, record[section].setdefault(name, {}))


def keep_answer(lesson: str, question_id: str, *, correct: bool) -> Record:
    """Count one try at a quiz question; once answered rightly it stays so. Returns its record."""
    with changed_progress() as record:
        kept = cast(Record, entry(record, "quiz", lesson).setdefault(question_id, {}))
        kept["tries"] = int(kept.get("tries", 0)) + 1
        kept["correct"] = bool(kept.get("correct")) or correct
        kept.setdefault("first_try", correct)
    return kept


def keep_exercise(exercise_id: str, *, passed: bool, failed_check: str = "") -> Record:
    """Keep a result; counts how often each named check failed, which opens the next hint."""
    with changed_progress() as record:
        kept = entry(record, "exercises", exercise_id)
        kept["passed"] = passed
        kept["when"] = time.strftime("%Y-%m-%d %H:%M")
        failures = cast(dict[str, int], kept.setdefault("failures", {}))
        if failed_check:
            failures[failed_check] = failures.get(failed_check, 0) + 1
    return kept


def quiz_record(lesson: str) -> dict[str, Record]:
    """What was answered so far in one lesson's quiz, by question id."""
    return cast(dict[str, Record], read_progress()["quiz"].get(lesson, {}))


def exercise_record(exercise_id: str) -> Record:
    """What was kept of one exercise; empty if it was never checked."""
    return cast(Record, read_progress()["exercises"].get(exercise_id, {}))
