"""vLLM's old switch by batch size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim.policy_driver import batch, policy
from traces.errors import InputError


def test_k_below_the_threshold_and_0_from_it_on():
    # threshold 3: 1 and 2 running sequences draft, 3 and 4 do not; back at 2
    rule = policy("disable-by-batch:k=4,threshold=3")
    k = [int(rule.lengths(batch(range(running))).max()) for running in (1, 2, 3, 4, 2)]
    assert k == [4, 4, 0, 0, 4]


def test_prefilling_sequences_count():
    # two decode, and a third one prefills: 3 running
    rule = policy("disable-by-batch:k=4,threshold=3")
    assert rule.lengths(replace(batch([0, 1]), num_running=3)).tolist() == [0, 0]


def test_a_policy_that_never_drafts_needs_no_draft_model():
    # threshold 1: a step has at least one sequence
    assert policy("disable-by-batch:threshold=1").max_length == 0


@pytest.mark.parametrize("options", ["k=-1", "threshold=0", "k=1.5"])
def test_bad_options(options):
    with pytest.raises(InputError, match="policy disable-by-batch"):
        policy(f"disable-by-batch:{options}")
