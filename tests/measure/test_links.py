"""The cost of a link, from transfers whose cost is known."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from minipd.measure.links import LinkFit, LinkFitError, fit_link, hold_out, medians

SIZES = [1 << n for n in range(12, 26)]


def exact(fit: LinkFit) -> list[tuple[int, float]]:
    return [(size, fit.seconds(size)) for size in SIZES]


@pytest.mark.parametrize("true", [LinkFit(50e-6, 125e6), LinkFit(2e-6, 50e9), LinkFit(0.0, 3e9)])
def test_an_exact_line_is_found_again(true):
    found = fit_link(exact(true))
    assert found.latency_s == pytest.approx(true.latency_s, abs=1e-12)
    assert found.bytes_per_s == pytest.approx(true.bytes_per_s)
    assert found.errors(exact(true)) == pytest.approx([0] * len(SIZES), abs=1e-9)


def test_noise_moves_it_little_and_held_out_sizes_are_predicted():
    true, noise = LinkFit(1e-3, 1e9), random.Random(1)
    samples = [(n, t * noise.uniform(0.95, 1.05)) for n, t in exact(true) for _ in range(9)]
    fitted, checked = hold_out(medians(samples))
    found = fit_link(fitted)
    assert found.latency_s == pytest.approx(true.latency_s, rel=0.05)
    assert found.bytes_per_s == pytest.approx(true.bytes_per_s, rel=0.05)
    assert max(map(abs, found.errors(checked))) < 0.1


def test_no_other_line_is_relatively_nearer():
    noise = random.Random(2)
    points = [(n, t * noise.uniform(0.7, 1.3)) for n, t in exact(LinkFit(1e-3, 1e9))]
    best = fit_link(points)

    def loss(fit: LinkFit) -> float:
        return sum(error**2 for error in fit.errors(points))

    for factor in (0.97, 1.03):
        assert loss(best) < loss(LinkFit(best.latency_s * factor, best.bytes_per_s))
        assert loss(best) < loss(LinkFit(best.latency_s, best.bytes_per_s * factor))


def test_a_latency_below_zero_is_none():
    found = fit_link([(100, 0.9), (200, 2.0), (400, 4.2)])
    assert found.latency_s == 0.0
    assert 90 < found.bytes_per_s < 110


def test_half_of_the_bandwidth_is_reached_where_latency_and_bytes_cost_alike():
    fit = LinkFit(1e-3, 1e9)
    assert fit.half_bytes / fit.seconds(fit.half_bytes) == pytest.approx(fit.bytes_per_s / 2)


def test_held_out_sizes_lie_between_fitted_ones():
    fitted, checked = hold_out([(n, 1.0) for n in (5, 1, 4, 2, 3)])
    assert [n for n, _ in fitted] == [1, 3, 5] and [n for n, _ in checked] == [2, 4]


def test_medians_are_per_size():
    assert medians([(2, 3.0), (1, 1.0), (2, 9.0), (2, 4.0)]) == [(1, 1.0), (2, 4.0)]


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], "two or more sizes"),
        ([(5, 1.0), (5, 2.0)], "two or more sizes"),
        ([(5, 0.0), (6, 1.0)], "more than 0 seconds"),
        ([(-5, 1.0), (6, 1.0)], "0 or more bytes"),
        ([(5, 2.0), (6, 1.0)], "took no longer"),
    ],
)
def test_what_cannot_be_fitted_is_said(points, message):
    with pytest.raises(LinkFitError, match=message):
        fit_link(points)


def test_it_needs_no_torch():
    block = "sys.modules['torch'] = sys.modules['numpy'] = None"
    code = f"import sys; {block}; import minipd.measure.links"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
