"""What speculation did, where the time went, and the books (F3, F4, F5, F6, F9, F34, F51)."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from sim.control.log import STEP_COLUMNS, EventLog
from sim.metrics import conservation, draft_shape, speculation, summarize
from tests.sim.eventlogs import Scribe, workload


def drafts(rows: list[tuple[int, int, int]]) -> dict:
    """Speculation figures of decode steps given as (k, accepted, tokens)."""
    k, accepted, tokens = np.array(rows, np.int64).T
    return speculation(tokens, k, k, accepted)


def test_leading_run_counts_and_bonus_does_not():
    # F3: k = 3 twice, accepted runs 1 and 3, emitted 2 and 4
    figures = drafts([(3, 1, 2), (3, 3, 4)])
    assert figures["spec_decode_draft_tokens"] == 6
    assert figures["spec_decode_accepted_tokens"] == 4
    assert figures["spec_decode_acceptance_rate"] == pytest.approx(66.6667, abs=1e-3)
    assert figures["spec_decode_acceptance_length"] == 3.0  # 1 + 4/2
    assert figures["mean_emitted_per_step"] == 3.0
    assert figures["wasted_verify_share"] == pytest.approx(2 / 6)


def test_end_of_sequence_inside_the_accepted_run():
    # F4: k = 5, the third token ends the request: 3 emitted, 3 kept, no bonus; positions 4 and 5 were never judged
    figures = drafts([(5, 3, 3)])
    assert figures["mean_emitted_per_step"] == 3.0
    assert figures["spec_decode_per_position_acceptance_rates"] == [1, 1, 1, 0, 0]
    assert figures["spec_decode_per_position_conditional_acceptance_rates"] == [1, 1, 1, None, None]


def test_drafted_is_what_was_drafted():
    # F5: k = 4, 2, 0; accepted 2, 2, 0
    figures = drafts([(4, 2, 3), (2, 2, 3), (0, 0, 1)])
    assert figures["spec_decode_draft_tokens"] == 6
    assert figures["spec_decode_acceptance_rate"] == pytest.approx(100 * 4 / 6)
    assert figures["spec_decode_num_drafts"] == 2
    assert figures["spec_decode_acceptance_length"] == 3.0  # 1 + 4/2: the k = 0 step is no draft
    assert figures["mean_emitted_per_step"] == pytest.approx(7 / 3)
    assert figures["mean_draft_length"] == 2.0  # 6 / 3


def test_conditional_rates_per_position():
    # F6: k = 1 accepted 1, k = 3 accepted 3. vLLM's rates divide by both drafts, the others by those that got there
    figures = drafts([(1, 1, 2), (3, 3, 4)])
    assert figures["spec_decode_per_position_acceptance_rates"] == [1.0, 0.5, 0.5]
    assert figures["spec_decode_per_position_conditional_acceptance_rates"] == [1.0, 1.0, 1.0]


def test_conditional_rate_stops_at_the_first_rejection():
    # k = 3, accepted runs 0, 1, 1, 3: position 1 accepted 3 of 4 times, 2 once of the 3 it was reached, 3 once of 1
    figures = drafts([(3, 0, 1), (3, 1, 2), (3, 1, 2), (3, 3, 4)])
    conditional = figures["spec_decode_per_position_conditional_acceptance_rates"]
    assert conditional == pytest.approx([3 / 4, 1 / 3, 1.0])
    assert figures["spec_decode_per_position_acceptance_rates"] == [3 / 4, 1 / 4, 1 / 4]


def test_no_speculation_has_no_acceptance():
    figures = drafts([(0, 0, 1), (0, 0, 1)])
    assert figures["spec_decode_acceptance_rate"] is None
    assert figures["spec_decode_acceptance_length"] is None
    assert figures["spec_decode_per_position_acceptance_rates"] == []
    assert figures["mean_emitted_per_step"] == 1.0


def test_straggler_share_and_flips():
    # k = (1, 3): 4 of 2 x 3 slots; a prefill, which does not count; (2, 2): 4 of 4; (2): 2 of 2; (0): no slot
    # depths 3, 2, 2, 0: two changes
    scribe = Scribe(workload([8, 8], [9, 9])).arrive().step(0.0, 1.0, [(0, 1, 1, 0), (1, 1, 3, 0)])
    scribe.step(1.0, 2.0, [], num_prefill=1).step(2.0, 3.0, [(0, 1, 2, 0), (1, 1, 2, 0)])
    scribe.step(3.0, 4.0, [(0, 1, 2, 0)]).step(4.0, 5.0, [(0, 1, 0, 0)])
    shape = draft_shape(scribe.log.step_columns())
    assert shape["draft_idle_share"] == pytest.approx(1 - 10 / 12)
    assert shape["draft_length_changes"] == 2
    assert (shape["num_steps"], shape["num_decode_steps"]) == (5, 4)


def test_flips_are_counted_per_replica():
    # replica 0 keeps 4, replica 1 keeps 2: interleaved, nothing flips
    scribe = Scribe(workload([8, 8], [9, 9])).arrive()
    for i in range(3):
        scribe.step(i, i + 1, [(0, 1, 4, 0)], replica=0).step(i, i + 1, [(1, 1, 2, 0)], replica=1)
    assert draft_shape(scribe.log.step_columns())["draft_length_changes"] == 0


def horizon_run() -> Scribe:
    """F9: at 5 s, of five requests one has finished, two decode, one is queued, one has not arrived."""
    scribe = Scribe(workload([8] * 5, [2, 9, 9, 9, 9], [0.0, 0.0, 0.0, 0.0, 9.0])).arrive(0, 1, 2, 3)
    scribe.step(0.0, 2.0, [(0, 1), (1, 1), (2, 1)], waiting=1)
    return scribe.step(2.0, 4.0, [(0, 1, 0, 0), (1, 1, 0, 0), (2, 1, 0, 0)], waiting=1).finish(0)


def test_books_balance_at_the_horizon():
    scribe = horizon_run()
    metrics = summarize(scribe.log, scribe.workload, horizon_s=5.0)
    assert metrics["conservation"] == {
        "injected": 4,
        "completed": 1,
        "running": 2,
        "queued": 1,
        "rejected": 0,
        "not_arrived": 1,
    }
    assert metrics["duration"] == 5.0
    assert metrics["output_throughput"] == pytest.approx(2 / 5)  # the completed request's two tokens
    assert metrics["unfinished_output_tokens"] == 4
    assert metrics["std_ttft_ms"] == 0.0  # n = 1
    assert metrics["peak_queue"] == 1


def test_duration_ends_with_the_last_event_when_nothing_is_left():
    scribe = Scribe(workload([8], [1])).arrive().step(0.0, 2.0, [(0, 1)]).finish(0)
    assert summarize(scribe.log, scribe.workload, horizon_s=100.0)["duration"] == 2.0


def test_time_split_idle_share_batch_and_kv():
    # busy 1 + 3 of 8 s; parts 0.5 + 2.0 + 1.0 + 0.5; batch 0, 2 (one decode step); KV 10 for 1 s, 30 for 3 s of 40
    scribe = Scribe(workload([8, 8], [2, 2], [0.0, 4.0])).arrive()
    scribe.step(0.0, 1.0, [(0, 1)], prefill_s=1.0, kv_blocks_used=10)
    parts = {"draft_s": 0.5, "verify_s": 2.0, "host_s": 0.5}
    scribe.step(5.0, 8.0, [(0, 1, 0, 0), (1, 2, 1, 1)], kv_blocks_used=30, preempted=1, **parts).finish(0, 1)
    metrics = summarize(scribe.log, scribe.workload, kv_blocks=40, num_replicas=1)
    assert metrics["idle_share"] == pytest.approx(0.5)
    shares = [metrics[f"{part}_time_share"] for part in ("draft", "verify", "prefill", "host")]
    assert shares == pytest.approx([0.125, 0.5, 0.25, 0.125])
    assert metrics["mean_batch"] == 2.0
    assert metrics["kv_usage_mean"] == pytest.approx((10 + 90) / 4 / 40)
    assert metrics["kv_usage_peak"] == pytest.approx(0.75)
    assert metrics["preemptions"] == 1
    assert metrics["offered_rate"] == pytest.approx(1 / 4)
    # two replicas would have had twice the time
    assert summarize(scribe.log, scribe.workload, num_replicas=2)["idle_share"] == pytest.approx(0.75)


def test_warmup_cuts_every_counter():
    # F8, server side: of the steps that end at 1 and 2 s only the second counts, and of it only the second half is in
    scribe = Scribe(workload([8], [9])).arrive().step(0.0, 1.0, [(0, 1)]).step(1.0, 2.0, [(0, 3, 2, 2)]).finish(0)
    metrics = summarize(scribe.log, scribe.workload, warmup_s=1.5)
    assert metrics["num_steps"] == 1
    assert metrics["duration"] == 0.5
    assert metrics["idle_share"] == 0.0
    assert metrics["total_output_tokens"] == 3
    assert metrics["spec_decode_num_drafts"] == 1


def test_warmup_cuts_the_time_split_where_it_cuts_busy_time():
    # the step from 1 to 3 s is in by a quarter from 2.5 s on: .1 of .4 s of draft, .4 of 1.6 s of verification
    scribe = Scribe(workload([8], [9])).arrive().step(0.0, 1.0, [(0, 1)])
    scribe.step(1.0, 3.0, [(0, 3, 2, 2)], draft_s=0.4, verify_s=1.6).finish(0)
    metrics = summarize(scribe.log, scribe.workload, warmup_s=2.5)
    assert metrics["busy_time_s"] == 0.5
    assert (metrics["draft_time_s"], metrics["verify_time_s"]) == pytest.approx((0.1, 0.4))


def test_slo_attainment_over_completed_and_rejected():
    scribe = Scribe(workload([8, 8], [1, 1])).arrive().reject(1, "too long").step(0.0, 0.1, [(0, 1)]).finish(0)
    assert summarize(scribe.log, scribe.workload, slo={"ttft": 200.0})["slo_attainment"] == 0.5
    assert summarize(scribe.log, scribe.workload)["slo_attainment"] is None


@pytest.mark.parametrize("arrived", [(), (0,)])
def test_nothing_happened(arrived):
    scribe = Scribe(workload([8], [1]))
    for request in arrived:
        scribe.arrive(request).reject(request, "too long")
    metrics = summarize(scribe.log, scribe.workload)
    json.dumps(metrics, allow_nan=False)
    assert metrics["duration"] == 0.0
    assert metrics["mean_batch"] is None
    assert sum(conservation(scribe.log).values()) - metrics["conservation"]["injected"] == 1


def test_a_million_emissions_in_a_second():
    # only the order of magnitude: a Python loop over the emissions would take ten times as long
    import time

    log, n, steps = EventLog(10_000), 10_000, 100
    requests = np.arange(n)
    log.requests.arrival_s[:] = 0.0
    for step in range(steps):
        log.steps.append((0.0, step, step + 1.0, *[0.0] * (len(STEP_COLUMNS) - 3)))
        log.emissions.append(requests, step, np.full(n, 3), 4, 4, 2)
    log.requests.status[:] = 2
    log.requests.finish_s[:] = steps
    started = time.process_time()
    metrics = summarize(log, workload([8] * n, [300] * n))
    assert time.process_time() - started < 5.0
    assert metrics["total_output_tokens"] == 3 * n * steps


def test_import_is_light():
    heavy = "pandas", "matplotlib", "rich", "fastparquet"
    code = f"import sys, sim.metrics, sim.results; sys.exit(any(m in sys.modules for m in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
