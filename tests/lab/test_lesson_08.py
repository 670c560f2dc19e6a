"""Lesson 08: links and copies, the break-even and its widget, and the figures that prose quotes."""

import importlib
import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from course.build import ROOT
from course.facts import read_facts
from minipd.cache.store import KVLayout
from minipd.fleet.formulas import KV_SHAPES, transfer_s
from minipd.lab import break_even as scale
from minipd.lab.break_even import (
    LATENCY_S,
    LINKS,
    added_s,
    break_even,
    chats_needed,
    exposed_s,
    freeze_table,
    gpu_server,
    in_words,
    measured_server,
    real_table,
    spared_s,
)
from minipd.lab.break_even_widget import (
    GBITS,
    LENGTHS,
    Balance,
    balance,
    balance_html,
    balance_table,
    draw_balance,
    link_of,
    show_trial,
)
from minipd.lab.link_trials import (
    copies_into_fresh_memory,
    copies_table,
    emulated_table,
    fit_and_check,
    links_table,
    measure_copies,
    time_emulated,
    two_senders,
)
from minipd.lab.remote_or_local import AsTold, Pair, Trial, slow_network
from minipd.measure.links import LinkFit
from minipd.measure.real_hardware import H100X8
from minipd.pools.links.emulated import NETWORKS, Network
from minipd.sched.router import WorkerLoad
from tests.counted_clock import count_time

FACTS = read_facts(ROOT / "course" / "facts.yaml")
# 10,000 bytes a token, 10 layers, 4 chats, 1,000 tokens/s, steps of 10 ms.
HERE = measured_server("here", 10_000.0, 10, 4, 1000.0, 0.010)
FAST, SLOW = LinkFit(0.001, 1e9), LinkFit(0.001, 5e6)  # 10 us and 2 ms a token
SMALL = KVLayout(2, 8, 16, 2, 16, torch.float32)


@pytest.fixture
def shown(monkeypatch):
    pages = []
    for name in ("show", "predict"):
        monkeypatch.setattr(
            importlib.import_module(f"minipd.lab.{name}"), "display_html", pages.append
        )
    return pages


def test_the_exposed_part_is_one_layer_s_share_or_what_outlasts_the_reading():
    assert exposed_s(HERE, FAST, 100) == pytest.approx(0.001 + 0.001 / 10)
    assert exposed_s(HERE, SLOW, 100) == pytest.approx(0.001 + 0.2 - 0.1 * 9 / 10)
    assert exposed_s(HERE, SLOW, 100, layer_by_layer=False) == pytest.approx(0.001 + 0.2)


def exposed_by_simulation(reading_s, trip_s, layers, latency_s):
    """The obvious slow version: layer after layer through one cable."""
    free = arrived = 0.0
    for layer in range(layers):
        done = (layer + 1) * reading_s / layers
        free = max(free, done) + trip_s / layers
        arrived = free + latency_s
    return arrived - reading_s


@pytest.mark.parametrize("tokens", [1, 10, 100, 1000])
@pytest.mark.parametrize("link", [FAST, SLOW, LinkFit(0.0, 1e7)])
def test_the_formula_is_what_a_simulated_cable_does(tokens, link):
    trip_s = tokens * HERE.kv_bytes_per_token / link.bytes_per_s
    simulated = exposed_by_simulation(HERE.prefill_s(tokens), trip_s, 10, link.latency_s)
    assert exposed_s(HERE, link, tokens) == pytest.approx(simulated)


def test_a_chat_loses_the_reading_less_a_step_and_all_chats_are_summed():
    assert HERE.stall_s(5) == 0.0 and HERE.stall_s(110) == pytest.approx(0.1)
    assert spared_s(HERE, 110) == pytest.approx(0.4)
    assert HERE.freeze_tokens(110) == pytest.approx(10.0)


@pytest.mark.parametrize("link", [FAST, SLOW])
@pytest.mark.parametrize("layer_by_layer", [True, False])
def test_the_break_even_is_where_both_sides_are_equal(link, layer_by_layer):
    even = break_even(HERE, link, layer_by_layer)
    sides = added_s(HERE, link, even, layer_by_layer), spared_s(HERE, even)
    assert sides[0] == pytest.approx(sides[1], rel=0.05)
    assert added_s(HERE, link, even / 2, layer_by_layer) > spared_s(HERE, even / 2)
    assert added_s(HERE, link, even * 2, layer_by_layer) < spared_s(HERE, even * 2)


def test_a_slow_enough_link_never_pays_and_says_so():
    never = LinkFit(0.001, 1e6)  # 10 ms a token, and 4 chats stall 4 ms for it
    assert math.isinf(break_even(HERE, never)) and in_words(math.inf) == "never"
    assert "no length pays" in balance(HERE, 0.008, 256)
    assert break_even(replace(HERE, chats=20), never) < 1000


def test_more_chats_more_bandwidth_and_layers_all_help():
    for chats in (1, 4, 16):
        lengths = [break_even(gpu_server(chats), link) for link in LINKS.values()]
        assert lengths == sorted(lengths, reverse=True)
        assert break_even(gpu_server(chats), LINKS["25 GbE"], False) >= lengths[1]
    first, *others = real_table()["10 GbE"]
    assert int(str(first).replace(",", "")) > int(str(others[0]).replace(",", ""))


def test_a_gpu_takes_a_few_tokens_along_almost_for_free():
    server = gpu_server(8)
    assert server.stall_s(2) == 0.0 and server.stall_s(64) < 0.1 * server.step_s
    assert server.stall_s(2048) > 4 * server.step_s
    table = freeze_table(HERE)
    assert len(table["here"]) == len(table["prompt (tokens)"]) == 4
    published = H100X8.freeze_tokens(8192, batch=HERE.chats) - 1  # lesson 09 shows it with the 1
    assert table[H100X8.name][-1] == round(published, 1)


def test_the_figures_of_the_facts():
    kv_bytes = KV_SHAPES["Llama-3-8B"].bytes_per_token()
    assert kv_bytes == scale.KV_BYTES["meta-llama/Llama-3.1-8B"] == 131_072
    assert round(transfer_s(2048 * kv_bytes, 10e9 / 8) * 1e3) == 215
    assert round(transfer_s(2048 * kv_bytes, 25e9) * 1e3) == 11
    read_s, travel_s = gpu_server(1).prefill_s(2048) / 2048, kv_bytes / 3.125e9
    written = {f"{read_s * 1e6:.1f}", f"{travel_s * 1e6:.1f}", f"{travel_s / read_s:.1f}"}
    assert written <= set(FACTS["h100-read-and-travel"].figures)
    assert f"{LATENCY_S * 1e3:.2f}" in FACTS["mooncake-link-fit"].figures


def test_the_recorded_figures_come_from_their_files():
    raw = json.loads((ROOT / "benchmarks/raw/handoff.json").read_text())["emulated"]
    written = {f"{raw['link_s'] * 1e3:.0f}", f"{raw['exposed_s']['median'] * 1e3:.2f}"}
    assert written <= set(FACTS["handoff-overlap-recorded"].figures)
    raw = json.loads((ROOT / "benchmarks/raw/lesson_08.json").read_text())
    direct, staged, through_socket = (way["cpu_s"] for way in raw["copies"])
    senders = raw["two_senders"]
    written = {f"{staged / direct:.1f}", f"{through_socket / direct:.1f}"}
    written |= {f"{min(senders['both_s']) / senders['alone_s']:.1f}"}
    for run in raw["break_even"]:
        predicted, measured = run["predicted_tokens"], run["measured_tokens"]
        written |= {f"{predicted:.0f}", f"{measured:.0f}"}
        assert 1 / 1.5 < predicted / measured < 1.5
    errors = {name: fit["worst_error"] for name, fit in raw["links"]["fits"].items()}
    written |= {f"{100 * errors[name]:.0f}" for name in ("shared memory", "NIXL")}
    written |= {f"{100 * errors['emulated 1 Gb/s']:.1f}"}
    assert written <= set(FACTS["lesson-08-recorded"].figures)


def test_a_fit_is_checked_on_sizes_that_it_has_not_seen():
    line = [(n, 0.001 + n / 1e6) for n in (100, 200, 400, 800, 1600)]
    late = [(n, t * 3) for n, t in line]
    measured = fit_and_check(line + late)
    assert measured.fit.latency_s == pytest.approx(0.001)
    assert measured.worst_error < 1e-6 and len(measured.held_out) == 2
    assert {n for n, _ in measured.fitted} & {n for n, _ in measured.held_out} == set()
    assert links_table({"x": measured})["within 10 %"] == ["yes"]
    bent = fit_and_check([(n, t * (2 if n == 400 else 1)) for n, t in line])
    assert bent.worst_error > 0.10 or bent.fit.latency_s == pytest.approx(0.001)


@pytest.fixture
def counted(monkeypatch):
    """The wire and who waits for it live by a clock that is counted."""
    clock = count_time(monkeypatch)
    wait = lambda seconds: clock.move_to(clock.now + seconds)  # noqa: E731
    times = SimpleNamespace(perf_counter=clock.monotonic, sleep=wait)
    monkeypatch.setattr(importlib.import_module("minipd.lab.link_trials"), "time", times)


def test_an_emulated_network_is_fitted_back(counted):
    network = Network(0.02, 1e6)
    samples = time_emulated(network, (1, 2, 4, 8), rounds=4, layout=SMALL)
    fit = fit_and_check(samples).fit
    assert fit.latency_s == pytest.approx(0.02, rel=0.05)
    assert fit.bytes_per_s == pytest.approx(1e6, rel=0.05)
    for num_bytes, seconds in samples:
        assert seconds >= LinkFit(0.02, 1e6).seconds(num_bytes) - 1e-9


def test_two_hand_offs_on_one_port_take_twice_as_long(counted):
    alone, both = two_senders(Network(0.0, 200e6), blocks=8, rounds=2)
    assert all(one == pytest.approx(2 * alone, rel=0.05) for one in both)


def test_copies_and_fresh_memory_are_timed():
    ways = measure_copies(num_bytes=4_000_000, repetitions=3)
    assert [way.copies for way in ways] == [1, 2, 2] and all(w.seconds > 0 for w in ways)
    assert len(copies_table(ways, 4_000_000)["GB/s"]) == 3
    assert len(list(copies_into_fresh_memory(2))) == 2


def test_every_network_stands_in_the_table(monkeypatch):
    module = importlib.import_module("minipd.lab.link_trials")
    monkeypatch.setattr(module, "time_emulated", lambda network, blocks: [(10**6, 0.012)])
    table = emulated_table()
    assert table["network"] == list(NETWORKS)
    held = dict(zip(table["network"], table["held up by"]))
    assert held["eth1"] in ("the cable", "both") and held["nvlink4"] == "memory"


def test_the_experiment_s_router_does_as_it_is_told():
    router, reader, writer = AsTold(), [WorkerLoad("r")], [WorkerLoad("w")]
    assert router.route(10, reader, writer).choice == "local"
    router.remote = True
    assert router.route(10, reader, writer).prefill == "r"


def pair(tokens, added, spared):
    return Pair(tokens, 1.0, 1.0 + added, spared + 0.5, 0.5)


def test_the_measured_crossing_is_that_of_a_line_which_outliers_do_not_move(shown):
    made = [pair(n, 0.2 + 0.001 * n, 0.003 * n) for n in (32, 64, 128, 256) for _ in range(3)]
    assert Trial(made).break_even == pytest.approx(100)
    trial = Trial([*made[:-1], pair(256, 9.0, 0.1)])
    assert trial.break_even == pytest.approx(100, rel=0.02)
    assert trial.points[1] == (64, pytest.approx(0.264), pytest.approx(0.192))
    assert Trial(made[:3]).break_even is None
    assert Trial([pair(n, 0.2, 0.1) for n in (32, 64)]).break_even is None
    assert Trial([pair(n, 0.2, 0.4 + 0.001 * n) for n in (32, 64)]).break_even is None
    show_trial(trial, HERE, SLOW)
    assert "they cross at 100 tokens" in shown[0] and "<table>" in shown[0]


def test_the_slow_network_carries_a_token_longer_than_it_is_read():
    network = slow_network(HERE)
    assert HERE.kv_bytes_per_token / network.bytes_per_s == pytest.approx(1.5 * HERE.prefill_s(1))
    assert network.latency_s == pytest.approx(6 * HERE.step_s)


def test_the_widget_s_words_picture_and_table_agree():
    page = balance_html(gpu_server(4), 10, 2048)
    assert "<img alt=" in page and "role='status'" in page and "<table>" in page
    even = in_words(break_even(gpu_server(4), link_of(10)))
    assert f"from about {even} tokens" in page
    table = balance_table(gpu_server, 2048, (1, 4), (1, 10, 400))
    assert table["better"] == ["local", "local", "remote"] * 2
    assert table["remote from (tokens)"][4] == even
    figure = draw_balance(gpu_server(4), link_of(10), 2048)
    assert len({line.get_linestyle() for line in figure.axes[0].lines[:2]}) == 2


def test_every_control_of_the_widget_changes_the_result():
    view = Balance(
        {"gpu": gpu_server, "here": lambda chats: replace(HERE, chats=chats)}, 2048, 10, 4
    )
    before = view.result.value
    view.chats.value = 32
    assert "32 running chats" in view.result.value != before
    view.gbit.value, view.tokens.value = GBITS[-1], LENGTHS[0]
    assert "3600 Gb/s: reading 16 tokens" in view.result.value
    view.choose("here")
    assert "here, 32 running chats" in view.result.value
    assert all(slider.description for slider in (view.tokens, view.gbit, view.chats))


def test_a_learner_s_break_even_meets_the_team(shown, capsys):
    def rightly(layers, query_heads, kv_heads, head_size, bytes_per_value, gigabits_per_s,
                latency_s, prefill_tokens_per_s, step_s, chats):  # fmt: skip
        trip = 2 * layers * kv_heads * head_size * bytes_per_value / (gigabits_per_s * 1e9 / 8)
        gain = chats / prefill_tokens_per_s - trip
        return (latency_s + chats * step_s) / gain if gain > 0 else math.inf

    chats_needed(rightly, "08.chats-needed")
    assert "never" in shown[0] and "2 chats" in shown[1]

    def stub(**_):
        raise NotImplementedError

    chats_needed(stub, "08.chats-needed")
    assert "solve Exercise 2" in capsys.readouterr().out
