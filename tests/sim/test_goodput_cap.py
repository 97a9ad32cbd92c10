"""The goodput cap by hand: a draft pass takes 1 s, a verification 10 s, whatever they hold."""

from __future__ import annotations

import numpy as np
import pytest

from sim.policies import make_cap, policies
from sim.policies.caps import capped
from tests.sim.policy_driver import batch, context, outcome, policy
from tests.sim.serving import requests, run

A = 0.7


def seconds(batch, lengths):
    return 10.0 + lengths.max(axis=1)


def cap(**options):
    return make_cap("goodput", context(step_seconds_many=seconds, **options))


def apply(made, lengths, remaining=1000):
    return capped(batch(range(len(lengths)), remaining), np.array(lengths), made).tolist()


def taught(made, accepted, k=4, steps=1):
    """Every sequence drafts k tokens; those in `accepted` are its runs."""
    seen = batch(range(len(accepted)))
    for _ in range(steps):
        made.observe(seen, outcome([k] * len(accepted), accepted, [[0.1] * k] * len(accepted)))
    return made


def test_one_straggler_pays_if_it_is_worth_its_passes():
    # all at .7. Lengths 9 and three times 1: tokens 4 + 4 * .7 = 6.8 at c = 1, then + .49, .343, .2401, ...:
    # c 1..4: 6.8 / 11 = .618  7.29 / 12 = .6075: nobody is waited for
    assert apply(cap(), [9, 1, 1, 1]) == [1, 1, 1, 1]
    # four of 9: 4 (1 - .7^(c+1)) / .3 / (10 + c): 1: .618  2: .730  3: .779  4: .792  5: .784: c = 4
    assert apply(cap(), [9, 9, 9, 9]) == [4, 4, 4, 4]


def test_sequences_that_do_not_draft_still_count():
    # 3 without a draft emit one token each and wait: (4 + .7) / 11 = .427, (4 + .7 + .49) / 12 = .4325,
    # + .343 / 13 = .4256: c = 2; alone it would be 4 as above
    assert apply(cap(), [9, 0, 0, 0]) == [2, 0, 0, 0]
    assert apply(cap(), [9]) == [4]


def test_it_learns_who_is_worth_it():
    # 30 steps in which one sequence accepts everything and the other nothing: a long draft of the first is worth its
    # passes, one of the second is not worth one
    made = taught(cap(), [4, 0], steps=30)
    assert apply(made, [9, 0])[0] > 4
    assert apply(made, [0, 9]) == [0, 0]


def test_recent_acceptance_by_hand():
    # the engine starts at .7 of 1. One sequence, 2 of 4 accepted: own 2 of 3, engine 2 + .686 of 3 + .98
    made = taught(cap(), [2])
    expected = (2 + 2 * 2.686 / 3.98) / 5
    assert made.acceptance(np.array([0])) == pytest.approx([expected])
    # fails at once: own .85 * 2 of .85 * 3 + 1; engine .98 * 2.686 of .98 * 3.98 + 1
    taught(made, [0])
    expected = (1.7 + 2 * 2.63228 / 4.9004) / 5.55
    assert made.acceptance(np.array([0])) == pytest.approx([expected])


def test_a_new_sequence_is_like_the_engine():
    made = taught(cap(), [0, 4], steps=5)
    made.begin(np.array([0, 1]))
    first, second, other = made.acceptance(np.array([0, 1, 2]))
    assert first == second == other


def test_drafts_beyond_the_executor_are_not_counted():
    # c = 4 as above, but drafts end at 3
    assert apply(cap(max_draft_tokens=3), [9]) == [3]


def test_the_end_of_a_request_is_not_waited_for():
    # 2 tokens are left: one draft token and the bonus
    assert apply(cap(), [9], remaining=2) == [1]
    assert apply(cap(), [9], remaining=1) == [0]


def test_comes_back_from_0():
    # nothing is accepted for 50 steps, so that c = 0; the 32nd step at 0 lets one token through
    made = taught(cap(), [0], steps=50)
    assert [apply(made, [4])[0] for _ in range(33)] == [*[0] * 31, 1, 0]
    # 50 steps with 1.0: long drafts again
    assert apply(taught(made, [4], steps=50), [9])[0] > 4


def test_ties_go_to_the_smaller_c():
    # a = 1 and steps of c + 1 s: 1 token/s at every c
    made = make_cap("goodput", context(step_seconds_many=lambda batch, lengths: 1.0 + lengths.max(axis=1)))
    made.all_accepted = made.all_judged
    assert apply(made, [9]) == [0]


def test_a_policy_that_caps_its_own_state_asks_for_those_it_counts():
    # code preset, as in test_dsde: slot 0 is calibrated, slot 1 doubles on. The last time, the cap is asked for slot 0
    rule = policy("dsde:preset=code,min_spec=2,max_spec=8,activation_tokens=10", num_slots=2, cap="goodput")
    asked = []
    inner = rule.cap
    rule.cap = lambda batch, lengths: asked.append(batch.slot.tolist()) or inner(batch, lengths)
    for _ in range(3):
        k = int(rule.lengths(batch([0]))[0])
        rule.observe(batch([0]), outcome([k], [k], [[0.1 + 0.01 * i for i in range(k)]]))
    k = rule.lengths(batch([0, 1]))
    rule.observe(batch([0, 1]), outcome(k, k, [[0.1] * n for n in k]))
    assert asked[-1] == [0]


def test_the_engine_teaches_it():
    # acceptance 1 and free drafts: a run must end with a cap that has seen that, in every slot used
    result = run(requests([8] * 3, 200), policy="fixed:k=8", cap="goodput", acceptance="iid:1", max_num_seqs=3)
    made = result.engines[0].speculation.cap
    assert (made.judged[:3] > 5).all()
    assert made.accepted[:3] == pytest.approx(made.judged[:3])


@pytest.mark.parametrize("spec", [*policies, "dsde:preset=code,activation_tokens=10", "goodput:acceptance=position"])
def test_it_works_with_every_policy(spec):
    # preemptions, requests of one token, two batches; everyone gets all tokens
    workload = requests(np.arange(1, 20), np.arange(19, 0, -1), np.arange(19) * 0.01)
    log = run(workload, policy=spec, cap="goodput", acceptance="regimes", blocks=8, max_num_seqs=8).log.emissions
    assert np.bincount(log["request"], log["tokens"]).tolist() == workload.output_tokens.tolist()
