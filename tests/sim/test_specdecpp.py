"""SpecDec++ by hand: 1 - the product of the scores so far > h, one token late."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim.policies import make_policy
from tests.sim.draft_loop import drafted
from tests.sim.policy_driver import context, policy
from tests.sim.serving import requests, run
from traces.errors import InputError


def lengths(spec: str, *chances: list[float], slots: list[int] | None = None, remaining: int = 1000) -> list[int]:
    """Drafted tokens if the tokens of each sequence are accepted with these chances."""
    table = np.array(chances)
    rule = make_policy(spec, replace(context(), acceptance_chances=lambda batch: table))
    return drafted(rule, np.zeros_like(table).tolist(), slots, remaining)


SLOW = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4]  # products .9 .72 .504 .3024 .1512 .0605


@pytest.mark.parametrize(
    ("h", "k"),
    [
        (0.7, 6),  # below .3 with the fifth token, seen after the sixth
        (0.6, 5),  # below .4 with the fourth
        (0.4, 4),  # below .6 with the third
        (0.2, 3),  # below .8 with the second
        (0.05, 2),  # below .95 with the first
        (0.99, 6),  # never: all that there are
    ],
)
def test_six_thresholds(h, k):
    assert lengths(f"specdec++:h={h}", SLOW) == [k]


def test_an_oracle_drafts_one_token_beyond_the_first_that_is_rejected():
    # greedy: 1 1 0 ...: the product drops to 0 with the third token, which is seen after the fourth
    assert lengths("specdec++", [1, 1, 0, 1, 1, 1]) == [4]


def test_bounds():
    assert lengths("specdec++", [0.0] * 8) == [2]
    assert lengths("specdec++:min_spec=5", [0.0] * 8) == [5]
    assert lengths("specdec++:max_spec=4", [1.0] * 8) == [4]
    assert lengths("specdec++", [1.0] * 30) == [20]


def test_without_a_lower_bound_the_first_score_still_comes_with_the_second_token():
    assert lengths("specdec++:min_spec=0", [0.0] * 8) == [2]


def test_a_head_that_knows_nothing():
    # b = 0: sigmoid(a) = .8 whatever happens; .8^5 = .328, .8^6 = .262 < .3: seen after the seventh token
    assert lengths("specdec++:a=1.3862944,b=0", [0.0] * 10) == [7]


def test_sequences_stop_by_themselves_and_at_their_end():
    assert lengths("specdec++", [0.0] * 6, [1.0] * 6, [1, 0, 1, 1, 1, 1], remaining=6) == [2, 5, 3]


def test_a_batch_is_scored_anew_in_every_step():
    tables = iter([np.zeros((1, 6)), np.ones((1, 6)), np.full((1, 6), 0.5)])
    rule = make_policy("specdec++", replace(context(), acceptance_chances=lambda batch: next(tables)))
    # .5: products .5 .25 -> seen after the third
    assert [drafted(rule, [[0.0] * 6])[0] for _ in range(3)] == [2, 6, 3]


def test_noise_belongs_to_the_place_in_the_text():
    # the same sequence alone and among others drafts the same; another seed draws other noise
    spec, chances = "specdec++:noise=2", [0.9] * 20
    alone = [lengths(spec, chances, slots=[s])[0] for s in range(8)]
    assert lengths(spec, *[chances] * 8) == alone
    assert len(set(alone)) > 1


def test_noise_has_its_standard_deviation():
    # 65,536 draws: the standard error of the deviation is .3 %
    assert policy("specdec++:noise=2").noise.std() == pytest.approx(2, rel=0.02)


def test_in_a_replay_it_knows_the_recorded_chances():
    # iid:1: the product stays 1, 20 a step: 1 + 21 + 21 of 43; iid:0: always two
    one, zero = (run(requests([8], 43), policy="specdec++", acceptance=f"iid:{a}").log.emissions for a in (1, 0))
    assert one["proposed"].tolist() == [-1, 20, 20]
    assert set(zero["proposed"][1:-2].tolist()) == {2}


@pytest.mark.parametrize("spec", ["h=2", "noise=-1", "min_spec=5,max_spec=4", "a=nan", "b=inf", "head=x"])
def test_bad_options(spec):
    with pytest.raises(InputError, match=r"policy specdec\+\+"):
        policy(f"specdec++:{spec}")
