"""AdaEDL by hand: where it stops at a given threshold, how the threshold moves, and who stops whom."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.sim.draft_loop import drafted, signals_of, steps, verify
from tests.sim.policy_driver import batch, policy
from traces.errors import InputError

SURE = [0.0] * 8
ROW = [1.2, 1.24, 1.26, 0.1]


def test_six_steps_of_one_sequence():
    # stops above H = (1 - lambda)^2 / .2. R halves towards a/k; below .9 lambda rises by .1 * .01
    script = [
        (ROW, 3),  # lambda .500, H 1.25: 1.26 is the first above -> 3; R .5 -> lambda .501
        (ROW, 3),  # .501, 1.245005 -> 3; R .75 -> .502
        (ROW, 3),  # .502, 1.24002: 1.24 is just below -> 3; R .875 -> .503
        (ROW, 2),  # .503, 1.235045: 1.24 is above -> 2; R .9375, all accepted, but 2 is not k = 4: lambda stays
        (ROW, 0),  # .503 -> 2; R .46875 -> .504
        ([1.23, 1.231, 0.1, 0.1], 0),  # .504, 1.23008: 1.231 is the first above -> 2
    ]
    assert steps(policy("adaedl:k=4"), script) == [3, 3, 3, 2, 2, 2]


def test_the_threshold_falls_once_whole_drafts_are_accepted():
    # R = .5, .75, .875, .9375, .96875: three rises of .001 and two falls
    rule = policy("adaedl:k=4")
    seen = []
    for _ in range(5):
        verify(rule, [SURE], [4], [4])
        seen.append(float(rule.threshold[0]))
    assert seen == pytest.approx([0.501, 0.502, 0.503, 0.502, 0.501])


def test_nothing_accepted_raises_it_without_end():
    # R stays 0: lambda = .5 + .001 n; after 501 steps it is above 1 and a sure draft stops at its first token
    rule = policy("adaedl:k=4")
    for _ in range(499):
        verify(rule, [SURE], [4], [0])
    assert drafted(rule, [SURE]) == [4]
    for _ in range(2):
        verify(rule, [SURE], [4], [0])
    assert drafted(rule, [SURE]) == [1]


def test_r_of_exactly_nine_tenths_moves_nothing():
    # R = .5 * .8 + .5 * 1 = .9
    rule = policy("adaedl:k=4")
    rule.acceptance[0] = 0.8
    verify(rule, [SURE], [4], [4])
    assert rule.threshold[0] == 0.5


def test_a_step_without_a_draft_changes_nothing():
    rule = policy("adaedl:k=4")
    verify(rule, [SURE], [4], [2])
    before = (rule.threshold.tolist(), rule.acceptance.tolist())
    verify(rule, [SURE], [0], [0])
    assert (rule.threshold.tolist(), rule.acceptance.tolist()) == before


def test_all_accepted_is_what_can_be_drafted_not_what_was_asked_for():
    # k = 20, but no more than 6 can be drafted: six accepted are all
    rule = policy("adaedl", max_draft_tokens=6)
    rule.acceptance[0] = 1.0
    verify(rule, [SURE], [6], [6])
    assert rule.threshold[0] == pytest.approx(0.499)


def test_no_stop_before_min_spec():
    assert drafted(policy("adaedl:min_spec=3"), [[9.0] * 6]) == [3]


@pytest.mark.parametrize(("entropy", "k"), [(math.inf, 1), (math.nan, 8), (-1e-9, 8), (0.0, 8)])
def test_entropies_at_the_edge(entropy, k):
    # an infinite one stops; one-hot drafts (temperature 0) never; an undefined one says nothing
    assert drafted(policy("adaedl"), [[entropy] * 8]) == [k]


def test_gamma_weighs_the_entropy():
    # gamma .1: stops above H = .25 / .1 = 2.5
    assert drafted(policy("adaedl:gamma=.1"), [[1.3, 2.49, 2.51, 0.0]]) == [3]


def test_each_sequence_stops_by_itself():
    assert drafted(policy("adaedl"), [[0.0, 2.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 0.0]]) == [2, 1, 3]


def test_in_batch_scope_the_first_ends_the_draft_for_all():
    assert drafted(policy("adaedl:scope=batch"), [[0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 2.0]]) == [2, 2, 2]


def test_in_batch_scope_a_draft_that_has_ended_stops_nobody():
    # three left: two can be drafted, and whatever stands at depth 3 is no token
    rule, now = policy("adaedl:scope=batch"), batch([0, 1])
    now.remaining[:] = [3, 1000]
    assert not rule.stop(now, 3, signals_of([[0.0, 0.0, 9.0], [0.0, 0.0, 0.0]])).any()
    assert rule.stop(now, 3, signals_of([[0.0, 0.0, 0.0], [0.0, 0.0, 9.0]])).all()


def test_a_request_at_its_end_drafts_what_is_left():
    assert drafted(policy("adaedl"), [SURE], remaining=3) == [2]


def test_a_new_sequence_starts_anew():
    rule = policy("adaedl:k=4")
    for _ in range(5):
        verify(rule, [SURE, SURE], [4, 4], [0, 0])
    rule.begin(np.array([1]))
    assert rule.threshold[:2].tolist() == pytest.approx([0.505, 0.5])
    assert rule.acceptance[1] == 0


@pytest.mark.parametrize("spec", ["k=-1", "gamma=-1", "gamma=inf", "min_spec=0", "scope=all", "lambda=1"])
def test_bad_options(spec):
    with pytest.raises(InputError, match="policy adaedl"):
        policy(f"adaedl:{spec}")
