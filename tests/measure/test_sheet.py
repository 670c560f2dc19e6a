"""The bench sheet: nothing written is lost, whatever happens to one line."""

from __future__ import annotations

import csv
import json
import multiprocessing
from pathlib import Path

import pytest

from minipd.measure import sheet
from minipd.measure.sheet import SheetError, SheetLine, append, read, show_sheet

LINE = SheetLine("a laptop", "tiny", "float32", 2, 400.0, 20.5, 0.8, 0.7)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    target = tmp_path / "new folder" / "sheet.jsonl"
    monkeypatch.setenv("MINIPD_SHEET", str(target))
    return target


def test_what_is_appended_is_read_in_order(path: Path) -> None:
    first = append(LINE)
    second = append(SheetLine("a laptop", "mini", "bfloat16", 1, note="first look"))
    assert read().lines == [first, second]
    assert first.date and first.prefill_tok_s == 400.0
    assert second.mfu is None
    assert read().notes == []


def test_a_date_that_is_given_is_kept(path: Path) -> None:
    assert append(SheetLine("m", "tiny", "float32", 1, date="2026-01-02")).date == "2026-01-02"


def test_a_missing_sheet_is_empty(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show_sheet().lines == []
    assert "minipd bench" in capsys.readouterr().out


@pytest.mark.parametrize(
    "damage",
    [
        "not json",
        "[1, 2]",
        '{"machine": "m"}',
        '{"machine": "m", "model": "tiny", "dtype": "float32", "threads": "two"}',
        '{"machine": 3, "model": "tiny", "dtype": "float32", "threads": 2}',
        '{"machine": "m", "model": "tiny", "dtype": "float32", "threads": 1, "mfu": "high"}',
        '{"machine": "m", "model": "tiny", "dtype": "float32", "threads": null}',
    ],
)
def test_a_damaged_line_is_skipped_named_and_kept(path: Path, damage: str) -> None:
    before = append(LINE)
    with path.open("a", encoding="utf-8") as file:
        file.write(damage + "\n\n")
    after = append(LINE)
    found = read()
    assert found.lines == [before, after]
    assert len(found.notes) == 1 and "Line 2" in found.notes[0]
    assert damage in path.read_text(encoding="utf-8")


def test_a_torn_last_line_does_not_swallow_the_next(path: Path) -> None:
    append(LINE)
    with path.open("ab") as file:
        file.write(b'{"machine": "m", "mod')
    last = append(LINE)
    assert read().lines[-1] == last
    assert len(read().lines) == 2 and len(read().notes) == 1


def test_bytes_that_are_no_text_are_one_damaged_line(path: Path) -> None:
    append(LINE)
    with path.open("ab") as file:
        file.write(b"\xff\xfe\x00\n")
    assert len(read().lines) == 1 and len(read().notes) == 1


def test_a_later_version_may_add_a_column(path: Path) -> None:
    path.parent.mkdir()
    record = {"machine": "m", "model": "tiny", "dtype": "float32", "threads": 1, "volts": 3}
    path.write_text(json.dumps(record) + "\n", encoding="utf-8")
    assert read().lines == [SheetLine("m", "tiny", "float32", 1)]


def _append_many(path: Path, name: str, count: int) -> None:
    for _ in range(count):
        append(SheetLine(name, "tiny", "float32", 1, note="x" * 5000), path)


def test_two_processes_may_append_at_once(path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=_append_many, args=(path, name, 25)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    names = [line.machine for line in read(path).lines]
    assert sorted(names) == ["a"] * 25 + ["b"] * 25
    assert read(path).notes == []


def test_a_sheet_that_cannot_be_written_names_the_way_out(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(SheetError, match="MINIPD_SHEET"):
        append(LINE)
    with pytest.raises(SheetError, match="cannot be read"):
        read()


def test_a_lock_that_never_opens_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sheet, "LOCK_WAIT_S", 0.0)
    path.parent.mkdir()
    with sheet.FileLock(f"{path}.lock"), pytest.raises(SheetError, match="cannot be written"):
        append(LINE)


def test_the_table_shows_every_figure(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(LINE)
    append(SheetLine("a laptop", "[mini]", "float32", 1))
    with path.open("a", encoding="utf-8") as file:
        file.write("broken\n")
    show_sheet()
    shown = capsys.readouterr().out
    for figure in ("400.0", "20.50", "80%", "70%", "[mini]", "Line 3"):
        assert figure in shown


def test_a_note_is_shown_and_a_model_name_never_breaks(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = "A Processor With A Long Name @ 2.80 GHz, 8 cores, 31 GiB"
    append(SheetLine(long, "smollm2-135m", "float32", 2, 400.0, 20.5, 0.003, 0.7, note="shaky"))
    show_sheet()
    shown = capsys.readouterr().out
    assert "note: shaky" in shown and "smollm2-135m" in shown
    assert "<1%" in shown and " 0%" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_exports_hold_all_lines(path: Path, tmp_path: Path) -> None:
    append(LINE)
    show_sheet(path, tmp_path / "out.csv")
    show_sheet(path, tmp_path / "out.json")
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["decode_tok_s"] for row in rows] == ["20.5"]
    assert json.loads((tmp_path / "out.json").read_text())[0]["model"] == "tiny"
    with pytest.raises(SheetError, match="choose another file"):
        show_sheet(path, tmp_path)
