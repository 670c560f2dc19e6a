"""Trace readers: formats found, numbers right, bad input named by its line, nothing lost."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from minipd.measure.rows import Segment, TraceRow
from minipd.measure.trace_stats import describe, prefix_hits, table
from minipd.measure.traces import TraceError, read_trace, reshape_trace, write_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:18:03.9799600,110,27
"""
MOONCAKE = """{"timestamp": 2000, "input_length": 1100, "output_length": 6, "hash_ids": [0, 1, 2]}
{"timestamp": 3500, "input_length": 1024, "output_length": 4, "hash_ids": [0, 1]}
{"timestamp": 3500, "input_length": 1200, "output_length": 9, "hash_ids": [0, 7, 8]}
"""


@pytest.fixture
def trace_file(tmp_path: Path):
    def write(content: str | bytes, name: str = "trace.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def test_azure(trace_file) -> None:
    trace = read_trace(trace_file(AZURE))
    assert (trace.format, trace.notes) == ("azure", [])
    assert [row.arrival_s for row in trace.rows] == [0.0, 0.052, 60.0]
    assert [(r.prompt_tokens, r.output_tokens) for r in trace.rows][0] == (4808, 10)


def test_azure_2024_zone_bom_and_windows_lines(trace_file) -> None:
    text = "\ufeff" + AZURE.replace("600,", "600+00:00,").replace("\n", "\r\n")
    assert read_trace(trace_file(text)).rows == read_trace(trace_file(AZURE, "plain.csv")).rows


def test_mooncake(trace_file) -> None:
    trace = read_trace(trace_file(MOONCAKE))
    assert trace.format == "mooncake"
    assert [row.arrival_s for row in trace.rows] == [0.0, 1.5, 1.5]
    assert trace.rows[0].segments == (
        Segment("block-0", 512), Segment("block-1", 512), Segment("block-2", 76)
    )  # fmt: skip
    hits = prefix_hits(trace.rows)
    assert hits.token_weighted == pytest.approx((1024 + 512) / (1100 + 1024 + 1200))
    assert hits.per_request == pytest.approx((0 + 1 + 512 / 1200) / 3)
    assert hits.segments == pytest.approx(3 / 8)


def test_own_format_round_trip(tmp_path: Path) -> None:
    rows = [TraceRow(0.25, 10, 3, "chat", (Segment("s", 4),)), TraceRow(1.5, 7, 1)]
    write_trace(tmp_path / "own.jsonl", rows, seed=1)
    trace = read_trace(tmp_path / "own.jsonl")
    assert (trace.format, trace.rows) == ("minipd", rows)
    assert b"\r" not in (tmp_path / "own.jsonl").read_bytes()


def test_growing_sessions_hit_what_was_said(trace_file) -> None:
    rows = [
        TraceRow(0, 150, 1, segments=(Segment("system", 50), Segment("a", 100))),
        TraceRow(1, 250, 1, segments=(Segment("system", 50), Segment("a", 200))),
        TraceRow(2, 80, 1, segments=(Segment("system", 50), Segment("b", 30))),
        TraceRow(3, 80, 1, segments=(Segment("other", 50), Segment("b", 30))),
    ]
    assert prefix_hits(rows).token_weighted == pytest.approx((150 + 50) / 560)


def test_unsorted_rows_are_sorted_with_a_note(trace_file) -> None:
    head, *lines = AZURE.splitlines()
    trace = read_trace(trace_file("\n".join([head, *reversed(lines)])))
    assert trace.rows == read_trace(trace_file(AZURE, "b.csv")).rows
    assert trace.notes == ["Rows were not in order of arrival (2 steps back): sorted."]


def test_rows_without_tokens_count_as_one_with_a_note(trace_file) -> None:
    trace = read_trace(trace_file(AZURE.replace(",110,27", ",110,0")))
    assert trace.rows[-1].output_tokens == 1
    assert trace.notes == ["1 rows without a prompt or an answer count as 1 token there."]


HEAD = AZURE.splitlines()[0] + "\n"
GOOD = "2023-11-16 18:17:03.97,5,5\n"
BAD = {
    "negative": (HEAD + GOOD + "2023-11-16 18:17:04,-5,3\n", "Line 3 .*negative ContextTokens"),
    "missing value": (HEAD + GOOD + "2023-11-16 18:17:04,5,\n", "Line 3 .*no GeneratedTokens"),
    "missing field": (HEAD + GOOD + "2023-11-16 18:17:04,5\n", "Line 3 .*2 fields instead of 3"),
    "NaN": (HEAD + GOOD + "2023-11-16 18:17:04,NaN,5\n", "Line 3 .*not a finite number"),
    "enormous": (HEAD + "2023-11-16 18:17:04,99999999999,5\n", "Line 2 .*over the limit"),
    "digits": (HEAD + "2023-11-16 18:17:04," + "9" * 5000 + ",5\n", "Line 2 .*ContextTokens"),
    "fraction": (HEAD + "2023-11-16 18:17:04,1.5,5\n", "Line 2 .*whole number"),
    "words": (HEAD + "2023-11-16 18:17:04,many,5\n", "Line 2 .*not a number"),
    "time": (HEAD + "yesterday,5,5\n", "Line 2 .*write it like"),
    "calendar": (HEAD + "2023-13-46 18:17:04,5,5\n", "Line 2 .*no calendar"),
    "empty": ("", "is empty"),
    "blank": ("\n  \n", "is empty"),
    "header only": (HEAD, "no usable request"),
    "wrong header": ("time,in,out\n1,2,3\n", "Line 1 .*starts with the header"),
    "binary": (b"\x7fELF\x00\x00\xff\xfe", "Line 1 .*not text"),
    "binary later": (HEAD.encode() + b"2023\xff\xfe\x00,1,1\n", "Line 2 .*not text"),
    "broken JSON": (MOONCAKE + '{"timestamp": 1,\n', "Line 4 .*not valid JSON"),
    "deep JSON": (MOONCAKE + '{"a":' + "[" * 100_000 + "\n", "Line 4 .*not valid JSON"),
    "JSON list": (MOONCAKE + "[1, 2]\n", "Line 4 .*not a JSON object"),
    "JSON missing": (MOONCAKE + '{"timestamp": 1, "input_length": 5}\n', "Line 4 .*no output"),
    "JSON true": (MOONCAKE.replace("1100", "true"), "Line 1 .*not a number"),
    "JSON infinite": (MOONCAKE.replace("3500", "1e999"), "Line 2 .*not a finite"),
    "late": (MOONCAKE.replace("3500", "1e15"), "Line 2 .*ten years"),
    "hash ids": (MOONCAKE.replace("[0, 1]", "[0, 1, 2]"), "Line 2 .*more hash_ids"),
    "hash text": (MOONCAKE.replace("[0, 1]", '["x"]'), "Line 2 .*hash id 'x'"),
    "hash word": (MOONCAKE.replace("[0, 1]", '"x"'), "Line 2 .*not a list"),
    "underscore": (HEAD + "2023-11-16 18:17:04,1_0,5\n", "Line 2 .*plain digits"),
    "Arabic digits": (HEAD + "2023-11-16 18:17:04,\u0661\u0662,5\n", "Line 2 .*plain digits"),
    "Arabic time": (HEAD + "\u0662\u0660\u0662\u0663-11-16 18:17:04,5,5\n", "Line 2 .*write it"),
    "10,000 years": (HEAD + GOOD + "9999-11-16 18:17:04,5,5\n", "spans 7976 years"),
    "version": ('{"format":"minipd-trace","version":99}\n', "version 99 .*reads version 1"),
    "no version": ('{"format":"minipd-trace"}\n', "version None"),
    "broken header": ('{"format":"minipd-trace",\n', "Line 1 .*not valid JSON .*; mend the header"),
    "long line": (HEAD + "x" * 1_500_000, "Line 2 .*longer than"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named_in_one_sentence(name: str, trace_file) -> None:
    content, pattern = BAD[name]
    with pytest.raises(TraceError, match=pattern) as caught:
        read_trace(trace_file(content))
    message = str(caught.value)
    assert len(message) < 300 and "\n" not in message


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="check the path"):
        read_trace(tmp_path / "nothing.csv")
    with pytest.raises(TraceError, match="check the path"):
        read_trace(tmp_path)


def test_bad_lines_are_skipped_only_on_request_and_counted(trace_file) -> None:
    path = trace_file(HEAD + GOOD + "oops,1,1\n" + GOOD + "2023-11-16 18:17:04,-1,1\n")
    trace = read_trace(path, skip_bad=True)
    assert len(trace.rows) == 2
    assert trace.notes[0].startswith("2 bad lines were skipped; the first: Line 3 of trace.txt")


def test_changes_are_reported(trace_file) -> None:
    trace = reshape_trace(
        read_trace(trace_file(AZURE)), time_factor=0.5, max_prompt_tokens=1000, limit=2
    )
    assert [row.prompt_tokens for row in trace.rows] == [1000, 1000]
    assert trace.notes == [
        "Only the first 2 of 3 rows are used.",
        "Arrival times were multiplied by 0.5.",
        "2 of 2 prompts were cut to 1000 tokens (5988 tokens dropped).",
    ]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"max_prompt_tokens": -3}, "cap on prompt tokens is -3"),
        ({"max_output_tokens": 0}, "cap on output tokens is 0"),
        ({"limit": -1}, "first -1 rows are none"),
        ({"limit": 0}, "first 0 rows are none"),
        ({"length_factor": 1e308}, "smaller length factor"),
        ({"length_factor": 1e5}, "over the limit of 10000000"),
        ({"time_factor": 1e308}, "smaller time factor"),
        ({"time_factor": float("nan")}, "time_factor is nan"),
        ({"length_factor": -1.0}, "length_factor is -1"),
    ],
)
def test_changes_that_mean_nothing_are_refused(
    changes: dict[str, float], told: str, trace_file
) -> None:
    trace = read_trace(trace_file(AZURE))
    with pytest.raises(TraceError, match=told):
        reshape_trace(trace, **changes)  # type: ignore[arg-type]


def test_a_disk_that_fails_after_opening_is_named(trace_file) -> None:
    class Failing(io.BytesIO):
        def readline(self, *_: object) -> bytes:
            raise OSError(5, "Input/output error")

    path = trace_file(AZURE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", lambda *_: Failing())
        with pytest.raises(TraceError, match="failed .Input/output error.; check the disk"):
            read_trace(path)


def test_describing_nothing_is_refused_and_one_row_works() -> None:
    with pytest.raises(ValueError, match="no rows"):
        describe([])
    assert table(describe([TraceRow(0.0, 5, 5)]))[0] == ("requests", "1")


# Third-party data is not ours to carry: read from beside the checkout where it lies there.
SHARED = Path(os.environ.get("MINIPD_TRACES", Path(__file__).parents[2].parent / "shared/traces"))
REAL = {
    # n, span s, rate, CV, prompt mean, p50, max, output mean, p50 (facts section 5; Mooncake's CV,
    # p50s and maximum are our own reading of the file)
    "azure_2023_code.csv": (8819, 3436, 2.57, 13.15, 2047.8, 1469, 7437, 27.9, 13),
    "azure_2023_conv.csv": (19366, 3502, 5.53, 1.09, 1154.7, 1020, 14050, 211.1, 129),
    "mooncake_synthetic.jsonl": (3993, 1022, 3.907, 1.01, 15325, 11587, 191378, 149, 69),
}


@pytest.mark.parametrize("name", REAL)
def test_real_traces_have_the_known_statistics(name: str) -> None:
    if not (SHARED / name).exists():
        pytest.skip(f"{name} is not here; set MINIPD_TRACES to the folder that holds it")
    trace = read_trace(SHARED / name)
    stats = describe(trace.rows)
    n, span, rate, cv, mean, p50, longest, out_mean, out_p50 = REAL[name]
    assert trace.notes == [] and stats.requests == n
    assert stats.span_s == pytest.approx(span, abs=0.6)
    assert (stats.rate_per_s, stats.inter_arrival_cv) == pytest.approx((rate, cv), abs=0.005)
    assert (stats.prompt.p50, stats.prompt.max, stats.output.p50) == (p50, longest, out_p50)
    assert stats.prompt.mean == pytest.approx(mean, abs=0.6)
    assert stats.output.mean == pytest.approx(out_mean, abs=0.2)


def test_mooncake_prefix_hits_in_three_averages() -> None:
    path = SHARED / "mooncake_synthetic.jsonl"
    if not path.exists():
        pytest.skip("the Mooncake trace is not here; set MINIPD_TRACES to its folder")
    hits = describe(read_trace(path).rows).prefix_hits
    assert hits.token_weighted == pytest.approx(0.651, abs=5e-4)
    assert hits.per_request == pytest.approx(0.432, abs=5e-4)
    assert hits.segments == pytest.approx(0.640, abs=5e-4)
