"""Small servers with costs that can be added up by hand."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from sim.cluster import ClientConfig
from sim.control.scheduler import SchedulerConfig
from sim.replay.acceptance import Replay
from sim.replay.cost import ForwardCost, HostCost
from sim.replay.execution import Execution
from sim.replay.simulated import SimulatedExecutor
from sim.replay.sources import acceptance_source
from sim.replay.windows import Windows
from sim.serve import Run, ServerConfig, serve
from traces.workload import Workload

source = cache(acceptance_source)
FREE_HOST = HostCost(0.0, 0.0, "test")


def requests(prompt: Any, output: Any, arrival: Any = 0.0) -> Workload:
    """Requests from scalars or sequences, broadcast against each other."""
    arrival_s, prompts, outputs = np.broadcast_arrays(
        np.atleast_1d(np.asarray(arrival, np.float64)), np.asarray(prompt, np.int64), np.asarray(output, np.int64)
    )
    return Workload("test", "synthetic", arrival_s.copy(), prompts.copy(), outputs.copy())


def profile_of(
    target: ForwardCost | None,
    draft: ForwardCost | None,
    draft_kind: str = "autoregressive",
    host: HostCost = FREE_HOST,
) -> Any:
    """What an executor reads of a profile."""
    return SimpleNamespace(
        name="test",
        draft_kind=draft_kind,
        target=target or ForwardCost.affine(0.010),
        draft=draft or ForwardCost.affine(0.001),
        host=host,
    )


def executor(
    *,
    acceptance: str = "iid:0.8",
    windows: Windows | None = None,
    target: ForwardCost | None = None,
    draft: ForwardCost | None = None,
    draft_kind: str = "autoregressive",
    execution: Execution | None = None,
) -> SimulatedExecutor:
    """An executor without a server, for three requests of 8 + 50 tokens; costs as in `run`."""
    replay = Replay(windows or source(acceptance), requests([8] * 3, 50), 0)
    return SimulatedExecutor(profile_of(target, draft, draft_kind), replay, execution or Execution())


def run(
    workload: Workload,
    *,
    policy: str = "none",
    cap: str = "none",
    acceptance_rule: str = "lossless",
    acceptance: str = "iid:0.8",
    windows: Windows | None = None,
    target: ForwardCost | None = None,
    draft: ForwardCost | None = None,
    draft_kind: str = "autoregressive",
    host: HostCost = FREE_HOST,
    blocks: int = 100_000,
    block_size: int = 16,
    client: ClientConfig | None = None,
    execution: Execution | None = None,
    prefix_caching: bool = False,
    replicas: int = 1,
    router: str = "round-robin",
    seed: int = 0,
    until_s: float | None = None,
    **scheduler: Any,
) -> Run:
    """Serve with a target that takes 10 ms and a draft that takes 1 ms a pass, unless said otherwise."""
    profile = profile_of(target, draft, draft_kind, host)
    server = ServerConfig(
        num_gpu_blocks=blocks,
        block_size=block_size,
        policy=policy,
        cap=cap,
        acceptance_rule=acceptance_rule,
        scheduler=SchedulerConfig(**scheduler),
        execution=execution or Execution(),
        enable_prefix_caching=prefix_caching,
        num_replicas=replicas,
        router=router,
    )
    windows = windows or source(acceptance)
    return serve(workload, profile, windows, server, client, seed=seed, until_s=until_s)
