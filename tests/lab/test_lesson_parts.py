"""What lessons call to keep their cells short: plots, doubts, a formula on one's own machine."""

import importlib

import pytest

from minipd.lab import own_machine, plots
from minipd.lab.trust import REMEDY, doubts
from minipd.measure import ceilings as ceilings_module
from minipd.measure.ceilings import Ceilings
from minipd.measure.stats import Samples

STEADY, SHAKY = Samples((10.0, 10.1, 10.2)), Samples((5.0, 10.0, 15.0))


def made_ceilings(products=STEADY, noise=None):
    scaled = {"1024": Samples(tuple(value * 1e10 for value in products.values))}
    reads = {"sum": Samples((1e10, 1e10, 1e10))}
    return Ceilings("cpu", "float32", 1, scaled, reads, 10**9, "", noise)


@pytest.fixture
def shown(monkeypatch):
    pages = []
    for name in ("show", "predict"):
        monkeypatch.setattr(
            importlib.import_module(f"minipd.lab.{name}"), "display_html", pages.append
        )
    return pages


def test_steady_results_raise_no_doubt():
    assert doubts(made_ceilings(), {"decode": STEADY}) == ""


def test_every_cause_of_doubt_is_named_with_its_remedy():
    said = doubts(made_ceilings(SHAKY, "a film is playing"), {"decode": SHAKY, "prefill": STEADY})
    for word in ("decode spread by 50%", "products spread", "a film is playing", REMEDY):
        assert word in said
    assert "prefill" not in said


def test_plots_have_words_and_numbers(shown):
    plots.show_pauses([2.0, 2.1, 2.3])
    plots.show_samples({"GFLOP/s": STEADY, "GB/s": SHAKY})
    shares = {"prefill": 0.8, "decode": 0.1}
    plots.show_use({"prefill": 400.0, "decode": 15.0}, shares, {"prefill": 0.02, "decode": 0.7})
    first, second, third = shown
    assert 'alt="Bar chart: 2.00 s before the first piece, then 2 waits of 0.10 to 0.20 s.' in first
    assert "Spread: 1% for GFLOP/s, 50% for GB/s." in second
    assert "prefill: 80% of the arithmetic, 2% of the reading" in third
    assert all("<table>" in page for page in shown)


def rightly(parameters, bytes_per_value, sequences, flops_per_s, bytes_per_s):
    reading = parameters * bytes_per_value / bytes_per_s
    multiplying = 2 * parameters * sequences / flops_per_s
    return max(reading, multiplying), "memory" if reading >= multiplying else "arithmetic"


def test_a_learner_s_formula_meets_their_own_ceilings(shown, monkeypatch, capsys):
    monkeypatch.setattr(ceilings_module, "measure_ceilings", lambda **_: made_ceilings())
    own_machine.crossing(rightly, "00.crossing")  # 102 GFLOP/s over 10 GB/s: 10.2 operations a byte
    table, answer = shown
    assert "<th scope='row'" in table and "arithmetic" in table and "memory" in table
    assert "21 sequences" in answer
    own_machine.crossing(lambda *a: (1.0, "memory"), "00.crossing")
    assert "memory stays the limit" in capsys.readouterr().out


def test_an_exercise_not_done_yet_gets_one_sentence(capsys):
    def stub(*_):
        raise NotImplementedError

    own_machine.crossing(stub, "00.crossing")
    assert "solve Exercise 2" in capsys.readouterr().out
