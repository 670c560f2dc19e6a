"""Fitting a device's factors to measured step times: damped Gauss-Newton in logarithms.

What is minimised, over the logarithms x of the factors, for rows with measured time m and predicted
time p(x):

    sum_rows rho(log m - log p(x)) / NOISE**2  +  sum_factors ((x - x_prior) / width)**2

Logarithms make an error of 10 % count the same on a step of 1 ms and on one of 1 s. `rho` is square
up to NOISE and grows straight beyond (Huber), so that a few odd rows do not bend the rest. The
second sum holds factors that the rows say little about near what is known of other devices; it is
what lets ten factors be fitted to a handful of rows. Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from minipd.fleet.factors import Factors, Prior

NOISE = 0.03  # relative error that rows have anyway
LONGEST_MOVE = 0.5  # of one factor's logarithm in one round
ROUNDS = 40
CLOSE = 1e-3  # a tenth of a per cent of every factor: far below what rows can tell
TINY = 1e-4  # of a logarithm, to take a slope

Vector = list[float]


def fit(
    predict: Sequence[Callable[[Factors], float]],
    measured: Sequence[float],
    prior: Prior,
    start: Factors | None = None,
) -> Factors:
    """The factors that fit best; `predict[i]` gives the time that `measured[i]` is, same unit.

    With no rows at all the answer is the prior's centre.
    """
    assert len(predict) == len(measured), "every measured time needs its prediction"
    centre, widths = prior.centre.logs(), [abs(w) for w in _values(prior.widths)]
    x = (start or prior.centre).logs()
    targets = [math.log(value) for value in measured]
    for _ in range(ROUNDS):
        here = _logs(predict, x)
        residuals = [t - p for t, p in zip(targets, here)]
        slopes = _slopes(predict, x, here)
        weights = [min(1.0, NOISE / max(abs(r), 1e-12)) / NOISE**2 for r in residuals]
        move = _solve(*_normal_equations(slopes, residuals, weights, x, centre, widths))
        move = [max(-LONGEST_MOVE, min(LONGEST_MOVE, step)) for step in move]
        x = [value + step for value, step in zip(x, move)]
        if max(map(abs, move)) < CLOSE:
            break
    return Factors.from_logs(x)


def _values(factors: Factors) -> Vector:
    return [math.exp(value) for value in factors.logs()]


def _logs(predict: Sequence[Callable[[Factors], float]], x: Vector) -> Vector:
    factors = Factors.from_logs(x)
    return [math.log(row(factors)) for row in predict]


def _slopes(predict: Sequence[Callable[[Factors], float]], x: Vector, here: Vector) -> list[Vector]:
    """One list per factor: how each row's log time changes with the factor's logarithm."""
    slopes: list[Vector] = []
    for index in range(len(x)):
        moved = [value + TINY * (i == index) for i, value in enumerate(x)]
        slopes.append([(b - a) / TINY for a, b in zip(here, _logs(predict, moved))])
    return slopes


def _normal_equations(
    slopes: list[Vector],
    residuals: Vector,
    weights: Vector,
    x: Vector,
    centre: Vector,
    widths: Vector,
) -> tuple[list[Vector], Vector]:
    size = len(x)
    left = [[0.0] * size for _ in range(size)]
    right = [0.0] * size
    for i in range(size):
        weighted = [w * s for w, s in zip(weights, slopes[i])]
        for j in range(size):
            left[i][j] = math.fsum(a * b for a, b in zip(weighted, slopes[j]))
        left[i][i] += widths[i] ** -2
        right[i] = math.fsum(a * r for a, r in zip(weighted, residuals))
        right[i] -= (x[i] - centre[i]) * widths[i] ** -2
    return left, right


def _solve(left: list[Vector], right: Vector) -> Vector:
    """Gaussian elimination with pivots; the matrix is never singular, since priors have widths."""
    rows = [[*row, value] for row, value in zip(left, right)]
    size = len(rows)
    for column in range(size):
        pivot = max(range(column, size), key=lambda r: abs(rows[r][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for below in range(column + 1, size):
            share = rows[below][column] / rows[column][column]
            rows[below] = [b - share * a for a, b in zip(rows[column], rows[below])]
    answer = [0.0] * size
    for index in reversed(range(size)):
        known = sum(rows[index][j] * answer[j] for j in range(index + 1, size))
        answer[index] = (rows[index][size] - known) / rows[index][index]
    return answer
