"""The summary of a run: vLLM's figures, what speculation did, where the time went, and the books of the requests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.control.log import FINISHED, QUEUED, REJECTED, RUNNING, UNBORN, EventLog
from sim.latency import bench_metrics, slo_met, timings_of
from traces.workload import Workload

Columns = Mapping[str, NDArray[np.float64]]


def summarize(
    log: EventLog,
    workload: Workload,
    *,
    slo: Mapping[str, float] | None = None,
    percentiles: Sequence[float] = (50, 90, 99),
    warmup_s: float = 0.0,
    horizon_s: float | None = None,
    kv_blocks: int | None = None,
    num_replicas: int | None = None,
) -> dict[str, Any]:
    """Every figure of a run, flat, vLLM's names first; None where a figure is undefined, never NaN.

    slo           limits in milliseconds by name (`parse_goodput`)
    warmup_s      leave out what happened up to then (F8; rules in `bench_metrics`). A step counts by its end
    horizon_s     when the run was stopped, if it was; it bounds the duration only where requests were left over
    kv_blocks     blocks in the KV pool of one replica
    num_replicas  default: as many as the steps name

    Throughput and latencies are over completed requests, as vLLM's client counts; tokens of requests that had not
    finished are `unfinished_output_tokens` (F9). Acceptance, time split, batch and KV are the servers' own counters
    over all requests. `conservation` and `offered_rate` cover the whole run, warm-up included.
    """
    steps = log.step_columns()
    since_s = warmup_s if warmup_s > 0 else -math.inf
    end_s = _end_of_run(log, steps, horizon_s)
    duration_s = max(end_s - max(warmup_s, 0.0), 0.0)
    timings = timings_of(log, workload, steps["end_s"])
    late = timings.chunk_s > since_s
    metrics = bench_metrics(timings, duration_s, slo=slo, percentiles=percentiles, since_s=since_s)

    emitted_late = steps["end_s"][log.emissions["step"]] > since_s
    metrics |= speculation(
        *(log.emissions[name][emitted_late] for name in ("tokens", "proposed", "verified", "accepted", "lossy"))
    )
    within = {name: column[steps["end_s"] > since_s] for name, column in steps.items()}
    metrics |= draft_shape(within)
    metrics |= time_split(within, duration_s, max(warmup_s, 0.0), num_replicas)
    metrics |= load(within, kv_blocks)

    judged = metrics["completed"] + metrics["failed"]
    if slo and judged:
        finished_late = timings.start_s + timings.e2el_s > since_s
        metrics["slo_attainment"] = int((slo_met(timings, slo) & finished_late).sum()) / judged
    else:
        metrics["slo_attainment"] = None
    unfinished = late & ~timings.success[timings.chunk_request]
    metrics["unfinished_output_tokens"] = int(timings.chunk_tokens[unfinished].sum())
    metrics["prefix_cached_tokens"] = int(log.requests.cached_tokens.sum())
    metrics["offered_rate"] = offered_rate(log)
    metrics["conservation"] = conservation(log)
    return metrics


def _end_of_run(log: EventLog, steps: Columns, horizon_s: float | None) -> float:
    left_over = np.isin(log.requests.status, (QUEUED, RUNNING, UNBORN)).any()
    if horizon_s is not None and left_over:
        return horizon_s
    return max(_latest(steps["end_s"]), _latest(log.requests.finish_s), _latest(log.requests.arrival_s))


def _latest(times_s: NDArray[np.float64]) -> float:
    return float(np.max(times_s, initial=0.0, where=np.isfinite(times_s)))


def ratio(part: float, whole: float) -> float | None:
    """part / whole as a plain float; undefined for an empty whole."""
    return float(part) / float(whole) if whole else None


def speculation(
    tokens: NDArray[np.int64],
    proposed: NDArray[np.int64],
    verified: NDArray[np.int64],
    accepted: NDArray[np.int64],
    lossy: NDArray[np.int64] | None = None,
) -> dict[str, Any]:
    """Acceptance over decode steps of sequences; one entry per emission, `proposed` < 0 where it ended a prefill.

    A draft is a step of a sequence that verified k > 0 tokens. k = 0 adds to no acceptance denominator (F5), but is a
    step in mean_emitted_per_step. Rates per position j: vLLM's divide the drafts that accepted j tokens by all drafts;
    the conditional ones by the drafts in which position j was judged, that is, j tokens were verified, the j - 1 before
    were accepted, and the request did not end before it (F4, F6). `lossy` counts accepted tokens that only a lossy
    acceptance rule let stand: `lossy_accepted_share` is their share of accepted tokens, `lossy_output_share` of the
    tokens that decode steps emitted.
    """
    decoded = proposed >= 0
    num_lossy = 0 if lossy is None else int(lossy[decoded].sum())
    tokens, proposed, verified, accepted = tokens[decoded], proposed[decoded], verified[decoded], accepted[decoded]
    drafts = verified > 0
    num_drafts, depth = int(drafts.sum()), int(verified.max(initial=0))
    # a step whose tokens are all accepted drafts was cut by the end of its request: the next position was never judged
    judged = np.where(tokens > accepted, np.minimum(accepted + 1, verified), accepted)[drafts]
    accepted_at = _at_least(accepted[drafts], depth)
    judged_at = _at_least(judged, depth)
    num_verified, num_accepted = int(verified.sum()), int(accepted.sum())
    return {
        "spec_decode_acceptance_rate": ratio(100 * num_accepted, num_verified),
        "spec_decode_acceptance_length": None if num_drafts == 0 else 1 + num_accepted / num_drafts,
        "spec_decode_num_drafts": num_drafts,
        "spec_decode_draft_tokens": num_verified,
        "spec_decode_accepted_tokens": num_accepted,
        "spec_decode_per_position_acceptance_rates": [ratio(count, num_drafts) for count in accepted_at],
        "spec_decode_per_position_conditional_acceptance_rates": [
            ratio(count, judged) for count, judged in zip(accepted_at, judged_at, strict=True)
        ],
        "spec_decode_proposed_tokens": int(proposed.sum()),
        "mean_draft_length": ratio(int(proposed.sum()), len(proposed)),
        "mean_emitted_per_step": ratio(int(tokens.sum()), len(tokens)),
        "wasted_verify_share": ratio(num_verified - num_accepted, num_verified),
        "lossy_accepted_tokens": num_lossy,
        "lossy_accepted_share": ratio(num_lossy, num_accepted),
        "lossy_output_share": ratio(num_lossy, int(tokens.sum())),
    }


def _at_least(values: NDArray[np.int64], depth: int) -> list[int]:
    """How many values are >= j, for j = 1..depth."""
    counts = np.bincount(values, minlength=depth + 1)
    return [int(count) for count in np.cumsum(counts[::-1])[::-1][1 : depth + 1]]


def draft_shape(steps: Columns) -> dict[str, Any]:
    """How ragged the drafts were over the batch, and how often their depth changed.

    draft_idle_share = 1 - sum k_i / sum (B max k) over steps: the straggler share, slots of a padded draft that propose
    nothing. draft_length_changes: between consecutive decode steps of a replica (F51).
    """
    decoding = steps["num_decode"] > 0
    slots = float((steps["num_decode"] * steps["max_draft"])[decoding].sum())
    changes = 0
    for replica in np.unique(steps["replica"]):
        changes += int(np.count_nonzero(np.diff(steps["max_draft"][decoding & (steps["replica"] == replica)])))
    return {
        "draft_idle_share": None if slots == 0 else 1 - float(steps["drafted"][decoding].sum()) / slots,
        "draft_length_changes": changes,
        "num_steps": len(decoding),
        "num_decode_steps": int(decoding.sum()),
    }


def time_split(steps: Columns, duration_s: float, since_s: float, num_replicas: int | None) -> dict[str, Any]:
    """Seconds of draft, verify, prefill and host, their shares of the sum, and the idle share of the wall clock.

    Beside them switch_, part of the host's time; hidden_draft_, which ran beside the target's pass and is in no sum;
    and wasted_draft_, drafting ahead that was thrown away. Their shares are of the same sum. Of a step during which
    the warm-up ended, at since_s, every part counts by the share of the step after that: where in it a part ran is
    not recorded.
    """
    length_s = steps["end_s"] - steps["start_s"]
    within_s = steps["end_s"] - np.maximum(steps["start_s"], since_s)
    counts = np.divide(within_s, length_s, out=np.ones_like(length_s), where=length_s > 0)
    seconds = {part: float((steps[f"{part}_s"] * counts).sum()) for part in ("draft", "verify", "prefill", "host")}
    total_s = sum(seconds.values())
    replicas = num_replicas or int(steps["replica"].max(initial=0)) + 1
    busy_s = float(within_s.sum())
    split: dict[str, Any] = {f"{part}_time_s": value for part, value in seconds.items()}
    split |= {f"{part}_time_share": ratio(value, total_s) for part, value in seconds.items()}
    split["busy_time_s"] = busy_s
    for part in ("switch", "hidden_draft", "wasted_draft"):
        split[f"{part}_time_s"] = float((steps[f"{part}_s"] * counts).sum())
        split[f"{part}_time_share"] = ratio(split[f"{part}_time_s"], total_s)
    # rounding may leave the sum of the steps a hair above the clock
    split["idle_share"] = max(0.0, 1 - busy_s / (replicas * duration_s)) if duration_s > 0 else None
    return split


def load(steps: Columns, kv_blocks: int | None) -> dict[str, Any]:
    """Batch, KV pool, queue. `_time_weighted` and the KV mean weigh a step by its length; peaks are over steps."""
    decoding = steps["num_decode"] > 0
    batch = steps["num_decode"][decoding]
    length_s = steps["end_s"] - steps["start_s"]
    used = steps["kv_blocks_used"]
    mean_used = ratio(float((used * length_s).sum()), float(length_s.sum()))
    return {
        "mean_batch": ratio(float(batch.sum()), len(batch)),
        "mean_batch_time_weighted": ratio(float((batch * length_s[decoding]).sum()), float(length_s[decoding].sum())),
        "max_batch": int(batch.max(initial=0)),
        "kv_usage_mean": None if mean_used is None or not kv_blocks else mean_used / kv_blocks,
        "kv_usage_peak": ratio(float(used.max()), kv_blocks) if kv_blocks and len(used) else None,
        "kv_blocks_peak": int(used.max(initial=0)),
        "preemptions": int(steps["preempted"].sum()),
        "peak_queue": int(steps["waiting"].max(initial=0)),
    }


def offered_rate(log: EventLog) -> float | None:
    """Arrivals per second over their span (F34); None where they came all at once."""
    arrival_s = log.requests.arrival_s[np.isfinite(log.requests.arrival_s)]
    if len(arrival_s) < 2:
        return None
    return ratio(len(arrival_s) - 1, float(arrival_s.max() - arrival_s.min()))


def conservation(log: EventLog) -> dict[str, int]:
    """injected = completed + running + queued + rejected (F9); not_arrived stand apart.

    `injected` counts arrival times, the others the final states, so that the two sides are independent.
    """
    states = np.bincount(log.requests.status, minlength=5)
    return {
        "injected": int(np.isfinite(log.requests.arrival_s).sum()),
        "completed": int(states[FINISHED]),
        "running": int(states[RUNNING]),
        "queued": int(states[QUEUED]),
        "rejected": int(states[REJECTED]),
        "not_arrived": int(states[UNBORN]),
    }
