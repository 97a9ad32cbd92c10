"""priced by hand: the plan, the stop rule, the price of verification; and no decision looks at the token itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim.control.executor import StepTime
from sim.policies.priced import PROBE, PROBED, REPLAN, THRESHOLDS, YOUNG, _admitted
from tests.sim.policy_driver import batch, outcome, policy
from traces.errors import InputError


def passes_only(batch, lengths):
    """1 s, and 0.3 s for each draft pass."""
    return 1.0 + 0.3 * lengths.max(axis=1)


def verification_free(batch, verified):
    return np.ones(len(verified))


def verification_paid(batch, verified):
    """1 s, and 0.2 s for each draft token."""
    return 1.0 + 0.2 * verified.sum(axis=1)


def both_paid(batch, lengths):
    return verification_paid(batch, lengths) + 0.1 * lengths.max(axis=1)


def rule(spec="priced", step=passes_only, verify=verification_free, **options):
    return policy(spec, step_seconds_many=step, verify_seconds_many=verify, **options)


class EntropyOnly:
    """Signals of a draft of which only the entropy may be asked."""

    def __init__(self, draft_entropy):
        self.draft_entropy = np.array(draft_entropy, float)


def drafted(made, *entropies, remaining=1000):
    """Draft as the engine does: one sequence per row of entropies. Returns tokens drafted and verified of each."""
    rows, signals = batch(list(range(len(entropies))), remaining), EntropyOnly(entropies)
    lengths = np.minimum(made.lengths(rows), remaining - 1)
    proposed, going = np.zeros_like(lengths), lengths > 0
    for depth in range(1, int(lengths.max()) + 1):
        proposed[going] = depth
        going &= ~made.stop(rows, depth, signals) & (lengths > depth)
        if not going.any():
            break
    return proposed.tolist(), np.minimum(made.trim(rows, proposed, signals), proposed).tolist()


USUAL, CALM, LOUD = 0.68, 0.2375, 1.8828
"""Nats. A sequence without a past has ln .7 for its ln entropy: ln(H + .02) less that is 0, -1 and 1."""


def test_the_first_plan_by_hand():
    # no past: logit .8 + .3 logit .7 - .2 ln .3 - .2 ln .7 = 1.3663, chance .7968 at every depth. One sequence:
    # rate(g) = (1 + c + .. + c^g) / (1 + 0.3 g): 1.382 1.520 1.546 1.519: 3
    made = rule()
    made.lengths(batch([0]))
    assert made.plan.depth == 3
    assert made.plan.rate == pytest.approx(1.5461, abs=1e-4)
    assert made.plan.price == 0  # a verified token costs nothing


@pytest.mark.parametrize(
    ("entropies", "expected"),
    [
        # a pass costs 1.5461 * 0.3 = .4638; it brings survival * chance of the next. Chance of a token:
        # sigmoid(1.3663 - .2 surprise of the token before - .5 its own); of the next, not yet seen: without its own
        ([USUAL] * 9, 3),  # survival .7968 .6349 .5059, times .7968: .635 .506 .403
        ([CALM] * 9, 5),  # .8660 .7687 .6823 .6056 .5375, times .8273: .716 .636 .564 .501 .445
        ([LOUD] * 9, 2),  # .7040 .4651, times .7625: .537 .355
        ([USUAL, LOUD, *[CALM] * 7], 2),  # .7968 .5609; after a loud token .7625: .635 .428
        ([LOUD, CALM, *[USUAL] * 7], 3),  # .7040, times .7625 .537; .5909, times .8273 .489; .4889, .7968 .390
        ([CALM, CALM, LOUD, *[CALM] * 6], 3),  # .8660 .7687 .5784, times .7625: .716 .636 .441
    ],
)
def test_six_drafts_by_hand(entropies, expected):
    assert drafted(rule(), entropies) == ([expected], [expected])


def test_a_pass_is_paid_by_the_whole_batch():
    # two sequences, 2 / 1 tokens per second are twice as many: the calm one alone brings .716 < 2 * .464 after one
    # token, both together .716 + .716. The loud one's .537 + .716 = 1.253 pays a second pass, .355 + .636 = .991 a
    # third, then .217 + .564 = .782 no more
    assert drafted(rule(), [CALM] * 9, [LOUD] * 9) == ([3, 3], [3, 3])


def test_price_of_a_token_by_hand():
    # one sequence with chances .8 .8 .8; 1 s, 0.1 a pass and 0.2 a token: 1.8 / 1.3 = 1.385 at depth 1,
    # 2.44 / 1.6 = 1.525 at 2, 2.952 / 1.9 = 1.554 at 3: price 1.554 * 0.2
    made = rule(step=both_paid, verify=verification_paid)
    plan = made._best(batch([0]), np.array([[0.8], [0.64], [0.512]]))
    assert plan.depth == 3
    assert plan.price == pytest.approx(2.952 / 1.9 * 0.2)


def test_what_is_not_worth_its_price_is_not_verified():
    # two sequences without a past, c = .7968; 1 s, 0.01 a pass, 0.2 a token: 3.594 / 1.41 = 2.549 at depth 1,
    # 4.863 / 1.82 = 2.672 at 2, 5.875 / 2.23 = 2.635 at 3: price .534 a token, .027 a pass. The first sequence is worth
    # .797 .635, a third .506 not. The second: loud .704, then 10 nats, ln 10.02 + .357 = 2.661 above the usual:
    # .704 sigmoid(1.3663 - .2 - 1.331) = .323, drafted with the other but not verified
    def step(batch, lengths):
        return verification_paid(batch, lengths) + 0.01 * lengths.max(axis=1)

    made = rule(step=step, verify=verification_paid)
    proposed, verified = drafted(made, [USUAL] * 9, [LOUD, *[10.0] * 8])
    assert made.plan.price == pytest.approx(0.5344, abs=1e-4)
    assert (proposed, verified) == ([2, 2], [2, 1])


def test_no_verdict_depends_on_a_later_token():
    # Lossless when sampling: token d is verified or not by the entropies up to its own position. Whatever follows from
    # the token itself, the entropies after it, must not matter; and EntropyOnly has no probability of the token
    rng = np.random.default_rng(5)
    for _ in range(200):
        entropies = rng.gamma(1.0, 0.8, size=(3, 16))
        depth = int(rng.integers(1, 6))
        changed = entropies.copy()
        changed[:, depth:] = rng.gamma(1.0, 0.8, size=(3, 16 - depth))
        one, two = (
            np.array(drafted(rule(step=both_paid, verify=verification_paid), *rows)[1]) for rows in (entropies, changed)
        )
        assert np.minimum(one, depth).tolist() == np.minimum(two, depth).tolist()


def test_slots_above_each_survival():
    # .8 .5 at depth 1, .4 .1 at depth 2: two slots at depth 1 and 1.3 of them expected, four and 1.8 up to depth 2; at
    # least .45: .8 and .5
    tokens, gains = _admitted(np.array([[0.8, 0.5], [0.4, 0.1]]))
    assert (tokens[:, 0].tolist(), gains[:, 0].tolist()) == ([2, 4], pytest.approx([1.3, 1.8]))
    at = int(np.searchsorted(THRESHOLDS, 0.45))
    assert THRESHOLDS[at] <= 0.5
    assert (tokens[1, at], gains[1, at]) == (2, pytest.approx(1.3))


def test_a_draft_that_never_pays_is_probed_now_and_then():
    # a pass of 10 s: nothing for 31 steps, then one token for one sequence in eight, another one the next time
    made = rule(step=lambda batch, lengths: 1.0 + 10.0 * lengths.max(axis=1), num_slots=16)
    rows = batch(list(range(16)))
    seen = np.array([made.lengths(rows) for _ in range(2 * PROBE)])
    assert not seen[: PROBE - 1].any()
    assert seen[PROBE - 1].sum() == seen[2 * PROBE - 1].sum() == 16 // PROBED
    assert not (seen[PROBE - 1] & seen[2 * PROBE - 1]).any()


def test_a_probe_is_verified_and_not_drafted_on():
    made = rule(step=lambda batch, lengths: 1.0 + 10.0 * lengths.max(axis=1))
    for _ in range(PROBE):
        lengths = made.lengths(batch([0]))
    signals = EntropyOnly([[5.0, 5.0]])
    assert made.stop(batch([0]), 1, signals).all()
    assert made.trim(batch([0]), lengths, signals).tolist() == [1]


def test_a_plan_holds_while_the_batch_is_as_large():
    asked = []

    def counted(batch, lengths):
        asked.append(len(batch))
        return passes_only(batch, lengths)

    made = rule(step=counted, num_slots=8)
    made.plans = YOUNG
    for _ in range(REPLAN):
        made.lengths(batch([0, 1]))
    assert asked == [2]
    made.lengths(batch([0, 1, 2]))  # half as many again: a plan of its own
    assert asked == [2, 3]


def test_first_plans_hold_for_one_step():
    # plan number n holds 16 n / 64 steps more: the first four, numbers 0 to 3, none
    asked = []

    def counted(batch, lengths):
        asked.append(len(batch))
        return passes_only(batch, lengths)

    made = rule(step=counted, num_slots=8)
    for _ in range(6):  # the fifth plan holds for the sixth step
        made.lengths(batch([0, 1]))
    assert asked == [2] * 5


def test_acceptance_one_and_zero():
    # always right: (1 + g) / (1 + 0.3 g) rises for ever, 16 is the deepest; a pass costs at most 0.3 * 17 / 5.8 = .88
    # of the one token it brings. Never right: nothing pays. Steps of four passes take 2.2 s
    right, wrong = rule(), rule()
    for _ in range(200):
        for made, accepted in ((right, 4), (wrong, 0)):
            made.lengths(batch([0]))
            seen = outcome([4], [accepted], [[0.5] * 4])
            made.observe(batch([0]), replace(seen, time=StepTime(1.2, 1.0, 0.0, 0.0)))
    assert drafted(right, [0.5] * 16)[0] == [16]
    assert drafted(wrong, [0.5] * 16)[0] in ([0], [1])  # a probe may be due
    assert wrong.plan.depth == 0


@pytest.mark.parametrize(("remaining", "most"), [(1, 0), (2, 1), (3, 2)])
def test_nothing_is_planned_past_the_end(remaining, most):
    made = rule()
    proposed, verified = drafted(made, [CALM] * 16, remaining=remaining)
    assert made.plan.depth <= most
    assert max(proposed) <= most
    assert verified <= proposed


@pytest.mark.parametrize("kld", [np.inf, np.nan])
def test_an_infinite_divergence_leaves_finite_numbers(kld):
    made = rule()
    for _ in range(5):
        made.lengths(batch([0]))
        made.observe(batch([0]), outcome([2], [0], [[kld, kld]]))
    assert np.isfinite(made.recent.features(np.array([0]))).all()
    assert np.isfinite(made.at.weights).all()
    assert np.isfinite(made.before.weights).all()


def test_a_sequence_that_was_preempted_takes_its_state_along():
    # lengths for slots 0, 1, 2; the scheduler throws out 1 before drafting
    made = rule()
    made.lengths(batch([0, 1, 2]))
    made.draft.survival[:] = [0.9, 0.1, 0.7]
    assert made._current(batch([0, 2])).survival.tolist() == [0.9, 0.7]


def test_k_zero_never_drafts():
    made = rule("priced:k=0")
    assert made.max_length == 0
    assert {int(made.lengths(batch([0]))[0]) for _ in range(2 * PROBE)} == {0}


def test_bad_option():
    with pytest.raises(InputError, match="priced: k is -1"):
        policy("priced:k=-1")
