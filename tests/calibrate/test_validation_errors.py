"""Arithmetic of a validation: errors, spread, single requests, acceptance length, ranking."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calibrate.validation.errors import Figure, Length, acceptance_length, per_request, ranking


def test_error_and_spread() -> None:
    """Live 90 and 110: mean 100, farthest 10 % away. Simulated 103 and 105: mean 104, 4 % off."""
    figure = Figure("x", (90.0, 110.0), (103.0, 105.0))
    assert figure.error_percent == pytest.approx(4)
    assert figure.spread_percent == pytest.approx(10)


@pytest.mark.parametrize(
    ("live", "limit", "holds"),
    [
        ((100.0, 100.0), 5.0, True),  # 4 <= 5
        ((100.0, 100.0), 3.0, False),  # 4 > 3, repeats do not differ
        ((95.0, 105.0), 3.0, True),  # 4 > 3, but repeats differ by 5
        ((100.0,), 3.0, False),  # a single run has no spread
    ],
)
def test_a_figure_holds_within_limit_or_spread(live: tuple[float, ...], limit: float, holds: bool) -> None:
    assert Figure("x", live, (104.0,), limit).holds is holds


def test_single_requests() -> None:
    """Live means 10, 20, 40; simulated 11, 18, 40: errors +10, -10, 0 %."""
    live = [[9.0, 20.0, 40.0, math.nan], [11.0, 20.0, 40.0, 1.0]]
    found = per_request(live, [11.0, 18.0, 40.0, 1.0])
    assert found.requests == 3
    assert found.mape == pytest.approx(20 / 3)
    assert found.bias == pytest.approx(0)
    assert found.worst == (0, 1, 2)
    # Pearson by hand: live about its mean -40/3, -10/3, 50/3; simulated -12, -5, 17
    assert found.correlation == pytest.approx((480 / 3 + 50 / 3 + 850 / 3) / math.sqrt((4200 / 9) * 458))
    # 9 against 11 is 2/11 off, 11 against 9 is 2/9, the other two requests 0: over 2 x 3 values
    assert found.noise == pytest.approx(100 * (2 / 11 + 2 / 9) / 6)


def test_nothing_to_compare() -> None:
    found = per_request([[math.nan, 0.0]], [1.0, 1.0])
    assert (found.requests, found.worst) == (0, ())
    assert math.isnan(found.mape)


def test_acceptance_length_is_a_ratio_of_sums() -> None:
    """3 accepted in 2 steps and 1 in 2: 1 + 4/4 = 2. Residuals 1 and -1: error sqrt(2/1 * 2) / 4 = 0.5."""
    found = acceptance_length([2, 2], [3, 1])
    assert found.mean == pytest.approx(2)
    assert found.error == pytest.approx(0.5)


def test_requests_of_one_text_count_once() -> None:
    """The same two texts, each replayed twice: no more is known than from two."""
    once = acceptance_length([2, 2], [3, 1])
    twice = acceptance_length([2, 2, 2, 2], [3, 1, 3, 1], [0, 1, 0, 1])
    assert twice.error == pytest.approx(once.error)
    assert acceptance_length([2, 2, 2, 2], [3, 1, 3, 1]).error < once.error


def test_without_a_draft_there_is_no_length() -> None:
    assert math.isnan(acceptance_length([0, 0], [0, 0]).mean)


def test_the_error_is_that_of_repeated_samples() -> None:
    """2,000 samples of 50 requests, 10 steps of binomial acceptance each: their spread is what one sample says."""
    rng = np.random.default_rng(0)
    steps = rng.integers(5, 15, (2000, 50))
    found = [acceptance_length(d, rng.binomial(2 * d, 0.6)) for d in steps]
    assert np.mean([each.error for each in found]) == pytest.approx(np.std([each.mean for each in found]), rel=0.05)


def test_lengths_agree_within_the_interval_of_their_difference() -> None:
    """Errors 0.3 and 0.4: that of the difference is 0.5, its interval 0.98 to either side."""
    assert Length(2.0, 0.3).agrees(Length(2.97, 0.4))
    assert not Length(2.0, 0.3).agrees(Length(2.99, 0.4))


def test_ranking_counts_what_live_repeats_tell_apart() -> None:
    """b is above a and c live; a and c overlap. Simulated b is above c, but below a."""
    live = {"a": [1.0, 2.0], "b": [3.0, 4.0], "c": [1.5, 2.5]}
    found = ranking(live, {"a": 5.0, "b": 4.0, "c": 1.0})
    assert (found.same, found.decided, found.swapped) == (1, 2, (("a", "b"),))
