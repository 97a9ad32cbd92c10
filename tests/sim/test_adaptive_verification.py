"""adaptive-verification by hand: which slots of a draft are verified, and what verdicts teach."""

from __future__ import annotations

import numpy as np
import pytest

from sim.metrics import summarize
from tests.sim.policy_driver import batch, outcome, policy
from tests.sim.serving import requests, run
from traces.errors import InputError


def verify_seconds(batch, verified):
    """1 s and 0.2 s for each draft token."""
    return 1.0 + 0.2 * verified.sum(axis=1)


def step_seconds(batch, lengths):
    """0.1 s for each draft pass, and the verification."""
    return 0.1 * lengths.max(axis=1) + verify_seconds(batch, lengths)


def plateau_seconds(batch, verified):
    """1 s up to two draft tokens, then 1.3 s for any number."""
    return np.where(verified.sum(axis=1) <= 2, 1.0, 1.3)


def rule(k=3, verify=verify_seconds, step=step_seconds):
    return policy(f"adaptive-verification:k={k}", step_seconds_many=step, verify_seconds_many=verify)


def trimmed(made, *probabilities):
    proposed = np.array([len(row) for row in probabilities])
    signals = outcome(proposed, proposed, probabilities).signals
    return made.trim(batch(list(range(len(proposed)))), proposed, signals).tolist()


def test_everyone_drafts_k():
    assert rule(5).lengths(batch([0, 3])).tolist() == [5, 5]


def test_five_steps_by_hand():
    # before any verdict the draft's word is taken: survival is the product of its probabilities.
    # rate of n verified tokens: (2 + their survivals) / (0.3 + 1 + 0.2 n)
    made, same = rule(), [0.9, 0.9, 0.9]
    # .9 .9 .81 .81 .729 .729: 6.878 / 2.5 = 2.75 for all six, 6.149 / 2.3 = 2.67 for five
    assert trimmed(made, same, same) == [3, 3]
    # .9 .81 .729 | .3: 4.439 / 1.9 = 2.34 for three, 4.739 / 2.1 = 2.26 for four, 3.71 / 1.7 = 2.18 for two
    assert trimmed(made, same, [0.3, 0.3, 0.3]) == [3, 0]
    # .5 .25 .125 | .2: 2.5 / 1.5 = 1.67 for one, 2.75 / 1.7 = 1.62 for two, 2 / 1.3 = 1.54 for none
    assert trimmed(made, [0.5, 0.5, 0.5], [0.2, 0.9, 0.9]) == [1, 0]
    # .1: 2.1 / 1.5 = 1.4 for one, 1.54 for none
    assert trimmed(made, [0.1, 0.1, 0.1], [0.1, 0.1, 0.1]) == [0, 0]
    # .95 .19 | .6 .57: .95, .6 and .57: 4.12 / 1.9 = 2.17; with .19 4.31 / 2.1 = 2.05; without .57 3.55 / 1.7 = 2.09
    assert trimmed(made, [0.95, 0.2, 0.9], [0.6, 0.95, 0.1]) == [1, 2]


def test_it_looks_past_a_plateau():
    # survivals .5 .25 .125 | .5 .25 .125 without cost of drafting: 3 / 1 = 3 for two, 3.25 / 1.3 = 2.5 for three, and
    # 3.75 / 1.3 = 2.88 for six: two. With .9: 3.8 for two, 4.61 / 1.3 = 3.55 for three, but 6.878 / 1.3 = 5.29 for six
    made = rule(verify=plateau_seconds, step=plateau_seconds)
    assert trimmed(made, [0.5] * 3, [0.5] * 3) == [1, 1]
    assert trimmed(made, [0.9] * 3, [0.9] * 3) == [3, 3]


def test_verdicts_overrule_an_overconfident_draft():
    # the draft says .9 and is right one time in ten: 2.1 / 1.5 = 1.4 for a token, 1.54 for none
    made = rule()
    for step in range(200):
        made.observe(batch([0]), outcome([1], [step % 10 == 0], [[0.9]]))
    assert trimmed(made, [0.9] * 3, [0.9] * 3) == [0, 0]


@pytest.mark.parametrize(("verdict", "expected"), [(True, [3, 3]), (False, [0, 0])])
def test_always_right_and_never_right(verdict, expected):
    made = rule()
    for _ in range(200):
        made.observe(batch([0]), outcome([3], [3 * verdict], [[0.5] * 3]))
    assert trimmed(made, [0.5] * 3, [0.5] * 3) == expected


def test_a_sequence_that_drafted_nothing_verifies_nothing():
    assert trimmed(rule(), [0.9, 0.9], []) == [2, 0]


def test_a_probability_that_is_no_number_counts_as_a_half():
    # 1.5 / 1.3 = 1.15 with the token, 1 / 1.1 = 0.91 without
    assert trimmed(rule(1), [np.nan]) == [1]


def test_drafted_and_verified_tokens_are_counted_apart():
    workload = requests([8] * 8, 60)
    log = run(workload, policy="adaptive-verification:k=8", acceptance="iid:0.3").log
    decoded = log.emissions["proposed"] >= 0
    proposed, verified = (int(log.emissions[name][decoded].sum()) for name in ("proposed", "verified"))
    metrics = summarize(log, workload)
    assert (metrics["spec_decode_proposed_tokens"], metrics["spec_decode_draft_tokens"]) == (proposed, verified)
    assert verified <= proposed


def test_bad_option():
    with pytest.raises(InputError, match="adaptive-verification: k is -1"):
        policy("adaptive-verification:k=-1")
