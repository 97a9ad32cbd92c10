"""One row per request: its times, and vLLM's per-request speculative decoding block (vLLM 0.32, confidence A)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.control.log import FINISHED, QUEUED, REJECTED, RUNNING, UNBORN, EventLog
from sim.latency import Timings, slo_met, timings_of
from traces.workload import Workload

STATUS_NAMES = {
    QUEUED: "queued",
    RUNNING: "running",
    FINISHED: "completed",
    REJECTED: "rejected",
    UNBORN: "not_arrived",
}

JSON_COLUMNS = ("acceptance_histogram", "acceptance_histogram_by_draft_length")


def request_columns(log: EventLog, workload: Workload, slo: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Columns of requests.parquet, one entry per request of the workload, rejected and unborn ones included (F7).

    Times in seconds, NaN where undefined. output_tokens: generated so far. itl_max_s: longest gap between two chunks.
    finish_reason: "stop" or "length", or why the request was rejected; "" in flight. slo_met: False without limits.

    Of vLLM's block, over the steps of the request that verified k > 0 tokens: acceptance_histogram[a] counts those that
    accepted a; acceptance_histogram_by_draft_length["k"][a] those of k verified tokens that accepted a;
    mean_acceptance_length = 1 + accepted / steps; draft_acceptance_rate is a fraction.
    """
    requests, n = log.requests, len(log.requests)
    timings = timings_of(log, workload)
    reason = np.full(n, "", object)
    for request, text in requests.reason.items():
        reason[request] = text
    return {
        "request_id": np.arange(n),
        "task": np.array(workload.task, object)[workload.task_id],
        "replica": requests.replica,
        "status": np.array([STATUS_NAMES[code] for code in range(len(STATUS_NAMES))], object)[requests.status],
        "finish_reason": reason,
        "arrival_s": requests.arrival_s,
        "ttft_s": timings.ttft_s,
        "e2el_s": timings.e2el_s,
        "tpot_s": timings.tpot_s,
        "itl_max_s": longest_gap_s(timings),
        "prompt_tokens": workload.prompt_tokens,
        "output_tokens": timings.output_tokens,
        "preemptions": requests.preemptions,
        "cached_tokens": requests.cached_tokens,
        "slo_met": slo_met(timings, slo or {}),
        **speculation_block(log, n),
    }


def longest_gap_s(timings: Timings) -> NDArray[np.float64]:
    """[n] NaN for a request with fewer than two chunks."""
    longest = np.full(len(timings.success), np.nan)
    request, gap_s = timings.chunk_request[timings.follows], timings.gap_s[timings.follows]
    if len(request):
        begins = np.flatnonzero(np.diff(request, prepend=-1))
        longest[request[begins]] = np.maximum.reduceat(gap_s, begins)
    return longest


def speculation_block(log: EventLog, num_requests: int) -> dict[str, Any]:
    """vLLM's per-request block as columns; both histograms as lists and dicts, one per request."""
    verified = log.emissions["verified"]
    drafts = (log.emissions["proposed"] >= 0) & (verified > 0)
    request, verified, accepted = log.emissions["request"][drafts], verified[drafts], log.emissions["accepted"][drafts]
    steps = np.bincount(request, minlength=num_requests)
    num_accepted = np.bincount(request, accepted, num_requests).astype(np.int64)
    num_verified = np.bincount(request, verified, num_requests).astype(np.int64)
    width = int(verified.max(initial=0)) + 1
    histogram = np.bincount(request * width + accepted, minlength=num_requests * width).reshape(num_requests, width)
    return {
        "mean_acceptance_length": _divided(num_accepted, steps) + 1,
        "draft_acceptance_rate": _divided(num_accepted, num_verified),
        "acceptance_histogram": histogram.tolist(),
        "acceptance_histogram_by_draft_length": _by_draft_length(request, verified, accepted, num_requests, width),
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": num_accepted,
        "num_draft_tokens": num_verified,
    }


def _divided(part: NDArray[np.int64], whole: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)


def _by_draft_length(
    request: NDArray[np.int64], verified: NDArray[np.int64], accepted: NDArray[np.int64], num_requests: int, width: int
) -> list[dict[str, list[int]]]:
    """Draft length, as JSON's text key and ascending -> counts of 0..k accepted. Only the lengths that occurred."""
    cells, counts = np.unique((request * width + verified) * width + accepted, return_counts=True)
    rows, row_of_cell = np.unique(cells // width, return_inverse=True)
    dense = np.zeros((len(rows), width), np.int64)
    dense[row_of_cell, cells % width] = counts
    histograms: list[dict[str, list[int]]] = [{} for _ in range(num_requests)]
    for row, histogram in zip(rows.tolist(), dense.tolist(), strict=True):
        owner, length = divmod(row, width)
        histograms[owner][str(length)] = histogram[: length + 1]
    return histograms
