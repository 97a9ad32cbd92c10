"""SGLang's rule by hand; batch by batch it is compared with the original in tests/conformance."""

from __future__ import annotations

import json

import pytest

from tests.sim.policy_driver import batch, outcome, play, policy
from traces.errors import InputError


def spec(**options):
    """Every batch counts at once and alone: mean = what this batch accepted."""
    config = {"ema_alpha": 1.0, "warmup_batches": 0, "update_interval": 1, "down_hysteresis": 0.0, **options}
    return f"sglang-adaptive:k=3,config={json.dumps(config)}"


def test_by_hand():
    # candidates 0 1 3 5.  k 3, m 3 > 2.5: up to 5, and m 3 <= 4.5 ends it.  m 1: down to 3 (1 <= 2.5), to 1 needs
    # <= .5: no.  m 3: up to 5.  m 0: 3, 1 (0 <= .5), 0 (0 <= .5): all at once.  at 0: probe 1.  m 1 > .5: up to 3, as
    # 1 <= 2.5
    rule = policy(spec(**{"1": {"candidate_steps": [0, 1, 3, 5]}}))
    assert play(rule, [9, 1, 3, 0, 0, 1]) == [3, 5, 3, 5, 0, 1, 3]


def test_warm_up_and_interval():
    # warm-up 2, every 3rd batch then: the 5th is the first that moves k, though all before accept nothing
    rule = policy(spec(**{"1": {"candidate_steps": [1, 3]}, "warmup_batches": 2, "update_interval": 3}))
    assert play(rule, [0] * 5) == [3, 3, 3, 3, 3, 1]


def test_comes_back_from_0():
    # 50 steps without an accepted token, then all accepted: probe 1 -> 3 -> 5
    rule = policy(spec(**{"1": {"candidate_steps": [0, 1, 3, 5]}}))
    assert play(rule, [0] * 50 + [9] * 4)[-1] == 5


def test_batch_sizes_have_a_range_each():
    # sequences 1-3 use the first range and k = 3, from 4 on the second, whose middle candidate is 2
    rule = policy(spec(**{"1": {"candidate_steps": [1, 3]}, "4": {"candidate_steps": [0, 2, 4]}}))
    assert [int(rule.lengths(batch(range(size)))[0]) for size in (1, 3, 4, 8)] == [3, 3, 2, 2]


def test_a_batch_of_last_tokens_says_nothing():
    # nothing was drafted although k = 3: no failure
    rule = policy(spec(**{"1": {"candidate_steps": [1, 3]}}))
    rule.observe(batch([0]), outcome([0], [0], [[]]))
    assert rule.lengths(batch([0])).tolist() == [3]


def test_longest_draft():
    assert policy("sglang-adaptive").max_length == 7
    assert policy('sglang-adaptive:config={"1":{"candidate_steps":[0]}}').max_length == 0


@pytest.mark.parametrize(
    "options",
    [
        'config={"1":{"candidate_steps":[1],"alpha":0.2}}',
        'config={"1":{"candidate_steps":[1],"ema_alpha":0}}',
        'config={"1":{"candidate_steps":[1],"ema_alpha":"x"}}',
        'config={"1":{"candidate_steps":[1],"update_interval":0}}',
        'config={"1":3}',
        "config=[1,3]",
        "config=missing.json",
        "graph_sizes=[1,0]",
        "graph_sizes=8",
    ],
)
def test_bad_options(options):
    with pytest.raises(InputError, match="policy sglang-adaptive"):
        policy(f"sglang-adaptive:{options}")
