"""The online estimator of survival and the admission of slots, against sums by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim.policies.survival import MOST_BUDGETS, OnlineLogistic, admission, chance, logit, verdicts, within
from tests.sim.policy_driver import outcome


def test_a_newton_step_by_hand():
    # one feature that is always 1, w = 0: every chance is 1/2. Four verdicts, three accepted:
    # curvature 4 * 1/4 = 1, gradient 3 - 4/2 = 1, ridge 2: w = 1 / (1 + 2)
    model = OnlineLogistic((0.0,), strength=2.0)
    model.update(np.ones((4, 1)), np.array([True, True, True, False]))
    assert model.weights[0] == pytest.approx(1 / 3)


def test_an_older_verdict_counts_less():
    # w = 0 again after one accepted and one rejected, curvature 1/2. Memory 1/2 a verdict: the next two leave a quarter
    # of it, 1/8, and add 1/2; gradient 2 - 1 = 1, ridge 1: w = 1 / (1/8 + 1/2 + 1)
    model = OnlineLogistic((0.0,), memory=0.5, strength=1.0)
    model.update(np.ones((2, 1)), np.array([True, False]))
    model.update(np.ones((2, 1)), np.array([True, True]))
    assert model.weights[0] == pytest.approx(1 / 1.625)


def test_no_verdict_changes_nothing():
    model = OnlineLogistic((0.3, -1.0))
    model.update(np.empty((0, 2)), np.empty(0, np.bool_))
    assert model.weights.tolist() == [0.3, -1.0]


@pytest.mark.parametrize("verdict", [True, False])
def test_the_same_verdict_for_ever_stays_finite(verdict):
    model = OnlineLogistic((0.0, 0.0))
    for _ in range(2000):
        model.update(np.array([[1.0, 0.5]] * 8), np.full(8, verdict))
    assert np.isfinite(model.weights).all()
    assert abs(float(model(np.array([1.0, 0.5]))) - verdict) < 0.01


def test_it_learns_the_rate_of_a_coin():
    # accepted with 0.3 whatever the feature: the forgetting estimate is that of about 5,000 verdicts,
    # standard error sqrt(.21 / 5000) = 0.0065
    rng = np.random.default_rng(1)
    model = OnlineLogistic((2.0, 0.0))
    for _ in range(1000):
        x = np.stack([np.ones(16), rng.normal(size=16)], axis=1)
        model.update(x, rng.random(16) < 0.3)
    assert float(model(np.array([1.0, 0.0]))) == pytest.approx(0.3, abs=0.03)


def test_chance_and_logit_are_bounded():
    assert chance(np.array([-1e9, 0.0, 1e9])) == pytest.approx([1 / (1 + np.exp(9)), 0.5, 1 / (1 + np.exp(-9))])
    assert logit(np.array([0.0, 0.5, 1.0, np.nan])) == pytest.approx([np.log(1e-4), 0, -np.log(1e-4), 0], abs=2e-4)


def test_judged_are_the_accepted_run_and_the_first_rejection():
    # accepted 2 of 4: three are judged; all 3 accepted: three; none verified: none
    result = outcome([4, 3, 2], [2, 3, 0], [[0.0] * 4] * 3)
    judged, accepted = verdicts(replace(result, verified=np.array([4, 3, 0])), 4)
    assert judged.sum(axis=1).tolist() == [3, 3, 0]
    assert accepted.sum(axis=1).tolist() == [2, 3, 0]


def test_a_rejection_that_was_trimmed_away_is_no_verdict():
    # 2 of 2 verified tokens accepted, 4 proposed: nothing was said of tokens 3 and 4
    result = replace(outcome([4], [2], [[0.0] * 4]), verified=np.array([2]))
    judged, accepted = verdicts(result, 4)
    assert (judged & ~accepted).sum() == 0


def test_within():
    assert within(np.ones((2, 3)), np.array([0, 2])).tolist() == [[0, 0, 0], [1, 1, 0]]


def test_admission_takes_the_most_likely_first():
    # slots .9 (first, depth 1), .8 (second, 1), .5 (first, 2), .1 (second, 2): their order, one at a time
    admitted, accepted = admission(np.array([[0.9, 0.5], [0.8, 0.1]]), np.array([2, 2]))
    assert admitted.tolist() == [[0, 0], [1, 0], [1, 1], [2, 1], [2, 2]]
    assert accepted == pytest.approx([0, 0.9, 1.7, 2.2, 2.3])


def test_admission_stays_within_each_draft():
    # the second sequence has drafted one token: its .8 at depth 2 is no slot
    admitted, accepted = admission(np.array([[0.5, 0.4], [0.9, 0.8]]), np.array([2, 1]))
    assert admitted.tolist() == [[0, 0], [0, 1], [1, 1], [2, 1]]
    assert accepted == pytest.approx([0, 0.9, 1.4, 1.8])


def test_of_equals_admission_takes_the_shallow():
    admitted, _ = admission(np.full((3, 2), 0.5), np.array([2, 2, 2]))
    assert admitted[3].tolist() == [1, 1, 1]


def test_many_slots_are_admitted_in_portions():
    rng = np.random.default_rng(0)
    survival = np.cumprod(rng.random((50, 8)), axis=1)
    lengths = rng.integers(0, 9, 50)
    admitted, accepted = admission(survival, lengths)
    assert len(admitted) == MOST_BUDGETS + 1
    assert admitted[-1].tolist() == lengths.tolist()
    for row, expected in zip(admitted, accepted, strict=True):  # the yield is that of the slots that were admitted
        assert within(survival, row).sum() == pytest.approx(expected)


def test_admission_of_a_batch_that_drafted_nothing():
    admitted, accepted = admission(np.full((2, 1), 0.5), np.array([0, 0]))
    assert admitted.tolist() == [[0, 0]]
    assert accepted.tolist() == [0]
