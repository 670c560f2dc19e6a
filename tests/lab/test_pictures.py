"""Pictures: well-formed, readable without colour, numbers right, same bytes for the same run."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from minipd.lab.pictures import (
    Measure,
    Picture,
    itl_over_time_svg,
    itl_svg,
    summary_svg,
    timeline_svg,
    timelines_svg,
    usual_measures,
)
from minipd.lab.pictures.lanes import read_lanes
from minipd.lab.pictures.svg import Canvas, nice_ticks, shorten, text_width
from minipd.measure.metrics import summarise
from minipd.measure.stalls import find_stalls
from minipd.timeline import Event
from tests.scripted_runs import scripted_run

SVG = "{http://www.w3.org/2000/svg}"
MODES = ("colocated", "chunked", "disaggregated")


@pytest.fixture(scope="module")
def runs() -> dict[str, list[Event]]:
    return {mode: scripted_run(mode) for mode in MODES}


@pytest.fixture(scope="module")
def pictures(runs) -> dict[str, Picture]:
    summaries = {mode: summarise(events) for mode, events in runs.items()}
    return {
        "timelines": timelines_svg(runs),
        "timeline": timeline_svg(runs["disaggregated"], end_s=3.0),
        "itl": itl_svg(runs),
        "itl over time": itl_over_time_svg(runs),
        "summary": summary_svg(usual_measures(summaries)),
    }


NAMES = ("timelines", "timeline", "itl", "itl over time", "summary")


@pytest.mark.parametrize("name", NAMES)
def test_well_formed_with_title_and_description(name: str, pictures) -> None:
    picture = pictures[name]
    root = ElementTree.fromstring(picture.svg)
    ids = {element.get("id"): element for element in root.iter() if element.get("id")}
    assert root.get("role") == "img" and root.get("width") == "1000"
    title, description = (ids[i] for i in (root.get("aria-labelledby") or "").split())
    assert title.text and description.text == picture.alt
    assert len(picture.alt) > 40
    assert set(re.findall(r"url\(#([^)]+)\)", picture.svg)) <= set(ids)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", picture.svg)
    assert "nan" not in picture.svg.lower().replace("nanosecond", "")


@pytest.mark.parametrize("name", NAMES)
def test_everything_lies_inside_the_picture(name: str, pictures) -> None:
    root = ElementTree.fromstring(pictures[name].svg)
    _, _, width, height = (float(part) for part in (root.get("viewBox") or "").split())
    for rect in root.iter(f"{SVG}rect"):
        if rect.get("width") == "100%":
            continue
        x, y, w, h = (float(rect.get(key) or "") for key in ("x", "y", "width", "height"))
        assert x >= 0 and y >= 0 and w > 0 and h > 0 and x + w <= width + 1 and y + h <= height
    for text in root.iter(f"{SVG}text"):
        left, right, y, _ = text_box(text)
        assert left >= 0 and right <= width + 4 and 0 < y <= height, text.text


def text_box(text: ElementTree.Element) -> tuple[float, float, float, float]:
    x, y, size = (float(text.get(key) or "") for key in ("x", "y", "font-size"))
    wide = text_width(text.text or "", size)
    left = x - {"start": 0.0, "middle": wide / 2, "end": wide}[text.get("text-anchor") or "start"]
    return left, left + wide, y, size


@pytest.mark.parametrize("name", NAMES)
def test_no_two_labels_overlap(name: str, pictures) -> None:
    boxes = [text_box(t) for t in ElementTree.fromstring(pictures[name].svg).iter(f"{SVG}text")]
    for n, (left, right, y, size) in enumerate(boxes):
        for other_left, other_right, other_y, _ in boxes[n + 1 :]:
            if abs(y - other_y) < 0.7 * size:
                assert right <= other_left + 1 or other_right <= left + 1


@pytest.mark.parametrize("name", NAMES)
def test_table_has_the_numbers_and_one_cell_per_column(name: str, pictures) -> None:
    picture = pictures[name]
    assert picture.rows and all(len(row) == len(picture.columns) for row in picture.rows)
    shown = picture._repr_html_()
    assert picture.svg in shown and "<details>" in shown and 'scope="col"' in shown


def test_same_run_same_bytes_and_ids_do_not_clash(pictures, runs, tmp_path: Path) -> None:
    again = timelines_svg(runs)
    assert again.svg == pictures["timelines"].svg
    path = again.save(tmp_path / "new folder" / "t.svg")
    assert path.read_text(encoding="utf-8") == again.svg
    ids = [set(re.findall(r'id="([^"]+)"', picture.svg)) for picture in pictures.values()]
    assert sum(map(len, ids)) == len(set.union(*ids))


def test_timeline_tells_the_freezes_and_handoffs(pictures, runs) -> None:
    picture = pictures["timelines"]
    longest = max(find_stalls(runs["colocated"]), key=lambda stall: stall.longest_s)
    label = f"frozen {longest.longest_s * 1000:,.0f} ms = {longest.tokens:.0f} tokens"
    assert label in picture.svg
    assert "12 hand-offs; no answer froze" in picture.alt
    assert picture.svg.count("<polygon") == 12 + 1  # one arrow each and one in the legend
    frozen = [row for row in picture.rows if row[2] == f"frozen by {longest.cause}"]
    assert any(float(row[4]) == pytest.approx(longest.longest_s * 1000, abs=0.06) for row in frozen)


def test_an_answer_that_waits_for_its_notes_is_not_frozen() -> None:
    """One answer, nobody else: its second token comes when its notes do."""

    def event(t_s: float, kind: str, worker: str, **data: object) -> Event:
        return Event(t_s, kind, worker, "r", data)

    events = [
        event(0.0, "arrived", ""),
        Event(0.0, "worker_started", "p", "", {"role": "prefill", "epoch": 1}),
        Event(0.0, "worker_started", "d", "", {"role": "decode", "epoch": 1}),
        event(0.2, "handoff_started", "p", target="d", bytes=1),
        event(0.5, "step", "p", start_s=0.0, prefill_tokens=64, decode_seqs=0),
        event(0.5, "token", "p"),
        event(1.4, "committed", "d"),
    ]
    for n in range(4):
        end_s = 1.5 + n / 10
        events.append(event(end_s, "step", "d", start_s=end_s - 0.05, decode_seqs=1))
        events.append(event(end_s, "token", "d"))
    lanes = read_lanes(events, 1)
    assert not lanes.stalls and [wait.longest_s for wait in lanes.waits] == [pytest.approx(1.0)]
    picture = timeline_svg(events)
    assert "1,000 ms: waits for notes" in picture.svg and "frozen" not in picture.svg
    assert "waits for notes: 1, longest 1,000 ms" in picture.alt
    busy = [*events, event(0.6, "prefill_started", "d"), event(1.3, "prefill_finished", "d")]
    assert read_lanes(busy, 1).stalls and not read_lanes(busy, 1).waits


def test_phases_differ_by_pattern_not_only_colour(pictures) -> None:
    patterns = set(re.findall(r'<pattern id="p\w+-(\w+)-', pictures["timelines"].svg))
    assert patterns == {"stripes", "dots", "crosses"}
    dashes = set(re.findall(r'stroke-dasharray="([^"]+)"', pictures["itl"].svg))
    assert {"7 4", "2 3"} <= dashes


def test_runs_show_the_same_answers(runs) -> None:
    svg = timelines_svg(runs, sequences=3).svg
    names = re.findall(r">(chat-\d+|document-\d+)</text>", svg)
    assert len(names) == 9 and names[:3] == names[3:6] == names[6:]


def test_window_cuts_and_labels_fit(runs) -> None:
    lanes = read_lanes(runs["colocated"], 6, start_s=1.0, end_s=3.0)
    assert all(b.end_s > 1.0 and b.start_s < 3.0 for bs in lanes.blocks.values() for b in bs)
    assert lanes.stalls and all(stall.start_s < 3.0 for stall in lanes.stalls)
    narrow, wide = (timeline_svg(runs["colocated"], start_s=0, end_s=end) for end in (9.0, 3.0))
    assert "1,024 tok<" in narrow.svg and "prefill 1,024 tokens" in wide.svg
    with pytest.raises(ValueError, match="move end_s"):
        timeline_svg(runs["colocated"], start_s=5.0, end_s=5.0)


def test_clock_offset_does_not_matter(runs) -> None:
    def shift(event: Event) -> Event:
        data = dict(event.data)
        if "start_s" in data:
            data["start_s"] = float(data["start_s"]) + 4096.0
        return Event(event.t_s + 4096.0, event.kind, event.worker, event.request_id, data)

    moved = [shift(event) for event in runs["chunked"]]
    rows, others = timeline_svg(runs["chunked"]).rows, timeline_svg(moved).rows
    assert [row[:3] for row in rows] == [row[:3] for row in others]
    for row, other in zip(rows, others, strict=True):  # printed to 1 ms and 0.1 ms
        assert float(other[3]) == pytest.approx(float(row[3]), abs=0.0011)
        assert float(other[4]) == pytest.approx(float(row[4]), abs=0.11)


def test_summary_marks_the_best_in_words() -> None:
    speed = Measure("speed", "tok/s", {"a": 5.0, "b": 7.0, "c": 7.0}, "higher")
    delay = Measure("delay", "ms", {"a": 1.5, "b": None, "c": 3.0}, digits=1)
    picture = summary_svg([speed, delay])
    assert picture.rows == (
        ("speed", "5 tok/s", "7 tok/s", "7 tok/s"),
        ("delay", "1.5 ms", "none", "3.0 ms"),
    )
    assert picture.svg.count("(best)") == 3  # two share the first, one has the second
    assert summary_svg([Measure("x", "", {"a": 1.0, "b": 1.0})]).svg.count("(best)") == 0
    with pytest.raises(ValueError, match="nothing to compare"):
        summary_svg([])


def test_hostile_names_are_escaped(runs) -> None:
    nasty = '<script>"&'
    picture = timelines_svg({nasty: runs["chunked"]}, title=nasty)
    ElementTree.fromstring(picture.svg)
    assert "<script>" not in picture._repr_html_()


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        timelines_svg({"empty": []})
    with pytest.raises(ValueError, match="no token gaps"):
        itl_svg({"empty": []})
    with pytest.raises(ValueError, match="no token gaps"):
        itl_over_time_svg({})


def test_ticks_and_shortening() -> None:
    assert nice_ticks(0, 10) == [0, 2, 4, 6, 8, 10]
    assert nice_ticks(0.95, 1.55, 3) == pytest.approx([1.0, 1.2, 1.4])
    assert nice_ticks(3, 3) == [3]
    assert shorten("a-very-long-worker-name", 60, 12).endswith("…")
    assert shorten("w", 60, 12) == "w"


def test_empty_fill_needs_no_pattern() -> None:
    canvas = Canvas(10)
    canvas.rect(0, 0, 5, 5, "#fff")
    assert "<pattern" not in canvas.render(10, "t", "a")
