"""Intervals over seeds against Student's t as scipy has it, and by hand."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from sim.intervals import mean_interval, ratio_interval, t_quantile


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 9, 30, 99])
def test_quantiles_are_those_of_scipy(degrees, confidence):
    assert t_quantile(degrees, confidence) == pytest.approx(stats.t.ppf((1 + confidence) / 2, degrees), rel=1e-12)


def test_an_interval_by_hand():
    # 1, 2, 3: mean 2, standard deviation 1, t(2) = 4.303: 2 +- 4.303 / sqrt(3)
    assert mean_interval([1.0, 2.0, 3.0]) == pytest.approx((2, 2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5), rel=1e-6)


def test_one_value_has_no_interval():
    mean, low, high = mean_interval([5.0])
    assert mean == 5
    assert math.isnan(low)
    assert math.isnan(high)


def test_a_constant_ratio_has_a_narrow_interval():
    # each value is twice its baseline: the ratios do not vary, though the values do
    assert ratio_interval([2.0, 20.0, 200.0], [1.0, 10.0, 100.0]) == pytest.approx((2, 2, 2))


def test_the_ratio_is_geometric():
    # 4 and 1/4 cancel
    assert ratio_interval([4.0, 1.0], [1.0, 4.0])[0] == pytest.approx(1)


def test_no_ratio_to_nothing():
    assert all(map(math.isnan, ratio_interval([1.0, 1.0], [0.0, 1.0])))
