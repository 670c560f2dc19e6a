"""Amounts of memory on the command line, and where KV is to be kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from minipd.cli import app
from minipd.lab.byte_sizes import ByteSizeError, bytes_of
from minipd.measure.outputs import OutputError


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("512MB", 512 * 10**6), ("2gib", 2 << 30), (" 1.5 KB ", 1500), ("0", 0), ("7", 7)],
)
def test_sizes_as_people_write_them(text: str, num_bytes: int) -> None:
    assert bytes_of(text, "--host-kv") == num_bytes


@pytest.mark.parametrize(
    "text", ["", "-1", "10XB", "nan", "1e400", "٣GB", "9" * 400, "MB", "1,5GB"]
)
def test_what_is_no_size_is_named_with_its_option(text: str) -> None:
    with pytest.raises(ByteSizeError, match="--host-kv .* is no size") as caught:
        bytes_of(text, "--host-kv")
    assert len(str(caught.value)) < 150


def test_a_place_for_kv_that_is_no_folder_is_told_before_the_model_is_loaded(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("kept")
    command = ["run", "--model", "no-such-model", "--host-kv", "8MB", "--disk-kv"]
    result = CliRunner().invoke(app, [*command, str(tmp_path / "file")])
    assert isinstance(result.exception, OutputError) and "is no folder" in str(result.exception)
    assert (tmp_path / "file").read_text() == "kept"
