"""The rule by which measured points become the time of any step."""

from __future__ import annotations

import pytest

from minipd.sched.step_times import check_points, interpolate, step_seconds

READ = ((1.0, 0.011), (100.0, 0.110), (200.0, 0.310))  # a pass costs 10 ms, a token 1 ms, then 2
WRITE = ((1.0, 0.012), (3.0, 0.018))  # a pass costs 9 ms, a sequence 3 ms


def step(*pieces: tuple[int, int], sequences: int = 0, context: int = 0, slope: float = 0) -> float:
    return step_seconds(READ, WRITE, slope, pieces, sequences, context)


def test_lines_go_through_the_points_and_on() -> None:
    for x, y in ((1, 0.011), (50.5, 0.0605), (150, 0.21), (300, 0.51), (0, 0.01)):
        assert interpolate(READ, x) == pytest.approx(y)


def test_what_was_measured_is_given_back() -> None:
    assert step((100, 0)) == pytest.approx(0.110)
    assert step(sequences=3) == pytest.approx(0.018)
    assert step(sequences=2, context=50, slope=1e-4) == pytest.approx(0.015 + 0.005)
    assert step() == 0.0


def test_each_pass_has_its_price() -> None:
    """A prompt in two steps pays one pass more than in one; two prompts in one step pay one."""
    assert step((50, 0)) + step((50, 50)) == pytest.approx(step((100, 0)) + 0.010)
    assert step((50, 0), (50, 0)) == pytest.approx(0.010 + 0.050 + 0.050)
    assert step((50, 150)) == pytest.approx(0.010 + 2 * 0.050)


def test_reading_and_writing_in_one_step_share_the_dearer_pass() -> None:
    assert step((100, 0), sequences=3) == pytest.approx(0.110 + 0.018 - 0.009)
    dear = step_seconds(READ, ((1.0, 0.02), (2.0, 0.021)), 0.0, [(100, 0)], 1, 0)
    assert dear == pytest.approx(0.110 + 0.020 - 0.010)


def test_a_piece_of_one_token_runs_as_a_decode() -> None:
    assert step((1, 40), slope=1e-4) == pytest.approx(0.012 + 41e-4)
    assert step((1, 40), sequences=1, context=10) == pytest.approx(0.015)


def test_a_line_that_would_begin_below_zero_has_no_price() -> None:
    steep = ((10.0, 0.001), (20.0, 0.021))
    assert step_seconds(steep, steep, 0.0, [(10, 0)], 0, 0) == pytest.approx(0.001)
    assert step_seconds(steep, steep, 0.0, [(2, 0)], 0, 0) == 0.0


def test_nothing_that_a_step_does_besides_makes_it_shorter() -> None:
    steep = ((10.0, 0.001), (20.0, 0.021))
    decode = step_seconds(steep, WRITE, 1e-4, [], 2, 50)
    assert step_seconds(steep, WRITE, 1e-4, [(2, 0)], 2, 50) == decode
    read = step_seconds(READ, steep, 0.0, [(100, 0)], 0, 0)
    assert step_seconds(READ, steep, 0.0, [(100, 0), (0, 50)], 2, 0) == read


@pytest.mark.parametrize(
    "points",
    [
        ((1.0, 0.1),),
        ((1.0, 0.1), (1.0, 0.2)),
        ((2.0, 0.1), (1.0, 0.2)),
        ((1.0, float("nan")), (2.0, 0.2)),
        ((1.0, 0.1), (float("inf"), 0.2)),
        ((1.0, -0.1), (2.0, 0.2)),
    ],
)
def test_points_that_say_no_time_are_refused(points: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ValueError, match="rising decode points"):
        check_points("decode", points)
