"""Acceptance held near 0.7: up from a mean of 0.75 over the last 10 steps, down from 0.65, after 3 steps."""

from __future__ import annotations

import pytest

from tests.sim.policy_driver import batch, outcome, policy
from traces.errors import InputError


def play(rule, accepted_shares, slot=0):
    """k of each step, and the k after the last; a share of each draft is accepted, rounded."""
    seen = []
    for share in accepted_shares:
        k = int(rule.lengths(batch([slot]))[0])
        seen.append(k)
        rule.observe(batch([slot]), outcome([k], [round(share * k)], [[0.1] * k]))
    return [*seen, int(rule.lengths(batch([slot]))[0])]


def test_by_hand():
    # k 4: rates 2/4, 2/4, 2/4: mean .5 <= .65 only counts from the third step on: 3.
    # 3/3: mean of .5 .5 .5 1 = .625: 2.  2/2: mean .7: stays.  2/2: (1.5 + 3)/6 = .75 >= .75: 3
    assert play(policy("acceptance-target:k=4"), [0.5, 0.5, 0.5, 1, 1, 1]) == [4, 4, 4, 3, 2, 2, 3]


def test_only_the_last_ten_steps_count():
    # ten steps of 0 take k from 8 to 1 (8 moves from step 3 on). Then 1s: the mean over ten is n/10, and k goes up from
    # the 8th on (.8 >= .75): the 8th, 9th and 10th step lift k to 4. All steps together would be at 10/20 = .5
    assert play(policy("acceptance-target"), [0] * 10 + [1] * 10)[-4:] == [1, 2, 3, 4]


def test_back_at_the_longest_draft():
    # 50 failures, then all accepted: 10 + k_max = 18 steps are enough
    assert play(policy("acceptance-target"), [0] * 50 + [1] * 18)[-1] == 8


def test_a_step_without_a_draft_changes_nothing():
    rule = policy("acceptance-target:k=4")
    assert play(rule, [0.5] * 3)[-1] == 3
    rule.observe(batch([0]), outcome([0], [0], [[]]))
    assert rule.lengths(batch([0])).tolist() == [3]
    assert rule.rates.count[0] == 3


def test_a_new_sequence_starts_anew():
    # slot 0 has fallen to 3; its successor starts at 4 and needs 3 steps of its own
    rule = policy("acceptance-target:k=4")
    play(rule, [0] * 3)
    rule.begin(batch([0]).slot)
    assert play(rule, [0] * 3) == [4, 4, 4, 3]


def test_sequences_have_a_k_each():
    rule = policy("acceptance-target:k=4")
    for _ in range(3):
        rule.observe(batch([0, 1]), outcome([4, 4], [0, 4], [[0.1] * 4] * 2))
    assert rule.lengths(batch([0, 1])).tolist() == [3, 4]


@pytest.mark.parametrize("options", ["k=0", "target=0", "target=1", "target=nan"])
def test_bad_options(options):
    with pytest.raises(InputError, match="policy acceptance-target"):
        policy(f"acceptance-target:{options}")
