"""Checks of exercise 08.1: latency and bandwidth of a link from raw samples."""

from __future__ import annotations

from math import isclose

from minipd.lab.hints import Answer, Check, Exercise, Hints

LATENCY_S, BYTES_PER_S = 0.5, 1000.0
SIZES = (1000, 2000, 4000, 8000)


def _time(size: int) -> float:
    return LATENCY_S + size / BYTES_PER_S


# Three samples of each size in rounds; all of the first size's first round and one more are late.
SAMPLES = [(size, _time(size)) for _ in range(3) for size in SIZES]
CLEAN = [(size, _time(size)) for size in SIZES]
LATE = [*SAMPLES]
LATE[0] = (1000, 9.0)
LATE[7] = (8000, 40.0)
NO_LATENCY = [(size, size / BYTES_PER_S) for size in SIZES]


def _pair(answer: Answer, samples: list[tuple[int, float]]) -> tuple[float, float]:
    latency, bandwidth = answer(list(samples))
    return float(latency), float(bandwidth)


def _close(made: float, value: float) -> bool:
    return isclose(made, value, rel_tol=0.02, abs_tol=1e-9)


def _is_pair(answer: Answer) -> bool:
    made = answer(list(CLEAN))
    return isinstance(made, (tuple, list)) and len(made) == 2  # pyright: ignore[reportUnknownArgumentType]


def _latency_first(answer: Answer) -> bool:
    latency, bandwidth = _pair(answer, CLEAN)
    return not (_close(bandwidth, LATENCY_S) and _close(latency, BYTES_PER_S))


def _is_bandwidth(answer: Answer) -> bool:
    return not _close(_pair(answer, CLEAN)[1], 1 / BYTES_PER_S)


def _is_bytes(answer: Answer) -> bool:
    return not _close(_pair(answer, CLEAN)[1], 8 * BYTES_PER_S)


def _has_latency(answer: Answer) -> bool:
    return _pair(answer, CLEAN)[0] > 0.1 * LATENCY_S


def _latency_is_no_sample(answer: Answer) -> bool:
    return not _close(_pair(answer, CLEAN)[0], _time(SIZES[0]))


def _right(answer: Answer, samples: list[tuple[int, float]]) -> bool:
    latency, bandwidth = _pair(answer, samples)
    return _close(latency, LATENCY_S) and _close(bandwidth, BYTES_PER_S)


def _zero(answer: Answer) -> bool:
    latency, bandwidth = _pair(answer, NO_LATENCY)
    return abs(latency) < 1e-6 and _close(bandwidth, BYTES_PER_S)


def _leaves_alone(answer: Answer) -> bool:
    given = list(LATE)
    answer(given)
    return given == LATE


FIT_SAMPLES = Exercise(
    "08.1",
    "Fit a link",
    "fit",
    (
        Check(
            "two_numbers",
            "fit must return two numbers: the latency and the bandwidth.",
            _is_pair,
            Hints(
                "Look at the last line of your function.",
                "A link is described by two numbers, and whoever calls you wants both.",
                "End with: return latency, bandwidth",
            ),
        ),
        Check(
            "latency_first",
            "The two numbers came back the other way round.",
            _latency_first,
            Hints(
                "Both are there. In which order?",
                "The task asks for the latency first, then the bandwidth.",
                "End with: return latency, bandwidth",
            ),
        ),
        Check(
            "bandwidth_not_slope",
            "That is the time of one byte, not the bytes of one second.",
            _is_bandwidth,
            Hints(
                "Say the unit of your second number aloud.",
                "The slope of time over bytes is seconds per byte; bandwidth is its inverse.",
                "bandwidth = 1 / slope",
            ),
        ),
        Check(
            "bytes_not_bits",
            "The bandwidth came out eight times too large: in bits.",
            _is_bytes,
            Hints(
                "In which unit are the sizes?",
                "Sizes are in bytes, so the bandwidth is in bytes per second; nothing to convert.",
                "Leave out the factor 8.",
            ),
        ),
        Check(
            "latency_counted",
            "This link takes half a second for any transfer; your latency is 0 or near it.",
            _has_latency,
            Hints(
                "How long would a transfer of no bytes take on your line?",
                "Bytes over seconds mixes the two parts of the time; a line keeps them apart.",
                "The latency is the line's value at 0 bytes: time - size / bandwidth.",
            ),
        ),
        Check(
            "latency_at_zero_bytes",
            "Your latency is the time of the smallest transfer, bytes included.",
            _latency_is_no_sample,
            Hints(
                "Did the smallest transfer have no bytes?",
                "Its time is latency plus its bytes; only at 0 bytes the latency is alone.",
                "latency = time of the smallest - its size / bandwidth",
            ),
        ),
        Check(
            "exact_line",
            "On samples that lie on one line (0.5 s, 1,000 bytes/s) the fit must find that line.",
            lambda answer: _right(answer, CLEAN),
            Hints(
                "Work it out by hand for 1,000 bytes in 1.5 s and 2,000 bytes in 2.5 s.",
                "1,000 bytes more take 1 s more; that gives the slope, and the slope the rest.",
                "slope, intercept = statistics.linear_regression(sizes, times)",
            ),
        ),
        Check(
            "late_samples",
            "Two late samples among twelve moved your line.",
            lambda answer: _right(answer, LATE),
            Hints(
                "Look at the three times of the smallest size: which one is typical?",
                "A mean follows every outlier; the median of each size does not.",
                "One point per size: statistics.median(t for n, t in samples if n == size)",
            ),
        ),
        Check(
            "no_latency_is_fine",
            "A link without any latency must give a latency of 0.",
            _zero,
            Hints(
                "What does your function return for times that are exactly bytes / 1,000?",
                "Nothing in the task says that there must be a latency.",
                "Return the intercept as it is.",
            ),
        ),
        Check(
            "samples_unchanged",
            "The caller's list of samples was changed.",
            _leaves_alone,
            Hints(
                "Somebody still needs the raw samples.",
                "sort(), pop() and del change the list that you were given.",
                "Use sorted(samples), which makes a new list.",
            ),
        ),
    ),
)
