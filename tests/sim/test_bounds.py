"""What no policy may do: beat the oracle that knows what will be accepted, or stop a draft that is always right."""

from __future__ import annotations

import numpy as np
import pytest

from sim.latency import timings_of
from sim.policies import policies
from sim.replay.cost import ForwardCost
from sim.serve import Run
from tests.sim.serving import requests, run
from traces.workload import Workload

LOSSLESS = [name for name in policies if policies[name].lossless]
STOPPING = [name for name in LOSSLESS if "stop" in policies[name].hooks()]
COSTS = {
    "target": ForwardCost.affine(0.008, 5e-5, 1e-8, 1e-10, 1e-5),
    "draft": ForwardCost.affine(0.001, 2e-6, 1e-9, 1e-11, 1e-6),
}


def time_per_token_s(result: Run, workload: Workload) -> float:
    timings = timings_of(result.log, workload)
    return float((timings.e2el_s - timings.ttft_s).sum() / (timings.output_tokens - 1).sum())


def served(gap_s: float, policy: str) -> float:
    """Seconds per token of 24 requests of 80 tokens that arrive every gap_s seconds."""
    workload = requests([32] * 24, 80, gap_s * np.arange(24))
    return time_per_token_s(run(workload, policy=policy, acceptance="regimes", **COSTS), workload)


@pytest.fixture(scope="module", params=[2.0, 0.1, 0.0], ids=["idle", "busy", "at-once"])
def load(request: pytest.FixtureRequest) -> tuple[float, float]:
    """Seconds between two requests, and what the bound needs per token then."""
    return request.param, served(request.param, "oracle:goodput")


@pytest.mark.parametrize("policy", [*LOSSLESS, "fixed:k=2", "fixed:k=8"])
def test_no_lossless_policy_beats_the_oracle(policy: str, load: tuple[float, float]) -> None:
    # one per cent: the oracle is greedy, a step that ends sooner may let a request in at a better time
    gap_s, bound_s = load
    assert served(gap_s, policy) >= 0.99 * bound_s


@pytest.mark.parametrize("form", ["exact", "goodput"])
def test_the_oracle_drafts_no_token_in_vain(form: str) -> None:
    log = run(requests([8] * 12, 60), policy=f"oracle:{form}", acceptance="regimes", **COSTS).log.emissions
    decoded = log["proposed"] >= 0
    assert log["proposed"][decoded].sum() > 0
    assert (log["proposed"][decoded] == log["accepted"][decoded]).all()


@pytest.mark.parametrize("policy", STOPPING)
def test_a_draft_that_is_always_right_is_not_stopped(policy: str) -> None:
    # acceptance 1: entropy 0.1 nats, draft probability exp(-0.07) = .93, divergence 0 at every position. A draft pass
    # takes a tenth of a target pass, so that another token always pays: all drafts are as long as their first, 20 at
    # most (what the source holds), or as what is left. The first 100 tokens are for learning it
    workload = requests([8], 600)
    result = run(workload, policy=policy, acceptance="iid:1")
    log = result.log.emissions
    longest = min(result.engines[0].speculation.policy.max_length, 20)
    left = 600 - np.concatenate([[0], np.cumsum(log["tokens"])[:-1]]) - 1
    late = (left < 500) & (log["proposed"] >= 0)
    assert (log["proposed"][late] == np.minimum(longest, left[late])).all()
    assert (log["verified"][late] == log["proposed"][late]).all()
