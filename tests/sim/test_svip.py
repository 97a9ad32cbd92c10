"""SVIP by hand: sqrt(.15 H) > .3 is H > .6 nats."""

from __future__ import annotations

import math

import pytest

from tests.sim.draft_loop import drafted, steps
from tests.sim.policy_driver import policy
from traces.errors import InputError


def test_six_steps_of_one_sequence():
    script = [
        ([0.1, 0.59, 0.61, 0.1], 3),  # the third is above .6, and kept
        ([0.7, 0.1, 0.1, 0.1], 0),  # the first
        ([0.1, 0.1, 0.1, 0.1], 4),  # none
        ([0.1, 0.1, 0.1, 5.0], 0),  # the last: the end anyway
        ([0.3, 2.0, 0.1, 9.0], 0),  # the first of two
        ([0.0, 0.5999, 0.5999, 0.0], 0),  # just below
    ]
    assert steps(policy("svip"), script) == [3, 1, 4, 4, 2, 4]


def test_threshold_is_an_option():
    # .15 H > .25 is H > 1.6667
    assert drafted(policy("svip:threshold=.5"), [[1.66, 1.67, 0.0]]) == [2]


def test_at_most_k():
    assert drafted(policy("svip:k=3"), [[0.0] * 8]) == [3]


def test_at_most_forty():
    assert drafted(policy("svip"), [[0.0] * 50]) == [40]


@pytest.mark.parametrize(("entropy", "k"), [(math.inf, 1), (math.nan, 8), (-1e-9, 8), (0.0, 8)])
def test_entropies_at_the_edge(entropy, k):
    assert drafted(policy("svip"), [[entropy] * 8]) == [k]


def test_sequences_stop_by_themselves_and_at_their_end():
    assert drafted(policy("svip"), [[0.0, 1.0, 0.0, 0.0], [0.0] * 4, [1.0] * 4], remaining=4) == [2, 3, 1]


@pytest.mark.parametrize("spec", ["k=-1", "threshold=-1", "threshold=nan", "gamma=1"])
def test_bad_options(spec):
    with pytest.raises(InputError, match="policy svip"):
        policy(f"svip:{spec}")
