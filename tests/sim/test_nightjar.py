"""Nightjar: bins, blocks and the choice between arms. Steps take 10 s, and what a test makes of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim.control.executor import StepTime
from tests.sim.policy_driver import batch, outcome, policy
from traces.errors import InputError

SECONDS = {0: 10.0, 1: 11.0, 2: 18.0}
"""Of a step by its k; with everything accepted it yields k + 1 tokens: 10, 5.5 and 6 s per token."""


def catching_up(batch, lengths):
    """1 s for each token that the draft is behind, if there is a draft."""
    behind = float((batch.known_tokens - 1 - batch.draft_tokens).sum())
    return 10.0 + behind * (lengths.max(axis=1) > 0)


def step(rule, slots=(0,), extra_s=0.0, behind=0):
    """One step in which everything is accepted; returns its k."""
    seen = batch(list(slots))
    seen = replace(seen, draft_tokens=seen.draft_tokens - behind)
    k = int(rule.lengths(seen)[0])
    told = outcome([k] * len(seen), [k] * len(seen), [[0.1] * k] * len(seen))
    told.time = StepTime(0.0, SECONDS[k] + extra_s, 100.0, 0.0)  # the prefill beside it is not the arm's doing
    rule.observe(seen, told)
    return k


def exploring(rule, arms, chances):
    """Replace the draws: the arms that are explored, and the numbers held against 1 / b."""
    chance, arm = iter(chances), iter(arms)

    class Draws:
        def random(self):
            return next(chance)

        def integers(self, number):
            return next(arm)

    rule._draws = Draws()
    return rule


def test_bins_and_blocks_by_hand():
    # block 1: 1 bin of 1 step; block 2: 2 bins of 2; block 3: 4 bins of 4. The first choice is free, as nothing is
    # known; then the first bin of each block explores (any number is below 1), the second if the number is below 1/2,
    # the third 1/3, the fourth 1/4; otherwise the best known arm is taken: of 2 and 0 (6 and 10 s a token) 2, then 1.
    #           bin        1   | 1      2     | 1 (arm 1)    2 (0.5: no)  3 (0.3: yes, arm 0)  4 (0.3: no)
    rule = exploring(policy("nightjar:k=2"), arms=[2, 0, 1, 0], chances=[0.9, 0.6, 0.9, 0.5, 0.3, 0.3])
    seen = [step(rule) for _ in range(21)]
    assert seen == [2, 0, 0, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1]


def test_batch_sizes_learn_apart():
    rule = exploring(policy("nightjar:k=2"), arms=[0, 2, 1], chances=[0.9])
    # two sequences: 10 s for 2 tokens each with arm 0
    assert [step(rule, [0, 1]), step(rule), step(rule)] == [0, 2, 1]
    assert rule.seconds[1:3].tolist() == [[0.0, 11.0, 18.0], [10.0, 0.0, 0.0]]
    assert rule.tokens[1:3].tolist() == [[0.0, 2.0, 3.0], [2.0, 0.0, 0.0]]


@pytest.mark.parametrize(("behind", "k"), [(4, 1), (6, 0)])
def test_resuming_costs(behind, k):
    # known: 10 s a token without a draft, 5.5 with k = 1. To resume costs `behind` s, over k = 1: 9.5 or 11.5 s
    rule = exploring(policy("nightjar:k=1", step_seconds_many=catching_up), arms=[1, 0], chances=[0.9, 0.6])
    assert [step(rule) for _ in range(3)] == [1, 0, 0]
    assert step(rule, behind=behind) == k


def test_going_on_costs_nothing():
    # as above, but the last step did draft: 5.5 s against 10 s, however far the draft is behind
    rule = exploring(policy("nightjar:k=1", step_seconds_many=catching_up), arms=[0, 1], chances=[0.9, 0.6])
    assert [step(rule) for _ in range(3)] == [0, 1, 1]
    assert step(rule, behind=6) == 1


def test_the_step_that_resumes_is_booked_without_the_cost():
    # the first step of a run resumes: 5 s of catching up are taken off its 11 + 5
    rule = exploring(policy("nightjar:k=1", step_seconds_many=catching_up), arms=[1], chances=[])
    step(rule, behind=5, extra_s=5.0)
    assert rule.seconds[1].tolist() == [0.0, 11.0]


def test_draws_come_from_the_seed():
    def run(seed):
        rule = policy("nightjar:k=2", seed=seed)
        return [step(rule) for _ in range(40)]

    assert run(1) == run(1)
    assert len({tuple(run(seed)) for seed in range(5)}) > 1


def test_finds_the_best_arm():
    # of 1,400 steps, all but the explored ones (about ln 32 of 32 bins in the last block) use k = 1
    rule = policy("nightjar:k=2")
    seen = np.array([step(rule) for _ in range(1400)])
    assert (seen[400:] == 1).mean() > 0.75


def test_without_arms():
    rule = policy("nightjar:k=0")
    assert [step(rule) for _ in range(5)] == [0] * 5
    assert rule.max_length == 0


@pytest.mark.parametrize("options", ["k=-1", "k=x", "c=1"])
def test_bad_options(options):
    with pytest.raises(InputError, match="policy nightjar"):
        policy(f"nightjar:{options}")
