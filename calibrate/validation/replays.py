"""The same requests simulated: with costs and windows of the calibration, and with the requests' own windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrate.live.decisions import simulated
from calibrate.live.run import server_and_settings
from calibrate.validation.errors import Length, acceptance_length
from calibrate.validation.inputs import Inputs
from sim.control.log import EventLog
from sim.metrics import summarize
from sim.per_request import request_columns
from sim.replay.acceptance import Replay
from sim.serve import serve
from traces.workload import Workload

LATENCIES = ("ttft", "tpot", "e2el")


@dataclass(frozen=True)
class Simulation:
    """One simulated run: vLLM's figures, seconds of each request [n] by latency, the log."""

    metrics: dict[str, Any]
    requests: dict[str, NDArray[np.float64]]
    log: EventLog


@dataclass(frozen=True)
class Simulations:
    """held_out: one of each seed. own: None for sampled texts and lossy rules. length: of all of held_out."""

    held_out: tuple[Simulation, ...]
    own: Simulation | None
    length: Length
    outside: float


def simulate_all(inputs: Inputs, policy: str, rate: str, *, own: bool) -> Simulations:
    """Raises InputError for a policy that the calibration cannot be replayed with."""
    shared = inputs.live_inputs(rate)
    server, _ = server_and_settings(inputs.live_config(policy, rate), shared)
    workload, found, drafts, accepted, texts = shared.requests.workload, [], [], [], []
    passes = outside = 0
    for seed in range(inputs.config.sim_seeds):
        run = serve(workload, inputs.profile, inputs.windows, server, seed=seed)
        passes, outside = passes + run.passes, outside + run.outside
        found.append(_simulation(run.log, workload))
        columns = request_columns(run.log, workload)
        drafts.append(columns["num_spec_steps"])
        accepted.append(columns["num_accepted_draft_tokens"])
        texts.append(Replay._recorded(inputs.windows, workload, seed)[0])
    length = acceptance_length(*(np.concatenate(each) for each in (drafts, accepted, texts)))
    alone = None
    if own and inputs.trajectories:
        log = simulated(workload, inputs.trajectories, server, inputs.profile, seed=inputs.config.seed)
        alone = _simulation(log, workload)
    return Simulations(tuple(found), alone, length, outside / max(passes, 1))


def _simulation(log: EventLog, workload: Workload) -> Simulation:
    columns = request_columns(log, workload)
    return Simulation(
        summarize(log, workload), {name: np.asarray(columns[f"{name}_s"], np.float64) for name in LATENCIES}, log
    )
