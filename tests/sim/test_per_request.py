"""The per-request table and vLLM's per-request speculative decoding block."""

from __future__ import annotations

import numpy as np
import pytest

from sim.per_request import request_columns
from tests.sim.eventlogs import Scribe, workload


def run() -> Scribe:
    """0: k = 3 accepted 2, 0 and 3, k = 1 accepted 1, one step with none. 1: one token. 2: rejected. 3: unborn."""
    requests = workload([8, 16, 99, 8], [12, 1, 1, 1], task=("chat", "code"), task_id=np.array([0, 1, 1, 0]))
    scribe = Scribe(requests).arrive(0, 1, 2).reject(2, "prompt longer than the KV pool")
    scribe.step(0.0, 1.0, [(0, 1), (1, 1)]).finish(1, reason="stop")
    for end_s, row in ((2, (0, 3, 3, 2)), (3, (0, 1, 3, 0)), (6, (0, 4, 3, 3)), (7, (0, 2, 1, 1)), (8, (0, 1, 0, 0))):
        scribe.step(end_s - 1, end_s, [row])
    return scribe.finish(0)


def columns() -> dict:
    scribe = run()
    return request_columns(scribe.log, scribe.workload, {"ttft": 1000.0})


def test_every_request_is_there():
    table = columns()
    assert list(table["status"]) == ["completed", "completed", "rejected", "not_arrived"]
    assert list(table["finish_reason"]) == ["length", "stop", "prompt longer than the KV pool", ""]
    assert list(table["task"]) == ["chat", "code", "code", "chat"]
    assert table["output_tokens"].tolist() == [12, 1, 0, 0]
    assert table["slo_met"].tolist() == [True, True, False, False]


def test_times():
    table = columns()
    np.testing.assert_allclose(table["ttft_s"], [1, 1, np.nan, np.nan])
    np.testing.assert_allclose(table["e2el_s"], [8, 1, np.nan, np.nan])
    np.testing.assert_allclose(table["tpot_s"], [7 / 11, np.nan, np.nan, np.nan])
    np.testing.assert_allclose(table["itl_max_s"], [3, np.nan, np.nan, np.nan])


def test_speculative_decoding_block():
    # four drafts of 10 verified tokens, 6 accepted; the step without a draft is not among them
    table = columns()
    assert table["num_spec_steps"].tolist() == [4, 0, 0, 0]
    assert table["num_draft_tokens"].tolist() == [10, 0, 0, 0]
    assert table["num_accepted_draft_tokens"].tolist() == [6, 0, 0, 0]
    assert table["mean_acceptance_length"][0] == 1 + 6 / 4
    assert table["draft_acceptance_rate"][0] == pytest.approx(0.6)
    assert np.isnan(table["mean_acceptance_length"][1])
    assert table["acceptance_histogram"][0] == [1, 1, 1, 1]
    assert table["acceptance_histogram_by_draft_length"] == [{"1": [0, 1], "3": [1, 0, 1, 1]}, {}, {}, {}]


def test_same_block_as_a_real_response():
    # vLLM 0.32, n-gram drafts of 4, one response: per_step_accepted and the block that the server returned with it
    accepted = [4, 3, 4, 2, 4, 4, 4, 3]
    scribe = Scribe(workload([42], [48])).arrive().step(0.0, 1.0, [(0, 1)])
    for i, count in enumerate(accepted):
        scribe.step(i + 1, i + 2, [(0, count + 1, 4, count)])
    for i in range(11):  # 48 - 1 - 28 - 8: the steps for which no n-gram was found
        scribe.step(i + 9, i + 10, [(0, 1, 0, 0)])
    table = request_columns(scribe.finish(0).log, scribe.workload)
    assert table["output_tokens"].tolist() == [48]
    assert table["mean_acceptance_length"].tolist() == [4.5]
    assert table["draft_acceptance_rate"].tolist() == [0.875]
    assert table["acceptance_histogram"] == [[0, 0, 1, 2, 5]]
    assert (table["num_spec_steps"][0], table["num_accepted_draft_tokens"][0], table["num_draft_tokens"][0]) == (
        8,
        28,
        32,
    )
