"""BASS by hand: up by 2 if some sequence accepts all, else down by a tenth, and by one more from the second failure."""

from __future__ import annotations

import pytest

from tests.sim.policy_driver import batch, outcome, policy
from traces.errors import InputError


def play(rule, best_runs):
    """k of each step, and the k after the last; of two sequences one accepts nothing, the other that many (-1: all)."""
    seen = []
    for best in best_runs:
        k = int(rule.lengths(batch([0, 1]))[0])
        seen.append(k)
        rule.observe(batch([0, 1]), outcome([k, k], [0, k if best < 0 else best], [[0.1] * k] * 2))
    return [*seen, int(rule.lengths(batch([0, 1]))[0])]


def test_by_hand():
    # 7 all: 9.  best 3: 9 - 1 - 0 = 8.  3 again: 8 - 1 - 1 = 6.  best 5: max(5, 6 - 1 - 1) = 5.  5 of 5, all: 7.
    # best 0: 7 - 1 - 0 = 6, the failure before the success is forgotten
    assert play(policy("bass"), [-1, 3, 3, 5, 5, 0]) == [7, 9, 8, 6, 5, 7, 6]


def test_a_tenth_is_rounded_up():
    # 21 - ceil(2.1) - 0 = 18
    assert play(policy("bass:initial=21"), [0]) == [21, 18]


def test_limits():
    # 31 all: 32, not 33.  1 with nothing accepted: max(1, 0, 1 - 1 - 0)
    assert play(policy("bass:initial=31"), [-1, -1]) == [31, 32, 32]
    assert play(policy("bass:initial=1"), [0, 0]) == [1, 1, 1]


def test_no_longer_than_the_executor_drafts():
    assert play(policy("bass:initial=10", max_draft_tokens=8), [-1]) == [8, 8]


def test_back_at_the_limit():
    # 50 failures: 1; then 1, 3, ..., 31, 32: 16 steps
    assert play(policy("bass"), [0] * 50 + [-1] * 16)[-17:] == [*range(1, 32, 2), 32]


def test_a_step_without_drafts_changes_nothing():
    rule = policy("bass")
    rule.observe(batch([0]), outcome([0], [0], [[]]))
    assert rule.lengths(batch([0])).tolist() == [7]


def test_drafts_cut_short_count_by_the_longest():
    # two tokens of the 7 were drafted and accepted: no failure
    rule = policy("bass")
    rule.observe(batch([0]), outcome([2], [2], [[0.1, 0.1]]))
    assert rule.lengths(batch([0])).tolist() == [9]


@pytest.mark.parametrize("options", ["initial=0", "initial=9,limit=8"])
def test_bad_options(options):
    with pytest.raises(InputError, match="policy bass"):
        policy(f"bass:{options}")
