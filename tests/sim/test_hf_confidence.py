"""The confidence stop of transformers by hand; the re-fit on the ROC of (q, accepted)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.sim.draft_loop import drafted, steps, verify
from tests.sim.policy_driver import policy
from traces.errors import InputError

SCRIPT = [
    # threshold .4. Pairs .9+ .8+ .3-: three are too few for a re-fit
    ([0.9, 0.8, 0.3], 2),
    # .4 again, nobody stops. + .7+ .6+ .5-: of 4 accepted and 2 rejected, .6 misses none and lets none in: cost 0
    ([0.7, 0.6, 0.5], 2),
    # .6. + .7+ .55+: six accepted, of which .6 misses one (3/6 = .5); .55 none, and lets none in
    ([0.7, 0.55, 0.9], 2),
    # .55. + .58-: .55 lets one of three in (.33), .6 misses one of six (.5)
    ([0.58, 0.5, 0.9], 0),
    # .55, which does not stop itself. + .55+ .54-: .55 lets one of four in (.25), .6 misses two of seven (.86)
    ([0.55, 0.54, 0.9], 1),
    ([0.549, 0.9, 0.9], 0),
]


def test_six_steps_of_one_sequence():
    assert steps(policy("hf-confidence"), SCRIPT) == [3, 3, 2, 2, 2, 1]


def test_the_threshold_step_by_step():
    rule, seen = policy("hf-confidence"), []
    for row, accepted in SCRIPT[:5]:
        verify(rule, [row], drafted(rule, [row]), [accepted])
        seen.append(rule.threshold)
    assert seen == [0.4, 0.6, 0.55, 0.55, 0.55]


def test_without_a_re_fit_the_threshold_stays():
    # .4 throughout: only .3 in the first step stops
    assert steps(policy("hf-confidence:refit=off"), SCRIPT) == [3, 3, 3, 3, 3, 3]


def test_what_was_drafted_behind_a_rejection_teaches_nothing():
    rule = policy("hf-confidence")
    verify(rule, [[0.9, 0.8, 0.7, 0.6]], [4], [1])
    assert rule.pairs.sum(axis=1).tolist() == [1, 1]


@pytest.mark.parametrize("accepted", [0, 1])
def test_one_kind_alone_fits_nothing(accepted):
    rule = policy("hf-confidence")
    for _ in range(10):
        verify(rule, [[0.9]], [1], [accepted])
    assert rule.threshold == 0.4


def test_ties_go_to_the_highest_threshold():
    # .9+ .9+ .8- .8- .8- .6+: .9 misses one of three (3/3), .6 lets all in (1), .8 does both (2)
    rule = policy("hf-confidence")
    for q, kind in [(0.6, 1), (0.8, 0), (0.8, 0), (0.8, 0), (0.9, 1), (0.9, 1)]:
        verify(rule, [[q]], [1], [kind])
    assert rule.threshold == 0.9


def test_all_sequences_fill_one_pool():
    rule = policy("hf-confidence")
    rows = [[0.9, 0.8], [0.7, 0.3], [0.95, 0.2]]
    verify(rule, rows, [2, 2, 2], [2, 1, 1])
    # .9+ .8+ .7+ .3- .95+ .2-: .7 misses none and lets none in
    assert rule.threshold == 0.7
    rule.begin(np.array([0, 1, 2]))
    assert rule.threshold == 0.7


@pytest.mark.parametrize(("q", "k"), [(1.0, 8), (0.4, 8), (0.3999, 1), (0.0, 1), (math.nan, 8)])
def test_probabilities_at_the_edge(q, k):
    assert drafted(policy("hf-confidence"), [[q] * 8]) == [k]


def test_an_undefined_probability_counts_as_none():
    rule = policy("hf-confidence")
    verify(rule, [[math.nan]], [1], [0])
    assert rule.pairs[0, -1] == 1


def test_a_step_without_a_draft_changes_nothing():
    rule = policy("hf-confidence")
    verify(rule, [[0.5]], [0], [0])
    assert rule.pairs.sum() == 0


def test_at_most_k_and_at_most_what_is_left():
    assert drafted(policy("hf-confidence:k=5"), [[1.0] * 8]) == [5]
    assert drafted(policy("hf-confidence:k=5"), [[1.0] * 8], remaining=4) == [3]


@pytest.mark.parametrize("spec", ["k=-1", "threshold=1.1", "threshold=nan", "refit=yes"])
def test_bad_options(spec):
    with pytest.raises(InputError, match="policy hf-confidence"):
        policy(f"hf-confidence:{spec}")
