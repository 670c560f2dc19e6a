"""The progress file, damaged in every way: nothing is lost, and one sentence says so."""

import json

import pytest

from minipd.lab import progress
from minipd.lab.bank import load_bank
from minipd.lab.calibration import calibration_line
from minipd.lab.check import check
from minipd.lab.predict import keep_prediction, kept_prediction
from minipd.lab.progress import (
    ProgressError,
    exercise_record,
    keep_answer,
    keep_exercise,
    progress_path,
    quiz_record,
    read_progress,
)
from minipd.lab.quiz import score_line
from minipd.lab.standing import next_step, standing, standings

GOOD = {"exercises": {"00.2": {"passed": True}}, "predictions": {"00.a": {"value": 1.0}}}


def write(text):
    progress_path().parent.mkdir(parents=True, exist_ok=True)
    progress_path().write_text(text)


def copies():
    return sorted(progress_path().parent.glob("*.damaged*"))


UNREADABLE = {
    "empty": "",
    "half": "{",
    "list": "[1]",
    "number": "5",
    "null": "null",
    "deep": "[" * 100_000 + "]" * 100_000,
    "deep dict": '{"quiz":' * 50_000 + "1" + "}" * 50_000,
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_unreadable_file_leaves_nothing_kept_and_a_copy(name, capsys):
    write(UNREADABLE[name])
    assert read_progress() == progress._empty()
    keep_prediction("00.y", 1.0)
    assert [path.read_text() for path in copies()] == [UNREADABLE[name]]
    assert kept_prediction("00.y")["value"] == 1.0
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "was damaged" in said and "progress.json.damaged" in said


ODD = [
    {"exercises": {"00.1": 5}},
    {"exercises": {"00.1": {"failures": 5}}},
    {"exercises": {"00.1": {"failures": {"rate": "often"}}}},
    {"exercises": {"00.1": {"passed": "yes"}}},
    {"exercises": {"00.1": [1]}},
    {"quiz": []},
    {"quiz": {"00": 5}},
    {"quiz": {"00": {"which-phase": 5}}},
    {"quiz": {"00": {"which-phase": {"tries": "many"}}}},
    {"predictions": 5},
    {"predictions": {"00.x": 5}},
    {"predictions": {"00.x": {"value": [1]}}},
    {"predictions": {"00.x": {"value": 1.0, "measured": {"a": 1}}}},
    {"predictions": {"00.x": {"value": 1.0, "reason": 5}}},
]


@pytest.mark.parametrize("odd", ODD, ids=json.dumps)
def test_entries_of_another_shape_are_left_out_and_the_sound_ones_count(odd, capsys):
    merged = {name: GOOD.get(name, {}) for name in progress.SECTIONS}
    for section, entries in odd.items():
        whole = isinstance(entries, dict)
        merged[section] = {**merged[section], **entries} if whole else entries
    write(json.dumps(merged))
    everything_works()
    if "exercises" not in odd:
        assert exercise_record("00.2")["passed"] is True
    assert [json.loads(path.read_text()) for path in copies()] == [merged]
    assert capsys.readouterr().out.count("was damaged") == 1


def everything_works():
    read_progress(), calibration_line(), score_line(load_bank("00")), standings(), next_step("00")
    with pytest.raises(AssertionError):
        check("00.1", lambda tokens, seconds: 1)
    keep_answer("00", "which-phase", correct=True)
    keep_exercise("00.1", passed=False, failed_check="rate")
    keep_prediction("00.x", 3.0)
    assert quiz_record("00")["which-phase"]["correct"] is True
    assert exercise_record("00.1")["failures"]["rate"] == 1
    assert kept_prediction("00.x")["value"] == 3.0


def test_a_second_damage_does_not_overwrite_the_first_copy():
    for text in ("{ one", "{ two", "{ one"):
        write(text)
        read_progress()
    assert [path.read_text() for path in copies()] == ["{ one", "{ two"]


def test_a_copy_that_cannot_be_kept_is_explained_and_nothing_is_written(monkeypatch):
    write("{ half")
    monkeypatch.setattr(progress.Path, "write_bytes", refuse)
    with pytest.raises(ProgressError, match="no copy of it can be kept"):
        keep_prediction("00.x", 1.0)
    assert progress_path().read_text() == "{ half"


def refuse(*_):
    raise OSError(28, "No space left on device")


def test_other_sections_of_a_newer_version_stay():
    write(json.dumps(GOOD | {"version": 2, "badges": [1]}))
    keep_prediction("00.x", 1.0)
    kept = json.loads(progress_path().read_text())
    assert kept["badges"] == [1] and kept["version"] == 2 and not copies()


def test_a_standing_counts_what_is_done():
    assert not standing("00").begun and next_step("00")[1] == ""
    for question in load_bank("00").questions:
        keep_answer("00", question.id, correct=True)
    assert next_step("00") == ("exercise 00.1", "../exercises/00_your_machine.ipynb")
    for number in standing("00").exercises:
        keep_exercise(number, passed=True)
    assert standing("00").done
    words, path = next_step("00")
    later = [one.lesson for one in standings() if one.lesson > "00"]
    assert words == (f"lesson {later[0]}" if later else "nothing: this was the last lesson")
    assert not later or path == "" or path.startswith(later[0])
