"""gated-aggregate and gated-budget by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim.policies.gated_aggregate import PROBE
from tests.sim.policy_driver import batch, outcome, policy
from traces.errors import InputError


def passes_only(batch, lengths):
    """1 s, and 0.3 s for each draft pass."""
    return 1.0 + 0.3 * lengths.max(axis=1)


def passes_and_tokens(batch, lengths):
    """1 s, 0.1 s for each draft pass and 0.1 s for each draft token."""
    return 1.0 + 0.1 * lengths.max(axis=1) + 0.1 * lengths.sum(axis=1)


def says(made, *probabilities):
    """A step of each sequence in which the draft was so sure of one token. It was not verified: nothing is learned."""
    rows = range(len(probabilities))
    result = outcome([1] * len(rows), [0] * len(rows), [[p] for p in probabilities])
    made.observe(batch(list(rows)), replace(result, verified=np.zeros(len(rows), np.int64)))


def depths(made, *confidences):
    """Depth chosen at first, and after each step."""
    seen = [int(made.lengths(batch([0]))[0])]
    for probability in confidences:
        says(made, probability)
        seen.append(int(made.lengths(batch([0]))[0]))
    return seen


FADING = (0.9, 0.5, 0.5, 0.5, 0.5, 0.1, 0.1)


def test_eight_steps_by_hand():
    # one sequence; rate(g) = (1 + c + .. + c^g) / (1 + 0.3 g) with c = sigmoid(confidence). Confidence: 1 before any
    # draft, then logit .9 = 2.197, then 0.7 of itself and 0.3 of the new logit (0 for .5, -2.197 for .1):
    #   1      c .731   1.332 1.416 1.398                      2
    #   2.197  c .900   1.462 1.694 1.810 1.862 1.874 1.863    5
    #   1.538  c .823   1.403 1.563 1.610 1.599                3
    #   1.077  c .746   1.343 1.439 1.430                      2
    #   0.754  c .680   1.292 1.339 1.293                      2
    #   0.528  c .629   1.253 1.265 1.196                      2
    #  -0.290  c .428   1.099 1.007                            1
    #  -0.862  c .297   0.998                                  0
    made = policy("gated-aggregate", step_seconds_many=passes_only)
    assert depths(made, *FADING) == [2, 5, 3, 2, 2, 2, 1, 0]


def test_cooldown_keeps_a_depth():
    # 5 holds for two more steps, then the fifth step's own 2
    made = policy("gated-aggregate:cooldown=2", step_seconds_many=passes_only)
    assert depths(made, *FADING[:4]) == [2, 5, 5, 5, 2]


def test_max_step_bounds_the_change():
    # 2 may go to 3 (1.810 there, 1.694 at 2), then the best is 3, then 2
    made = policy("gated-aggregate:max_step=1", step_seconds_many=passes_only)
    assert depths(made, *FADING[:3]) == [2, 3, 3, 2]


def test_switch_cost_keeps_the_present_depth():
    # second step: 1.694 at 2; with 300 ms more 4.686 / 2.8 = 1.674 at 5, 5.217 / 3.1 = 1.683 at 6. With 200 ms 1.736
    kept, left = (
        depths(policy(f"gated-aggregate:switch_cost_ms={ms}", step_seconds_many=passes_only), 0.9) for ms in (300, 200)
    )
    assert kept == [2, 2]
    assert left[1] > 2


def test_the_first_depth_costs_no_switch():
    made = policy("gated-aggregate:switch_cost_ms=1000000", step_seconds_many=passes_only)
    assert depths(made) == [2]


def test_at_depth_zero_one_token_now_and_then():
    # a pass of 10 s never pays: 1.73 / 11
    made = policy("gated-aggregate", step_seconds_many=lambda batch, lengths: 1.0 + 10.0 * lengths.max(axis=1))
    seen = [int(made.lengths(batch([0]))[0]) for _ in range(2 * PROBE)]
    assert seen == ([0] * (PROBE - 1) + [1]) * 2


@pytest.mark.parametrize("name", ["gated-aggregate", "gated-budget"])
def test_nothing_is_drafted_past_the_end(name):
    made = policy(name, step_seconds_many=passes_only)
    assert made.lengths(batch([0, 1], remaining=2)).tolist() == [1, 1]
    assert made.lengths(batch([0, 1], remaining=1)).tolist() == [0, 0]


@pytest.mark.parametrize("name", ["gated-aggregate", "gated-budget"])
@pytest.mark.parametrize(("accepted", "expected"), [(8, 8), (0, 0)])
def test_always_right_and_never_right(name, accepted, expected):
    # acceptance 1: 8 more tokens for 2.4 s more, 9 / 3.4 is the highest rate; 0: nothing pays
    made = policy(name, step_seconds_many=passes_only)
    for _ in range(300):
        made.observe(batch([0]), outcome([8], [accepted], [[0.5] * 8]))
    assert made.lengths(batch([0])).tolist() == [expected]


def test_a_new_sequence_forgets_its_predecessor():
    made = policy("gated-aggregate", step_seconds_many=passes_only)
    says(made, 0.1)
    made.begin(np.array([0]))
    # back to the mean of the others: 1 + 0.02 (-2.197 - 1) = 0.936; c .718: 1.322 1.396 1.366
    assert made.lengths(batch([0])).tolist() == [2]


def test_budget_eight_steps_by_hand():
    # two sequences, T = 1 + 0.1 max + 0.1 sum. Uniform depth g by gated-aggregate, then the best budget below it:
    #   c .731 .731   g 2 at 2.832                          all: 2 2
    #   c .900 .500   g 3 at 2.797; less .125 2.883, less .25 2.905, less .5 2.774:    3 1
    #   c .900 .659   g 3 at 3.062; less .286 3.074, less .434 2.999:                  3 2
    #   c .823 .613   g 2 at 2.806; less .376 2.743:        2 2
    #   c .659 .728   g 2 at 2.719; less .435 2.611:        2 2
    #   c .451 .507   g 1 at 2.275; less .451 2.089:        1 1
    #   c .311 .345   g 1 at 2.043; less .311 1.954, none 2:    1 1
    #   c .151 .166   g 0
    made = policy("gated-budget", step_seconds_many=passes_and_tokens)
    seen = [made.lengths(batch([0, 1])).tolist()]
    for sure in ((0.9, 0.5), (0.9, 0.9), (0.5, 0.5), (0.2, 0.9), (0.1, 0.1), (0.1, 0.1), (0.02, 0.02)):
        says(made, *sure)
        seen.append(made.lengths(batch([0, 1])).tolist())
    assert seen == [[2, 2], [3, 1], [3, 2], [2, 2], [2, 2], [1, 1], [1, 1], [0, 0]]


def test_confidence_that_is_no_number():
    made = policy("gated-aggregate", step_seconds_many=passes_only)
    made.observe(batch([0]), outcome([2], [1], [[np.nan, np.inf]]))
    assert np.isfinite(made.model.weights).all()


@pytest.mark.parametrize("options", ["k=-1", "cooldown=-1", "max_step=-1", "switch_cost_ms=-1", "switch_cost_ms=inf"])
@pytest.mark.parametrize("name", ["gated-aggregate", "gated-budget"])
def test_bad_options(name, options):
    with pytest.raises(InputError, match=f"policy {name}: expected k, cooldown, max_step"):
        policy(f"{name}:{options}")
