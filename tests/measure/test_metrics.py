"""Metrics from events alone, against figures worked out by hand and against slower versions."""

from __future__ import annotations

import gc
import math
import statistics
import tracemalloc
from dataclasses import replace
from random import Random

import pytest

from minipd.measure import tools
from minipd.measure.invariants import check_timeline
from minipd.measure.metrics import RunMetrics, run_metrics, summarise
from minipd.measure.ordering import as_they_come, in_order, order_key
from minipd.measure.quantiles import Exact, Histogram, percentile
from minipd.measure.real_hardware import A100X8, H100X8
from minipd.measure.requests import RequestMetrics
from minipd.measure.slo import SLO, SLOError, highest_good_rate, splitwise_met
from minipd.measure.stalls import find_stalls, token_gaps, undisturbed_step_s
from minipd.timeline import Event
from tests.scripted_runs import scripted_run

MODES = ("colocated", "chunked", "disaggregated")


def split_life(name: str = "r", at_s: float = 10.0) -> list[Event]:
    """One request through two pools: 100 prompt tokens, 3 output tokens, all times round."""

    def event(offset_s: float, kind, worker: str = "", **data) -> Event:
        return Event(at_s + offset_s, kind, worker, name, data)

    return [
        event(0.0, "arrived", prompt_tokens=100, max_tokens=3),
        event(0.0, "routed", choice="remote", target="d", reason="long"),
        event(0.1, "reserved", "d", blocks=7, cached_tokens=0),
        event(0.5, "prefill_started", "p", tokens=100, cached_tokens=0, reason="prompt"),
        event(1.2, "handoff_started", "p", target="d", bytes=1000),
        event(1.5, "prefill_finished", "p", tokens=100, reason="prompt"),
        event(1.5, "token", "p", index=0, token_id=5),
        event(1.52, "handoff_finished", "p", target="d", bytes=1000, exposed_s=0.02, copy_s=0.1),
        event(1.6, "committed", "d", bytes=1000, verify_s=0.01),
        event(1.8, "token", "d", index=1, token_id=6),
        event(2.2, "token", "d", index=2, token_id=7),
        event(2.2, "finished", "d", reason="length", output_tokens=3),
    ]


def test_one_request_worked_by_hand() -> None:
    (request,) = run_metrics(split_life()).requests
    assert (request.outcome, request.reason, request.route) == ("finished", "length", "remote")
    assert (request.prompt_tokens, request.output_tokens) == (100, 3)
    assert request.ttft_s == pytest.approx(1.5)
    assert request.itl_s == pytest.approx((0.3, 0.4))
    assert request.tpot_s == pytest.approx(0.35)
    assert request.e2e_s == pytest.approx(2.2)
    assert request.queue_s == pytest.approx(0.5)
    assert request.prefill_s == pytest.approx(1.0)
    assert request.handoff_s == pytest.approx(0.4)
    assert request.commit_delay_s == pytest.approx(0.1)
    assert request.exposed_handoff_s == pytest.approx(0.03)
    assert request.handoff_bytes == 1000


def test_one_run_worked_by_hand() -> None:
    workers = [Event(0, "worker_started", name, "", {"role": role}) for name, role in
               (("p", "prefill"), ("d", "decode"))]  # fmt: skip
    steps = [
        Event(11.5, "step", "p", "", {"start_s": 10.5, "prefill_tokens": 100, "decode_seqs": 0}),
        Event(11.8, "step", "d", "", {"start_s": 11.7, "prefill_tokens": 0, "decode_seqs": 1}),
        Event(12.2, "step", "d", "", {"start_s": 12.1, "prefill_tokens": 0, "decode_seqs": 1}),
    ]
    summary = summarise([*steps, *workers, *split_life()], SLO(ttft_s=1.6, tpot_s=0.4))
    assert summary.duration_s == pytest.approx(2.2)
    assert summary.output_tokens_per_s == pytest.approx(3 / 2.2)
    assert summary.input_tokens_per_s == pytest.approx(100 / 2.2)
    assert summary.goodput_per_s == pytest.approx(1 / 2.2)
    assert summary.attainment == 1.0
    assert summary.pools == pytest.approx({"decode": 0.2 / 2.2, "prefill": 1.0 / 2.2})
    assert summary.handoffs.share_of_prefill == pytest.approx(0.11)
    assert summary.handoffs.exposed_share == pytest.approx(0.03 / 0.11)
    assert summary.undisturbed_step_s == pytest.approx(0.1)
    assert summary.stalled_share == 0.5  # 0.3 s is three steps, 0.4 s is more
    assert summary.percentile_ms("itl_s", "p50") == pytest.approx(350)
    assert summary.unreasoned_prefill_tokens == 0
    assert summary.to_dict()["latency"]["ttft_s"]["p99"] == pytest.approx(1.5)


@pytest.mark.parametrize("mode", MODES)
def test_order_of_delivery_does_not_matter(mode: str) -> None:
    events = scripted_run(mode)
    shuffled = events[:]
    Random(1).shuffle(shuffled)
    assert summarise(shuffled).to_dict() == summarise(events).to_dict()


def test_live_stream_is_put_in_order() -> None:
    events = in_order(scripted_run("disaggregated"))
    rng = Random(2)
    late = sorted(events, key=lambda event: event.t_s + 0.2 * rng.random())
    assert [order_key(event) for event in late] != sorted(map(order_key, late))
    mended = list(as_they_come(late, lag_s=0.25))
    assert [order_key(event) for event in mended] == [order_key(event) for event in events]
    assert summarise(mended).to_dict() == summarise(events).to_dict()


def test_keep_restricts_latencies_not_throughput() -> None:
    events = scripted_run("colocated")
    everyone, chats = summarise(events), summarise(events, keep=lambda i: i.startswith("chat"))
    assert chats.latency["ttft_s"].count == 10 and everyone.latency["ttft_s"].count == 12
    assert chats.output_tokens_per_s == everyone.output_tokens_per_s


@pytest.mark.parametrize("mode", MODES)
def test_histograms_agree_with_exact_lists(mode: str) -> None:
    events = in_order(scripted_run(mode))
    exact, flat = RunMetrics(exact=True), RunMetrics(exact=False)
    for event in events:
        exact.feed(event)
        flat.feed(event)
    one, other = exact.result(), flat.result()
    assert other.relative_error == 0.005 and not flat.requests
    for name, latency in one.latency.items():
        if latency is None:
            assert other.latency[name] is None
            continue
        for figure in ("mean", "p50", "p90", "p99", "max"):
            expected = getattr(latency, figure)
            assert getattr(other.latency[name], figure) == pytest.approx(expected, rel=0.0051)
    assert other.stalled_share == pytest.approx(one.stalled_share, abs=0.02)


def grown_bytes(metrics: RunMetrics, warm_up: int, requests: int) -> int:
    """Memory that `requests` more requests leave behind after the first `warm_up`."""
    rng = Random(8)
    tracemalloc.start()
    before = 0
    for number in range(warm_up + requests):
        if number == warm_up:
            gc.collect()  # also empties the interpreter's own stock of freed tuples
            before, _ = tracemalloc.get_traced_memory()
        for event in split_life(f"r{number}", number + 0.1 * rng.random()):
            metrics.feed(event)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert metrics.result().finished == warm_up + requests
    return after - before


@pytest.mark.slow
def test_memory_stays_flat_without_exact_lists() -> None:
    assert grown_bytes(RunMetrics(exact=False), 500, 1_500) < 20_000
    assert grown_bytes(RunMetrics(exact=True), 500, 500) > 100_000


def test_percentile_is_numpys_default() -> None:
    assert percentile([4.0, 1.0, 2.0, 3.0], 50) == 2.5
    assert percentile([10.0, 20.0], 99) == pytest.approx(19.9)
    assert percentile([7.0], 99) == 7.0
    values = [Random(n).random() for n in range(1, 102)]
    hundredths = statistics.quantiles(values, n=100, method="inclusive")
    assert [percentile(values, p) for p in range(1, 100)] == pytest.approx(hundredths)
    with pytest.raises(ValueError, match="at least one"):
        percentile([], 50)


@pytest.mark.parametrize("error", [0.005, 0.05])
def test_histogram_keeps_its_promised_error(error: float) -> None:
    rng = Random(5)
    values = [rng.lognormvariate(-3, 2) for _ in range(20_000)] + [0.0] * 50
    flat = Histogram(error)
    for value in values:
        flat.add(value)
    for p in (0, 0.1, 25, 50, 90, 99, 99.9, 100):
        assert flat.percentile(p) == pytest.approx(percentile(values, p), rel=error, abs=1e-9)
    assert flat.total == pytest.approx(sum(values))
    assert flat.num_buckets < 2_600
    assert flat.share_above(0.2) == pytest.approx(Exact(values).share_above(0.2), abs=0.01)
    assert math.isnan(Histogram().percentile(50)) and math.isnan(Exact().share_above(1))


def answer(**changes) -> RequestMetrics:
    good = RequestMetrics("r", "finished", "eos", 0, 10, 3, 1.0, 0.1, (0.05, 0.15), 1.2)
    return replace(good, **changes)


@pytest.mark.parametrize(
    ("slo", "request_", "met"),
    [
        (SLO(), answer(), True),
        (SLO(ttft_s=1.0), answer(), True),  # at the limit is within it
        (SLO(ttft_s=0.99), answer(), False),
        (SLO(tpot_s=0.09), answer(), False),
        (SLO(e2e_s=1.1), answer(), False),
        (SLO(itl_p99_s=0.1), answer(), False),
        (SLO(itl_p99_s=0.15), answer(), True),
        (SLO(ttft_s=2), answer(outcome="failed"), False),
        (SLO(tpot_s=0.01), answer(tpot_s=None, itl_s=(), output_tokens=1), True),
        (SLO(tpot_s=9, one_token="fails"), answer(tpot_s=None, itl_s=()), False),
    ],
)
def test_slo(slo: SLO, request_: RequestMetrics, met: bool) -> None:
    assert slo.met_by(request_) is met


def test_slo_refuses_nonsense() -> None:
    for limit in (-1.0, 0.0, float("nan"), float("inf")):
        with pytest.raises(SLOError, match="above 0"):
            SLO(ttft_s=limit)


def test_attainment_counts_faults_but_not_users_who_left() -> None:
    def ended(name: str, kind, reason: str) -> list[Event]:
        arrived = Event(0.0, "arrived", "", name, {"prompt_tokens": 1})
        return [arrived, Event(1.0, kind, "w", name, {"reason": reason})]

    events = split_life("good", 0.0)
    events += ended("left", "cancelled", "cancelled") + ended("late", "cancelled", "deadline")
    events += ended("lost", "failed", "worker died")
    events.append(Event(0.5, "arrived", "", "open", {"prompt_tokens": 1}))
    summary = summarise(events, SLO(ttft_s=5))
    assert summary.attainment == pytest.approx(1 / 3)
    assert (summary.finished, summary.cancelled, summary.failed, summary.unfinished) == (1, 2, 1, 1)


def test_empty_timeline_has_no_numbers() -> None:
    summary = summarise([])
    assert summary.attainment is None and summary.latency["ttft_s"] is None
    assert summary.output_tokens_per_s == 0.0 and summary.stalled_share == 0.0


def test_goodput_of_a_sweep_and_splitwise_percentiles() -> None:
    assert highest_good_rate([(3, 0.5), (1, 1.0), (2, 0.9), (4, 0.95)]) == 2
    assert highest_good_rate([(1, 0.2)]) is None
    fine = {"ttft": [1.0] * 98 + [5.0] * 2, "tbt": [1.1] * 100, "e2e": [1.2] * 100}
    assert splitwise_met(fine)
    assert not splitwise_met(fine | {"tbt": [1.3] * 100})


# Silent re-prefill --------------------------------------------------------------------------------
def decode_worker(*events: Event) -> int:
    start = Event(0.0, "worker_started", "d", "", {"role": "decode", "epoch": 1})
    return summarise([start, *events]).unreasoned_prefill_tokens


def step_of(tokens: int) -> Event:
    return Event(2.0, "step", "d", "", {"start_s": 1.0, "prefill_tokens": tokens})


def prefill_for(reason: str) -> Event:
    return Event(1.0, "prefill_started", "d", "r", {"tokens": 64, "reason": reason})


@pytest.mark.parametrize("reason", ["local", "preempted", "recovered"])
def test_reasoned_prefill_on_a_decode_worker_is_fine(reason: str) -> None:
    assert decode_worker(prefill_for(reason), step_of(64)) == 0


def test_silent_prefill_is_counted() -> None:
    assert decode_worker(prefill_for("prompt"), step_of(64)) == 64
    assert decode_worker(prefill_for(""), step_of(64)) == 64
    assert decode_worker(step_of(48)) == 48  # never announced at all
    assert decode_worker(prefill_for("local"), step_of(100)) == 36


def test_roles_are_implied_where_nobody_told_them() -> None:
    reserved = Event(0.5, "reserved", "d", "r", {"blocks": 4})
    summary = summarise([reserved, prefill_for("prompt"), step_of(64)])
    assert summary.unreasoned_prefill_tokens == 64 and set(summary.pools) == {"decode"}
    told = Event(0.0, "worker_started", "d", "", {"role": "both"})
    assert summarise([told, reserved, prefill_for("prompt")]).unreasoned_prefill_tokens == 0


# Freezes ------------------------------------------------------------------------------------------
def test_freezes_have_their_length_cause_and_price_in_tokens() -> None:
    events = scripted_run("colocated")
    step_s = undisturbed_step_s(events)
    stalls = find_stalls(events)
    longest = max(stalls, key=lambda stall: stall.longest_s)
    assert longest.cause.startswith("document") and longest.cause_tokens == 1024
    assert longest.longest_s == pytest.approx(1.0e-3 * 1.2 * 1024, abs=0.15)
    assert longest.tokens == pytest.approx(longest.longest_s / step_s)
    assert find_stalls(scripted_run("disaggregated")) == []


def test_stalled_share_is_the_slow_count() -> None:
    events = scripted_run("chunked")
    step_s = undisturbed_step_s(events)
    lengths = [gap.length_s for gap in token_gaps(events)]
    for k in (2.0, 3.0, 4.0):
        slow = sum(length > k * step_s for length in lengths) / len(lengths)
        assert summarise(events, k=k).stalled_share == pytest.approx(slow)
        found = find_stalls(events, k=k)
        assert sum(len(s.requests) for s in found) == round(slow * len(lengths))


def test_one_yardstick_for_several_runs() -> None:
    events = scripted_run("colocated")
    assert find_stalls(events, undisturbed_s=10.0) == []
    assert summarise(events, undisturbed_s=10.0).stalled_share == 0.0
    assert find_stalls([]) == []


def test_freeze_in_tokens_on_real_hardware() -> None:
    """Facts 2.2: 512 tokens freeze 2 steps of a 70B model on 8 H100, 8,192 tokens 27."""
    assert H100X8.freeze_tokens(512) == pytest.approx(1.8, abs=0.05)
    assert H100X8.freeze_tokens(8192) == pytest.approx(27, abs=0.5)
    assert A100X8.prefill_ms(1536) == pytest.approx((154.5 + 274) / 2)
    assert A100X8.prefill_ms(10_240) == pytest.approx(1550 + 889 / 2)
    assert A100X8.prefill_ms(10) == 94.3
    assert H100X8.decode_ms(512, batch=64) == pytest.approx(50.2)
    assert H100X8.freeze_tokens(512, batch=64) < H100X8.freeze_tokens(512)


# Other tools --------------------------------------------------------------------------------------
WORKED = tools.Stream(
    0.0, (tools.Chunk(1.0), tools.Chunk(1.040), tools.Chunk(1.327, tokens=3)), prompt_tokens=50
)
ONE = tools.Stream(0.0, (tools.Chunk(0.5),))


def test_one_stream_four_answers() -> None:
    """Facts section 4, trap 5."""
    assert tools.vllm_tpot(WORKED) == pytest.approx(0.08175)
    assert tools.vllm_itl(WORKED) == pytest.approx([0.040, 0.287])
    assert statistics.fmean(tools.vllm_itl(WORKED)) == pytest.approx(0.1635)
    assert tools.genai_perf_itl(WORKED) == pytest.approx([0.040, 0.287 / 3])
    assert statistics.fmean(tools.genai_perf_itl(WORKED)) == pytest.approx(0.06783, abs=5e-6)
    assert tools.sglang_itl(WORKED) == pytest.approx([0.040] + [0.287 / 3] * 3)
    assert statistics.fmean(tools.sglang_itl(WORKED)) == pytest.approx(0.08175)
    assert tools.aiperf_itl(WORKED) == tools.vllm_tpot(WORKED)
    assert tools.aiperf_icl(WORKED) == tools.vllm_itl(WORKED)
    assert tools.aiperf_tokens_per_s_per_user(WORKED) == pytest.approx(1 / 0.08175)
    assert tools.aiperf_ttst(WORKED) == pytest.approx(0.040)
    assert tools.aiperf_prefill_tokens_per_s(WORKED) == pytest.approx(50)
    assert tools.aiperf_throughput([WORKED, ONE]) == pytest.approx(6 / 1.327)
    assert tools.sglang_concurrency([WORKED, ONE], 2.0) == pytest.approx(1.827 / 2)


def test_single_token_rules_differ() -> None:
    assert tools.vllm_tpot(ONE) is None and tools.aiperf_itl(ONE) is None
    assert tools.distserve_tpot(ONE) == 0.0 and tools.mooncake_tbt(ONE) is None
    assert tools.vllm_meets(ONE, 1.0, 0.01) and not tools.aiperf_meets(ONE, 1.0, 0.01)
    assert not tools.vllm_meets(ONE, 0.4, 0.01)
    assert tools.aiperf_meets(WORKED, 1.0, 0.09) and not tools.aiperf_meets(WORKED, 1.0, 0.08)
    assert tools.aiperf_ttst(ONE) is None and tools.aiperf_tokens_per_s_per_user(ONE) is None


def test_role_chunk_counts_for_some_tools_only() -> None:
    role = tools.Chunk(0.2, tokens=0, has_text=False)
    stream = tools.Stream(0.0, (role, *WORKED.chunks))
    assert tools.first_chunk_ttft(stream) == pytest.approx(0.2)
    assert tools.first_text_ttft(stream) == pytest.approx(1.0)
    assert tools.sglang_itl(stream) == pytest.approx(tools.sglang_itl(WORKED))
    assert tools.first_text_ttft(tools.Stream(0.0, (role,))) is None
    with pytest.raises(ValueError, match="at least one chunk"):
        tools.Stream(0.0, ())


def test_tails_and_rates() -> None:
    times = [0.0]
    for gap in [0.1] * 18 + [0.5, 0.9]:
        times.append(times[-1] + gap)
    stream = tools.Stream(0.0, tuple(tools.Chunk(t) for t in times))
    assert tools.mooncake_tbt(stream) == pytest.approx(0.7)  # the longest 2 of 20
    gaps = [0.1] * 18 + [0.5, 0.9]
    assert tools.sarathi_p99_tbt([stream]) == pytest.approx(percentile(gaps, 99))
    mean, deviation = tools.llama_bench(100, [1.0, 2.0])
    assert (mean, deviation) == pytest.approx((75.0, 35.3553), abs=1e-4)
    assert mean > 100 / 1.5  # the rate of the mean time is another number
    assert tools.llama_bench(100, [2.0]) == (50.0, 0.0)


def test_streams_of_a_timeline_agree_with_our_own_metrics() -> None:
    events = scripted_run("disaggregated")
    ours = {request.id: request for request in run_metrics(events).requests}
    seen = tools.streams(events)
    assert len(seen) == len(ours) == 12
    by_start = {(stream.start_s, stream.prompt_tokens): stream for stream in seen}
    for request in ours.values():
        stream = by_start[request.arrival_s, request.prompt_tokens]
        assert tools.vllm_tpot(stream) == pytest.approx(request.tpot_s)
        assert tools.first_chunk_ttft(stream) == pytest.approx(request.ttft_s)
        assert tools.vllm_itl(stream) == pytest.approx(request.itl_s)


# Invariants ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", MODES)
def test_sound_timelines_have_no_violation(mode: str) -> None:
    events = scripted_run(mode)
    Random(3).shuffle(events)
    assert check_timeline(events) == []
    assert check_timeline(split_life()) == []


def without(kind: str, nth: int = 0) -> list[Event]:
    events = split_life()
    hits = [n for n, event in enumerate(events) if event.kind == kind]
    return events[: hits[nth]] + events[hits[nth] + 1 :]


LATE_TOKEN = Event(12.3, "token", "d", "r", {"index": 3})
DECODE_ROLE = Event(0.0, "worker_started", "p", "", {"role": "decode"})
BROKEN = {
    "no terminal": (without("finished"), {"terminal"}),
    "two terminals": ([*split_life(), Event(12.3, "failed", "d", "r")], {"terminal"}),
    "token after the end": ([*split_life(), LATE_TOKEN], {"after-terminal"}),
    "token lost": (without("token", 1), {"token-order"}),
    "last token lost": (without("token", 2), {"token-count"}),
    "no commit": (without("committed"), {"no-kv"}),
    "no prefill": (without("prefill_started"), {"no-kv"}),
    "no arrival": (without("arrived"), {"arrival"}),
    "arrived twice": ([split_life()[0], *split_life()], {"arrival"}),
    "silent prefill": ([DECODE_ROLE, *split_life()], {"silent-prefill"}),
    "finished in silence": (
        [e for e in split_life() if e.kind != "token"], {"no-token", "token-count"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_each_violation_is_found(name: str) -> None:
    events, rules = BROKEN[name]
    found = check_timeline(events)
    assert {violation.rule for violation in found} == rules
    assert all(violation.request_id == "r" and violation.message for violation in found)


def test_running_requests_may_still_be_open() -> None:
    assert check_timeline(without("finished"), running=True) == []


def test_token_after_preemption_needs_a_new_prefill() -> None:
    events = split_life()
    preempted = Event(11.9, "preempted", "d", "r", {"cached_tokens": 101})
    assert {v.rule for v in check_timeline([*events, preempted])} == {"no-kv"}
    again = Event(12.0, "prefill_started", "d", "r", {"tokens": 102, "reason": "preempted"})
    assert check_timeline([*events, preempted, again]) == []
