"""What holds of every policy that stops inside a draft."""

from __future__ import annotations

import pytest

from sim.policies import policies
from tests.sim.serving import requests, run

FOLLOW_SIGNALS = ["adaedl", "adaedl:scope=batch", "adasd", "hf-confidence", "specdec++", "svip"]
"""Others stop when it does not pay: `priced`."""


def test_none_is_forgotten():
    assert {name for name in policies if "stop" in policies[name].hooks()} <= {
        "priced",
        *(spec.partition(":")[0] for spec in FOLLOW_SIGNALS),
    }


@pytest.mark.parametrize("policy", FOLLOW_SIGNALS)
def test_with_acceptance_one_nobody_stops_early(policy):
    # entropy .1 and draft probability .93 throughout; windows of 20: 1 + 21 + 21 + 21 = 64 tokens
    log = run(requests([8, 8], 64), policy=policy, acceptance="iid:1").log.emissions
    assert log["proposed"][log["request"] == 1].tolist() == [-1, 20, 20, 20]


@pytest.mark.parametrize("policy", FOLLOW_SIGNALS)
def test_stopping_pays(policy):
    # the same luck: fewer tokens verified in vain than with a constant 20, and every one of them still drafts
    log, constant = (
        run(requests([8] * 20, 200), policy=name, acceptance="regimes").log.emissions for name in (policy, "fixed:k=20")
    )
    decoded = log["proposed"] >= 0
    assert log["proposed"][decoded & (log["tokens"] > 0)].sum() > 0
    assert (log["proposed"] - log["accepted"])[decoded].sum() < (constant["proposed"] - constant["accepted"]).sum()


@pytest.mark.parametrize("policy", FOLLOW_SIGNALS)
def test_luck_does_not_depend_on_where_a_draft_stops(policy):
    # at temperature 0, in batches of one and of many: every request gets all its tokens
    log = run(requests([8] * 5, [1, 2, 3, 40, 80]), policy=policy, acceptance="regimes").log.emissions
    for request, tokens in enumerate([1, 2, 3, 40, 80]):
        assert log["tokens"][log["request"] == request].sum() == tokens
