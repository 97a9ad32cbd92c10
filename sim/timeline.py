"""A run as a Chrome/Perfetto trace (Trace Event Format): open timeline.json in ui.perfetto.dev or chrome://tracing.

One process per replica. Its engine thread holds the steps, each divided into prefill, draft, verify and host; counters
show running and waiting requests, KV blocks and draft length; every request is an asynchronous slice from its arrival
to its end, divided at the first token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from sim.control.log import QUEUED, RUNNING, EventLog

PARTS = ("prefill", "draft", "verify", "host")
"""In the order in which they are drawn: the log has their lengths, and prefill and verification are one pass."""


def write_timeline(file: TextIO, log: EventLog, about: Mapping[str, Any]) -> None:
    """Write the trace event by event; `about` goes into its metadata. Times are microseconds with three decimals."""
    file.write('{"displayTimeUnit": "ms", "otherData": ' + json.dumps(about, allow_nan=False) + ', "traceEvents": [')
    separator = "\n"
    for event in _events(log):
        file.write(separator + json.dumps(event, allow_nan=False))
        separator = ",\n"
    file.write("\n]}\n")


def _events(log: EventLog) -> Iterator[dict[str, Any]]:
    steps = log.step_columns()
    for replica in np.union1d(steps["replica"], log.requests.replica[log.requests.replica >= 0]).astype(int):
        yield _event("M", "process_name", replica, args={"name": f"replica {replica}"})
        yield _event("M", "thread_name", replica, args={"name": "engine"})
    idle_after = _idle_after(steps).tolist()
    rows = zip(*(column.tolist() for column in steps.values()), strict=True)
    for values, idle in zip(rows, idle_after, strict=True):
        yield from _step_events(dict(zip(steps, values, strict=True)), idle)
    yield from _request_events(log, steps["end_s"])


def _event(
    phase: str,
    name: str,
    replica: int,
    start_s: float = 0.0,
    end_s: float | None = None,
    args: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    start_us = round(1e6 * start_s, 3)
    event: dict[str, Any] = {"ph": phase, "name": name, "pid": int(replica), "tid": 0, "ts": start_us}
    if end_s is not None:
        event["dur"] = round(1e6 * end_s - start_us, 3)
    if args is not None:
        event["args"] = args
    return event | more


def _idle_after(steps: Mapping[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
    """[steps] whether the replica's next step does not follow at once: in between it holds no request."""
    idle = np.zeros(len(steps["end_s"]), np.bool_)
    for replica in np.unique(steps["replica"]):
        rows = np.flatnonzero(steps["replica"] == replica)
        idle[rows[:-1]] = steps["start_s"][rows[1:]] > steps["end_s"][rows[:-1]]
    return idle


def _step_events(step: Mapping[str, float], idle_after: bool) -> Iterator[dict[str, Any]]:
    replica, start_s, end_s = int(step["replica"]), step["start_s"], step["end_s"]
    shown = ("num_decode", "num_prefill", "prefill_tokens", "max_draft", "drafted", "verified", "accepted", "emitted")
    yield _event("X", "step", replica, start_s, end_s, {name: int(step[name]) for name in shown}, cat="step")
    at_s = start_s
    for part in PARTS:
        if step[f"{part}_s"] > 0:
            until_s = min(at_s + step[f"{part}_s"], end_s)  # the sum of the parts may round above the end of the step
            yield _event("X", part, replica, at_s, until_s, cat="step")
            at_s = until_s
    mean = round(step["drafted"] / step["num_decode"], 3) if step["num_decode"] else 0.0
    counters: dict[str, dict[str, Any]] = {
        "requests": {"running": int(step["running"]), "waiting": int(step["waiting"])},
        "KV blocks": {"used": int(step["kv_blocks_used"])},
        "draft length": {"max k": int(step["max_draft"]), "mean k": mean},
    }
    for name, values in counters.items():
        yield _event("C", name, replica, start_s, args=values)
        if idle_after:
            yield _event("C", name, replica, end_s, args=dict.fromkeys(values, 0))


def _request_events(log: EventLog, step_end_s: NDArray[np.float64]) -> Iterator[dict[str, Any]]:
    requests, n = log.requests, len(log.requests)
    owners, first = np.unique(log.emissions["request"], return_index=True)
    first_s = np.full(n, np.nan)
    first_s[owners] = step_end_s[log.emissions["step"][first]]
    in_flight = np.isin(requests.status, (QUEUED, RUNNING))
    cut_s = np.fmax(step_end_s.max(initial=0.0), requests.arrival_s)  # the run stopped: the slice ends with the log
    end_s = np.where(in_flight, cut_s, requests.finish_s).tolist()
    for i in np.flatnonzero(np.isfinite(requests.arrival_s)).tolist():
        replica, arrival_s, first_token_s = max(int(requests.replica[i]), 0), requests.arrival_s[i], first_s[i]
        outcome = {"reason": requests.reason.get(i, "")}
        if np.isnan(end_s[i]):
            yield _event("i", f"request {i} rejected", replica, arrival_s, args=outcome, s="p")
        elif np.isnan(first_token_s):
            yield from _slices(i, replica, [("waiting and prefill", arrival_s, end_s[i])], outcome)
        else:
            parts = [("waiting and prefill", arrival_s, first_token_s), ("decode", first_token_s, end_s[i])]
            yield from _slices(i, replica, parts, outcome)


def _slices(
    request: int, replica: int, parts: list[tuple[str, float, float]], args: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """Nested asynchronous slices; each end follows its begin in the file, for both may bear one time stamp."""
    same: dict[str, Any] = {"cat": "request", "id": str(request)}
    yield _event("b", f"request {request}", replica, parts[0][1], args=args, **same)
    for name, start_s, end_s in parts:
        yield _event("b", name, replica, start_s, **same)
        yield _event("e", name, replica, end_s, **same)
    yield _event("e", f"request {request}", replica, parts[-1][2], **same)
