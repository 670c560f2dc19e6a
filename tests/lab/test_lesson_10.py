"""Lesson 10's parts: the three ways to a ratio on a pace with easy numbers."""

import json

import pytest

from course.build import ROOT
from minipd.lab import pool_ratio as ratio
from minipd.measure.slo import SLO
from minipd.pools.paced import Pace

# 0.1 s for 100 prompt tokens; a decode step of 0.1 s whatever the batch.
PACE = Pace(((1.0, 0.001), (1000.0, 1.0)), ((1.0, 0.1), (16.0, 0.1)))
KIND = ratio.Kind("easy", 100, 17)


def test_rates_by_hand():
    reads, writes = ratio.worker_rates(PACE, KIND, tpot_s=0.1)
    assert reads == pytest.approx(10.0)
    assert writes == pytest.approx(16 / (0.1 * 16))
    promised = {s: ratio.matched_rate(PACE, KIND, 0.1, s) for s in ratio.splits(4)}
    assert promised == {(1, 3): 10.0, (2, 2): pytest.approx(20.0), (3, 1): 10.0}
    assert ratio.best(promised) == (2, 2)


def test_a_limit_that_no_step_keeps_leaves_no_writer():
    assert ratio.worker_rates(PACE, KIND, tpot_s=0.05)[1] == 0.0


def test_the_queue_takes_its_share_only_where_prefill_is_short():
    slo = SLO(ttft_s=0.2, tpot_s=0.1)
    assert ratio.queued_rate(PACE, KIND, slo, (3, 1)) == pytest.approx(10.0)
    # Half of D under the line: D + R D^2 / (2 (1 - R D)) = 2 D at R D = 2/3.
    assert ratio.queued_rate(PACE, KIND, slo, (1, 3)) == pytest.approx(6.6)


def test_stretching_time_changes_no_ratio():
    slow, factor = ratio.lesson_pace(PACE)
    assert factor == pytest.approx(ratio.READ_S / 0.256, rel=0.01)
    for pace in (PACE, slow):
        reads, writes = ratio.worker_rates(pace, KIND, tpot_s=1.0)
        assert reads / writes == pytest.approx(1.0)


def test_goodput_is_read_off_the_line_between_two_rates():
    shares = [(10.0, 1.0), (20.0, 0.8), (30.0, 0.95)]
    points = [{"split": "1P1D", "rate": r, "seed": 0, "attainment": a} for r, a in shares]
    assert ratio.swept_rates(points) == {(1, 1): pytest.approx(15.0)}, "a later luck is no goodput"
    assert ratio.swept_rates(points[1:]) == {(1, 1): 0.0}


def test_a_goodput_below_the_lowest_rate_is_shown_as_such():
    points = [{"split": "1P3D", "rate": rate} for rate in (9.0, 6.4)]
    points.append({"split": "3P1D", "rate": 2.0})
    assert ratio.rate_text(0.0, (1, 3), points) == "< 6.4"
    assert ratio.rate_text(7.96, (1, 3), points) == "8.0"


def test_one_rate_is_above_what_was_promised():
    """Else no promise could turn out too low."""
    assert ratio.SHARES[0] <= 0.5 and ratio.SHARES[-1] > 1.0


def test_requests_come_in_the_order_of_the_kinds():
    asked = ratio.requests_at([(ratio.CHAT, 2.0), (ratio.DOCUMENT, 2.0)], 5.0, 100, seed=1)
    names = [request.id.split("-")[0] for request in asked]
    assert names == sorted(names) and set(names) == {"chat", "document"}
    assert all((r.arrival_s > 2.0) == r.id.startswith("document") for r in asked)


def test_the_recorded_choice_stands_in_the_raw_file():
    record = json.loads((ROOT / "benchmarks" / "raw" / "lesson_10.json").read_text())
    assert set(record["chosen"].values()) == {"3P1D"}
    best, chosen = record["requests_per_s"]["measured"], record["chosen"]["rate_matching"]
    assert best[chosen] >= 0.9 * max(best.values()), "the bar of the lesson"
