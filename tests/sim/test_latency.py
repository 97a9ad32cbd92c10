"""TTFT, TPOT, ITL, E2EL and goodput on logs whose figures can be read off (F1, F2, F7, F8, F10, F11, F12)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.latency import bench_metrics, parse_goodput, slo_met, timings_of
from tests.sim.eventlogs import Scribe, workload
from traces.errors import InputError


def metrics_of(scribe: Scribe, duration_s: float, **options) -> dict:
    return bench_metrics(timings_of(scribe.log, scribe.workload), duration_s, **options)


def test_one_token_has_no_tpot():
    # F1: request 0 has one token; request 1 five, 10 ms apart: TPOT 10 ms over n = 1, four ITL samples
    scribe = Scribe(workload([8, 8], [1, 5], [0.0, 1.0])).arrive()
    scribe.step(0.0, 0.02, [(0, 1)]).finish(0).step(1.0, 1.02, [(1, 1)])
    for i in range(4):
        scribe.step(1.02 + i / 100, 1.03 + i / 100, [(1, 1, 0, 0)])
    metrics = metrics_of(scribe.finish(1), 1.06)
    timings = timings_of(scribe.log, scribe.workload)
    assert math.isnan(timings.tpot_s[0])
    assert metrics["mean_tpot_ms"] == pytest.approx(10)
    assert metrics["std_tpot_ms"] == 0
    assert timings.follows.sum() == 4


def test_only_one_token_requests_leave_tpot_and_itl_undefined():
    metrics = metrics_of(Scribe(workload([8], [1])).arrive().step(0.0, 0.02, [(0, 1)]).finish(0), 0.02)
    assert [metrics[key] for key in ("mean_tpot_ms", "p99_tpot_ms", "std_itl_ms", "request_goodput")] == [None] * 4
    assert metrics["mean_ttft_ms"] == pytest.approx(20)


def speculative_request() -> Scribe:
    """F2: 9 tokens, k = 3, all accepted: 1 token at 100 ms, 4 at 140, 4 at 180."""
    scribe = Scribe(workload([8], [9])).arrive().step(0.0, 0.1, [(0, 1)])
    return scribe.step(0.1, 0.14, [(0, 4, 3, 3)]).step(0.14, 0.18, [(0, 4, 3, 3)]).finish(0)


def test_itl_is_per_chunk_and_tpot_per_token():
    metrics = metrics_of(speculative_request(), 0.18)
    assert metrics["mean_tpot_ms"] == pytest.approx(10)  # (180 - 100) / 8
    assert metrics["mean_itl_ms"] == pytest.approx(40)  # two gaps, as vLLM's client sees them
    assert metrics["max_output_tokens_per_s"] == 3  # chunks, as vLLM counts
    assert metrics["peak_output_tokens_per_s"] == 9  # tokens


def test_the_busiest_second_of_a_run_of_thirty_thousand_years():
    # a table with a row per second would take 8 TB; two requests in second 0, one in second 10^12
    scribe = Scribe(workload([8] * 3, [1] * 3, [0.0, 0.5, 1e12])).arrive(0, 1).step(0.5, 0.9, [(0, 1), (1, 1)])
    scribe.finish(0, 1).arrive(2).step(1e12, 1e12 + 0.5, [(2, 1)]).finish(2)
    metrics = metrics_of(scribe, 1e12 + 0.5)
    assert (metrics["max_concurrent_requests"], metrics["peak_output_tokens_per_s"]) == (2, 2)


def test_tpot_divides_by_generated_tokens():
    # F12: 100 tokens asked for, the end comes as the 11th: 20 ms + 10 x 10 ms
    scribe = Scribe(workload([8], [100])).arrive().step(0.0, 0.02, [(0, 1)])
    for i in range(10):
        scribe.step(0.02 + i / 100, 0.03 + i / 100, [(0, 1, 0, 0)])
    metrics = metrics_of(scribe.finish(0, reason="stop"), 0.12)
    assert metrics["mean_e2el_ms"] == pytest.approx(120)
    assert metrics["mean_tpot_ms"] == pytest.approx(10)
    assert metrics["total_output_tokens"] == 11


def test_rejected_request_is_in_no_sample_and_no_throughput():
    # F7: two requests of 10 prompt and 1 output tokens in 2 s, one rejected
    scribe = Scribe(workload([10, 10, 9999], [1, 1, 1])).arrive().reject(2, "too long")
    metrics = metrics_of(scribe.step(0.0, 1.0, [(0, 1)]).finish(0).step(1.0, 2.0, [(1, 1)]).finish(1), 2.0)
    assert (metrics["completed"], metrics["failed"]) == (2, 1)
    assert metrics["total_token_throughput"] == 11  # (20 + 2) / 2 s
    assert metrics["mean_ttft_ms"] == pytest.approx(1500)


def test_window_counts_what_happens_in_it():
    # F8: a token at 1, 2, ..., 20 s; in (10, 20] there are 10 of them, no first token, one finish
    scribe = Scribe(workload([8], [20])).arrive().step(0.0, 1.0, [(0, 1)])
    for second in range(2, 21):
        scribe.step(second - 1, second, [(0, 1, 0, 0)])
    metrics = metrics_of(scribe.finish(0), 10.0, since_s=10.0)
    assert metrics["output_throughput"] == 1.0
    assert metrics["mean_ttft_ms"] is None
    assert metrics["total_input_tokens"] == 0
    assert metrics["completed"] == 1
    assert metrics["mean_e2el_ms"] == pytest.approx(20_000)
    assert metrics["max_output_tokens_per_s"] == 1


def test_preempted_request_counts_once():
    # F10: a stall of 5 s between two tokens, the recomputation ends with the next token: one TTFT, the stall is a gap
    scribe = Scribe(workload([8], [4])).arrive().step(0.0, 1.0, [(0, 1)]).step(1.0, 2.0, [(0, 1, 0, 0)])
    scribe.step(6.0, 7.0, [(0, 1)]).step(7.0, 8.0, [(0, 1, 0, 0)]).finish(0)
    timings = timings_of(scribe.log, scribe.workload)
    assert timings.output_tokens.tolist() == [4]
    assert timings.ttft_s.tolist() == [1.0]
    assert timings.gap_s[timings.follows].tolist() == [1.0, 5.0, 1.0]
    assert timings.e2el_s.tolist() == [8.0]


def test_slo_units_and_missing_metrics():
    # F11: ttft 200 ms, tpot 50 ms. A 150/20 passes, B 250/20 fails, C is rejected, D has no TPOT: TTFT 150 decides
    scribe = Scribe(workload([8] * 4, [2, 2, 2, 1])).arrive().reject(2, "too long")
    scribe.step(0.0, 0.15, [(0, 1), (3, 1)]).finish(3).step(0.15, 0.17, [(0, 1, 0, 0)]).finish(0)
    scribe.step(0.17, 0.25, [(1, 1)]).step(0.25, 0.27, [(1, 1, 0, 0)]).finish(1)
    slo = {"ttft": 200.0, "tpot": 50.0}
    assert slo_met(timings_of(scribe.log, scribe.workload), slo).tolist() == [True, False, False, True]
    assert metrics_of(scribe, 2.0, slo=slo)["request_goodput"] == 1.0  # 2 in 2 s


def test_no_time_no_rate():
    metrics = metrics_of(Scribe(workload([8], [1])).arrive().reject(0, "too long"), 0.0)
    assert metrics["request_throughput"] is None
    assert metrics["failed"] == 1


@pytest.mark.parametrize(
    "word", ["", "ttft", "ttft:", "ttft:x", "ttft:-1", "ttft:nan", "ttft:inf", "itl:1", "ttft:1:2"]
)
def test_bad_goodput_words(word):
    with pytest.raises(InputError, match="--goodput"):
        parse_goodput([word])


@st.composite
def runs(draw) -> Scribe:
    """Steps of any length over a few requests; each step emits for some of those that are not over."""
    left = {request: draw(st.integers(1, 8)) for request in range(draw(st.integers(1, 4)))}
    scribe = Scribe(workload([1] * len(left), list(left.values()))).arrive()
    started: set[int] = set()
    clock_s = 0.0
    while left:
        emit = []
        for request in draw(st.lists(st.sampled_from(sorted(left)), min_size=1, unique=True)):
            tokens = draw(st.integers(1, left[request]))
            emit.append((request, tokens, tokens, tokens - 1) if request in started else (request, tokens))
            started.add(request)
            left[request] -= tokens
        length_s = draw(st.floats(1e-4, 1.0))
        scribe.step(clock_s, clock_s + length_s, emit)
        clock_s += length_s + draw(st.floats(0.0, 1.0))
        over = [request for request, tokens in left.items() if tokens == 0]
        scribe.finish(*over)
        left = {request: tokens for request, tokens in left.items() if tokens}
    return scribe


@given(runs())
def test_e2el_is_ttft_plus_gaps_and_tokens_are_conserved(scribe: Scribe):
    timings = timings_of(scribe.log, scribe.workload)
    gaps_s = np.bincount(timings.chunk_request, np.where(timings.follows, timings.gap_s, 0.0), len(scribe.workload))
    assert timings.ttft_s + gaps_s == pytest.approx(timings.e2el_s)
    assert timings.output_tokens.tolist() == scribe.workload.output_tokens.tolist()
