"""Lesson 13's helpers: the trace, the ways back, an idle session's price, the fleet's stores."""

from __future__ import annotations

import importlib
import json
import math
from dataclasses import replace

import pytest

from course.build import ROOT
from minipd.fleet.kvpool import block_names
from minipd.lab import idle_session as idle
from minipd.lab import kept_in_fleet as fleet
from minipd.lab import kv_places as places
from minipd.lab import shared_beginnings as shared
from minipd.measure.rows import Segment, TraceRow
from minipd.measure.trace_stats import describe, prefix_hits
from minipd.model.load import load

RAW = ROOT / "benchmarks" / "raw" / "lesson_13.json"


def test_the_trace_has_the_published_shape_and_is_the_same_each_time():
    rows = shared.synthetic_rows(1000)
    assert rows == shared.synthetic_rows(1000) != shared.synthetic_rows(1000, seed=14)
    stats = describe(rows)  # published: 65.1 %, 43.2 %, 15,325 tokens, 3.9 per second
    assert stats.prefix_hits.token_weighted == pytest.approx(0.651, abs=0.03)
    assert stats.prefix_hits.per_request == pytest.approx(0.432, abs=0.04)
    assert stats.prompt.mean == pytest.approx(15_325, rel=0.1)
    assert stats.rate_per_s == pytest.approx(3.9, rel=0.05)


def found_slowly(rows, size):
    """An LRU cache as a plain list, newest last."""
    held, found = [], 0
    for row in rows:
        names = block_names(row, shared.BLOCK)
        for name in names:
            if name not in held:
                break
            found += shared.BLOCK
        for name in reversed(names):
            if name in held:
                held.remove(name)
            held.append(name)
        held = held[-size:] if size else []
    return found


def test_hit_shares_agree_with_a_slow_count_and_grow_to_the_endless_cache():
    rows = shared.synthetic_rows(60)
    total = sum(row.prompt_tokens for row in rows)
    sizes = [1, 20, 100, 400, 10**6]
    shares = shared.lru_hit_shares(rows, sizes)
    for size, share in zip(sizes[:4], shares):
        assert share == pytest.approx(found_slowly(rows, size) / total)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(prefix_hits(rows).token_weighted, abs=0.02)


def test_the_real_file_is_read_where_it_is(tmp_path, monkeypatch):
    monkeypatch.delenv(shared.VARIABLE, raising=False)
    assert shared.real_trace(tmp_path) is None
    line = {"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}
    (tmp_path / "synthetic_trace.jsonl").write_text(json.dumps(line) + "\n")
    rows = shared.real_trace(tmp_path)
    assert rows is not None and rows[0].prompt_tokens == 600
    monkeypatch.setenv(shared.VARIABLE, str(tmp_path / "elsewhere.jsonl"))
    assert shared.real_trace(tmp_path) is None, "the named file counts, not its neighbour"


def test_a_hot_document_is_in_every_second_prompt():
    rows = shared.with_a_hot_document(shared.synthetic_rows(20))
    hot = [row.segments[0].stream == "everybody's document" for row in rows]
    assert hot == [number % 2 == 1 for number in range(len(rows))]


def test_the_curve_has_words_and_numbers(monkeypatch):
    pages = []
    monkeypatch.setattr(importlib.import_module("minipd.lab.show"), "display_html", pages.append)
    shared.show_hit_curve([10, 100], [0.1, 0.5], most=0.6)
    assert "from 10% with 10 GB to 50% with 100 GB; at most 60%." in pages[0]
    assert "<table>" in pages[0]


def test_ways_back_are_timed_and_told():
    config = load("tiny").config
    ways = places.ways_back(config, tokens=64)
    names = [way.place for way in ways]
    assert names[:2] == ["memory, copied", "disk, read"] and "1 Gb/s" in names[3]
    assert all(way.num_bytes >= 64 * config.kv_bytes_per_token(4) for way in ways)
    table = places.ways_table(ways, 64, config.kv_bytes_per_token(4), tokens_per_s=1000.0)
    assert table["ms per token"][-1] == "1.0000" and table["times sooner"][-1] == "1"


def test_an_emulated_cable_takes_at_least_its_time():
    config = load("tiny").config
    way = places.from_elsewhere(config, 4096, "eth1")
    assert way.seconds >= way.num_bytes / 0.125e9


def test_the_bar_is_bytes_of_kv_per_second_of_reading():
    reader = places.Reader("easy", 1000.0, {100: 0.5})
    assert reader.needed_bytes_per_s(100) == pytest.approx(200_000.0)
    real = places.reader_of("Llama-3.1-8B", "h100_sxm")
    bars = [real.needed_bytes_per_s(n) for n in places.LENGTHS]
    assert bars[-1] < bars[0], "a longer prefix lowers the bar"
    slower = places.reader_of("Llama-3.1-8B", "a100_sxm")
    assert slower.needed_bytes_per_s(8192) < real.needed_bytes_per_s(8192)
    table = places.needed_table(46_080, 1500.0, timed=400)
    assert {len(column) for column in table.values()} == {1 + len(places.MACHINES)}
    here = [column[0] for column in table.values()]
    assert here == ["this machine", "0.07", "-", "-", "-"], "it was timed at one length only"


def test_on_the_same_gpus_the_smaller_model_needs_the_faster_way_back():
    small, large = (places.reader_of(f"Llama-3.1-{size}", "h100_sxm", 8) for size in ("8B", "70B"))
    assert small.needed_bytes_per_s(8192) > 2 * large.needed_bytes_per_s(8192)


def test_mooncake_s_thresholds_are_the_published_ones():
    assert places.mooncake_thresholds() == {
        "8 A800": pytest.approx(5.86, abs=0.01),
        "8 H800": pytest.approx(18.6, abs=0.05),
    }


@pytest.fixture
def session():
    """36 USD per hour and GPU: a second of waiting is a cent; 10 GB in a GPU of 100 GB."""
    return idle.Session("easy", 1000, 10.0, 2.0, 1, 100.0, 36.0, usd_host=0.06, usd_disk=0.006)


def test_costs_and_break_evens_by_hand(session):
    gpu, host, disk, again = session.places
    assert (gpu.usd_per_hour, host.usd_per_hour, disk.usd_per_hour) == pytest.approx(
        (3.6, 0.6, 0.06)
    )
    assert (host.back_s, disk.back_s, again.back_s) == (0.2, 2.0, 2.0)
    assert session.usd(host, 60) == pytest.approx(0.6 + 0.002)
    assert session.break_even_minutes(gpu, again) == pytest.approx(60 * 0.02 / 3.6)
    assert session.break_even_minutes(host, again) == pytest.approx(60 * 0.018 / 0.6)
    assert session.break_even_minutes(disk, again) == 0.0, "no sooner back, and rent on top"
    assert session.break_even_minutes(again, gpu) == math.inf


def test_the_cheapest_place_changes_at_the_break_even(session):
    gpu, host, _, again = session.places
    minutes = session.break_even_minutes(host, again)
    assert session.cheapest(0.001).name == gpu.name
    assert session.cheapest(0.99 * minutes).name == host.name
    assert session.cheapest(1.01 * minutes).name == again.name
    free = replace(session, usd_host=0.0)
    assert free.cheapest(10_000).name == host.name, "memory that costs nothing is never given up"
    assert free.cheaper_after(free.places[1])[0] == math.inf


def test_the_next_place_and_the_best_times_are_those_of_the_cheapest_place(session):
    gpu, host, disk, again = session.places
    assert session.cheaper_after(gpu) == (pytest.approx(60 * 0.002 / 3.0), host)
    assert session.cheaper_after(host) == (pytest.approx(60 * 0.018 / 0.6), again)
    assert session.cheaper_after(disk) == (0.0, again) and session.best_from(gpu) == 0.0
    quick = replace(session, prefill_s=20.0)
    sessions, minutes = [session, quick], [0.01 * 1.1**number for number in range(100)]
    for one in sessions:
        for place in one.places:
            start, (end, _) = one.best_from(place), one.cheaper_after(place)
            for when in minutes:
                assert (one.cheapest(when).name == place.name) == (start <= when < end)
    told = idle.best_table(sessions, "disk")["disk is the cheapest"]
    assert told == ["never", "from 2 min to 3 h"]  # 0.018 / 0.54 h; 0.18 / 0.06 h


def test_a_large_replica_fetches_in_parts():
    one, eight = (idle.session_of(name, 8192) for name in list(idle.MACHINES)[:2])
    assert eight.places[1].back_s == pytest.approx(eight.gigabytes / 8 / 50)
    assert one.gigabytes == pytest.approx(8192 * 131_072 / 1e9)
    table = idle.rent_table(one)
    assert len(table["keep it in"]) == 4 and table["cheaper after"][-1] == "-"
    assert "(host memory)" in table["cheaper after"][0]


def test_times_are_told_in_fitting_units():
    told = [idle.in_time(minutes) for minutes in (0.0, 0.03, 0.25, 5, 9.97, 150, math.inf)]
    assert told == ["at once", "1.8 s", "15 s", "5 min", "10 min", "2.5 h", "never"]


def test_the_dials_work_it_out_again_and_have_names():
    view = idle.IdleView("8B on one H100", 8_192, 10)
    assert "role='status'" in view.result.value and '<img alt="Four cost lines' in view.result.value
    before = view.result.value
    view.host.value = 0.0
    assert view.result.value != before and "cheapest is host memory" in view.result.value
    view.choose("70B on eight H100")
    assert "70B on eight H100, 8,192 tokens" in view.result.value
    dials = [view.tokens, view.minutes, view.gpu, view.host, view.disk]
    assert all(dial.description for dial in dials)
    view.gpu.value = -5.0
    assert view.session.usd_per_gpu_hour == 0.0, "nobody is paid for using a GPU"


def test_a_shelf_forgets_the_oldest_and_the_end_of_a_chain_first():
    shelf = fleet.Shelf(3, block_s=0.5)
    for name in (b"c", b"b", b"a"):
        shelf.keep(name)
    assert shelf.fetch([b"a", b"b", b"x", b"c"]) == (2, 1.0)
    shelf.keep(b"new")
    assert set(shelf.names) == {b"a", b"b", b"new"}, "c was used longest ago"
    shelf.keep(b"more")
    assert set(shelf.names) == {b"a", b"new", b"more"}, "the end of the chain goes first"
    assert (shelf.num_kept, shelf.num_fetched, shelf.most_held) == (5, 2, 3)


@pytest.fixture(scope="module")
def outcomes():
    """Few long documents, each asked about three times, with too many others in between."""
    texts = [Segment(f"text-{n % 41}", 30_000) for n in range(123)]
    rows = [TraceRow(4.0 * (n // 2), 30_200, 8, "", (text,)) for n, text in enumerate(texts)]
    ways = (fleet.FORGET, fleet.AT_PREFILL, fleet.SHARED, fleet.SLOW_STORE, fleet.AT_DECODE)
    return {way.name: fleet.serve(way, rows) for way in ways}


def test_each_store_saves_what_it_can(outcomes):
    forget, prefill, store, slow, decode = outcomes.values()
    assert prefill.tokens_read < forget.tokens_read
    assert store.tokens_read < prefill.tokens_read, "no document has to be read by both"
    assert decode.handoff_bytes < 0.75 * forget.handoff_bytes
    assert (forget.memory_gb, forget.store_bytes, decode.store_bytes) == (0, 0, 0)
    assert slow.store_bytes > 0 and slow.ttft_p90_s > store.ttft_p90_s
    table = fleet.outcome_table(outcomes.values())
    assert len(table["kept"]) == 5 and table["memory filled (GB)"][0] == "0"


def test_memory_and_traffic_meet_at_one_price(outcomes):
    forget, decode = outcomes[fleet.FORGET.name], outcomes[fleet.AT_DECODE.name]
    price = fleet.price_where_they_meet(forget, decode)
    saved_gb = 1e3 * (forget.network_tb_per_hour - decode.network_tb_per_hour)
    assert price * saved_gb == pytest.approx(decode.memory_gb * idle.HOST_USD)
    assert fleet.usd_per_gb(600.0, 2.0) == pytest.approx(0.3)


def test_the_quoted_figures_stand_in_the_raw_file():
    from course.facts import read_facts

    raw = json.loads(RAW.read_text())
    measured, computed = raw["measured"], raw["computed"]
    figures = {f"{measured['times_sooner']:.1f}"}
    figures |= {f"{one['ttft_p90_s']:.1f}" for one in computed["fleet"]}
    figures |= {f"{one['handoff_bytes'] / 1e12:.2f}" for one in computed["fleet"]}
    figures |= {f"{computed['meet_usd_per_gb']:.5f}"}
    quoted = set(read_facts(ROOT / "course" / "facts.yaml")["lesson-13-recorded"].figures)
    year, _, day = raw["date"][:10].split("-")
    assert quoted - figures == {day, year, "90"}, "the date and the percentile"


def test_the_computed_part_of_the_record_is_what_the_code_computes():
    raw = json.loads(RAW.read_text())["computed"]
    hits = prefix_hits(shared.synthetic_rows(1000))
    assert raw["hits"]["tokens"] == pytest.approx(hits.token_weighted)
    assert raw["mooncake_thresholds_gb_per_s"] == pytest.approx(places.mooncake_thresholds())
