"""Goodput by hand: a draft pass takes 1 s, a verification 10 s whatever its size, unless said otherwise."""

from __future__ import annotations

import pytest

from tests.sim.policy_driver import batch, outcome, play, policy
from traces.errors import InputError


def seconds(batch, lengths):
    return 10.0 + lengths.max(axis=1)


def dear(batch, lengths):
    """Every verified token costs 5 s more: with many sequences nothing pays."""
    return 10.0 + lengths.max(axis=1) + 5.0 * lengths.sum(axis=1)


def test_by_hand():
    # a = A / J. E / (10 + k), k = 0 counts 1.1 times .1 = .11
    # .7: k 1..5: .1545 .1825 .1948 .1981 .1961: 4
    # 0 of 4: one judged. A .7 * .85 = .595, J .85 + 1 = 1.85: a .3216: .1201 .1188: 1
    # 0 of 1: A .50575, J 2.5725: a .1966: .1088 < .11: 0, and nothing more is learned
    rule = policy("goodput", step_seconds_many=seconds)
    assert play(rule, [0, 0, 0, 0, 0]) == [4, 1, 0, 0, 0, 0]
    assert rule.accepted[0] / rule.judged[0] == pytest.approx(0.50575 / 2.5725)


def test_all_accepted():
    # 4 of 4: A .595 + 4, J .85 + 4: a .9474: E / (10 + k) for k = 6, 7, 8: .3742 .3925 .4068: the longest draft
    assert play(policy("goodput", step_seconds_many=seconds), [9]) == [4, 8]


def test_acceptance_0_and_1():
    # E = 1 whatever k: no draft.  E = k + 1: (k + 1) / (10 + k) rises to the longest draft (F56)
    rule = policy("goodput", step_seconds_many=seconds)
    for share, k in ((0.0, 0), (1.0, 8)):
        rule.accepted[:] = share * rule.judged
        assert rule.lengths(batch([0])).tolist() == [k]


def test_ties_go_to_the_smaller_k():
    # a = 1 and steps of k + 1 s: 1 token/s at every k > 0; k = 0 is made dear, so that its 1.1 does not decide
    rule = policy(
        "goodput", step_seconds_many=lambda batch, lengths: 1.0 + lengths.max(axis=1) + (lengths.max(axis=1) == 0)
    )
    rule.accepted[:] = rule.judged
    assert rule.lengths(batch([0])).tolist() == [1]


def test_expected_tokens():
    # F56: .8 and k 4: 3.3616 with the bonus token
    rule = policy("goodput:k=4")
    rule.accepted[:], rule.judged[:] = 0.8, 1.0
    assert rule.expected()[[0, 4]].tolist() == pytest.approx([1.0, 3.3616])


def test_load_turns_it_off():
    # a = .7, cost as in `dear`. One sequence: k 1: 1.7 / 16 = .106 < .11.  Cheap tokens would have given 4
    rule = policy("goodput", step_seconds_many=dear)
    assert rule.lengths(batch([0])).tolist() == [0]


def test_positions_apart():
    # the first token always fails, and with it every chain: A1 falls to .7 * .85^n, and the others stay at .7.
    # k 4, then a1 = .595 / 1.85 = .3216: E(1) = 1.32, / 11 = .120; E(2) = 1.32 + .225, / 12 = .1289; E(3): + .1576,
    # / 13 = .1311; E(4): + .1103, / 14 = .1296: 3.  Next: a1 .1966: E(1) 1.197 / 11 = .1088 .. E(2) 1.334 / 12 = .1112,
    # E(3) 1.431 / 13 = .1100: 2.  Next: A1 .4299, J1 3.1866: .1349: 1.135 / 11, 1.229 / 12 = .1024: 0
    rule = policy("goodput:acceptance=position", step_seconds_many=seconds)
    assert play(rule, [0, 0, 0]) == [4, 3, 2, 0]
    assert (rule.accepted / rule.judged)[1:] == pytest.approx(0.7)


def test_positions_count_only_where_they_were_reached():
    # two sequences, k 3: accepted 3 and 1. Judged: 2, 2, 1; accepted 2, 1, 1
    rule = policy("goodput:k=3,acceptance=position")
    rule.observe(batch([0, 1]), outcome([3, 3], [3, 1], [[0.1] * 3] * 2))
    assert rule.judged.tolist() == pytest.approx([2.85, 2.85, 1.85])
    assert rule.accepted.tolist() == pytest.approx([2.595, 1.595, 1.595])


def test_the_last_tokens_of_a_request_expect_no_more():
    # two tokens are left: drafts beyond 1 cost passes and bring nothing. E(1) / 11 = .1545
    rule = policy("goodput", step_seconds_many=lambda batch, lengths: 10.0 + lengths.max(axis=1))
    assert rule.lengths(batch([0], remaining=2)).tolist() == [1]
    assert rule.lengths(batch([0], remaining=1)).tolist() == [0]


def test_probes_and_comes_back():
    # two failures lead to k = 0 (above), and the 32nd step there drafts one token. Accepted: A .50575 * .85 + 1, J
    # 2.5725 * .85 + 1: a .4487: E / (10 + k) for k = 1, 2, 3: .1317 .1375 .1339: 2
    rule = policy("goodput", step_seconds_many=seconds)
    assert play(rule, [0] * 2 + [9] * 32)[-3:] == [0, 1, 2]


def test_probe_0_never():
    rule = policy("goodput:probe=0", step_seconds_many=seconds)
    assert play(rule, [0] * 2 + [9] * 100)[2:] == [0] * 101


@pytest.mark.parametrize("options", ["k=-1", "probe=-1", "acceptance=mean"])
def test_bad_options(options):
    with pytest.raises(InputError, match="policy goodput"):
        policy(f"goodput:{options}")
