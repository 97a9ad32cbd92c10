"""What must hold of every run, whatever the policy, the cap, the load and the KV pool."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.cluster import ClientConfig
from sim.control.log import FINISHED, REJECTED, UNBORN
from sim.policies import acceptance_rules, caps, policies
from sim.replay.cost import ForwardCost, HostCost
from sim.replay.execution import Execution
from sim.replay.profile import DRAFT_KINDS
from sim.replay.windows import SIGNALS, Windows
from sim.serve import Run
from tests.sim.serving import requests, run
from traces.workload import PrefixBlocks, Workload

POLICIES = [*policies, "fixed:k=1", "fixed:k=9", "dsde:preset=code", "oracle:goodput"]
CAPS = [*caps, "fixed:1", "quantile:0.5"]
STOP = [name for name in policies if "stop" in policies[name].hooks()]
AT_ONCE = ("parallel", "ngram")  # kinds whose drafts nothing can stop
EXAMPLES = 20
"""Of each policy."""
COSTS = {
    "target": ForwardCost.affine(0.008, 2e-5, 1e-8, 1e-10, 1e-5),
    "draft": ForwardCost.affine(0.001, 2e-6, 1e-9, 1e-11, 1e-6),
    "host": HostCost(0.001, 3.5e-5, "test"),
}


def looked_up() -> Windows:
    """Drafts that end, and some that never begin; most of what is found is right."""
    rng = np.random.default_rng(5)
    found = (np.arange(8) < rng.integers(0, 9, 200)[:, None]).astype(np.float32)
    right = found * (rng.random(found.shape) < 0.8)
    signals = dict.fromkeys(SIGNALS, 1 - found) | {"draft_prob": found}
    return Windows("look-up", "synthetic", right.astype(np.float32), signals)


LOOKED_UP = looked_up()


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    n = draw(st.integers(1, 25))
    prompt = draw(st.lists(st.integers(1, 120), min_size=n, max_size=n))
    output = draw(st.lists(st.integers(1, 40), min_size=n, max_size=n))
    gaps = draw(st.lists(st.sampled_from([0.0, 0.001, 0.05, 3.0]), min_size=n, max_size=n))
    base = requests(prompt, output, np.cumsum(gaps))
    # prompts share their first blocks in groups of three; blocks of 32 tokens, the last one not full
    ids = [[100 * (i % 3) + b for b in range(-(-p // 32))] for i, p in enumerate(prompt)]
    offsets = np.concatenate([[0], np.cumsum([len(i) for i in ids])])
    blocks = PrefixBlocks(32, offsets, np.array([value for row in ids for value in row], np.int64))
    return Workload("t", "synthetic", base.arrival_s, base.prompt_tokens, base.output_tokens, prefix_blocks=blocks)


@st.composite
def executions(draw: st.DrawFn, kind: str) -> Execution:
    return Execution(
        draft=draw(st.sampled_from(["padded", "compact"])),
        verify=draw(st.sampled_from(["ragged", "padded"])),
        capture_sizes=draw(st.sampled_from([(), (1, 2, 4, 8), (4, 64)])),
        switch_cost_ms=draw(st.sampled_from([0.0, 3.0])),
        overlap=kind == "autoregressive" and draw(st.booleans()),
    )


@st.composite
def settings_of_a_server(draw: st.DrawFn, policy: str) -> dict[str, object]:
    kinds = [kind for kind in DRAFT_KINDS if policy.partition(":")[0] not in STOP or kind not in AT_ONCE]
    kind = draw(st.sampled_from(kinds))
    acceptance = draw(st.sampled_from(["iid:0.7", "iid:0", "iid:1", "positions:.9,.2", "regimes"]))
    # a lossy rule needs windows that differ
    rules = [*acceptance_rules] if acceptance == "regimes" else ["lossless"]
    return {
        "policy": policy,
        "cap": draw(st.sampled_from(CAPS)),
        "acceptance": acceptance,
        "acceptance_rule": draw(st.sampled_from(rules)),
        "draft_kind": kind,
        "windows": draw(st.sampled_from([None, LOOKED_UP])) if kind == "ngram" else None,
        "blocks": draw(st.sampled_from([1, 4, 11, 40, 1000])),
        "max_num_seqs": draw(st.sampled_from([1, 3, 64])),
        "max_num_batched_tokens": draw(st.sampled_from([1, 7, 64, 8192])),
        "max_model_len": draw(st.sampled_from([60, 100_000])),
        "replicas": draw(st.sampled_from([1, 3])),
        "router": draw(st.sampled_from(["round-robin", "random", "least-requests", "least-kv"])),
        "prefix_caching": draw(st.booleans()),
        "client": ClientConfig(max_concurrency=draw(st.sampled_from([None, None, 1, 4]))),
        "execution": draw(executions(kind)),
        "seed": draw(st.integers(0, 3)),
    }


def check_conservation(result: Run, workload: Workload) -> None:
    status = result.log.requests.status
    assert set(status.tolist()) <= {FINISHED, REJECTED}
    assert set(np.flatnonzero(status == REJECTED).tolist()) == {
        request for request, reason in result.log.requests.reason.items() if reason not in ("stop", "length")
    }
    for engine in result.engines:
        assert engine.scheduler.kv.free == engine.scheduler.kv.num_blocks
        assert engine.scheduler.num_unfinished == 0


def check_tokens(result: Run, workload: Workload) -> None:
    log, requests_ = result.log.emissions, result.log.requests
    emitted = np.bincount(log["request"], log["tokens"], minlength=len(workload))
    finished = requests_.status == FINISHED
    assert (emitted[finished] == requests_.output_limit[finished]).all()
    assert (emitted[~finished] == 0).all()
    decoded = log["proposed"] >= 0
    proposed, verified, accepted = (log[name][decoded] for name in ("proposed", "verified", "accepted"))
    assert (accepted >= 0).all()
    assert (accepted <= verified).all()
    assert (verified <= proposed).all()
    assert (log["tokens"][decoded] == accepted + 1).all()  # lengths are clipped so that nothing is cut off
    assert (log["tokens"][~decoded] == 1).all()


def check_clock(result: Run, workload: Workload) -> None:
    columns = result.log.step_columns()
    assert (columns["end_s"] > columns["start_s"]).all()
    parts = columns["draft_s"] + columns["verify_s"] + columns["prefill_s"] + columns["host_s"]
    assert np.allclose(columns["end_s"] - columns["start_s"], parts, atol=1e-9)
    seconds = ("draft_s", "verify_s", "prefill_s", "host_s", "switch_s", "hidden_draft_s", "wasted_draft_s")
    assert min(columns[name].min(initial=0.0) for name in seconds) >= 0
    assert (columns["switch_s"] <= columns["host_s"]).all()
    assert (columns["hidden_draft_s"] <= columns["verify_s"] + columns["prefill_s"] + 1e-12).all()
    assert (columns["wasted_draft_s"] <= columns["draft_s"] + columns["hidden_draft_s"] + 1e-12).all()
    arrival, finish = result.log.requests.arrival_s, result.log.requests.finish_s
    assert (arrival >= workload.arrival_s).all()
    first = np.full(len(workload), np.inf)
    log = result.log.emissions
    np.minimum.at(first, log["request"], columns["start_s"][log["step"]])
    done = result.log.requests.status == FINISHED
    assert (first[done] >= arrival[done]).all()
    assert (finish[done] > arrival[done]).all()


def check_work_conservation(result: Run) -> None:
    """A replica pauses only when none of its requests is unfinished."""
    columns, requests_ = result.log.step_columns(), result.log.requests
    for replica in range(len(result.engines)):
        mine = columns["replica"] == replica
        start, end = columns["start_s"][mine], columns["end_s"][mine]
        assert (start[1:] >= end[:-1]).all()
        own = (requests_.replica == replica) & (requests_.status == FINISHED)
        for pause_from, pause_to in zip(end[:-1], start[1:], strict=True):
            if pause_to > pause_from:
                arrived = requests_.arrival_s[own] <= pause_from
                assert (requests_.finish_s[own][arrived] <= pause_from).all()


def check_limits(result: Run, config: dict[str, object]) -> None:
    columns = result.log.step_columns()
    tokens = columns["num_decode"] + columns["verified"] + columns["prefill_tokens"]
    assert tokens.max(initial=0) <= config["max_num_batched_tokens"]
    assert (columns["num_decode"] + columns["num_prefill"]).max(initial=0) <= config["max_num_seqs"]
    assert columns["kv_blocks_used"].max(initial=0) <= config["blocks"]


def check(workload: Workload, config: dict[str, object]) -> None:
    result = run(workload, **COSTS, **config)  # type: ignore[arg-type]
    check_conservation(result, workload)
    check_tokens(result, workload)
    check_clock(result, workload)
    check_work_conservation(result)
    check_limits(result, config)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_run_keeps_the_invariants(policy: str, data: st.DataObject) -> None:
    check(data.draw(workloads()), data.draw(settings_of_a_server(policy)))


@pytest.mark.parametrize("policy", POLICIES)
def test_every_cap_goes_with_every_policy(policy: str) -> None:
    """Twenty sequences that join and leave a batch of eight, some of them preempted."""
    workload = requests(np.arange(10, 50, 2), np.arange(24, 4, -1), 0.02 * np.arange(20))
    limits = {"blocks": 24, "max_num_seqs": 8, "max_num_batched_tokens": 64}
    for cap in CAPS:
        check(workload, {"policy": policy, "cap": cap, "acceptance": "regimes", **limits})


@settings(max_examples=20, deadline=None)
@given(workload=workloads(), blocks=st.sampled_from([11, 1000]), until_s=st.floats(0.01, 2))
def test_a_run_that_stops_loses_nobody(workload: Workload, blocks: int, until_s: float) -> None:
    result = run(workload, policy="fixed:k=3", blocks=blocks, until_s=until_s)
    status = result.log.requests.status
    scheduler = result.engines[0].scheduler
    injected = int((status != UNBORN).sum())
    assert injected == scheduler.num_unfinished + int(np.isin(status, [FINISHED, REJECTED]).sum())


def everything(result: Run) -> list[object]:
    log = result.log
    rows = [log.emissions[name].tolist() for name in log.emissions.NAMES]
    return [log.steps, rows, log.requests.finish_s.tolist(), log.requests.preemptions.tolist()]


@settings(max_examples=20, deadline=None)
@given(workload=workloads(), blocks=st.sampled_from([11, 1000]))
def test_none_equals_fixed_zero(workload: Workload, blocks: int) -> None:
    none, zero = (run(workload, policy=policy, blocks=blocks, **COSTS) for policy in ("none", "fixed:k=0"))
    assert everything(none) == everything(zero)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_run(policy: str) -> None:
    workload = requests(np.arange(1, 40), np.arange(40, 1, -1), np.arange(39) * 0.01)
    one, two = (run(workload, policy=policy, cap="mean", acceptance="regimes", blocks=60, **COSTS) for _ in range(2))
    assert everything(one) == everything(two)


@pytest.mark.parametrize("policy", POLICIES)
def test_lossless_policies_change_times_never_tokens(policy: str) -> None:
    workload = requests(np.arange(1, 40), np.arange(40, 1, -1), np.arange(39) * 0.01)
    log = run(workload, policy=policy, acceptance="regimes", **COSTS).log.emissions
    assert np.bincount(log["request"], log["tokens"]).tolist() == workload.output_tokens.tolist()


def test_the_oracle_wastes_no_token() -> None:
    log = run(requests([8] * 20, 50), policy="oracle", acceptance="regimes").log.emissions
    decoded = log["proposed"] >= 0
    assert (log["proposed"][decoded] == log["accepted"][decoded]).all()


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_md1_waiting_time(load: float) -> None:
    # One slot, one step per request (output 1) of S = 10 ms, Poisson arrivals: W = rho S / (2 (1 - rho)), within 3 %.
    # 200,000 requests: the standard error of the mean wait is about 1 % at rho = 0.8.
    n, service_s = 200_000, 0.010
    arrival = np.cumsum(np.random.default_rng(7).exponential(service_s / load, n))
    result = run(requests([8] * n, 1, arrival - arrival[0]), max_num_seqs=1)
    wait = result.log.requests.finish_s - result.log.requests.arrival_s - service_s
    assert wait.mean() == pytest.approx(load * service_s / (2 * (1 - load)), rel=0.03)
