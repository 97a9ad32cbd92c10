from __future__ import annotations

import random

import numpy as np
import pytest
from scipy import stats

from traces import InputError
from traces.arrivals import DrawnRate, OwnTimes, draw_arrivals, draw_ramp_up, parse_request_rate


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2.5", DrawnRate(2.5)),
        ("inf", DrawnRate(float("inf"))),
        ("trace", OwnTimes(1.0)),
        ("trace*4", OwnTimes(4.0)),
        (" Trace*0.5 ", OwnTimes(0.5)),
    ],
)
def test_request_rate(text, expected):
    assert parse_request_rate(text) == expected


@pytest.mark.parametrize(
    "text", ["0", "-1", "nan", "fast", "", "1e999", "-inf", "trace*0", "trace*inf", "trace*", "trace4"]
)
def test_no_request_rate(text):
    with pytest.raises(InputError, match="--request-rate"):
        parse_request_rate(text)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_burstiness_leaves_the_mean_rate(burstiness):  # F35
    gaps = np.diff(draw_arrivals(200_000, 2.0, burstiness))
    # mean 1/rate = 0.5 s whatever the burstiness, coefficient of variation 1/sqrt(burstiness) = 2, 1, 0.5;
    # 1.5 % is three standard errors of the mean at a variation of 2, and the variation's own error is about as large
    assert gaps.mean() == pytest.approx(0.5, rel=0.015)
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.02)


def test_burstiness_one_is_poisson():  # F35
    gaps = np.diff(draw_arrivals(20_000, 2.0, 1.0))
    assert stats.kstest(gaps, "expon", args=(0, 0.5)).pvalue > 0.01


def test_infinite_burstiness_is_a_metronome():
    assert draw_arrivals(4, 2.0, float("inf")).tolist() == [0, 0.5, 1.0, 1.5]


def test_infinite_rate_is_all_at_once():
    assert draw_arrivals(3, float("inf")).tolist() == [0, 0, 0]


def test_first_of_a_longer_draw_are_the_shorter_draw():
    assert draw_arrivals(1000, 3.0, 0.3, seed=5)[:10].tolist() == draw_arrivals(10, 3.0, 0.3, seed=5).tolist()


def test_same_seed_same_bytes_whatever_the_global_generators_did():  # F36
    before = draw_arrivals(100, 3.0, seed=1).tobytes()
    random.random()
    np.random.random(7)  # noqa: NPY002  the caller's use of the global generator is the point
    assert draw_arrivals(100, 3.0, seed=1).tobytes() == before
    assert draw_arrivals(100, 3.0, seed=2).tobytes() != before


def test_same_seed_same_gaps_at_another_rate():
    assert draw_arrivals(50, 8.0, seed=1) == pytest.approx(draw_arrivals(50, 2.0, seed=1) / 4)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_impossible_rate(rate):
    with pytest.raises(InputError, match="--request-rate"):
        draw_arrivals(3, rate)


@pytest.mark.parametrize("burstiness", [0.0, -1.0, float("nan")])
def test_impossible_burstiness(burstiness):
    with pytest.raises(InputError, match="--burstiness"):
        draw_arrivals(3, 1.0, burstiness)


def test_linear_ramp_up():
    # rates of requests 0..4: 1, 1.5, 2, 2.5, 3; the gap before request i has mean 1/rate(i)
    times = draw_ramp_up(5, "linear", 1.0, 3.0, burstiness=float("inf"))
    assert np.diff(times) == pytest.approx([1 / 1.5, 1 / 2, 1 / 2.5, 1 / 3])


def test_exponential_ramp_up():
    # rates of requests 0..2: 1, 1 * 16**0.5 = 4, 16
    times = draw_ramp_up(3, "exponential", 1.0, 16.0, burstiness=float("inf"))
    assert np.diff(times) == pytest.approx([1 / 4, 1 / 16])


@pytest.mark.parametrize(("start", "end"), [(0.0, 1.0), (2.0, 1.0), (1.0, float("inf")), (float("nan"), 1.0)])
def test_impossible_ramp_up(start, end):
    with pytest.raises(InputError, match="--ramp-up"):
        draw_ramp_up(3, "linear", start, end)


def test_rate_too_low_for_any_clock():
    with pytest.raises(InputError, match="overflow"):
        draw_arrivals(3, 1e-320)
