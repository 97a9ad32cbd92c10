"""The requests of a bench run through the simulator, and what came of them beside what the clients saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrate.vllm.bench import BenchRun
from sim.cluster import ClientConfig
from sim.control.scheduler import SchedulerConfig
from sim.latency import Timings, bench_metrics, timings_of
from sim.replay.profile import Profile
from sim.replay.windows import Windows
from sim.serve import ServerConfig, serve

Floats = NDArray[np.float64]

TURNAROUND_S = 1e-3
"""From an answer to the arrival of the client's next request. An engine begins its next step before that comes,
whatever this is exactly: it schedules as soon as a step ends, and an answer takes the way through two processes [C]. In
vLLM's recorded runs on a CPU, 149 of 156 such requests got their first token with the second end of a step."""
STATISTICS = ("mean", "p50", "p90", "p99")
LATENCIES = ("ttft", "tpot", "itl", "e2el")
TOTALS = (
    "duration",
    "request_throughput",
    "output_throughput",
    "spec_decode_acceptance_length",
    "spec_decode_num_drafts",
    "spec_decode_draft_tokens",
    "spec_decode_accepted_tokens",
)


@dataclass(frozen=True)
class Comparison:
    """Live against simulated.

    metrics   name -> (live, simulated); None where it is undefined
    requests  latency -> percent by which the simulator is off for each request, NaN where undefined
    outside   share of forward passes beyond the measured range
    gaps      what could not be compared
    """

    name: str
    policy: str
    metrics: dict[str, tuple[float | None, float | None]]
    requests: dict[str, Floats]
    outside: float
    gaps: tuple[str, ...]

    def error_percent(self, metric: str) -> float | None:
        """Of the simulated figure against the live one; None where either is undefined."""
        live, simulated = self.metrics[metric]
        return None if live is None or simulated is None or not live else 100 * (simulated / live - 1)


def replay(
    run: BenchRun,
    profile: Profile,
    windows: Windows,
    *,
    policy: str,
    scheduler: SchedulerConfig,
    cached: NDArray[np.int64] | None = None,
    seed: int = 0,
) -> Comparison:
    """Serve the requests of a run: arrivals, lengths and cap as they were. Raises InputError for a policy that cannot.

    Duration counts from the first request to the last answer, on both sides.
    """
    workload = run.workload(cached)
    client = ClientConfig(run.max_concurrency, TURNAROUND_S if run.max_concurrency else 0.0)
    server = ServerConfig(profile.num_kv_blocks, profile.block_size, policy=policy, scheduler=scheduler)
    served = serve(workload, profile, windows, server, client, seed=seed)
    simulated = timings_of(served.log, workload)
    gaps = list(run.gaps)
    if lost := int((~simulated.success).sum()):
        gaps.append(f"{run.name}: {lost} requests do not fit the simulated server: compared for the others only")
    drafts = _drafts(served.log.emissions)
    live_metrics = bench_metrics(run.timings, run.duration_s) | _counted(run)
    metrics = bench_metrics(simulated, served.ended_s) | drafts
    names = [*TOTALS, *(f"{statistic}_{latency}_ms" for latency in LATENCIES for statistic in STATISTICS)]
    return Comparison(
        name=run.name,
        policy=policy,
        metrics={name: (live_metrics.get(name), metrics.get(name)) for name in names},
        requests=_by_request(run.timings, simulated, workload.task_id),
        outside=served.outside / max(served.passes, 1),
        gaps=tuple(gaps),
    )


def _by_request(live: Timings, simulated: Timings, order: NDArray[np.int64]) -> dict[str, Floats]:
    """Percent per request, in the order of the run; row i of the simulation is request order[i] of the run."""
    errors = {}
    for latency in ("ttft", "tpot", "e2el"):
        measured, found = getattr(live, f"{latency}_s"), np.full(len(order), np.nan)
        found[order] = getattr(simulated, f"{latency}_s")
        errors[latency] = 100 * (found / measured - 1)
    return errors


def _counted(run: BenchRun) -> dict[str, Any]:
    names = [name for name in TOTALS if name.startswith("spec_decode")]
    return {} if run.counters is None else {name: run.summary.get(name) for name in names}


def _drafts(emissions: Any) -> dict[str, Any]:
    """The counters of the simulated server; None without a draft."""
    verified = emissions["verified"]
    rows = (emissions["proposed"] >= 0) & (verified > 0)
    drafts, accepted = int(rows.sum()), int(emissions["accepted"][rows].sum())
    if not drafts:
        return {}
    return {
        "spec_decode_acceptance_length": 1 + accepted / drafts,
        "spec_decode_num_drafts": drafts,
        "spec_decode_draft_tokens": int(verified[rows].sum()),
        "spec_decode_accepted_tokens": accepted,
    }
