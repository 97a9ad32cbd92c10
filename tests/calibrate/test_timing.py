"""The timer against stub devices: no test sleeps."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, repeat

import numpy as np
import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from calibrate.timing import Timer, relative_error, stopwatch_of, wall_stopwatch  # noqa: E402


class Device:
    """A device with its own clock: a call returns at once and is done after the next of `costs_s` at synchronise."""

    def __init__(self, costs_s: Iterable[float]) -> None:
        self.now = 100.0
        self.calls = 0
        self.pending = 0.0
        self.costs = iter(costs_s)

    def call(self) -> None:
        self.calls += 1
        self.pending += next(self.costs)

    def synchronise(self) -> None:
        self.now += self.pending
        self.pending = 0.0

    def timer(self, **settings: float) -> Timer:
        return Timer(wall_stopwatch(self.synchronise, lambda: self.now), **settings)  # type: ignore[arg-type]


def test_waits_for_the_device() -> None:
    """F57: the call itself takes no time; 20 ms are known only after synchronise."""
    device = Device(repeat(0.020))
    assert device.timer().measure(device.call).seconds == pytest.approx(0.020)


def test_work_before_the_call_is_not_counted() -> None:
    device = Device(repeat(0.020))
    device.pending = 5.0
    assert device.timer(warm_up=0).measure(device.call).p90 == pytest.approx(0.020)


def test_first_call_is_left_out() -> None:
    """F58: 500, 10, 10, 10 ms have mean 132.5; the first is warm-up."""
    device = Device([0.5, 0.01, 0.01, 0.01])
    found = device.timer().measure(device.call)
    assert (found.seconds, found.p90) == (pytest.approx(0.01), pytest.approx(0.01))


def test_every_measurement_warms_up() -> None:
    """F58: each shape compiles anew."""
    device = Device([0.5, 0.01, 0.01, 0.01] * 2)
    timer = device.timer()
    timer.measure(device.call)
    assert timer.measure(device.call).p90 == pytest.approx(0.01)


@pytest.mark.parametrize("repeats", [1, 20])
def test_the_number_of_repeats_does_not_matter(repeats: int) -> None:
    """F59: 10 ms with 1 and with 20 repeats, not 200 and not 0.5."""
    device = Device(repeat(0.010))
    found = device.timer(fewest=repeats).measure(device.call)
    assert (found.seconds, found.repeats) == (pytest.approx(0.010), repeats)


def test_a_steady_call_ends_early() -> None:
    device = Device(repeat(0.010))
    assert device.timer(budget_s=1e9).measure(device.call).repeats == 3


def test_repeats_until_the_error_is_small() -> None:
    """Noise of 20 %: 1.2533 * 0.2 / sqrt(n) < 0.02 takes about 160 repeats, fewer without the tails."""
    noise = np.random.default_rng(0).normal(1, 0.2, 1000).clip(0.1)
    device = Device(0.010 * noise)
    found = device.timer(budget_s=1e9, most=1000).measure(device.call)
    assert 60 < found.repeats < 200


def test_the_budget_ends_it() -> None:
    """Calls of 10 and 30 ms never settle below 2 %; 50 of mean 20 ms spend 1 s."""
    device = Device(chain([0.0], [0.010, 0.030] * 500))
    found = device.timer(budget_s=0.999, relative_error=1e-6).measure(device.call)
    assert found.repeats == 50


def test_a_slow_call_is_made_once_after_its_warm_up() -> None:
    device = Device(repeat(3.0))
    assert device.timer(budget_s=1.0).measure(device.call).repeats == 1


def test_percentiles() -> None:
    """Of 1 .. 11 ms the 10th percentile is 2, the median 6, the 90th 10."""
    device = Device([0.0, *(0.001 * np.arange(1, 12))])
    found = device.timer(fewest=11, most=11).measure(device.call)
    assert (found.p10, found.seconds, found.p90) == pytest.approx((0.002, 0.006, 0.010))


def test_error_of_the_median() -> None:
    """Ten values, one of each tail dropped: the other eight are 9 and 11, std 2 / sqrt(7) * sqrt(2) = 1.0690."""
    values = np.array([1.0, 9, 9, 9, 9, 11, 11, 11, 11, 500])
    assert relative_error(values) == pytest.approx(1.2533 * 1.0690 / np.sqrt(8) / 10, rel=1e-3)


def test_a_cpu_is_timed_by_the_clock() -> None:
    assert stopwatch_of(torch.device("cpu"))(lambda: None) >= 0
