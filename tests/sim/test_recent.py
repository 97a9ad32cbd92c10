"""Recent means per sequence, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim.policies.recent import FADE, FLOOR, OWN, START, Recent
from sim.policies.survival import logit
from tests.sim.policy_driver import outcome


def test_a_sequence_without_a_past_looks_like_the_average():
    expected = [np.log(0.7 / 0.3), START[1], START[2]]
    assert Recent(2, 4).features(np.array([1]))[0] == pytest.approx(expected, abs=1e-12)


def test_one_step_by_hand():
    # 3 verified, 1 accepted: 2 verdicts with mean 1/2, 3 divergences of 1 nat, 3 ln entropies of -1.
    # n equally old tokens weigh (1 - .85^n) / .15: 1.85 for two, 2.5725 for three; the average weighs 2
    recent = Recent(1, 4)
    recent.observe(np.array([0]), outcome([3], [1], [[1.0, 1.0, 1.0]]), np.full((1, 3), -1.0))
    average = recent.average  # has moved a little as well
    two, three = 1 + FADE, 1 + FADE + FADE**2
    share = (two * 0.5 + OWN * average[0]) / (two + OWN)
    kld = (three * np.log(1 + FLOOR) + OWN * average[1]) / (three + OWN)
    entropy = (three * -1.0 + OWN * average[2]) / (three + OWN)
    assert recent.features(np.array([0]))[0] == pytest.approx([float(logit(np.array(share))), kld, entropy])


def test_older_tokens_fade():
    # one rejection, then one acceptance: sums .85 * 0 + 1, weight .85 + 1
    recent = Recent(1, 4)
    for accepted in (0, 1):
        recent.observe(np.array([0]), outcome([1], [accepted], [[1.0]]), np.zeros((1, 1)))
    assert (recent.sums[0, 0], recent.weight[0, 0]) == pytest.approx((1.0, 1.85))


def test_what_was_not_verified_leaves_no_trace():
    # the second proposed token was trimmed: its infinite divergence does not count
    recent = Recent(1, 4)
    result = replace(outcome([2], [1], [[1.0, np.inf]]), verified=np.array([1]))
    recent.observe(np.array([0]), result, np.zeros((1, 2)))
    assert recent.sums[0, 1] == pytest.approx(np.log(1 + FLOOR))


@pytest.mark.parametrize("kld", [np.inf, np.nan, 1e30])
def test_an_infinite_divergence_counts_as_twenty_nats(kld):
    recent = Recent(1, 4)
    recent.observe(np.array([0]), outcome([1], [0], [[kld]]), np.zeros((1, 1)))
    assert recent.sums[0, 1] == pytest.approx(np.log(20 + FLOOR))


def test_a_step_without_a_draft_changes_nothing():
    recent = Recent(1, 4)
    recent.observe(np.array([0]), outcome([1], [1], [[1.0]]), np.zeros((1, 1)))
    before = recent.sums.copy(), recent.weight.copy(), recent.average.copy()
    recent.observe(np.array([0]), outcome([0], [0], [[]]), np.zeros((1, 0)))
    assert all(
        (new == old).all() for new, old in zip((recent.sums, recent.weight, recent.average), before, strict=True)
    )


def test_a_new_sequence_forgets_its_predecessor():
    recent = Recent(2, 4)
    recent.observe(np.array([0, 1]), outcome([2, 2], [0, 0], [[1.0, 1.0]] * 2), np.zeros((2, 2)))
    recent.begin(np.array([1]))
    assert recent.weight[1].tolist() == [0, 0, 0]
    assert recent.weight[0].min() > 0
