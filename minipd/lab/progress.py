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

from minipd.measure.outputs import replace_text
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
    """Everything kept so far; of a damaged file what is sound, and a copy of the whole is kept."""
    path = progress_path()
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return _empty()
    except OSError as error:
        raise ProgressError(
            f"Cannot read {path} ({error.strerror}); set MINIPD_PROGRESS."
        ) from error
    try:
        raw: Any = json.loads(content)
    except (ValueError, RecursionError):
        raw = None
    record, whole = _sound(raw)
    if not whole:
        _keep_copy(path, content)
    return record


def _sound(raw: Any) -> tuple[Record, bool]:
    """What of a record can be used, and whether that is all of it."""
    if not isinstance(raw, dict):
        return _empty(), False
    record = _empty() | cast(Record, raw)
    whole = True
    for section in SECTIONS:
        entries: Any = record[section]
        good = _sound_entries(section, entries) if isinstance(entries, dict) else {}
        whole = whole and good == entries
        record[section] = good
    return record, whole


def _sound_entries(section: str, entries: Record) -> Record:
    if section == "quiz":
        lessons = {k: v for k, v in entries.items() if isinstance(v, dict)}
        return {k: {q: a for q, a in v.items() if _fits(section, a)} for k, v in lessons.items()}
    return {name: value for name, value in entries.items() if _fits(section, value)}


def _fits(section: str, value: Any) -> bool:
    """Whether an entry has the form in which it is written; fields that are not there are none."""
    if not isinstance(value, dict):
        return False
    fields = cast(Record, value)
    counts: Any = fields.get("failures", {})
    if not isinstance(counts, dict) or not all(type(n) is int for n in counts.values()):
        return False
    return all(
        isinstance(fields[name], kind) for name, kind in _FORM[section].items() if name in fields
    )


_FORM: dict[str, dict[str, Any]] = {
    "exercises": {"passed": bool, "when": str},
    "quiz": {"tries": int, "correct": bool, "first_try": bool},
    "predictions": {"value": (int, float, str), "measured": (int, float, str)}
    | dict.fromkeys(("unit", "reason", "bracket"), str),
}


def _keep_copy(path: Path, content: bytes) -> None:
    """Keep a damaged file beside the new one, once for each content, and say so."""
    copy, number = path.with_name(path.name + ".damaged"), 1
    try:
        while copy.exists():
            if copy.read_bytes() == content:
                return
            number += 1
            copy = path.with_name(f"{path.name}.damaged{number}")
        copy.write_bytes(content)
    except OSError as error:
        raise ProgressError(
            f"{path} is damaged, and no copy of it can be kept ({error.strerror}); "
            "move it away, or set MINIPD_PROGRESS."
        ) from error
    print(f"{path} was damaged: what could be read of it counts, and the whole is in {copy.name}.")


@contextmanager
def changed_progress() -> Generator[Record]:
    """The record to change in place; written back as a whole when the block ends well."""
    path = progress_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(path.name + ".lock"), timeout=10):
            record = read_progress()
            yield record
            replace_text(path, json.dumps(record, indent=1, sort_keys=True) + "\n")
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
