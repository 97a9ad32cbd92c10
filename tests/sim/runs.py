"""Finished runs for the tests of what shows or stores results."""

from __future__ import annotations

import numpy as np

from sim.metrics import summarize
from sim.results import Provenance, Results
from tests.sim.eventlogs import Scribe, workload

VERSIONS = {"draftlab": "0", "numpy": "0", "simpy": "0", "python": "0"}


def results_of(scribe: Scribe, policy: str = "dsde", **options) -> Results:
    provenance = Provenance(
        seed=7,
        trace="sharegpt",
        trace_origin="sampled from ShareGPT V3",
        profile="h100-llama-3.1-70b-tp8",
        profile_digest="0123abcd",
        target="meta-llama/Llama-3.1-70B-Instruct",
        draft="meta-llama/Llama-3.2-1B-Instruct",
        acceptance="regimes",
        measured=("GEMM and attention times",),
        modelled=("attention of several queries", "host time"),
        sampled=("prompt and output lengths",),
        synthetic=("acceptance",),
        versions=VERSIONS,
    )
    config = {"policy": policy, "cap": "mean", "request_rate": float("inf"), "burstiness": 1.0, "max_concurrency": None}
    slo = {"ttft": 500.0, "tpot": 50.0}
    metrics = summarize(scribe.log, scribe.workload, slo=slo, kv_blocks=100, **options)
    return Results(metrics, config, provenance, scribe.workload, scribe.log, slo)


def small() -> Results:
    """Two requests served, one rejected, one still decoding when the run stops at 1 s, one not arrived."""
    requests = workload([8, 16, 999, 8, 8], [4, 1, 1, 9, 1], [0.0, 0.0, 0.05, 0.1, 2.0], task=("café", "対話"))
    scribe = Scribe(requests).arrive(0, 1, 2, 3).reject(2, "prompt longer than the KV pool")
    scribe.step(0.0, 0.1, [(0, 1), (1, 1)], kv_blocks_used=3).finish(1, reason="stop")
    parts = {"draft_s": 0.02, "verify_s": 0.06, "host_s": 0.02}
    scribe.step(0.2, 0.3, [(0, 2, 3, 1)], **parts, kv_blocks_used=4, waiting=1)
    scribe.step(0.3, 0.4, [(0, 1, 0, 0), (3, 1)], kv_blocks_used=5).finish(0)
    scribe.step(0.4, 0.5, [(3, 3, 3, 2)], **parts, kv_blocks_used=3)
    return results_of(scribe, horizon_s=1.0)


def empty() -> Results:
    """Every request was rejected on arrival."""
    return results_of(Scribe(workload([99], [1])).arrive().reject(0, "prompt longer than the KV pool"))


def busy(num_requests: int = 200, policy: str = "dsde", seed: int = 0) -> Results:
    """A plausible run: up to 64 requests at a time, arrivals over 20 s, k up to 7."""
    rng = np.random.default_rng(seed)
    outputs = rng.integers(2, 200, num_requests)
    requests = workload(
        rng.integers(10, 900, num_requests).tolist(),
        outputs.tolist(),
        np.sort(rng.uniform(0, 20, num_requests)).tolist(),
    )
    scribe, left, batch, arrived, clock_s = Scribe(requests), outputs.copy(), [], 0, 0.0
    while left.any():
        while arrived < num_requests and requests.arrival_s[arrived] <= clock_s:
            scribe.arrive(arrived)
            arrived += 1
        waiting = [i for i in range(arrived) if left[i] and i not in batch]
        joins, decodes = waiting[: max(0, min(4, 64 - len(batch)))], list(batch)
        if not joins and not decodes:
            clock_s = float(requests.arrival_s[arrived])
            continue
        emit: list[tuple[int, ...]] = [(i, 1) for i in joins]
        for i in decodes:
            k = int(min(rng.integers(0, 8), left[i] - 1)) if policy != "none" else 0
            accepted = int(min(rng.geometric(0.3) - 1, k))
            emit.append((i, accepted + 1, k, accepted))
        depth = max((row[2] for row in emit if len(row) == 4), default=0)
        parts = {"draft_s": 0.002 * depth, "prefill_s": 0.004 * len(joins), "host_s": 0.002}
        parts["verify_s"] = (0.012 + 0.0002 * len(decodes)) * bool(decodes)
        used = 2 * (len(decodes) + len(joins))
        end_s = clock_s + sum(parts.values())
        counts = {"running": len(decodes) + len(joins), "waiting": len(waiting) - len(joins)}
        scribe.step(clock_s, end_s, emit, **parts, **counts, kv_blocks_used=min(used, 100))
        batch += joins
        for row in emit:
            left[row[0]] -= row[1]
        over = [i for i in batch if left[i] == 0]
        scribe.finish(*over)
        batch, clock_s = [i for i in batch if left[i]], end_s
    return results_of(scribe, policy)
