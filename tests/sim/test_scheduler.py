"""The control plane against counts made by hand. Target pass 10 ms, draft pass 1 ms, no host time, unless given."""

from __future__ import annotations

import numpy as np
import pytest

from sim.cluster import ClientConfig
from sim.control.log import FINISHED, NO_DECODE, QUEUED, REJECTED, RUNNING
from sim.control.speculation import fit_to_budget
from sim.replay.cost import ForwardCost
from sim.replay.simulated import Execution
from tests.sim.serving import requests, run
from traces.errors import InputError
from traces.workload import PrefixBlocks, Workload


def step_column(result, name):
    return result.log.step_columns()[name]


def emissions_of(result, request):
    log = result.log.emissions
    rows = log["request"] == request
    ends = step_column(result, "end_s")[log["step"][rows]]
    return ends, log["tokens"][rows]


def test_first_token_comes_with_the_prefill_and_costs_no_draft_step():
    # F17: prompt 16, output 1, k = 6: one step, no draft; the draft does prefill (1 ms) beside the target (10 ms)
    result = run(requests(16, 1), policy="fixed:k=6")
    assert len(result.log.steps) == 1
    assert step_column(result, "drafted").sum() == 0
    assert result.log.requests.finish_s[0] == pytest.approx(0.011)


def test_none_loads_no_draft_model():
    # the same request without speculation: the target's prefill alone
    assert run(requests(16, 1)).ended_s == pytest.approx(0.010)


def test_every_verification_emits_its_accepted_run_and_one_more():
    # F2: output 9, k = 3, acceptance 1: tokens 1 + 4 + 4
    _, tokens = emissions_of(run(requests(100, 9), policy="fixed:k=3", acceptance="iid:1"), 0)
    assert tokens.tolist() == [1, 4, 4]


def test_a_step_costs_k_draft_passes_and_one_verification():
    # prefill 10 + 1 ms; then 3 draft passes and one target pass a step: 13 ms
    ends, _ = emissions_of(run(requests(100, 9), policy="fixed:k=3", acceptance="iid:1"), 0)
    assert ends.tolist() == pytest.approx([0.011, 0.024, 0.037])


def test_drafts_are_no_longer_than_what_may_still_be_emitted():
    # F18: output 3, k = 5: after the prefill 2 tokens remain, so at most 1 draft and the bonus
    result = run(requests(100, 3), policy="fixed:k=5", acceptance="iid:1")
    assert result.log.emissions["proposed"].tolist() == [NO_DECODE, 1]
    assert emissions_of(result, 0)[1].sum() == 3


def test_context_limit_clips_the_output():
    # F19: max length 32, prompt 28: 4 tokens of the 10 asked for, for the reason "length"
    result = run(requests(28, 10), policy="fixed:k=5", acceptance="iid:1", max_model_len=32)
    assert emissions_of(result, 0)[1].sum() == 4
    assert result.log.requests.reason[0] == "length"


def test_a_prompt_beyond_the_context_limit_is_rejected_with_its_reason():
    # F7: the second of three; the others run
    result = run(requests([8, 40, 8], 4), max_model_len=32)
    assert result.log.requests.status.tolist() == [FINISHED, REJECTED, FINISHED]
    assert "max_model_len 32" in result.log.requests.reason[1]


def test_a_request_larger_than_the_pool_does_not_block_the_queue():
    # F13: 4 blocks of 16 hold 64 tokens; A needs 100, B 11
    result = run(requests([100, 8], [1, 4], [0.0, 1.0]), blocks=4)
    assert result.log.requests.status.tolist() == [REJECTED, FINISHED]


def test_a_request_that_fits_only_at_first_is_rejected_up_front():
    # F14: prompt 60 + output 10 needs 69 slots (the last token needs none), the pool has 64
    result = run(requests(60, 10), blocks=4)
    assert result.log.requests.reason[0] == "needs 69 KV slots, the pool holds 64"


def test_a_request_that_just_fits_runs_alone():
    # 60 + 5 - 1 = 64 slots
    assert run(requests(60, 5), blocks=4, policy="fixed:k=4", acceptance="iid:1").log.requests.status[0] == FINISHED


def test_preemption_keeps_every_token_once():
    # F10: two requests of prompt 16, output 16, 12 blocks of 4 (each needs (16 + 15) / 4 = 8 in the end)
    result = run(requests([16, 16], 16), blocks=12, block_size=4)
    log = result.log.emissions
    assert [int(log["tokens"][log["request"] == r].sum()) for r in (0, 1)] == [16, 16]
    assert result.log.requests.preemptions.sum() >= 1


def test_the_youngest_is_preempted():
    result = run(requests([16, 16], 16), blocks=12, block_size=4)
    assert result.log.requests.preemptions.tolist()[0] == 0


def test_slots_of_rejected_drafts_are_returned():
    # F21: prompt 16, output 100, k = 4, nothing accepted: at most ceil((116 - 1 + 4) / 16) = 8 blocks, none at the end
    result = run(requests(16, 100), policy="fixed:k=4", acceptance="iid:0")
    assert step_column(result, "kv_blocks_used").max() == 8
    assert result.engines[0].scheduler.kv.used == 0


@pytest.mark.parametrize(
    ("lengths", "budget", "expected"),
    [
        ([7, 7, 7, 7], 12, [3, 3, 3, 3]),  # F22: 16 tokens for 4 sequences: 4 each, one of them no draft
        ([7, 1, 7], 9, [4, 1, 4]),  # the short one keeps its own: 1 + 4 + 4
        ([7, 1, 7], 8, [3, 1, 3]),  # a remainder goes to nobody
        ([5, 5], 0, [0, 0]),
        ([2, 3], 5, [2, 3]),
    ],
)
def test_fit_to_budget(lengths, budget, expected):
    assert fit_to_budget(np.array(lengths), budget).tolist() == expected


def test_verify_tokens_count_in_the_token_budget():
    # F22: 20 decoding sequences, budget 16: no drafts, 16 decode and 4 wait. Prompts of 1 token, all prefill in 2 steps
    result = run(requests([1] * 20, 8), policy="fixed:k=7", max_num_batched_tokens=16)
    tokens = step_column(result, "num_decode") + step_column(result, "drafted") + step_column(result, "prefill_tokens")
    assert tokens.max() <= 16
    assert (step_column(result, "drafted")[step_column(result, "num_decode") == 16] == 0).all()


def test_prefill_is_chunked_by_the_budget():
    # 250 prompt tokens, budget 100: chunks of 100, 100, 50
    result = run(requests(250, 1), max_num_batched_tokens=100)
    assert step_column(result, "prefill_tokens").tolist() == [100, 100, 50]


def test_decoding_comes_before_prefill():
    # the first request decodes (1 token) while the second prefills with what is left of the budget: 9 of 10
    result = run(requests([5, 30], [20, 1], [0.0, 0.015]), max_num_batched_tokens=10)
    both = (step_column(result, "num_decode") == 1) & (step_column(result, "num_prefill") == 1)
    assert step_column(result, "prefill_tokens")[both].tolist() == [9, 9, 9, 3]


def test_no_more_than_max_num_seqs_run():
    assert step_column(run(requests([8] * 10, 8), max_num_seqs=3), "running").max() == 3


def test_requests_are_admitted_first_come_first_served():
    result = run(requests([8] * 5, 8, [0.0, 0.001, 0.002, 0.003, 0.004]), max_num_seqs=1)
    assert np.argsort(result.log.requests.finish_s).tolist() == [0, 1, 2, 3, 4]


def test_draft_catches_up_on_tokens_it_did_not_see():
    # F50: cost 1 ms per token of the draft: with k = 1 and acceptance 1 every step commits 2 tokens, of which the draft
    # has seen neither (it never processes its own last proposal): 2 ms a step. Prefill of 10: 10 ms of the draft.
    draft = ForwardCost.affine(1e-9, per_token_s=0.001)
    result = run(requests(10, 7), policy="fixed:k=1", acceptance="iid:1", draft=draft)
    # after the prefill one token is new to the draft, then 2 in each further step
    assert step_column(result, "draft_s").tolist() == pytest.approx([0.010, 0.001, 0.002, 0.002], abs=1e-6)


def test_rejected_drafts_leave_one_token_to_catch_up_on():
    # k = 2, acceptance 0: each step the draft processes the one new token and its own first proposal: 2 ms
    draft = ForwardCost.affine(1e-9, per_token_s=0.001)
    result = run(requests(10, 6), policy="fixed:k=2", acceptance="iid:0", draft=draft)
    assert step_column(result, "draft_s")[1:4].tolist() == pytest.approx([0.002] * 3, abs=1e-6)


def test_padded_and_compact_drafting_differ_by_the_stragglers():
    # two sequences with k = 3 and k = 1 (2 tokens left): padded 1+1 then 2 passes of 2; compact 2 passes of 1
    draft = ForwardCost.affine(1e-9, per_token_s=0.001)
    costs = {}
    for mode in ("padded", "compact"):
        result = run(
            requests(10, [20, 3]), policy="fixed:k=3", acceptance="iid:0", draft=draft, execution=Execution(draft=mode)
        )
        costs[mode] = step_column(result, "draft_s")[1]
    assert costs["padded"] == pytest.approx(0.006, abs=1e-6)
    assert costs["compact"] == pytest.approx(0.004, abs=1e-6)


def test_padded_verification_charges_the_longest_draft_for_all():
    # 1 ms per verified token: k = 3 and k = 1: ragged 4 + 2, padded 4 + 4
    target = ForwardCost.affine(1e-9, per_token_s=0.001)
    costs = {}
    for mode in ("ragged", "padded"):
        result = run(
            requests(10, [20, 3]),
            policy="fixed:k=3",
            acceptance="iid:0",
            target=target,
            execution=Execution(verify=mode),
        )
        costs[mode] = step_column(result, "verify_s")[1]
    assert (costs["ragged"], costs["padded"]) == pytest.approx((0.006, 0.008), abs=1e-6)


def test_mixed_step_splits_the_target_pass_into_decode_and_prefill():
    # 1 ms per token: one decode and a chunk of 5 in one pass: 1 ms verify, 5 ms prefill
    target = ForwardCost.affine(1e-9, per_token_s=0.001)
    result = run(requests([3, 5], [9, 1], [0.0, 0.0035]), target=target)
    both = (step_column(result, "num_decode") == 1) & (step_column(result, "num_prefill") == 1)
    assert step_column(result, "verify_s")[both].tolist() == pytest.approx([0.001], abs=1e-6)
    assert step_column(result, "prefill_s")[both].tolist() == pytest.approx([0.005], abs=1e-6)


def shared_prefix(n: int) -> Workload:
    """n requests of 3 blocks of 32 tokens and 4 more; the first two blocks are the same for all."""
    base = requests([100] * n, 4, np.arange(n) * 10.0)
    ids = np.array([value for i in range(n) for value in (1, 2, 100 + i)])
    blocks = PrefixBlocks(32, np.arange(n + 1) * 3, ids)
    return Workload("test", "synthetic", base.arrival_s, base.prompt_tokens, base.output_tokens, prefix_blocks=blocks)


def test_prefix_caching_skips_the_shared_blocks():
    result = run(shared_prefix(3), prefix_caching=True)
    assert result.log.requests.cached_tokens.tolist() == [0, 64, 64]


def test_prefix_caching_never_caches_the_whole_prompt():
    # the same prompt of exactly 2 blocks twice: the last token must be computed to yield the first output token
    base = requests([64, 64], 4, [0.0, 10.0])
    blocks = PrefixBlocks(32, np.array([0, 2, 4]), np.array([1, 2, 1, 2]))
    workload = Workload("t", "synthetic", base.arrival_s, base.prompt_tokens, base.output_tokens, prefix_blocks=blocks)
    assert run(workload, prefix_caching=True).log.requests.cached_tokens.tolist() == [0, 32]


def test_cached_blocks_are_evicted_when_the_pool_runs_short():
    # 8 blocks of 16: the 96 + 4 tokens of one request need 7; the next one finds its shared blocks or makes room
    result = run(shared_prefix(4), prefix_caching=True, blocks=8)
    assert (result.log.requests.status == FINISHED).all()
    assert result.engines[0].scheduler.kv.used == 0


def test_prefix_caching_needs_a_trace_with_prefixes():
    with pytest.raises(InputError, match="share a prefix"):
        run(requests(8, 8), prefix_caching=True)


def test_a_run_that_stops_early_accounts_for_everyone():
    # F9: 4 arrived by 5 s: 1 finished, 2 decoding, 1 queued. One target pass takes 1 s.
    slow = ForwardCost.affine(1.0)
    result = run(requests(8, [2, 50, 50, 50], [0.0, 0.0, 0.5, 0.6]), target=slow, max_num_seqs=2, until_s=5.0)
    assert sorted(result.log.requests.status.tolist()) == sorted([FINISHED, RUNNING, RUNNING, QUEUED])


def test_an_engine_without_cost_is_refused():
    # F15: a step of 0 s would stop the clock
    with pytest.raises(InputError, match="must cost more than 0"):
        ForwardCost.affine(0.0)


def test_closed_loop_keeps_the_concurrency():
    # F37: 2 users, 4 requests, service 1 s each: they start at 0, 0, 1, 1
    result = run(requests([8] * 4, 1), target=ForwardCost.affine(1.0), client=ClientConfig(max_concurrency=2))
    assert result.log.requests.arrival_s.tolist() == [0, 0, 1, 1]
    assert result.ended_s == 2


def test_closed_loop_with_think_time():
    # F37: think time 0.5 s after an answer: 0, 0, 1.5, 1.5
    client = ClientConfig(max_concurrency=2, think_time_s=0.5)
    result = run(requests([8] * 4, 1), target=ForwardCost.affine(1.0), client=client)
    assert result.log.requests.arrival_s.tolist() == [0, 0, 1.5, 1.5]


def test_a_rejected_request_frees_its_place():
    result = run(requests([80, 8], 4), client=ClientConfig(max_concurrency=1), max_model_len=32)
    assert result.log.requests.status.tolist() == [REJECTED, FINISHED]


@pytest.mark.parametrize("router", ["round-robin", "random", "least-requests", "least-kv"])
def test_routers_use_every_replica(router):
    result = run(requests([8] * 40, 20, np.arange(40) * 0.001), replicas=4, router=router)
    assert set(result.log.requests.replica.tolist()) == {0, 1, 2, 3}


def test_round_robin_takes_turns():
    result = run(requests([8] * 6, 4), replicas=3)
    assert result.log.requests.replica.tolist() == [0, 1, 2, 0, 1, 2]


def test_arrival_at_the_end_of_a_step_is_in_the_next_one():
    # F23: the first step ends at 1 s exactly, the second request arrives then: both run in the step from 1 to 2 s
    result = run(requests([8, 8], [2, 1], [0.0, 1.0]), target=ForwardCost.affine(1.0))
    assert result.log.requests.finish_s.tolist() == [2.0, 2.0]


def test_what_happens_at_the_stop_time_is_left_out():
    # F23: the only request would finish at 1 s
    result = run(requests(8, 1), target=ForwardCost.affine(1.0), until_s=1.0)
    assert result.log.requests.status.tolist() == [RUNNING]


def test_idle_server_schedules_nothing_between_requests():
    # two requests 10 s apart, one prefill each: two steps
    assert len(run(requests([8, 8], 1, [0.0, 10.0])).log.steps) == 2
