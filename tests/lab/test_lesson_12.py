"""Lesson 12's parts: bills by hand, the ledger, recorded figures, and its own small simulator."""

import json
from dataclasses import replace
from functools import partial

import pytest

from course.build import ROOT
from course.source import read_cells
from minipd.fleet.fleet import Fleet, WorkerKind
from minipd.fleet.simulate import Simulation
from minipd.fleet.sources import equal_requests
from minipd.fleet.timers import PointTimer
from minipd.lab import bill_dial, claims
from minipd.lab import fleet_runs as fleet
from minipd.sched.limits import Limits
from minipd.sched.step_times import interpolate

EASY = bill_dial.Pools(1, 9, 10_000.0, 10_000.0, 1.0, prompt=1000)


def recorded():
    return json.loads((ROOT / "benchmarks" / "raw" / "lesson_12.json").read_text("utf-8"))


def test_published_costs_come_out():
    deepseek = bill_dial.bill_of(bill_dial.DEEPSEEK_96, 100)
    assert deepseek.advertised == pytest.approx(0.1995, abs=5e-5)
    assert deepseek.everybody == pytest.approx(0.266, abs=5e-4)
    kimi = bill_dial.bill_of(bill_dial.KIMI_128, 100)
    assert kimi.advertised == pytest.approx(0.213, abs=5e-4)
    assert kimi.everybody == pytest.approx(0.284, abs=5e-4)


def test_the_slower_pool_decides_the_bill():
    # 10 requests/s are read, 900 of 100 tokens could be written: 1,000 tokens/s for 80 dollars/h.
    assert EASY.requests_per_s(100) == pytest.approx(10.0)
    assert bill_dial.bill_of(EASY, 100).matched == pytest.approx(80 / 3.6)
    assert EASY.writers_busy(100) == pytest.approx(1000 / 90_000)
    rich = replace(EASY, reads_tok_s=1e12)
    bill = bill_dial.bill_of(rich, 100)
    assert bill.matched == pytest.approx(bill.everybody)


def test_published_balance():
    # Facts 1.3: 78.5 requests/s at 100 tokens, the decode pool 3.9 % busy.
    assert bill_dial.DEEPSEEK_96.requests_per_s(100) == pytest.approx(78.45, abs=0.01)
    assert bill_dial.DEEPSEEK_96.writers_busy(100) == pytest.approx(0.039, abs=5e-4)
    assert bill_dial.KIMI_128.writers_busy(100) == pytest.approx(0.039, abs=5e-4)


def test_the_dial_says_the_same_in_words_in_the_table_and_in_the_picture():
    dial = bill_dial.BillDial(bill_dial.DEEPSEEK_96, 100)
    assert "USD 6.80" in dial.result.value and "role='status'" in dial.result.value
    assert '<img alt="Three bars.' in dial.result.value
    dial.readers.value = 9
    assert "9 prefill and 9 decode nodes" in dial.result.value and "USD 3.40" in dial.result.value
    dial.price.value, dial.answer.value = 4.0, 4000
    assert "USD 4 per GPU-hour" in dial.result.value and "4,000 out" in dial.result.value
    table = bill_dial.bill_table(bill_dial.DEEPSEEK_96)
    assert table["all GPUs, both pools' rate (USD)"][1] == "6.80"
    for slider in (dial.readers, dial.writers, dial.price, dial.answer):
        assert slider.tooltip and slider.description


def test_the_ledger_computes_what_facts_derived():
    told = {claim.says[:20]: claim.computed() for claim in claims.CLAIMS}
    assert told["DeepSeek runs 32 GPU"] == "95.5 and 131.4 nodes: 1 to 1.38"
    assert sum(claims.fleet_nodes()) == pytest.approx(226.75, rel=1e-3)
    assert claims.kimi_step_s() == pytest.approx(0.160)
    assert claims.times_as_much(498) == pytest.approx(5.98)
    assert claims.explained(10) == 1.0 and claims.explained(10**0.5) == pytest.approx(0.5)
    for table in (claims.claims_table(), claims.claims_table(computed=False)):
        assert {len(column) for column in table.values()} == {len(claims.CLAIMS)}
        assert all(str(cell).strip() for column in table.values() for cell in column)


def test_every_claim_without_a_source_says_so():
    words = ("unsourced", "unverified")
    unsourced = [claim.says for claim in claims.CLAIMS if claim.verdict in words]
    assert len(unsourced) == 3
    assert {claim.told_by.split(",")[0] for claim in claims.CLAIMS} == {
        "module",
        "announcement",
        "vendor",
    }


def test_the_fleet_has_the_gpus_of_the_claim():
    steps = fleet.steps_on()
    assert fleet.node_fleet(steps, 4, 40).num_devices == 352 == 8 * fleet.NODES
    reads, writes = fleet.node_rates(steps)
    assert [reads, writes] == pytest.approx(recorded()["placed"]["requests_per_s_of_a_node"])


def test_another_place_for_the_same_gpus_serves_several_times_as_many():
    for served in (recorded()["placed"][name] for name in ("as_in_the_lesson", "a_minute")):
        unit, _, matched = served
        assert (unit["readers"], unit["writers"]) == (4, 40)
        assert unit["attainment"] >= 0.9 and matched["attainment"] >= 0.9, "both keep the promise"
        assert matched["rate_per_s"] > 5 * unit["rate_per_s"]


@pytest.mark.slow
def test_plans_are_those_of_the_record():
    for limit in (0.03, 0.2):
        plans = fleet.plan_for(limit)
        gpus = {mode: plan.gpus for mode, plan in plans.items()}
        assert gpus == recorded()["planned"]["gpus"][f"{limit:g}"]
    gains = {x: by["colocated"] / by["disaggregated"] for x, by in recorded_gpus().items()}
    assert gains["0.03"] > 1.5 > 1.3 > gains["0.2"] >= 1, "a gain depends on the limit"


def recorded_gpus():
    return recorded()["planned"]["gpus"]


def test_means_break_the_promise():
    kept = recorded()["planned"]["kept_promise_at_0.05"]
    split = kept["disaggregated, planned for 1 times the load"]
    assert split["equal"] >= 0.9 > max(split["varied"]), "all draws break what 90 % were promised"
    assert min(split["varied"]) < 0.75
    larger = kept["disaggregated, planned for 1.5 times the load"]
    for share, alone in zip(larger["varied"], larger["too_long_alone"]):
        assert share <= 1 - alone, "nobody whose prompt is too long alone can be in time"


def test_rows_that_vary_have_the_means_of_the_plan():
    work = fleet.plan_for(0.05)["disaggregated"].decode.speeds.work
    rows = fleet.varied_rows(work, 20_000)
    assert sum(r.prompt_tokens for r in rows) / len(rows) == pytest.approx(work.isl, rel=0.03)
    assert sum(r.output_tokens for r in rows) / len(rows) == pytest.approx(work.osl, rel=0.03)
    assert rows == fleet.varied_rows(work, 20_000) != fleet.varied_rows(work, 20_000, seed=1)
    assert [row.arrival_s for row in rows] == sorted(row.arrival_s for row in rows)


def notebooks_simulator():
    """The names that the lesson's own cells define, taken from its source."""
    cells = read_cells(ROOT / "course" / "lessons" / "12_fleets_and_audits" / "lesson.py")
    code = "\n".join(cell.source for cell in cells if cell.kind == "code")
    space = {}
    for first, last in (
        ("class Request", "from random import Random"),
        ("class Reserving", "ours = our_means(Reserving)"),
    ):
        start = code.index(first)
        exec(code[start : code.index(last, start)], space)
    return space


STEPS = ((1.0, 0.01), (64.0, 0.05))


@pytest.mark.parametrize("readers, writers", [(1, 1), (2, 1), (3, 2), (5, 7)])
def test_the_notebooks_simulator_agrees_with_the_engines_request_by_request(readers, writers):
    mine, rows = notebooks_simulator(), list(equal_requests(300, 100, 30, 12.0 * readers).rows)
    kind = WorkerKind(PointTimer(((1.0, 0.0006), (100.0, 0.06)), STEPS), 10**7)
    limits = Limits(max_running=10**4, max_batch_tokens=100)
    split = Fleet(kind, kind, "disaggregated", readers, writers, limits, chunk_tokens=10**6)
    first = {}

    def note(event):
        if event.kind == "token":
            first.setdefault(event.request_id, event.t_s)

    Simulation(split, on_event=note).run(rows)
    served = mine["serve"](
        [mine["Reader"](0.06) for _ in range(readers)],
        [mine["Reserving"](partial(interpolate, STEPS)) for _ in range(writers)],
        [row.arrival_s for row in rows],
        30,
    )
    assert sorted(first.values()) == pytest.approx(sorted(one.times[0] for one in served))
    assert {len(one.times) for one in served} == {30} and not any(one.left for one in served)
